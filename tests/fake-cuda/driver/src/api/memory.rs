//! Memory, copies, fills, tensor maps.
#![allow(unsafe_op_in_unsafe_fn)] // every function here is given pointers by the caller's contract

use super::{api, put};
use crate::memory::State;
use crate::queue::{End, Op};
use crate::world::{Code, INVALID_VALUE, OUT_OF_MEMORY, STREAM_CAPTURE_UNSUPPORTED, World, context_device};
use std::ffi::c_void;

/// A description of a copy of rows, as the driver declares it.
#[repr(C)]
pub struct Copy2d {
    src_x: usize,
    src_y: usize,
    src_type: u32,
    src_host: *const c_void,
    src_device: u64,
    src_array: *mut c_void,
    src_pitch: usize,
    dst_x: usize,
    dst_y: usize,
    dst_type: u32,
    dst_host: *mut c_void,
    dst_device: u64,
    dst_array: *mut c_void,
    dst_pitch: usize,
    width: usize,
    height: usize,
}
const HOST: u32 = 1;
const DEVICE: u32 = 2;

impl World {
    fn allocate(&mut self, bytes: usize, state: State, host: bool) -> Result<u64, Code> {
        let device = self.current()?;
        if bytes == 0 {
            return Err(INVALID_VALUE);
        }
        let limit = self.settings.memory;
        self.memory.allocate(bytes, device, limit, state, host).ok_or(OUT_OF_MEMORY)
    }

    fn free_now(&mut self, address: u64, host: bool) -> Result<(), Code> {
        self.current()?;
        if address == 0 {
            return Ok(());
        }
        if self.memory.piece(address).is_none_or(|p| p.host != host || p.going) || !self.memory.free(address) {
            self.violation(format!("{address:#x} is freed and is no memory that lives"));
            return Err(INVALID_VALUE);
        }
        Ok(())
    }

    fn copy(&mut self, stream: u64, from: End, to: End, width: usize, rows: usize) -> Result<(), Code> {
        let stream = self.stream(stream)?;
        let pageable = |w: &World, e: &End| w.settings.pageable && !e.device && w.memory.at(e.address).is_none();
        let mut staged = None;
        let mut from = from;
        if pageable(self, &from) && rows > 0 {
            let bytes = (rows - 1) * from.pitch + width;
            // SAFETY: the caller's: memory of the host, of these rows.
            let copy: std::sync::Arc<[u8]> =
                unsafe { std::slice::from_raw_parts(from.address as *const u8, bytes) }.into();
            from.address = copy.as_ptr() as u64;
            staged = Some(copy);
        }
        let wait = pageable(self, &to);
        self.enqueue(stream, Op::Copy { from, to, width, rows, _staged: staged })?;
        if wait {
            self.run_all(stream);
        }
        Ok(())
    }

    fn copy_now(&mut self, from: End, to: End, width: usize) -> Result<(), Code> {
        let stream = self.stream(0)?;
        self.enqueue(stream, Op::Copy { from, to, width, rows: 1, _staged: None })?;
        self.run_all(stream);
        Ok(())
    }

    fn set(&mut self, stream: u64, to: u64, unit: &[u8], count: usize) -> Result<(), Code> {
        let stream = self.stream(stream)?;
        if !to.is_multiple_of(unit.len() as u64) {
            return Err(INVALID_VALUE);
        }
        self.enqueue(stream, Op::Set { to, unit: unit.to_vec(), count })
    }
}

fn device(address: u64) -> End {
    End { address, pitch: 0, device: true }
}
fn host(address: *const c_void) -> End {
    End { address: address as u64, pitch: 0, device: false }
}

api! {
    fn cuMemAlloc_v2(address: *mut u64, bytes: usize) |w| {
        let found = w.allocate(bytes, State::Live, false)?;
        put(address, found)
    }
    fn cuMemFree_v2(address: u64) |w| {
        w.free_now(address, false)
    }
    fn cuMemAllocAsync(address: *mut u64, bytes: usize, stream: *mut c_void) |w| {
        let stream = w.stream(stream as u64)?;
        if let Some(s) = w.streams.get_mut(&stream)
            && let Some(capture) = &mut s.capture
        {
            // A real driver would make a node of it; who records wants none.
            *capture = Err(STREAM_CAPTURE_UNSUPPORTED);
            return Err(STREAM_CAPTURE_UNSUPPORTED);
        }
        let found = w.allocate(bytes, State::Coming, false)?;
        w.enqueue(stream, Op::Allocate(found))?;
        put(address, found)
    }
    fn cuMemFreeAsync(address: u64, stream: *mut c_void) |w| {
        let stream = w.stream(stream as u64)?;
        match w.memory.piece(address) {
            Some(p) if !p.going && !p.host => p.going = true,
            _ => {
                w.violation(format!("{address:#x} is freed and is no memory that lives"));
                return Err(INVALID_VALUE);
            }
        }
        w.enqueue(stream, Op::Free(address))
    }
    fn cuMemHostAlloc(address: *mut *mut c_void, bytes: usize, _flags: u32) |w| {
        let found = w.allocate(bytes, State::Live, true)?;
        put(address, found as *mut c_void)
    }
    fn cuMemFreeHost(address: *mut c_void) |w| {
        w.free_now(address as u64, true)
    }
    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) |w| {
        let current = w.current()?;
        let all = w.settings.memory;
        let used = w.memory.used.get(current as usize).copied().unwrap_or(0);
        put(free, (all - used) as usize)?;
        put(total, all as usize)
    }
    fn cuPointerGetAttribute(value: *mut c_void, attribute: i32, address: u64) |w| {
        let Some((base, piece)) = w.memory.at(address) else { return Err(INVALID_VALUE) };
        match attribute {
            2 => put(value.cast::<u32>(), if piece.host { HOST } else { DEVICE }),
            9 => put(value.cast::<i32>(), piece.device),
            11 => put(value.cast::<u64>(), base),
            12 => put(value.cast::<usize>(), piece.bytes),
            _ => Err(INVALID_VALUE),
        }
    }
    fn cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, bytes: usize, stream: *mut c_void) |w| {
        w.copy(stream as u64, host(from), device(to), bytes, 1)
    }
    fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, bytes: usize, stream: *mut c_void) |w| {
        w.copy(stream as u64, device(from), host(to), bytes, 1)
    }
    fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: *mut c_void) |w| {
        w.copy(stream as u64, device(from), device(to), bytes, 1)
    }
    fn cuMemcpyPeerAsync(
        to: u64, to_context: *mut c_void, from: u64, from_context: *mut c_void, bytes: usize, stream: *mut c_void,
    ) |w| {
        for (address, context) in [(to, to_context), (from, from_context)] {
            if w.memory.at(address).map(|(_, p)| p.device) != context_device(context) {
                w.violation(format!("{address:#x} is no memory of the context that a copy between GPUs names"));
                return Err(INVALID_VALUE);
            }
        }
        w.copy(stream as u64, device(from), device(to), bytes, 1)
    }
    fn cuMemcpyHtoD_v2(to: u64, from: *const c_void, bytes: usize) |w| {
        w.copy_now(host(from), device(to), bytes)
    }
    fn cuMemcpyDtoH_v2(to: *mut c_void, from: u64, bytes: usize) |w| {
        w.copy_now(device(from), host(to), bytes)
    }
    fn cuMemcpyDtoD_v2(to: u64, from: u64, bytes: usize) |w| {
        w.copy_now(device(from), device(to), bytes)
    }
    fn cuMemcpy2DAsync_v2(copy: *const Copy2d, stream: *mut c_void) |w| {
        let c = &*copy;
        if c.src_pitch < c.width || c.dst_pitch < c.width || [c.src_x, c.src_y, c.dst_x, c.dst_y] != [0; 4] {
            return Err(INVALID_VALUE);
        }
        let end = |kind, host: *const c_void, device, pitch| match kind {
            HOST => Ok(End { address: host as u64, pitch, device: false }),
            DEVICE => Ok(End { address: device, pitch, device: true }),
            _ => Err(INVALID_VALUE),
        };
        let from = end(c.src_type, c.src_host, c.src_device, c.src_pitch)?;
        let to = end(c.dst_type, c.dst_host, c.dst_device, c.dst_pitch)?;
        w.copy(stream as u64, from, to, c.width, c.height)
    }
    fn cuMemsetD8Async(to: u64, value: u8, count: usize, stream: *mut c_void) |w| {
        w.set(stream as u64, to, &[value], count)
    }
    fn cuMemsetD16Async(to: u64, value: u16, count: usize, stream: *mut c_void) |w| {
        w.set(stream as u64, to, &value.to_ne_bytes(), count)
    }
    fn cuMemsetD32Async(to: u64, value: u32, count: usize, stream: *mut c_void) |w| {
        w.set(stream as u64, to, &value.to_ne_bytes(), count)
    }
    fn cuMemsetD8_v2(to: u64, value: u8, count: usize) |w| {
        w.set(0, to, &[value], count)?;
        let stream = w.stream(0)?;
        w.run_all(stream);
        Ok(())
    }
    // A computation on the host: the rules of the driver's documentation, and the address in the first word.
    fn cuTensorMapEncodeTiled(
        map: *mut u64, dtype: u32, rank: u32, base: *mut c_void, dims: *const u64, strides: *const u64, boxes: *const u32,
        steps: *const u32, interleave: u32, swizzle: u32, _promotion: u32, _fill: u32,
    ) |w| {
        if !w.initialized {
            return Err(crate::world::NOT_INITIALIZED);
        }
        if !(1..=5).contains(&rank) || !(map as u64).is_multiple_of(64) || !(base as u64).is_multiple_of(16) {
            return Err(INVALID_VALUE);
        }
        let n = rank as usize;
        let (dims, boxes) = (std::slice::from_raw_parts(dims, n), std::slice::from_raw_parts(boxes, n));
        let (strides, steps) = (std::slice::from_raw_parts(strides, n - 1), std::slice::from_raw_parts(steps, n));
        let size: u64 = match dtype { 0 => 1, 1 | 6 | 9 => 2, 2 | 3 | 7 => 4, _ => 8 };
        let wrong = dims.iter().any(|&d| d == 0 || d > 1 << 32)
            || boxes.iter().any(|&b| b == 0 || b > 256)
            || steps.iter().any(|&s| s == 0 || s > 8)
            || strides.iter().any(|&s| !s.is_multiple_of(16) || s >= 1 << 40)
            || interleave == 0 && swizzle == 3 && u64::from(boxes[0]) * size > 128;
        if wrong {
            return Err(INVALID_VALUE);
        }
        std::ptr::write_bytes(map, 0, 16);
        put(map, base as u64)
    }
}
