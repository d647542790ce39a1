//! Cutting tensors into tiles: the arguments of kernels.

use crate::driver;
use crate::error::{Error, Result, UNNAMED};
use crate::shape::{Rank, Tileable, raw_view};
use crate::tensor::Tensor;
use crate::view::{Place, TensorView, TensorViewMut};
use tilewright_core::__private::{RawRows, RawView, TensorMapRequest};
use tilewright_core::element::Element;
use tilewright_core::pages::TmaPages;
use tilewright_core::row_tiles::{RowTiles, RowTilesMut};
use tilewright_core::scatter::ScatterRows;
use tilewright_core::tma::{TensorMap, TmaTiles, TmaTilesMut};
use tilewright_core::view::{Tiles, TilesMut};

impl<'a, T: Element, const RANK: usize> TensorView<'a, T, RANK>
where
    Rank<RANK>: Tileable,
{
    /// The view cut into tiles of `M` rows and `N` columns, to read. A view of rank 1 is one row; one of rank 3 is a
    /// stack of matrices, and no tile reaches from one into the next. `M` and `N` follow from the kernel's signature.
    ///
    /// # Errors
    /// [`Error::Stride`] unless columns are adjacent; [`Error::Shape`] for extents or tile counts of 2^32 or more.
    pub fn tiles<const M: usize, const N: usize>(self) -> Result<Tiles<'a, T, M, N>> {
        let raw = raw_view(&self.place.extents, &self.place.strides, tile::<M, N>())?;
        // SAFETY: the view borrows (or its maker vouches for) memory of these extents and strides for 'a; launches are
        // noted in the storage, which orders and outlives them.
        Ok(unsafe { Tiles::from_raw(self.as_ptr(), raw, self.place.provenance()) })
    }
}

impl<'a, T: Element, const RANK: usize> TensorViewMut<'a, T, RANK>
where
    Rank<RANK>: Tileable,
{
    /// The view cut into tiles of `M` rows and `N` columns, to write. See [`TensorView::tiles`].
    ///
    /// # Errors
    /// As [`TensorView::tiles`].
    pub fn tiles_mut<const M: usize, const N: usize>(self) -> Result<TilesMut<'a, T, M, N>> {
        let raw = raw_view(&self.place.extents, &self.place.strides, tile::<M, N>())?;
        // SAFETY: as above, and borrowed exclusively; mutable views are only made with injective strides.
        Ok(unsafe { TilesMut::from_raw(self.place.base.cast(), raw, self.place.provenance()) })
    }
}

impl<'a, T: Element> TensorView<'a, T, 2> {
    /// The view cut into tiles of `M` rows and `N` columns, to read, behind a tensor map for the bulk copy engine.
    /// Maps are remembered: making the same view again is cheap.
    ///
    /// # Errors
    /// As [`TensorView::tiles`]; [`Error::Alignment`] unless the address and the bytes from row to row are multiples of
    /// 16; [`Error::Shape`] for extents of 2^31 or more; [`Error::DriverTooOld`], [`Error::Driver`].
    pub fn tma_tiles<const M: usize, const N: usize>(self) -> Result<TmaTiles<'a, T, M, N>> {
        let raw = raw_view(&self.place.extents, &self.place.strides, tile::<M, N>())?;
        let map = tensor_map(&self.place, &raw, TmaTiles::<T, M, N>::map_request(&raw))?;
        // SAFETY: as for `tiles`; the map is what was asked for.
        Ok(unsafe { TmaTiles::from_raw(self.as_ptr(), raw, map, self.place.provenance()) })
    }
}

impl<'a, T: Element> TensorView<'a, T, 3> {
    /// The view as a stack of pages, to read through lists of page numbers, behind a tensor map for the bulk copy engine.
    ///
    /// # Errors
    /// As for [`tma_tiles`](TensorView::tma_tiles); [`Error::Shape`] unless a page has a multiple of 8 rows;
    /// [`Error::Alignment`] unless the bytes from page to page are a multiple of 16.
    ///
    /// ```
    /// # use tilewright_host::{Device, Result, Tensor};
    /// let stream = Device::cpu().stream()?;
    /// let cache = Tensor::<f32, 3>::zeros(&stream, [10, 16, 64])?;
    /// let pages = cache.view().tma_pages::<16, 64>()?;
    /// assert_eq!((pages.pages(), pages.page_rows()), (10, 16));
    /// # Ok::<(), tilewright_host::Error>(())
    /// ```
    pub fn tma_pages<const BOX: usize, const N: usize>(self) -> Result<TmaPages<'a, T, BOX, N>> {
        let Place { extents: [pages, rows, cols], .. } = self.place;
        if rows == 0 || !rows.is_multiple_of(8) || cols != N {
            return Err(Error::Shape {
                arg: UNNAMED,
                expected: format!("pages of a multiple of 8 rows, of {N} columns"),
                found: crate::shape::show(&self.place.extents),
            });
        }
        let raw = raw_view(&self.place.extents, &self.place.strides, (BOX, N))?;
        let mut request = TmaPages::<T, BOX, N>::map_request(&raw);
        if pages <= 1 {
            // there is no second page: its distance is free
            request.pages = Some((pages as u64, request.row_bytes.saturating_mul(rows as u64)));
        }
        let map = tensor_map(&self.place, &raw, request)?;
        // SAFETY: as for `tiles`; the map is what was asked for.
        Ok(unsafe { TmaPages::from_raw(self.as_ptr(), raw, map, self.place.provenance()) })
    }
}

impl<'a, T: Element> TensorViewMut<'a, T, 3> {
    /// The view as a stack of pages of rows of `N` columns, of which a kernel writes those that a list on the device names.
    /// The launch shares out `tickets` pieces of work among its blocks.
    ///
    /// # Errors
    /// As [`TensorView::tiles`]; [`Error::Shape`] for other than `N` columns.
    ///
    /// ```
    /// # use tilewright_host::{Device, Result, Tensor};
    /// let stream = Device::cpu().stream()?;
    /// let mut cache = Tensor::<f32, 3>::zeros(&stream, [10, 16, 64])?;
    /// assert!(cache.view_mut().scatter_rows::<64>(1).is_ok());
    /// assert!(cache.view_mut().scatter_rows::<32>(1).is_err());
    /// # Ok::<(), tilewright_host::Error>(())
    /// ```
    pub fn scatter_rows<const N: usize>(self, tickets: u32) -> Result<ScatterRows<'a, T, N>> {
        if self.place.extents[2] != N {
            return Err(Error::Shape {
                arg: UNNAMED,
                expected: format!("rows of {N} columns"),
                found: crate::shape::show(&self.place.extents),
            });
        }
        let raw = raw_view(&self.place.extents, &self.place.strides, (1, N))?;
        // SAFETY: as for `tiles_mut`.
        Ok(unsafe { ScatterRows::from_raw(self.place.base.cast(), raw, tickets, self.place.provenance()) })
    }
}

impl<'a, T: Element> TensorViewMut<'a, T, 2> {
    /// The view cut into tiles of `M` rows and `N` columns, to write, behind a tensor map for the bulk copy engine.
    ///
    /// # Errors
    /// As [`TensorView::tma_tiles`]; and [`Error::Alignment`] unless rows end at a multiple of 16 bytes, as the engine writes so
    /// many at a time, past the end of a row that ends within them.
    pub fn tma_tiles_mut<const M: usize, const N: usize>(self) -> Result<TmaTilesMut<'a, T, M, N>> {
        let raw = raw_view(&self.place.extents, &self.place.strides, tile::<M, N>())?;
        // The copy engine writes 16 bytes at a time: a row that ends within 16 bytes would take its neighbours with it.
        let row = u64::from(raw.cols) * size_of::<T>() as u64;
        if raw.rows > 0 && raw.slabs > 0 && !row.is_multiple_of(TMA_ALIGN) {
            return Err(Error::Alignment { arg: UNNAMED, what: "end of a row", expected: TMA_ALIGN, found: row });
        }
        let map = tensor_map(&self.place, &raw, TmaTilesMut::<T, M, N>::map_request(&raw))?;
        // SAFETY: as for `tiles_mut`; the map is what was asked for.
        Ok(unsafe { TmaTilesMut::from_raw(self.place.base.cast(), raw, map, self.place.provenance()) })
    }
}

impl<'a, T: Element> TensorView<'a, T, 2> {
    /// The matrix cut into tiles of `M` whole rows, to read: for kernels that work row by row, on rows of at most `N`
    /// columns.
    ///
    /// # Errors
    /// As [`TensorView::tiles`]; [`Error::Shape`] for more than `N` columns.
    pub fn row_tiles<const M: usize, const N: usize>(self) -> Result<RowTiles<'a, T, M, N>> {
        let raw = raw_rows::<T, M, N>(&self.place)?;
        // SAFETY: as for `tiles`.
        Ok(unsafe { RowTiles::from_raw(self.as_ptr(), raw, self.place.provenance()) })
    }
}

impl<'a, T: Element> TensorViewMut<'a, T, 2> {
    /// The matrix cut into tiles of `M` whole rows, to write. See [`TensorView::row_tiles`].
    ///
    /// # Errors
    /// As [`TensorView::row_tiles`].
    pub fn row_tiles_mut<const M: usize, const N: usize>(self) -> Result<RowTilesMut<'a, T, M, N>> {
        let raw = raw_rows::<T, M, N>(&self.place)?;
        // SAFETY: as for `tiles_mut`.
        Ok(unsafe { RowTilesMut::from_raw(self.place.base.cast(), raw, self.place.provenance()) })
    }
}

fn raw_rows<T: Element, const M: usize, const N: usize>(place: &Place<'_, 2>) -> Result<RawRows> {
    let raw = raw_view(&place.extents, &place.strides, tile::<M, N>())?;
    let refused = || Error::Shape {
        arg: UNNAMED,
        expected: format!("a matrix of at most {N} columns"),
        found: crate::shape::show(&place.extents),
    };
    if raw.cols as usize > N {
        return Err(refused());
    }
    RawRows::of(place.base as u64, size_of::<T>(), &raw).ok_or_else(refused)
}

/// The tile shape; not empty.
const fn tile<const M: usize, const N: usize>() -> (usize, usize) {
    const { assert!(M > 0 && N > 0, "a tile has at least one row and one column") };
    (M, N)
}

/// What the bulk copy engine needs of addresses and row lengths, in bytes.
const TMA_ALIGN: u64 = 16;

/// Checks what a tensor map must satisfy, on every device alike, and encodes it where there is one.
fn tensor_map<const R: usize>(place: &Place<'_, R>, raw: &RawView, mut request: TensorMapRequest) -> Result<TensorMap> {
    let base = place.base as u64;
    if !base.is_multiple_of(TMA_ALIGN) {
        return Err(Error::Alignment { arg: UNNAMED, what: "address", expected: TMA_ALIGN, found: base });
    }
    if raw.rows > i32::MAX as u32 || raw.cols > i32::MAX as u32 || raw.slabs > i32::MAX as u32 {
        let found = crate::shape::show(&place.extents);
        return Err(Error::Shape { arg: UNNAMED, expected: "extents below 2^31, for a tensor map".into(), found });
    }
    if raw.rows <= 1 {
        // there is no second row: its distance is free
        let row = u64::from(raw.cols.max(1)) * request.dtype.size() as u64;
        request.row_bytes = row.next_multiple_of(TMA_ALIGN);
    }
    if !request.row_bytes.is_multiple_of(TMA_ALIGN) {
        let found = request.row_bytes;
        return Err(Error::Alignment { arg: UNNAMED, what: "row length", expected: TMA_ALIGN, found });
    }
    if request.row_bytes >= 1 << 40 {
        return Err(Error::Stride {
            arg: UNNAMED,
            expected: "rows less than 2^40 bytes apart, for a tensor map".into(),
            found: crate::shape::show(&place.strides),
        });
    }
    if let Some((_, bytes)) = request.pages {
        if !bytes.is_multiple_of(TMA_ALIGN) {
            return Err(Error::Alignment { arg: UNNAMED, what: "page length", expected: TMA_ALIGN, found: bytes });
        }
        if bytes >= 1 << 40 {
            return Err(Error::Stride {
                arg: UNNAMED,
                expected: "pages less than 2^40 bytes apart, for a tensor map".into(),
                found: crate::shape::show(&place.strides),
            });
        }
    }
    let Some(context) = place.device.cuda else {
        return Ok(TensorMap([0; 16]));
    };
    let empty = raw.rows == 0 || raw.cols == 0 || raw.slabs == 0;
    // A map can not describe nothing. Nobody loads through this one, but the engine may look at it: it describes one
    // element of memory that is there.
    let base = match place.storage {
        Some(storage) if empty => storage.base() as u64,
        _ => base,
    };
    if empty {
        request.dims = [1, 1];
        request.row_bytes = TMA_ALIGN;
        request.pages = request.pages.map(|_| (1, TMA_ALIGN));
    }
    let encode = || {
        context.bind()?;
        driver::encode(context, base, &request)
    };
    match place.storage {
        Some(storage) => storage.map(base as usize, &request, encode),
        None => encode(),
    }
}

impl<T: Element, const RANK: usize> Tensor<T, RANK>
where
    Rank<RANK>: Tileable,
{
    /// The tensor cut into tiles of `M` rows and `N` columns, to read: an argument for a kernel, whose signature says
    /// `M` and `N`. See [`TensorView::tiles`].
    ///
    /// # Errors
    /// As [`TensorView::tiles`].
    pub fn tiles<const M: usize, const N: usize>(&self) -> Result<Tiles<'_, T, M, N>> {
        self.view().tiles()
    }

    /// The tensor cut into tiles of `M` rows and `N` columns, to write.
    ///
    /// # Errors
    /// As [`TensorView::tiles`].
    pub fn tiles_mut<const M: usize, const N: usize>(&mut self) -> Result<TilesMut<'_, T, M, N>> {
        self.view_mut().tiles_mut()
    }
}

impl<T: Element> Tensor<T, 2> {
    /// The tensor cut into tiles, to read, behind a tensor map. See [`TensorView::tma_tiles`].
    ///
    /// # Errors
    /// As [`TensorView::tma_tiles`].
    pub fn tma_tiles<const M: usize, const N: usize>(&self) -> Result<TmaTiles<'_, T, M, N>> {
        self.view().tma_tiles()
    }

    /// The tensor cut into tiles, to write, behind a tensor map.
    ///
    /// # Errors
    /// As [`TensorView::tma_tiles`].
    pub fn tma_tiles_mut<const M: usize, const N: usize>(&mut self) -> Result<TmaTilesMut<'_, T, M, N>> {
        self.view_mut().tma_tiles_mut()
    }
}
