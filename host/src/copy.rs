//! Moving elements: between host and device, and on the device.

use crate::driver::{self, check, sys};
use crate::error::{Error, Result, UNNAMED};
use crate::shape;
use crate::stream::{Stream, Turn};
use crate::view::{Place, TensorView, TensorViewMut};
use tilewright_core::element::Element;

/// One end of a copy.
#[derive(Clone, Copy)]
pub(crate) enum Side {
    Host(*mut u8),
    Device(u64),
}

/// Rows of adjacent bytes, at regular distances at both ends. Offsets and pitches in bytes: source, destination.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rows {
    offset: [usize; 2],
    pitch: [usize; 2],
    width: usize,
    rows: usize,
}

impl Rows {
    /// Calls `each` with the offsets and the bytes of each run of adjacent bytes.
    pub(crate) fn each_row(self, mut each: impl FnMut([usize; 2], usize) -> Result<()>) -> Result<()> {
        (0..self.rows).try_for_each(|i| {
            each([self.offset[0] + i * self.pitch[0], self.offset[1] + i * self.pitch[1]], self.width)
        })
    }
}

pub(crate) const READ: &str = "reading a tensor back";
pub(crate) const WRITE: &str = "writing a tensor from the host";

/// The driver's limit on the distance of rows in one copy.
const MAX_PITCH: usize = i32::MAX as usize;

/// Cuts a strided copy into as few regular pieces as dimensions allow, and calls `each` for them.
pub(crate) fn pieces<const R: usize>(
    extents: &[usize; R],
    source: &[usize; R],
    target: &[usize; R],
    size: usize,
    each: &mut dyn FnMut(Rows) -> Result<()>,
) -> Result<()> {
    if extents.contains(&0) {
        return Ok(());
    }
    // Dimensions that matter, adjacent ones merged, the finest last: (extent, bytes at the source, at the target).
    let mut dims: Vec<(usize, [usize; 2])> = Vec::with_capacity(R + 1);
    for ((&e, &s), &t) in extents.iter().zip(source).zip(target) {
        let (s, t) = (s.wrapping_mul(size), t.wrapping_mul(size));
        match dims.last_mut() {
            _ if e == 1 => {}
            Some((pe, [ps, pt])) if *ps == s.wrapping_mul(e) && *pt == t.wrapping_mul(e) => {
                *pe *= e;
                (*ps, *pt) = (s, t);
            }
            _ => dims.push((e, [s, t])),
        }
    }
    let mut width = size;
    if let Some(&(e, steps)) = dims.last()
        && steps == [size, size]
    {
        width = e * size;
        dims.pop();
    }
    let (rows, pitch) = dims.pop().unwrap_or((1, [width, width]));
    let count: usize = dims.iter().map(|(e, _)| e).product();
    for i in 0..count {
        let (mut rest, mut offset) = (i, [0, 0]);
        for &(e, [s, t]) in dims.iter().rev() {
            offset[0] += rest % e * s;
            offset[1] += rest % e * t;
            rest /= e;
        }
        each(Rows { offset, pitch, width, rows })?;
    }
    Ok(())
}

/// Copies one piece on the CPU.
///
/// # Safety
/// Both ends are memory of the piece's extents, and do not overlap.
pub(crate) unsafe fn copy_host(from: *const u8, to: *mut u8, r: Rows) {
    for i in 0..r.rows {
        // SAFETY: the caller's.
        unsafe {
            let from = from.add(r.offset[0] + i * r.pitch[0]);
            std::ptr::copy_nonoverlapping(from, to.add(r.offset[1] + i * r.pitch[1]), r.width);
        }
    }
}

/// Enqueues the copy of one piece on a GPU.
///
/// # Safety
/// Both ends are memory of the piece's extents; host memory stays until the stream is done.
pub(crate) unsafe fn copy_cuda(stream: sys::CUstream, from: Side, to: Side, r: Rows) -> Result<()> {
    let regular = r.pitch.iter().all(|&p| p >= r.width && p <= MAX_PITCH);
    if r.rows > 1 && !regular {
        return r.each_row(|offset, _| {
            // SAFETY: the caller's.
            unsafe { copy_cuda(stream, from, to, Rows { offset, rows: 1, ..r }) }
        });
    }
    let (from, to) = (from.add(r.offset[0]), to.add(r.offset[1]));
    if r.rows == 1 {
        let (call, code) = match (from, to) {
            (Side::Host(from), Side::Device(to)) => {
                // SAFETY: the caller's.
                ("cuMemcpyHtoDAsync", unsafe { sys::cuMemcpyHtoDAsync_v2(to, from.cast(), r.width, stream) })
            }
            (Side::Device(from), Side::Host(to)) => {
                // SAFETY: the caller's.
                ("cuMemcpyDtoHAsync", unsafe { sys::cuMemcpyDtoHAsync_v2(to.cast(), from, r.width, stream) })
            }
            (Side::Device(from), Side::Device(to)) => {
                // SAFETY: the caller's.
                ("cuMemcpyDtoDAsync", unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, r.width, stream) })
            }
            (Side::Host(from), Side::Host(to)) => {
                // SAFETY: the caller's.
                unsafe { std::ptr::copy_nonoverlapping(from, to, r.width) };
                return Ok(());
            }
        };
        return check(call, code);
    }
    let (src_type, src_host, src_device) = from.parts();
    let (dst_type, dst_host, dst_device) = to.parts();
    let copy = sys::CUDA_MEMCPY2D {
        srcXInBytes: 0,
        srcY: 0,
        srcMemoryType: src_type,
        srcHost: src_host.cast_const(),
        srcDevice: src_device,
        srcArray: std::ptr::null_mut(),
        srcPitch: r.pitch[0],
        dstXInBytes: 0,
        dstY: 0,
        dstMemoryType: dst_type,
        dstHost: dst_host,
        dstDevice: dst_device,
        dstArray: std::ptr::null_mut(),
        dstPitch: r.pitch[1],
        WidthInBytes: r.width,
        Height: r.rows,
    };
    // SAFETY: the caller's.
    check("cuMemcpy2DAsync", unsafe { sys::cuMemcpy2DAsync_v2(&copy, stream) })
}

impl Side {
    fn add(self, bytes: usize) -> Side {
        match self {
            Side::Host(p) => Side::Host(p.wrapping_add(bytes)),
            Side::Device(p) => Side::Device(p.wrapping_add(bytes as u64)),
        }
    }
    fn parts(self) -> (sys::CUmemorytype, *mut std::ffi::c_void, u64) {
        match self {
            Side::Host(p) => (sys::CUmemorytype_enum::CU_MEMORYTYPE_HOST, p.cast(), 0),
            Side::Device(p) => (sys::CUmemorytype_enum::CU_MEMORYTYPE_DEVICE, std::ptr::null_mut(), p),
        }
    }
}

pub(crate) fn note<const R: usize>(turn: &mut Turn<'_>, place: &Place<'_, R>, write: bool) -> Result<()> {
    place.storage.map_or(Ok(()), |s| turn.uses(s, write))
}

/// Enqueues the copy of a place on a GPU into memory of the host.
///
/// # Safety
/// The place may be read, and is noted; `to` is memory of its extents with these strides, which stays, and is not looked
/// at, until the turn's work is done.
pub(crate) unsafe fn read_back<const R: usize>(
    turn: &Turn<'_>,
    place: &Place<'_, R>,
    to: *mut u8,
    strides: &[usize; R],
    size: usize,
) -> Result<()> {
    pieces(&place.extents, &place.strides, strides, size, &mut |r| {
        // SAFETY: the caller's.
        unsafe { copy_cuda(turn.raw, Side::Device(place.base as u64), Side::Host(to), r) }
    })
}

/// Enqueues the copy of memory of the host into a place on a GPU.
///
/// # Safety
/// The place may be written, and is noted; `from` is memory of its extents with these strides, which stays, and is not
/// written, until the turn's work is done.
pub(crate) unsafe fn write_from<const R: usize>(
    turn: &Turn<'_>,
    place: &Place<'_, R>,
    from: *const u8,
    strides: &[usize; R],
    size: usize,
) -> Result<()> {
    pieces(&place.extents, strides, &place.strides, size, &mut |r| {
        // SAFETY: the caller's. The source is only read.
        unsafe { copy_cuda(turn.raw, Side::Host(from.cast_mut()), Side::Device(place.base as u64), r) }
    })
}

impl<T: Element, const RANK: usize> TensorView<'_, T, RANK> {
    /// The elements, the last dimension running fastest. Waits for whatever writes them.
    ///
    /// # Errors
    /// [`Error::Device`], [`Error::OutOfMemory`], [`Error::Capturing`], [`Error::Driver`]; the latter also for what
    /// failed on the device earlier.
    pub fn to_vec(&self, stream: &Stream) -> Result<Vec<T>> {
        let n = self.len();
        let mut out = bytemuck::allocation::try_zeroed_vec(n).map_err(|()| Error::OutOfMemory {
            bytes: n.saturating_mul(size_of::<T>()) as u64,
            device: "the host".into(),
        })?;
        self.copy_to_slice(stream, &mut out)?;
        Ok(out)
    }

    /// Copies the elements into `out`, the last dimension running fastest. Waits for whatever writes them.
    ///
    /// # Errors
    /// [`Error::Length`]; else as [`to_vec`](Self::to_vec).
    pub fn copy_to_slice(&self, stream: &Stream, out: &mut [T]) -> Result<()> {
        length(self.len(), out.len())?;
        let (place, size) = (&self.place, size_of::<T>());
        stream.device().expect(UNNAMED, place.device.number())?;
        let packed = shape::contiguous(&place.extents);
        let to = out.as_mut_ptr().cast::<u8>();
        let Some(mut turn) = stream.turn()? else {
            return stream.on_cpu_now(READ, || {
                pieces(&place.extents, &place.strides, &packed, size, &mut |r| {
                    // SAFETY: the view is borrowed to read, the slice to write, and both are as long as their extents
                    // say.
                    unsafe { copy_host(place.base, to, r) };
                    Ok(())
                })
            });
        };
        if turn.capturing() {
            return Err(Error::Capturing { call: READ });
        }
        note(&mut turn, place, false)?;
        // SAFETY: as above; waited for below.
        let done = unsafe { read_back(&turn, place, to, &packed, size) };
        let finished = finish(turn);
        done.and(finished) // what went wrong first is what is told
    }
}

impl<T: Element, const RANK: usize> TensorViewMut<'_, T, RANK> {
    /// Overwrites the elements with `data`, the last dimension running fastest. Waits until the data is copied.
    ///
    /// # Errors
    /// [`Error::Length`], [`Error::Device`], [`Error::Capturing`], [`Error::Driver`].
    pub fn copy_from_slice(&mut self, stream: &Stream, data: &[T]) -> Result<()> {
        length(self.len(), data.len())?;
        let (place, size) = (&self.place, size_of::<T>());
        stream.device().expect(UNNAMED, place.device.number())?;
        let packed = shape::contiguous(&place.extents);
        let from = data.as_ptr().cast::<u8>();
        let Some(mut turn) = stream.turn()? else {
            return stream.on_cpu_now(WRITE, || {
                pieces(&place.extents, &packed, &place.strides, size, &mut |r| {
                    // SAFETY: the view is borrowed to write, the slice to read, and both are as long as their extents
                    // say.
                    unsafe { copy_host(from, place.base, r) };
                    Ok(())
                })
            });
        };
        if turn.capturing() {
            return Err(Error::Capturing { call: WRITE });
        }
        note(&mut turn, place, true)?;
        // SAFETY: as above; waited for below, also because the slice may be pinned, and then the copy would still be
        // reading it.
        let done = unsafe { write_from(&turn, place, from, &packed, size) };
        let finished = finish(turn);
        done.and(finished) // what went wrong first is what is told
    }

    /// Overwrites the elements with those of a view of the same extents on the same device. Does not wait.
    ///
    /// # Errors
    /// [`Error::Shape`], [`Error::Device`], [`Error::Driver`].
    pub fn copy_from(&mut self, stream: &Stream, source: TensorView<'_, T, RANK>) -> Result<()> {
        let (to, from, size) = (&self.place, &source.place, size_of::<T>());
        if to.extents != from.extents {
            let (expected, found) = (shape::show(&to.extents), shape::show(&from.extents));
            return Err(Error::Shape { arg: "source", expected, found });
        }
        stream.device().expect(UNNAMED, to.device.number())?;
        stream.device().expect("source", from.device.number())?;
        let Some(mut turn) = stream.turn()? else {
            let (extents, strides) = (to.extents, [from.strides, to.strides]);
            let (source, target) = (from.base, to.base);
            let uses = [(from.storage, false), (to.storage, true)];
            let work = move || {
                pieces(&extents, &strides[0], &strides[1], size, &mut |r| {
                    // SAFETY: one view is borrowed to read, the other to write.
                    unsafe { copy_host(source, target, r) };
                    Ok(())
                })
            };
            // SAFETY: memory of these extents, as long as the storages live.
            return unsafe { stream.on_cpu(&uses, work) };
        };
        note(&mut turn, from, false)?;
        note(&mut turn, to, true)?;
        let done = pieces(&to.extents, &from.strides, &to.strides, size, &mut |r| {
            // SAFETY: as above; the memory stays until the stream is done, as for every use that is noted.
            unsafe { copy_cuda(turn.raw, Side::Device(from.base as u64), Side::Device(to.base as u64), r) }
        });
        turn.submit();
        done
    }

    /// Overwrites all elements with `value`. Does not wait.
    ///
    /// # Errors
    /// [`Error::Device`], [`Error::Driver`].
    pub fn fill(&mut self, stream: &Stream, value: T) -> Result<()> {
        let (place, size) = (&self.place, size_of::<T>());
        stream.device().expect(UNNAMED, place.device.number())?;
        let Some(mut turn) = stream.turn()? else {
            let (base, extents, strides) = (place.base, place.extents, place.strides);
            let work = move || {
                pieces(&extents, &strides, &strides, size, &mut |r| {
                    for i in 0..r.rows {
                        let row = base.wrapping_add(r.offset[1] + i * r.pitch[1]).cast::<T>();
                        // SAFETY: the view is borrowed to write; a row is `width` bytes of it, aligned for `T`.
                        unsafe { std::slice::from_raw_parts_mut(row, r.width / size) }.fill(value);
                    }
                    Ok(())
                })
            };
            // SAFETY: memory of these extents, as long as the storage lives.
            return unsafe { stream.on_cpu(&[(place.storage, true)], work) };
        };
        note(&mut turn, place, true)?;
        let done = pieces(&place.extents, &place.strides, &place.strides, size, &mut |r| {
            // SAFETY: the view is borrowed to write; the memory stays until the stream is done.
            unsafe { fill_cuda(turn.raw, place.base as u64, bytemuck::bytes_of(&value), r) }
        });
        turn.submit();
        done
    }
}

/// Enqueues the fill of one piece.
///
/// # Safety
/// `base` is memory of the piece's extents at the target.
unsafe fn fill_cuda(stream: sys::CUstream, base: u64, value: &[u8], r: Rows) -> Result<()> {
    for i in 0..r.rows {
        let to = base.wrapping_add((r.offset[1] + i * r.pitch[1]) as u64);
        let (call, code) = match *value {
            // SAFETY: the caller's.
            [a] => ("cuMemsetD8Async", unsafe { sys::cuMemsetD8Async(to, a, r.width, stream) }),
            [a, b] => {
                let word = u16::from_ne_bytes([a, b]);
                // SAFETY: the caller's; the address suits elements of this size.
                ("cuMemsetD16Async", unsafe { sys::cuMemsetD16Async(to, word, r.width / 2, stream) })
            }
            [a, b, c, d] => {
                let word = u32::from_ne_bytes([a, b, c, d]);
                // SAFETY: as above.
                ("cuMemsetD32Async", unsafe { sys::cuMemsetD32Async(to, word, r.width / 4, stream) })
            }
            _ => return Err(Error::Unsupported { what: "filling elements of this size", device: "a GPU".into() }),
        };
        check(call, code)?;
    }
    Ok(())
}

pub(crate) fn length(expected: usize, found: usize) -> Result<()> {
    if expected == found { Ok(()) } else { Err(Error::Length { arg: UNNAMED, expected, found }) }
}

/// Submits the turn's work and waits for it, before memory of the host goes back to its owner.
pub(crate) fn finish(turn: Turn<'_>) -> Result<()> {
    let context = turn.context();
    let drained = driver::drain(turn.raw);
    turn.submit();
    drained.result?;
    context.map_or(Ok(()), |c| c.reported())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all<const R: usize>(e: [usize; R], s: [usize; R], t: [usize; R]) -> Vec<Rows> {
        let mut out = Vec::new();
        pieces(&e, &s, &t, 4, &mut |r| {
            out.push(r);
            Ok(())
        })
        .unwrap();
        out
    }

    #[test]
    fn few_pieces() {
        let one = |width, rows, pitch| vec![Rows { offset: [0, 0], pitch, width, rows }];
        assert_eq!(all([2, 3, 4], [12, 4, 1], [12, 4, 1]), one(96, 1, [96, 96]));
        assert_eq!(all([6, 4], [8, 1], [4, 1]), one(16, 6, [32, 16]));
        assert_eq!(all([2, 3, 4], [24, 8, 1], [12, 4, 1]), one(16, 6, [32, 16]));
        assert_eq!(all([2, 3, 4], [40, 8, 1], [12, 4, 1]).len(), 2);
        assert_eq!(all([1, 1], [7, 9], [1, 1]), one(4, 1, [4, 4]));
        assert_eq!(all([3, 2], [1, 3], [2, 1]).len(), 3); // transposed: element by element
        assert_eq!(all([3, 0], [0, 1], [0, 1]), []);
    }
}
