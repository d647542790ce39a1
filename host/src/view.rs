//! Parts of tensors: borrowed, strided.

use crate::device::Device;
use crate::error::{Error, Result, UNNAMED};
use crate::shape;
use crate::storage::Storage;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use tilewright_core::__private::Provenance;
use tilewright_core::element::Element;

/// What both kinds of view are.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a, const R: usize> {
    /// None for memory that nobody tracks.
    pub(crate) storage: Option<&'a Storage>,
    pub(crate) device: Device,
    pub(crate) base: *mut u8,
    pub(crate) extents: [usize; R],
    pub(crate) strides: [usize; R],
}

impl<'a, const R: usize> Place<'a, R> {
    fn of(storage: &'a Storage, extents: [usize; R]) -> Self {
        let strides = shape::contiguous(&extents);
        Place { storage: Some(storage), device: storage.device(), base: storage.base(), extents, strides }
    }

    /// Indices `range` of dimension `dim`.
    fn slice(mut self, dim: usize, range: Range<usize>, size: usize) -> Result<Self> {
        let (Some(extent), Some(&stride)) = (self.extents.get_mut(dim), self.strides.get(dim)) else {
            return Err(Error::Shape {
                arg: UNNAMED,
                expected: format!("a dimension below {R}"),
                found: dim.to_string(),
            });
        };
        if range.start > range.end || range.end > *extent {
            return Err(Error::Shape {
                arg: UNNAMED,
                expected: format!("a range within 0..{extent} of dimension {dim}"),
                found: format!("{range:?}"),
            });
        }
        *extent = range.end - range.start;
        // past the end of the memory only if nothing is left, and then it is never followed
        self.base = self.base.wrapping_add(range.start.wrapping_mul(stride).wrapping_mul(size));
        Ok(self)
    }

    fn reshape<const Q: usize>(self, extents: [usize; Q], size: usize) -> Result<Place<'a, Q>> {
        if !shape::is_contiguous(&self.extents, &self.strides) {
            return Err(Error::Stride {
                arg: UNNAMED,
                expected: "a view without gaps, to reshape it".into(),
                found: shape::show(&self.strides),
            });
        }
        let n = shape::elements(&self.extents, size);
        if n.is_none() || shape::elements(&extents, size) != n {
            let expected = format!("{} elements", n.unwrap_or_default());
            return Err(Error::Shape { arg: UNNAMED, expected, found: shape::show(&extents) });
        }
        let strides = shape::contiguous(&extents);
        Ok(Place { storage: self.storage, device: self.device, base: self.base, extents, strides })
    }

    pub(crate) fn foreign<T>(device: &Device, base: *mut T, extents: [usize; R], strides: [usize; R]) -> Result<Self> {
        let size = size_of::<T>();
        if shape::span(&extents, &strides, size).is_none() || shape::elements(&extents, size).is_none() {
            return Err(Error::Shape {
                arg: UNNAMED,
                expected: "a size within the address space".into(),
                found: format!("{} with strides {}", shape::show(&extents), shape::show(&strides)),
            });
        }
        let found = base as u64 % align_of::<T>() as u64;
        if found != 0 {
            let expected = align_of::<T>() as u64;
            return Err(Error::Alignment { arg: UNNAMED, what: "address", expected, found: base as u64 });
        }
        Ok(Place { storage: None, device: *device, base: base.cast(), extents, strides })
    }

    /// For the launcher.
    pub(crate) fn provenance(&self) -> Provenance<'a> {
        Provenance { owner: self.storage.map(|s| s as _), device: self.device.number() }
    }
}

/// Part of a tensor, to read. Freely copied.
#[derive(Clone, Copy)]
pub struct TensorView<'a, T: Element, const RANK: usize> {
    pub(crate) place: Place<'a, RANK>,
    _elements: PhantomData<&'a T>,
}

/// Part of a tensor, to write: nobody else has it.
pub struct TensorViewMut<'a, T: Element, const RANK: usize> {
    pub(crate) place: Place<'a, RANK>,
    _elements: PhantomData<&'a mut T>,
}

// SAFETY: as `&[T]`: elements are Send and Sync; the storage is Sync.
unsafe impl<T: Element, const R: usize> Send for TensorView<'_, T, R> {}
// SAFETY: as above.
unsafe impl<T: Element, const R: usize> Sync for TensorView<'_, T, R> {}
// SAFETY: as `&mut [T]`.
unsafe impl<T: Element, const R: usize> Send for TensorViewMut<'_, T, R> {}
// SAFETY: as `&mut [T]`: a shared reference to this view gives nothing but reading.
unsafe impl<T: Element, const R: usize> Sync for TensorViewMut<'_, T, R> {}

macro_rules! common {
    ($View:ident) => {
        impl<'a, T: Element, const RANK: usize> $View<'a, T, RANK> {
            pub(crate) fn at(place: Place<'a, RANK>) -> Self {
                $View { place, _elements: PhantomData }
            }

            /// The device it lies on.
            #[must_use]
            pub fn device(&self) -> Device {
                self.place.device
            }

            /// The extents.
            #[must_use]
            pub fn extents(&self) -> [usize; RANK] {
                self.place.extents
            }

            /// Elements from one index to the next, for each dimension.
            #[must_use]
            pub fn strides(&self) -> [usize; RANK] {
                self.place.strides
            }

            /// How many elements there are.
            #[must_use]
            pub fn len(&self) -> usize {
                shape::elements(&self.place.extents, size_of::<T>()).unwrap_or_default()
            }

            /// Whether there are none.
            #[must_use]
            pub fn is_empty(&self) -> bool {
                self.place.extents.contains(&0)
            }

            /// Whether elements follow each other without gaps, in order.
            #[must_use]
            pub fn is_contiguous(&self) -> bool {
                shape::is_contiguous(&self.place.extents, &self.place.strides)
            }

            /// The indices `range` of dimension `dim`.
            ///
            /// # Errors
            /// [`Error::Shape`] if that is not in the view.
            pub fn slice(self, dim: usize, range: Range<usize>) -> Result<Self> {
                Ok(Self::at(self.place.slice(dim, range, size_of::<T>())?))
            }

            /// The indices of dimension `dim` before `index`, and those from `index` on.
            ///
            /// # Errors
            /// [`Error::Shape`] if that is not in the view.
            pub fn split_at(self, dim: usize, index: usize) -> Result<(Self, Self)> {
                let end = self.place.extents.get(dim).copied().unwrap_or_default();
                let place = self.place;
                let low = place.slice(dim, 0..index, size_of::<T>())?;
                Ok((Self::at(low), Self::at(place.slice(dim, index..end, size_of::<T>())?)))
            }

            /// The same elements with other extents.
            ///
            /// # Errors
            /// [`Error::Stride`] if there are gaps, [`Error::Shape`] if there are more or fewer elements.
            pub fn reshape<const R: usize>(self, extents: [usize; R]) -> Result<$View<'a, T, R>> {
                Ok($View::at(self.place.reshape(extents, size_of::<T>())?))
            }
        }

        impl<'a, T: Element> $View<'a, T, 2> {
            /// Some of the rows.
            ///
            /// # Errors
            /// [`Error::Shape`] if that is not in the view.
            pub fn rows(self, range: Range<usize>) -> Result<Self> {
                self.slice(0, range)
            }

            /// Some of the columns.
            ///
            /// # Errors
            /// [`Error::Shape`] if that is not in the view.
            pub fn cols(self, range: Range<usize>) -> Result<Self> {
                self.slice(1, range)
            }
        }

        impl<'a, T: Element> $View<'a, T, 3> {
            /// The matrix at `index` of the first dimension.
            ///
            /// # Errors
            /// [`Error::Shape`] if that is not in the view.
            pub fn slab(self, index: usize) -> Result<$View<'a, T, 2>> {
                let place = self.place.slice(0, index..index.saturating_add(1), size_of::<T>())?;
                let ([_, rows, cols], [_, row, col]) = (place.extents, place.strides);
                let Place { storage, device, base, .. } = place;
                Ok($View::at(Place { storage, device, base, extents: [rows, cols], strides: [row, col] }))
            }
        }

        impl<T: Element, const RANK: usize> fmt::Debug for $View<'_, T, RANK> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let Place { device, extents, strides, .. } = self.place;
                write!(
                    f,
                    concat!(stringify!($View), "<{}>{:?} with strides {:?} on {}"),
                    T::DTYPE,
                    extents,
                    strides,
                    device
                )
            }
        }
    };
}
common!(TensorView);
common!(TensorViewMut);

impl<'a, T: Element, const RANK: usize> TensorView<'a, T, RANK> {
    pub(crate) fn of(storage: &'a Storage, extents: [usize; RANK]) -> Self {
        Self::at(Place::of(storage, extents))
    }

    /// A view of memory that somebody else owns. Strides count elements and may be anything, 0 included.
    ///
    /// # Errors
    /// [`Error::Alignment`] if the address does not suit `T`; [`Error::Shape`] if the size is beyond the address space.
    ///
    /// # Safety
    /// The memory holds initialised elements and lies on `device` (on the CPU: in this process). During `'a`, and until
    /// everything that was given this view is done, it is neither freed nor written, except by work that the caller
    /// orders with it: uses of this view are not tracked.
    pub unsafe fn from_raw(
        device: &Device,
        address: *const T,
        extents: [usize; RANK],
        strides: [usize; RANK],
    ) -> Result<Self> {
        Ok(Self::at(Place::foreign(device, address.cast_mut(), extents, strides)?))
    }

    /// The address of the first element, on the device.
    #[must_use]
    pub fn as_ptr(&self) -> *const T {
        self.place.base.cast_const().cast()
    }
}

impl<T: Element> TensorView<'_, T, 2> {
    /// Rows as columns. Kernels want adjacent columns; what is transposed can be copied, and transposed back.
    #[must_use]
    pub fn transpose(mut self) -> Self {
        self.place.extents.reverse();
        self.place.strides.reverse();
        self
    }
}

impl<'a, T: Element, const RANK: usize> TensorViewMut<'a, T, RANK> {
    pub(crate) fn of(storage: &'a mut Storage, extents: [usize; RANK]) -> Self {
        Self::at(Place::of(storage, extents))
    }

    /// A view of memory that somebody else owns, to write. Strides count elements.
    ///
    /// # Errors
    /// [`Error::Alignment`] if the address does not suit `T`; [`Error::Shape`] if the size is beyond the address space;
    /// [`Error::Stride`] unless it is plain from the strides that no two indices mean the same element.
    ///
    /// # Safety
    /// The memory holds initialised elements and lies on `device` (on the CPU: in this process). During `'a`, and until
    /// everything that was given this view is done, it is not freed and nobody else reads or writes it, except work that
    /// the caller orders with it: uses of this view are not tracked.
    pub unsafe fn from_raw(
        device: &Device,
        address: *mut T,
        extents: [usize; RANK],
        strides: [usize; RANK],
    ) -> Result<Self> {
        shape::expect_injective(&extents, &strides)?;
        Ok(Self::at(Place::foreign(device, address, extents, strides)?))
    }

    /// The address of the first element, on the device.
    #[must_use]
    pub fn as_mut_ptr(&mut self) -> *mut T {
        self.place.base.cast()
    }

    /// The same, to read.
    #[must_use]
    pub fn view(&self) -> TensorView<'_, T, RANK> {
        TensorView::at(self.place)
    }

    /// The same for a shorter time.
    #[must_use]
    pub fn reborrow(&mut self) -> TensorViewMut<'_, T, RANK> {
        TensorViewMut::at(self.place)
    }
}
