//! Tensors: device memory with a rank and an element type.

use crate::device::Device;
use crate::error::{Error, Result, UNNAMED};
use crate::shape;
use crate::storage::Storage;
use crate::stream::Stream;
use crate::view::{TensorView, TensorViewMut};
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use tilewright_core::element::Element;

/// Owns memory on a device: `RANK` extents, elements of type `T`, the last dimension adjacent.
///
/// What a stream was given may still be using a tensor when it is dropped: the memory is freed after that. Uses on
/// different streams are ordered by the tensor, so that what reads it comes after what wrote it.
///
/// ```
/// use tilewright_host::{Device, Tensor};
/// let stream = Device::cpu().stream()?;
/// let x = Tensor::<f32, 2>::from_slice(&stream, [2, 3], &[1., 2., 3., 4., 5., 6.])?;
/// assert_eq!(x.view().cols(1..3)?.to_vec(&stream)?, [2., 3., 5., 6.]);
/// # Ok::<(), tilewright_host::Error>(())
/// ```
pub struct Tensor<T: Element, const RANK: usize> {
    pub(crate) storage: Storage,
    extents: [usize; RANK],
    _elements: PhantomData<T>,
}

impl<T: Element, const RANK: usize> Tensor<T, RANK> {
    /// What is in it must be written before it is read.
    fn allocate(stream: &Stream, extents: [usize; RANK]) -> Result<Self> {
        let Some(n) = shape::elements(&extents, size_of::<T>()) else {
            let bytes = extents.iter().fold(size_of::<T>() as u64, |n, &e| n.saturating_mul(e as u64));
            return Err(Error::OutOfMemory { bytes, device: stream.device().to_string() });
        };
        let storage = Storage::zeroed(stream, n * size_of::<T>())?;
        Ok(Tensor { storage, extents, _elements: PhantomData })
    }

    /// All zeros. Does not wait.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], [`Error::Capturing`], [`Error::Driver`].
    pub fn zeros(stream: &Stream, extents: [usize; RANK]) -> Result<Self> {
        Self::allocate(stream, extents)
    }

    /// All `value`. Does not wait.
    ///
    /// # Errors
    /// As [`zeros`](Self::zeros).
    pub fn full(stream: &Stream, extents: [usize; RANK], value: T) -> Result<Self> {
        let mut t = Self::allocate(stream, extents)?;
        t.fill(stream, value)?;
        Ok(t)
    }

    /// A copy of `data`, the last dimension running fastest. Waits until the data is copied.
    ///
    /// # Errors
    /// [`Error::Length`] unless there are as many elements as the extents say; else as [`zeros`](Self::zeros).
    pub fn from_slice(stream: &Stream, extents: [usize; RANK], data: &[T]) -> Result<Self> {
        if shape::elements(&extents, size_of::<T>()) != Some(data.len()) {
            let expected = extents.iter().fold(1usize, |n, &e| n.saturating_mul(e));
            return Err(Error::Length { arg: UNNAMED, expected, found: data.len() });
        }
        let mut t = Self::allocate(stream, extents)?;
        t.copy_from_slice(stream, data)?;
        Ok(t)
    }

    /// A tensor in memory that somebody else allocated, without gaps. It is not freed.
    ///
    /// # Errors
    /// [`Error::Alignment`] if the address does not suit `T`; [`Error::Shape`] if the size is beyond the address space.
    ///
    /// # Safety
    /// Until this tensor is dropped and everything it was given to is done, the memory holds initialised elements, lies
    /// on `device` (on the CPU: in this process), is not freed, and nobody else uses it. A graph that recorded a use of it
    /// is not done while it lives.
    pub unsafe fn from_raw(device: &Device, address: *mut T, extents: [usize; RANK]) -> Result<Self> {
        // SAFETY: the caller's; used here for its checks alone.
        let view = unsafe { TensorViewMut::from_raw(device, address, extents, shape::contiguous(&extents)) }?;
        let bytes = view.len() * size_of::<T>();
        // SAFETY: the caller's.
        let storage = unsafe { Storage::foreign(*device, address.cast(), bytes) };
        Ok(Tensor { storage, extents, _elements: PhantomData })
    }

    /// The device it lies on.
    #[must_use]
    pub fn device(&self) -> Device {
        self.storage.device()
    }

    /// The extents.
    #[must_use]
    pub fn extents(&self) -> [usize; RANK] {
        self.extents
    }

    /// Elements from one index to the next, for each dimension.
    #[must_use]
    pub fn strides(&self) -> [usize; RANK] {
        shape::contiguous(&self.extents)
    }

    /// How many elements there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.storage.bytes() / size_of::<T>()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The address, on the device. Work given to other libraries with it is not tracked.
    #[must_use]
    pub fn as_ptr(&self) -> *const T {
        self.storage.base().cast()
    }

    /// The address, on the device. Work given to other libraries with it is not tracked.
    #[must_use]
    pub fn as_mut_ptr(&mut self) -> *mut T {
        self.storage.base().cast()
    }

    /// All of it, to read.
    #[must_use]
    pub fn view(&self) -> TensorView<'_, T, RANK> {
        TensorView::of(&self.storage, self.extents)
    }

    /// All of it, to write.
    #[must_use]
    pub fn view_mut(&mut self) -> TensorViewMut<'_, T, RANK> {
        TensorViewMut::of(&mut self.storage, self.extents)
    }

    /// The same elements with other extents.
    ///
    /// # Errors
    /// [`Error::Shape`] if there are more or fewer elements.
    pub fn reshape<const R: usize>(self, extents: [usize; R]) -> Result<Tensor<T, R>> {
        if shape::elements(&extents, size_of::<T>()) != Some(self.len()) {
            let expected = format!("{} elements", self.len());
            return Err(Error::Shape { arg: UNNAMED, expected, found: shape::show(&extents) });
        }
        Ok(Tensor { storage: self.storage, extents, _elements: PhantomData })
    }

    /// Part of dimension `dim`, to read. See [`TensorView::slice`].
    ///
    /// # Errors
    /// [`Error::Shape`] if that is not in it.
    pub fn slice(&self, dim: usize, range: Range<usize>) -> Result<TensorView<'_, T, RANK>> {
        self.view().slice(dim, range)
    }

    /// Part of dimension `dim`, to write.
    ///
    /// # Errors
    /// [`Error::Shape`] if that is not in it.
    pub fn slice_mut(&mut self, dim: usize, range: Range<usize>) -> Result<TensorViewMut<'_, T, RANK>> {
        self.view_mut().slice(dim, range)
    }

    /// The elements, the last dimension running fastest. Waits for whatever writes them.
    ///
    /// # Errors
    /// [`Error::Device`], [`Error::OutOfMemory`], [`Error::Capturing`], [`Error::Driver`]; the latter also for what
    /// failed on the device earlier.
    pub fn to_vec(&self, stream: &Stream) -> Result<Vec<T>> {
        self.view().to_vec(stream)
    }

    /// Copies the elements into `out`. Waits for whatever writes them.
    ///
    /// # Errors
    /// [`Error::Length`]; else as [`to_vec`](Self::to_vec).
    pub fn copy_to_slice(&self, stream: &Stream, out: &mut [T]) -> Result<()> {
        self.view().copy_to_slice(stream, out)
    }

    /// Overwrites the elements with `data`. Waits until the data is copied.
    ///
    /// # Errors
    /// [`Error::Length`], [`Error::Device`], [`Error::Capturing`], [`Error::Driver`].
    pub fn copy_from_slice(&mut self, stream: &Stream, data: &[T]) -> Result<()> {
        self.view_mut().copy_from_slice(stream, data)
    }

    /// Overwrites the elements with those of a tensor of the same extents on the same device. Does not wait.
    ///
    /// # Errors
    /// [`Error::Shape`], [`Error::Device`], [`Error::Driver`].
    pub fn copy_from(&mut self, stream: &Stream, source: TensorView<'_, T, RANK>) -> Result<()> {
        self.view_mut().copy_from(stream, source)
    }

    /// Overwrites all elements with `value`. Does not wait.
    ///
    /// # Errors
    /// [`Error::Device`], [`Error::Driver`].
    pub fn fill(&mut self, stream: &Stream, value: T) -> Result<()> {
        self.view_mut().fill(stream, value)
    }
}

impl<T: Element, const RANK: usize> fmt::Debug for Tensor<T, RANK> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor<{}>{:?} on {}", T::DTYPE, self.extents, self.device())
    }
}
