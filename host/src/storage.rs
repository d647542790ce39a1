//! The memory of tensors, and who used it last.

use crate::device::Device;
use crate::driver::{check, failed, sys};
use crate::error::{Error, Result};
use crate::stream::{Stream, StreamInner};
use std::alloc::Layout;
use std::sync::{Arc, Mutex, PoisonError};
use tilewright_core::tma::{TensorMap, TensorMapRequest};

/// Shared ownership of a piece of memory. Freed when the last owner is gone *and* the device is done with it.
#[derive(Clone)]
pub(crate) struct Storage(Arc<Memory>);

static_assertions::assert_impl_all!(Storage: Send, Sync);

struct Memory {
    device: Device,
    base: *mut u8,
    bytes: usize,
    kind: Kind,
    /// One entry a stream. Empty on the CPU, where work is done when its call returns.
    uses: Mutex<Vec<Use>>,
    maps: Mutex<Vec<(usize, TensorMapRequest, TensorMap)>>,
}
// SAFETY: `base` is accessed on the host by copies and CPU kernels alone, which borrow the tensor: shared to read,
// exclusively to write.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

enum Kind {
    Host(Layout),
    /// Freed in the order of this stream, where the driver can do that.
    Cuda {
        home: Arc<StreamInner>,
        pooled: bool,
    },
    /// Somebody else's.
    Foreign,
    /// Somebody else's, for the duration of a call.
    Lent,
}

/// Tickets of a stream's last read and last write; 0 for none.
struct Use {
    stream: Arc<StreamInner>,
    read: u64,
    write: u64,
}

impl Use {
    /// The last ticket that a new use must come after.
    fn conflict(&self, write: bool) -> u64 {
        if write { self.read.max(self.write) } else { self.write }
    }
}

/// What every allocation is aligned to at least.
const ALIGN: usize = 256;
/// Tensor maps remembered for one piece of memory.
const MAPS: usize = 16;

impl Storage {
    fn new(device: Device, base: *mut u8, bytes: usize, kind: Kind) -> Storage {
        let uses = Mutex::new(Vec::with_capacity(2));
        Storage(Arc::new(Memory { device, base, bytes, kind, uses, maps: Mutex::default() }))
    }

    /// Memory with zeros in it, once the stream's work so far is done.
    pub(crate) fn zeroed(stream: &Stream, bytes: usize) -> Result<Storage> {
        let device = stream.device();
        let lacking = || Error::OutOfMemory { bytes: bytes as u64, device: device.to_string() };
        // never empty, so that every tensor has an address, and a tensor map something to describe
        let size = bytes.max(ALIGN);
        let Some(turn) = stream.turn()? else {
            stream.not_capturing("allocating a tensor")?;
            let layout = Layout::from_size_align(size, ALIGN).map_err(|_| lacking())?;
            // SAFETY: the size is not zero.
            let base = unsafe { std::alloc::alloc_zeroed(layout) };
            if base.is_null() {
                return Err(lacking());
            }
            return Ok(Storage::new(device, base, bytes, Kind::Host(layout)));
        };
        if turn.capturing() {
            return Err(Error::Capturing { call: "allocating a tensor" });
        }
        let pooled = device.cuda.is_some_and(|c| c.pools);
        let mut address = 0;
        let (call, code) = if pooled {
            // SAFETY: writes an address; the stream is alive.
            ("cuMemAllocAsync", unsafe { sys::cuMemAllocAsync(&mut address, size, turn.raw) })
        } else {
            // SAFETY: writes an address.
            ("cuMemAlloc", unsafe { sys::cuMemAlloc_v2(&mut address, size) })
        };
        match code {
            sys::CUresult::CUDA_SUCCESS => {}
            sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => return Err(lacking()),
            code => return Err(failed(call, code, String::new())),
        }
        let home = stream.inner.clone();
        let storage = Storage::new(device, address as *mut u8, bytes, Kind::Cuda { home, pooled });
        let mut turn = turn;
        turn.uses(&storage, true)?;
        // SAFETY: the memory is `size` bytes, and usable in the order of this stream.
        let code = unsafe { sys::cuMemsetD8Async(address, 0, size, turn.raw) };
        turn.submit();
        check("cuMemsetD8Async", code)?;
        Ok(storage)
    }

    /// # Safety
    /// `bytes` bytes at `base` are memory of `device`, for as long as this lives.
    pub(crate) unsafe fn foreign(device: Device, base: *mut u8, bytes: usize) -> Storage {
        Storage::new(device, base, bytes, Kind::Foreign)
    }

    /// # Safety
    /// `bytes` bytes at `base` are memory of `device` until this is settled.
    pub(crate) unsafe fn lent(device: Device, base: *mut u8, bytes: usize) -> Storage {
        Storage::new(device, base, bytes, Kind::Lent)
    }

    /// Whether nobody may keep it.
    pub(crate) fn is_lent(&self) -> bool {
        matches!(self.0.kind, Kind::Lent)
    }

    /// Makes `home` wait for every use on another stream; the host, if that can not be.
    pub(crate) fn settle(&self, home: &Arc<StreamInner>) -> Result<()> {
        let Some(context) = self.0.device.cuda else { return Ok(()) };
        let uses = self.0.uses.lock().unwrap_or_else(PoisonError::into_inner);
        let pending = uses.iter().filter(|u| !Arc::ptr_eq(&u.stream, home) && u.conflict(true) > u.stream.completed());
        let mut result = Ok(());
        for u in pending {
            // again for each: those of other GPUs may have left theirs
            let ordered = context.bind().and_then(|()| u.stream.fence_into(home));
            if ordered.is_err() && !u.stream.wait_on_host() && result.is_ok() {
                result = ordered;
            }
        }
        result
    }

    pub(crate) fn device(&self) -> Device {
        self.0.device
    }
    pub(crate) fn base(&self) -> *mut u8 {
        self.0.base
    }
    /// Bytes that tensors may use.
    pub(crate) fn bytes(&self) -> usize {
        self.0.bytes
    }
    pub(crate) fn same(&self, other: &Storage) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Notes that ticket `ticket` of `stream` uses the memory, after having made it wait for conflicting uses on other
    /// streams. `wait` makes it wait for a ticket of another stream, and says up to which ticket it has waited by then.
    pub(crate) fn track(
        &self,
        stream: &Arc<StreamInner>,
        ticket: u64,
        write: bool,
        wait: &mut dyn FnMut(&StreamInner, u64) -> Result<u64>,
    ) -> Result<()> {
        let mut uses = self.0.uses.lock().unwrap_or_else(PoisonError::into_inner);
        let mut own = None;
        let mut stale = false;
        for (i, u) in uses.iter().enumerate() {
            if Arc::ptr_eq(&u.stream, stream) {
                own = Some(i);
                continue;
            }
            let conflict = u.conflict(write);
            if conflict > u.stream.completed() {
                wait(&u.stream, conflict)?;
            }
            stale = true;
        }
        match own.and_then(|i| uses.get_mut(i)) {
            Some(u) if write => u.write = ticket,
            Some(u) => u.read = ticket,
            None => {
                let (read, write) = if write { (0, ticket) } else { (ticket, 0) };
                uses.push(Use { stream: stream.clone(), read, write });
            }
        }
        if write && stale {
            // What this write comes after need not be remembered: whoever comes after the write comes after that too.
            // A use that was noted but not submitted yet (another thread's, of a disjoint part) is not among it.
            let mut failed = None;
            uses.retain(|u| {
                if Arc::ptr_eq(&u.stream, stream) {
                    return true;
                }
                let last = u.conflict(true);
                if last <= u.stream.completed() {
                    return false;
                }
                match wait(&u.stream, last) {
                    Ok(seen) => last > seen,
                    Err(e) => {
                        failed = Some(e);
                        true
                    }
                }
            });
            if let Some(e) = failed {
                return Err(e);
            }
        }
        Ok(())
    }

    /// The tensor map for a request, made by `encode` unless remembered.
    pub(crate) fn map(
        &self,
        base: usize,
        request: &TensorMapRequest,
        encode: impl FnOnce() -> Result<TensorMap>,
    ) -> Result<TensorMap> {
        let mut maps = self.0.maps.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, _, map)) = maps.iter().find(|(b, r, _)| *b == base && r == request) {
            return Ok(*map);
        }
        let map = encode()?;
        if maps.len() >= MAPS {
            maps.remove(0);
        }
        maps.push((base, *request, map));
        Ok(map)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let uses = std::mem::take(self.uses.get_mut().unwrap_or_else(PoisonError::into_inner));
        match &self.kind {
            Kind::Foreign | Kind::Lent => {}
            // SAFETY: allocated with this layout; nobody has it any more, and CPU work is done when its call returns.
            Kind::Host(layout) => unsafe { std::alloc::dealloc(self.base, *layout) },
            Kind::Cuda { home, pooled } => {
                let Some(context) = self.device.cuda else { return };
                if context.bind().is_err() {
                    return;
                }
                let pending = || uses.iter().filter(|u| u.conflict(true) > u.stream.completed());
                let mut others = pending().filter(|u| !Arc::ptr_eq(&u.stream, home));
                let ordered = *pooled && others.all(|u| u.stream.fence_into(home).is_ok());
                let elsewhere = uses.iter().any(|u| u.stream.device != self.device);
                // Without an order on the device the host waits; if that fails too, the memory is lost rather than
                // freed under a kernel.
                if !ordered && !pending().all(|u| u.stream.wait_on_host()) {
                    return;
                }
                // those of other GPUs may have left theirs
                if elsewhere && context.bind().is_err() {
                    return;
                }
                let address = self.base as sys::CUdeviceptr;
                let _ = match home.raw() {
                    // SAFETY: nobody has the memory any more; all uses come before in the order of `home`.
                    Some(home) if *pooled => unsafe { sys::cuMemFreeAsync(address, home) },
                    // SAFETY: nobody has the memory any more; all uses are done.
                    _ => unsafe { sys::cuMemFree_v2(address) },
                };
            }
        }
    }
}
