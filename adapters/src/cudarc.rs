//! cudarc's slices and streams.
//!
//! ```no_run
//! use tilewright::ops::gemm::gemm;
//! use tilewright_adapters::cudarc::scope;
//!
//! let context = cudarc::driver::CudaContext::new(0)?;
//! let stream = context.default_stream();
//! let a = stream.clone_htod(&[1.0f32; 64 * 32])?;
//! let b = stream.clone_htod(&[2.0f32; 48 * 32])?;
//! let mut c = stream.alloc_zeros::<f32>(64 * 48)?;
//! scope(&stream, |s| gemm(s.stream(), s.view(&a, [64, 32])?, s.view(&b, [48, 32])?, s.view_mut(&mut c, [64, 48])?))?;
//! assert_eq!(stream.clone_dtoh(&c)?, [64.0; 64 * 48]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use ::cudarc::driver::{CudaContext, CudaStream, DevicePtr, DevicePtrMut, DeviceRepr, SyncOnDrop, result};
use std::cell::RefCell;
use std::sync::Arc;
use tilewright::element::Element;
use tilewright::foreign;
use tilewright::{Device, Error, Result, Stream, TensorView, TensorViewMut};

/// The device of a context.
///
/// # Errors
/// [`Error::Unsupported`] if it is not the device's primary context; [`Error::Driver`].
pub fn device(context: &CudaContext) -> Result<Device> {
    let ordinal = u32::try_from(context.ordinal()).unwrap_or(u32::MAX);
    let device = Device::cuda(ordinal)?;
    // SAFETY: a device's handle; what is retained is released at once, and cudarc's own hold stays.
    let primary = unsafe {
        let primary = result::primary_ctx::retain(context.cu_device()).map_err(driver("cuDevicePrimaryCtxRetain"))?;
        result::primary_ctx::release(context.cu_device()).map_err(driver("cuDevicePrimaryCtxRelease"))?;
        primary
    };
    if primary != context.cu_ctx() {
        return Err(Error::Unsupported { what: "a context other than the primary one", device: device.to_string() });
    }
    Ok(device)
}

fn driver(call: &'static str) -> impl Fn(result::DriverError) -> Error {
    move |e: result::DriverError| Error::Driver {
        call,
        code: e.0 as u32,
        name: format!("{:?}", e.0),
        log: String::new(),
    }
}

/// A stream, as tilewright's: to launch on, to capture. It keeps cudarc's alive.
///
/// # Errors
/// As [`device`].
pub fn stream(stream: &Arc<CudaStream>) -> Result<Stream> {
    let device = device(stream.context())?;
    // SAFETY: a stream of the primary context, destroyed by cudarc when its last owner is gone; `owner` is one.
    unsafe { Stream::from_owner(&device, stream.cu_stream().cast(), stream.clone()) }
}

/// Lends slices to kernels: see [`tilewright::foreign::scope`]. Work may be given to any stream of tilewright's; what
/// cudarc does with the slices before, on whatever stream, comes before it, and what cudarc does after, after it.
///
/// # Errors
/// Those of the closure; [`device`]'s; [`Error::Driver`].
pub fn scope<'env, R>(
    stream: &'env Arc<CudaStream>,
    body: impl for<'a, 'scope> FnOnce(&Scope<'a, 'scope, 'env>) -> Result<R>,
) -> Result<R> {
    let home = self::stream(stream)?;
    // Dropped last, so that cudarc records its events after everything was ordered before them.
    let guards = RefCell::new(Vec::new());
    scope_on(&home, stream, &guards, body)
}

fn scope_on<'home, 'env, R>(
    home: &'home Stream,
    stream: &'env Arc<CudaStream>,
    guards: &RefCell<Vec<SyncOnDrop<'env>>>,
    body: impl for<'a, 'scope> FnOnce(&Scope<'a, 'scope, 'env>) -> Result<R>,
) -> Result<R> {
    foreign::scope(home, foreign::Ending::OnStream, |inner| body(&Scope { inner, stream, guards }))
}

/// What slices can be lent to.
pub struct Scope<'a, 'scope, 'env> {
    inner: &'scope foreign::Scope<'scope, 'a>,
    stream: &'env Arc<CudaStream>,
    guards: &'a RefCell<Vec<SyncOnDrop<'env>>>,
}

impl<'scope, 'env> Scope<'_, 'scope, 'env> {
    /// cudarc's stream, as tilewright's.
    #[must_use]
    pub fn stream(&self) -> &Stream {
        self.inner.stream()
    }

    fn check(&self, context: &CudaContext) -> Result<()> {
        if context.cu_ctx() == self.stream.context().cu_ctx() {
            return Ok(());
        }
        Err(Error::Device {
            arg: "slice",
            expected: format!("CUDA device {}", self.stream.context().ordinal()),
            found: format!("CUDA device {}", context.ordinal()),
        })
    }

    /// A slice, or a part of one, without gaps.
    ///
    /// # Errors
    /// [`Error::Shape`] if it has fewer elements; [`Error::Device`] if it is another device's; [`Error::Capturing`].
    pub fn view<T: Element + DeviceRepr, const R: usize>(
        &self,
        slice: &'env impl DevicePtr<T>,
        extents: [usize; R],
    ) -> Result<TensorView<'scope, T, R>> {
        self.view_strided(slice, extents, crate::contiguous(extents))
    }

    /// A slice, or a part of one. Strides count elements, and may be anything, 0 included.
    ///
    /// # Errors
    /// As [`view`](Self::view).
    pub fn view_strided<T: Element + DeviceRepr, const R: usize>(
        &self,
        slice: &'env impl DevicePtr<T>,
        extents: [usize; R],
        strides: [usize; R],
    ) -> Result<TensorView<'scope, T, R>> {
        self.check(slice.stream().context())?;
        let (address, guard) = slice.device_ptr(self.stream);
        self.guards.borrow_mut().push(guard);
        // SAFETY: the slice is borrowed to read, longer than the scope; cudarc has made the stream wait for its writes.
        unsafe { self.inner.view(address as *const T, slice.len(), extents, strides) }
    }

    /// A slice, or a part of one, to write, without gaps.
    ///
    /// # Errors
    /// As [`view`](Self::view).
    pub fn view_mut<T: Element + DeviceRepr, const R: usize>(
        &self,
        slice: &'env mut impl DevicePtrMut<T>,
        extents: [usize; R],
    ) -> Result<TensorViewMut<'scope, T, R>> {
        self.view_mut_strided(slice, extents, crate::contiguous(extents))
    }

    /// A slice, or a part of one, to write.
    ///
    /// # Errors
    /// As [`view`](Self::view); [`Error::Stride`] unless it is plain from the strides that no two indices mean the same
    /// element.
    pub fn view_mut_strided<T: Element + DeviceRepr, const R: usize>(
        &self,
        slice: &'env mut impl DevicePtrMut<T>,
        extents: [usize; R],
        strides: [usize; R],
    ) -> Result<TensorViewMut<'scope, T, R>> {
        self.check(slice.stream().context())?;
        let len = slice.len();
        let (address, guard) = slice.device_ptr_mut(self.stream);
        self.guards.borrow_mut().push(guard);
        // SAFETY: the slice is borrowed exclusively, longer than the scope; cudarc has made the stream wait for its uses.
        unsafe { self.inner.view_mut(address as *mut T, len, extents, strides) }
    }
}
