//! cust's buffers and streams (cust 0.3.2, its `impl_half` left off: that is of another version of `half`).
//!
//! cust links against `libcuda.so` when it is built. Without a CUDA installation a stub does: a library of that name with
//! the driver's functions in it, at `$CUDA_LIBRARY_PATH/lib64/stubs/libcuda.so`. This repository's fake driver is one:
//! `cargo xtask adapters` builds and tests this module with it. At run time the real driver takes its place.
//!
//! ```no_run
//! use cust::prelude::*;
//! use std::sync::Arc;
//! use tilewright::ops::rmsnorm::rmsnorm;
//! use tilewright_adapters::cust::scope;
//!
//! let context = cust::quick_init()?;
//! let stream = Arc::new(Stream::new(StreamFlags::DEFAULT, None)?);
//! let (x, w) = (DeviceBuffer::from_slice(&[3.0f32, 4.0])?, DeviceBuffer::from_slice(&[1.0f32, 1.0])?);
//! let mut y = DeviceBuffer::<f32>::zeroed(2)?;
//! scope(&context, &stream, |s| {
//!     rmsnorm(s.stream(), s.view(&x, [1, 2])?, s.view(&w, [2])?, s.view_mut(&mut y, [1, 2])?, 0.0)
//! })?;
//! println!("{:?}", y.as_host_vec()?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use ::cust::context::{Context, CurrentContext};
use ::cust::error::CudaError;
use ::cust::memory::{DeviceBuffer, DeviceCopy};
use ::cust::stream::Stream as CustStream;
use ::cust::sys;
use std::sync::Arc;
use tilewright::element::{Element, bf16, f16};
use tilewright::foreign;
use tilewright::{Device, Error, Result, Stream, TensorView, TensorViewMut};

/// What a buffer may hold for elements of type `T`: these themselves, or `u16` for the 16-bit floats. Sealed.
pub trait Holds<T: Element>: DeviceCopy + sealed::Sealed<T> {}
mod sealed {
    pub trait Sealed<T> {}
}
macro_rules! holds {
    ($($held:ty as $t:ty),*) => {$(
        impl sealed::Sealed<$t> for $held {}
        impl Holds<$t> for $held {}
    )*};
}
holds!(f32 as f32, i32 as i32, u32 as u32, u8 as u8, i8 as i8, u16 as f16, u16 as bf16);

/// The device of a context. The context is made current in this thread.
///
/// # Errors
/// [`Error::Driver`]; [`Device::cuda`]'s.
pub fn device(context: &Context) -> Result<Device> {
    CurrentContext::set_current(context).map_err(driver("cuCtxSetCurrent"))?;
    let device = CurrentContext::get_device().map_err(driver("cuCtxGetDevice"))?;
    // The driver's handles of devices are their ordinals.
    Device::cuda(u32::try_from(device.as_raw()).unwrap_or(u32::MAX))
}

fn driver(call: &'static str) -> impl Fn(CudaError) -> Error {
    move |e| Error::Driver { call, code: e as u32, name: format!("{e:?}"), log: String::new() }
}

/// A stream, as tilewright's: to launch on, to capture. It keeps cust's alive.
///
/// # Errors
/// [`Error::Device`] if the stream is not of this context; [`device`]'s.
pub fn stream(context: &Context, stream: &Arc<CustStream>) -> Result<Stream> {
    let device = device(context)?;
    let mut own: sys::CUcontext = std::ptr::null_mut();
    // SAFETY: a stream that is alive; writes a handle.
    let code = unsafe { sys::cuStreamGetCtx(stream.as_inner(), &mut own) };
    if code != sys::cudaError_enum::CUDA_SUCCESS || own != context.as_raw() {
        return Err(Error::Device {
            arg: "stream",
            expected: device.to_string(),
            found: "a stream of another context".into(),
        });
    }
    // SAFETY: a stream of a primary context, which is what `Context` is; destroyed when its last owner is gone; `owner`
    // is one.
    unsafe { Stream::from_owner(&device, stream.as_inner().cast(), stream.clone()) }
}

/// Lends buffers to kernels: see [`tilewright::foreign::scope`]. When it returns, everything that was given to streams is
/// done: buffers can be read, and freed, at once.
///
/// # Errors
/// Those of the closure; [`stream`]'s; [`Error::Driver`].
pub fn scope<'env, R>(
    context: &Context,
    stream: &'env Arc<CustStream>,
    body: impl for<'a, 'scope> FnOnce(&Scope<'a, 'scope, 'env>) -> Result<R>,
) -> Result<R> {
    let home = self::stream(context, stream)?;
    foreign::scope(&home, foreign::Ending::OnHost, |inner| body(&Scope { inner, env: std::marker::PhantomData }))
}

/// What buffers can be lent to.
pub struct Scope<'a, 'scope, 'env> {
    inner: &'scope foreign::Scope<'scope, 'a>,
    env: std::marker::PhantomData<&'env mut &'env ()>,
}

impl<'scope, 'env> Scope<'_, 'scope, 'env> {
    /// cust's stream, as tilewright's.
    #[must_use]
    pub fn stream(&self) -> &Stream {
        self.inner.stream()
    }

    /// A buffer, without gaps.
    ///
    /// # Errors
    /// [`Error::Shape`] if it has fewer elements; [`Error::Capturing`].
    pub fn view<B: Holds<T>, T: Element, const R: usize>(
        &self,
        buffer: &'env DeviceBuffer<B>,
        extents: [usize; R],
    ) -> Result<TensorView<'scope, T, R>> {
        self.view_strided(buffer, extents, crate::contiguous(extents))
    }

    /// A buffer. Strides count elements, and may be anything, 0 included.
    ///
    /// # Errors
    /// As [`view`](Self::view).
    pub fn view_strided<B: Holds<T>, T: Element, const R: usize>(
        &self,
        buffer: &'env DeviceBuffer<B>,
        extents: [usize; R],
        strides: [usize; R],
    ) -> Result<TensorView<'scope, T, R>> {
        let address = buffer.as_device_ptr().as_raw() as *const T;
        // SAFETY: the buffer is borrowed to read, longer than the scope, at whose end nothing uses it any more. What cust
        // does with it safely is done when its call returns.
        unsafe { self.inner.view(address, buffer.len(), extents, strides) }
    }

    /// A buffer, to write, without gaps.
    ///
    /// # Errors
    /// As [`view`](Self::view).
    pub fn view_mut<B: Holds<T>, T: Element, const R: usize>(
        &self,
        buffer: &'env mut DeviceBuffer<B>,
        extents: [usize; R],
    ) -> Result<TensorViewMut<'scope, T, R>> {
        self.view_mut_strided(buffer, extents, crate::contiguous(extents))
    }

    /// A buffer, to write.
    ///
    /// # Errors
    /// As [`view`](Self::view); [`Error::Stride`] unless it is plain from the strides that no two indices mean the same
    /// element.
    pub fn view_mut_strided<B: Holds<T>, T: Element, const R: usize>(
        &self,
        buffer: &'env mut DeviceBuffer<B>,
        extents: [usize; R],
        strides: [usize; R],
    ) -> Result<TensorViewMut<'scope, T, R>> {
        let address = buffer.as_device_ptr().as_raw() as *mut T;
        // SAFETY: as above, and borrowed exclusively.
        unsafe { self.inner.view_mut(address, buffer.len(), extents, strides) }
    }
}
