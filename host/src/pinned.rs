//! Page-locked memory of the host.

use crate::device::Device;
use crate::driver::{Context, failed, sys};
use crate::error::{Error, Result};
use std::alloc::Layout;
use std::fmt;
use std::ops::{Deref, DerefMut};
use tilewright_core::element::Element;

/// Page-locked memory of the host: a slice that GPUs copy from and to while the program goes on.
///
/// It can be looked at and written as the slice that it is, for as long as its owner has it. A copy that does not wait
/// ([`TensorView::download`](crate::TensorView::download), [`TensorViewMut::upload`](crate::TensorViewMut::upload)) takes
/// it, and [`Transfer::wait`](crate::Transfer::wait) gives it back.
///
/// ```
/// use tilewright_host::{Device, Pinned, Tensor};
///
/// let stream = Device::best().stream()?;
/// let mut x = Tensor::<f32, 2>::zeros(&stream, [2, 3])?;
/// let buffer = Pinned::from_slice(&stream.device(), &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0])?;
/// let uploading = x.upload(&stream, buffer)?; // kernels that are launched now see the new elements
/// let buffer = uploading.wait()?;
/// let buffer = x.download(&stream, buffer)?.wait()?;
/// assert_eq!(buffer[..], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
/// # Ok::<(), tilewright_host::Error>(())
/// ```
pub struct Pinned<T: Element> {
    base: *mut T,
    len: usize,
    kind: Kind,
}

enum Kind {
    /// Empty, and nobody's.
    Nothing,
    /// Ordinary memory.
    Host(Layout),
    Cuda(&'static Context),
}

// SAFETY: as `Box<[T]>`.
unsafe impl<T: Element> Send for Pinned<T> {}
// SAFETY: as above.
unsafe impl<T: Element> Sync for Pinned<T> {}

/// What ordinary memory is aligned to.
const ALIGN: usize = 256;

impl<T: Element> Pinned<T> {
    /// `len` zeros. The memory is page-locked if `device` is a GPU, for all GPUs of the process; for the CPU it is
    /// ordinary memory, and copies between that and a GPU may wait. Slow: allocate once, and use it again.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], [`Error::Driver`].
    pub fn zeros(device: &Device, len: usize) -> Result<Pinned<T>> {
        let lacking = |bytes: usize| Error::OutOfMemory { bytes: bytes as u64, device: "the host".into() };
        let bytes = len.checked_mul(size_of::<T>()).ok_or_else(|| lacking(usize::MAX))?;
        let layout = Layout::from_size_align(bytes.max(ALIGN), ALIGN).map_err(|_| lacking(bytes))?;
        let Some(context) = device.cuda else {
            // SAFETY: the size is not zero.
            let base = unsafe { std::alloc::alloc_zeroed(layout) };
            if base.is_null() {
                return Err(lacking(bytes));
            }
            return Ok(Pinned { base: base.cast(), len, kind: Kind::Host(layout) });
        };
        context.bind()?;
        let mut base = std::ptr::null_mut();
        // SAFETY: writes a pointer.
        match unsafe { sys::cuMemHostAlloc(&mut base, layout.size(), sys::CU_MEMHOSTALLOC_PORTABLE) } {
            sys::CUresult::CUDA_SUCCESS => {}
            sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => return Err(lacking(bytes)),
            code => return Err(failed("cuMemHostAlloc", code, String::new())),
        }
        // SAFETY: memory of that size, which nobody else has.
        unsafe { base.cast::<u8>().write_bytes(0, layout.size()) };
        Ok(Pinned { base: base.cast(), len, kind: Kind::Cuda(context) })
    }

    /// Takes what is there, and leaves nothing.
    pub(crate) fn take(&mut self) -> Pinned<T> {
        let nothing = Pinned { base: std::ptr::NonNull::dangling().as_ptr(), len: 0, kind: Kind::Nothing };
        std::mem::replace(self, nothing)
    }

    /// A copy of a slice: see [`zeros`](Self::zeros).
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], [`Error::Driver`].
    pub fn from_slice(device: &Device, elements: &[T]) -> Result<Pinned<T>> {
        let mut new = Pinned::zeros(device, elements.len())?;
        new.copy_from_slice(elements);
        Ok(new)
    }
}

impl<T: Element> Deref for Pinned<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        // SAFETY: `len` elements, initialised, borrowed as this is; aligned as the driver's pages or as above.
        unsafe { std::slice::from_raw_parts(self.base, self.len) }
    }
}

impl<T: Element> DerefMut for Pinned<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.base, self.len) }
    }
}

impl<T: Element> Drop for Pinned<T> {
    fn drop(&mut self) {
        match self.kind {
            Kind::Nothing => {}
            // SAFETY: allocated with this layout; copies that go on own the buffer, so none does.
            Kind::Host(layout) => unsafe { std::alloc::dealloc(self.base.cast(), layout) },
            Kind::Cuda(context) => {
                if context.bind().is_ok() {
                    // SAFETY: as above.
                    let _ = unsafe { sys::cuMemFreeHost(self.base.cast()) };
                }
            }
        }
    }
}

impl<T: Element> fmt::Debug for Pinned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if matches!(self.kind, Kind::Cuda(_)) { "page-locked" } else { "ordinary" };
        write!(f, "Pinned<{}>[{}], {kind}", T::DTYPE, self.len)
    }
}
