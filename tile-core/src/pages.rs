//! Pages of rows behind a tensor map, gathered through lists of page numbers that lie on the device.
//!
//! Page numbers are data, and may be anything: one that is no page's reads as zeros. The page is the outermost coordinate
//! of the copy, which the engine checks, and it is compared before.

use core::marker::PhantomData;

use crate::backend::{self, Barrier, Smem};
use crate::element::Element;
#[cfg(not(target_arch = "nvptx64"))]
use crate::tma::TensorMapRequest;
use crate::tma::{SPAN, TensorMap};
#[cfg(not(target_arch = "nvptx64"))]
use crate::view::Provenance;
use crate::view::{RawView, Strip};

/// Rows of a box that lies in one page, at most `most`: the largest of 64, 32, 16 and 8 that divides a page's rows.
pub const fn page_box(page_rows: u32, most: u32) -> u32 {
    let mut high = if most < 64 { most } else { 64 };
    while high > 8 && page_rows % high != 0 {
        high /= 2;
    }
    high
}

/// A read-only stack of pages, each of the same number of rows (a multiple of 8) of `N` columns, for the bulk copy engine.
/// Rows are named through a list of page numbers: row `r` of a list lies in page `list[r / rows of a page]`. At most `BOX`
/// rows are copied at once. Freely copied.
pub struct TmaPages<'a, T, const BOX: usize, const N: usize> {
    #[cfg(not(target_arch = "nvptx64"))]
    base: *const T,
    raw: RawView,
    #[cfg(target_arch = "nvptx64")]
    map: u64,
    #[cfg(not(target_arch = "nvptx64"))]
    pub(crate) map: TensorMap,
    #[cfg(not(target_arch = "nvptx64"))]
    pub(crate) provenance: Provenance<'a>,
    _p: PhantomData<&'a T>,
}
impl<T, const BOX: usize, const N: usize> Clone for TmaPages<'_, T, BOX, N> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}
impl<T, const BOX: usize, const N: usize> Copy for TmaPages<'_, T, BOX, N> {}
// SAFETY: as `&[T]`.
unsafe impl<T: Element, const BOX: usize, const N: usize> Send for TmaPages<'_, T, BOX, N> {}
// SAFETY: as above.
unsafe impl<T: Element, const BOX: usize, const N: usize> Sync for TmaPages<'_, T, BOX, N> {}

impl<'a, T: Element, const BOX: usize, const N: usize> TmaPages<'a, T, BOX, N> {
    const VALID: () = {
        assert!(N * size_of::<T>() % SPAN == 0, "rows behind a tensor map are a multiple of 128 bytes wide");
        assert!(BOX == 8 || BOX == 16 || BOX == 32 || BOX == 64, "8, 16, 32 or 64 rows are copied at once");
    };
    /// Pages of the stack.
    #[inline(always)]
    pub fn pages(&self) -> u32 {
        self.raw.slabs
    }
    /// Rows of a page.
    #[inline(always)]
    pub fn page_rows(&self) -> u32 {
        self.raw.rows
    }
    /// The rows from `first` on that `list` names. What no entry of the list names, or one that is not a page's number, reads
    /// as zeros. The list is read when the copy begins.
    #[inline(always)]
    pub fn gather(&self, list: Strip<'a, i32, 1, 1>, first: u32) -> TmaGather<'a, T, N> {
        let () = Self::VALID;
        TmaGather {
            #[cfg(not(target_arch = "nvptx64"))]
            base: self.base,
            #[cfg(target_arch = "nvptx64")]
            map: self.map,
            raw: self.raw,
            list,
            first,
            high: page_box(self.raw.rows, BOX as u32),
            x: 0,
            _p: PhantomData,
        }
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl<'a, T: Element, const BOX: usize, const N: usize> TmaPages<'a, T, BOX, N> {
    /// What the map of a view with these extents must say.
    #[doc(hidden)]
    pub fn map_request(raw: &RawView) -> TensorMapRequest {
        let () = Self::VALID;
        TensorMapRequest {
            dtype: T::DTYPE,
            dims: [raw.cols as u64, raw.rows as u64],
            row_bytes: raw.row_stride * size_of::<T>() as u64,
            block: [(SPAN / size_of::<T>()) as u32, page_box(raw.rows, BOX as u32)],
            pages: Some((raw.slabs as u64, raw.slab_stride * size_of::<T>() as u64)),
        }
    }
    /// # Safety
    /// As [`Tiles::from_raw`](crate::view::Tiles::from_raw); a page has a multiple of 8 rows; on a CUDA device `map` is
    /// what [`map_request`](Self::map_request) asks for at `base`.
    #[doc(hidden)]
    pub unsafe fn from_raw(base: *const T, raw: RawView, map: TensorMap, provenance: Provenance<'a>) -> Self {
        TmaPages { base, raw, map, provenance, _p: PhantomData }
    }
    pub(crate) fn base_and_raw(&self) -> (*const T, RawView) {
        (self.base, self.raw)
    }
}

#[cfg(target_arch = "nvptx64")]
impl<T: Element, const BOX: usize, const N: usize> TmaPages<'_, T, BOX, N> {
    /// # Safety
    /// The launcher passed a map and `raw` for a view of this type.
    #[inline(always)]
    pub(crate) unsafe fn receive(_: *mut u8, map: u64, raw: RawView) -> Self {
        TmaPages { raw, map, _p: PhantomData }
    }
}

/// Rows of [`TmaPages`], from one on: a source for a pipeline's slot.
pub struct TmaGather<'a, T, const N: usize> {
    #[cfg(not(target_arch = "nvptx64"))]
    pub(crate) base: *const T,
    #[cfg(target_arch = "nvptx64")]
    pub(crate) map: u64,
    pub(crate) raw: RawView,
    list: Strip<'a, i32, 1, 1>,
    first: u32,
    /// Rows copied at once.
    pub(crate) high: u32,
    pub(crate) x: u32,
    _p: PhantomData<&'a T>,
}
impl<T, const N: usize> Clone for TmaGather<'_, T, N> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}
impl<T, const N: usize> Copy for TmaGather<'_, T, N> {}

/// Two [`TmaGather`]s side by side: see [`beside`](TmaGather::beside).
pub struct Beside<'a, T, const N: usize, const M: usize, const ALL: usize>(TmaGather<'a, T, N>, TmaGather<'a, T, M>);
impl<T, const N: usize, const M: usize, const ALL: usize> Clone for Beside<'_, T, N, M, ALL> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}
impl<T, const N: usize, const M: usize, const ALL: usize> Copy for Beside<'_, T, N, M, ALL> {}

mod sealed {
    pub trait Sealed {}
    impl<T, const N: usize> Sealed for super::TmaGather<'_, T, N> {}
    impl<T, const N: usize, const M: usize, const ALL: usize> Sealed for super::Beside<'_, T, N, M, ALL> {}
}

/// Rows of `C` columns that lie in pages: what fills a slot. Sealed.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not rows of {C} columns that lie in pages",
    note = "`TmaPages::gather` gives rows as wide as a page's, `columns` a part of them, and `beside` joins two parts"
)]
pub trait Paged<T: Element, const C: usize>: Copy + sealed::Sealed {
    /// The same if `any`, else nothing but zeros.
    #[doc(hidden)]
    fn only(self, any: bool) -> Self;
    /// Starts the copies of `rows` rows to the tile at `to`.
    ///
    /// # Safety
    /// By one thread; the tile is empty, and `bar` expects its bytes.
    #[doc(hidden)]
    unsafe fn bring(&self, to: Smem, rows: usize, bar: Barrier);
}

impl<T: Element, const C: usize> Paged<T, C> for TmaGather<'_, T, C> {
    #[inline(always)]
    fn only(self, any: bool) -> Self {
        TmaGather { raw: RawView { slabs: if any { self.raw.slabs } else { 0 }, ..self.raw }, ..self }
    }
    #[inline(always)]
    unsafe fn bring(&self, to: Smem, rows: usize, bar: Barrier) {
        // SAFETY: the caller's.
        unsafe { backend::gather::<T, C>(to, self, rows, bar) }
    }
}

impl<T: Element, const N: usize, const M: usize, const ALL: usize> Paged<T, ALL> for Beside<'_, T, N, M, ALL> {
    #[inline(always)]
    fn only(self, any: bool) -> Self {
        Beside(self.0.only(any), self.1.only(any))
    }
    #[inline(always)]
    unsafe fn bring(&self, to: Smem, rows: usize, bar: Barrier) {
        // SAFETY: the caller's; columns lie in slabs of `SPAN` bytes, of which the first source fills whole ones.
        unsafe {
            backend::gather::<T, N>(to, &self.0, rows, bar);
            backend::gather::<T, M>(to.add(N * size_of::<T>() * rows), &self.1, rows, bar);
        }
    }
}

impl<'a, T: Element, const N: usize> TmaGather<'a, T, N> {
    /// Columns `FROM..FROM + LEN` of the rows.
    #[inline(always)]
    pub fn columns<const FROM: usize, const LEN: usize>(self) -> TmaGather<'a, T, LEN> {
        const {
            assert!(FROM * size_of::<T>() % SPAN == 0 && LEN * size_of::<T>() % SPAN == 0, "boxes are 128 bytes wide");
            assert!(FROM + LEN <= N, "a column range lies in its row");
        }
        TmaGather {
            #[cfg(not(target_arch = "nvptx64"))]
            base: self.base,
            #[cfg(target_arch = "nvptx64")]
            map: self.map,
            raw: self.raw,
            list: self.list,
            first: self.first,
            high: self.high,
            x: self.x + FROM as u32,
            _p: PhantomData,
        }
    }
    /// These rows, continued by those of `other`: `ALL` columns in all. How keys that are kept in two tensors fill one tile.
    #[inline(always)]
    pub fn beside<const M: usize, const ALL: usize>(self, other: TmaGather<'a, T, M>) -> Beside<'a, T, N, M, ALL> {
        const { assert!(N + M == ALL, "two sources side by side are as wide as both") };
        Beside(self, other)
    }
    /// Whether any of the first `rows` rows lies in a page that does not exist.
    #[inline(always)]
    pub fn lack(&self, rows: u32) -> bool {
        let (mut row, mut lack) = (0, false);
        while row < rows {
            let (page, y) = self.at(row);
            lack |= page == i32::MAX;
            row += self.raw.rows.max(1) - y;
        }
        lack
    }
    /// The page and the row in it of row `row` of this source. 2^31 - 1 is no page.
    #[inline(always)]
    pub(crate) fn at(&self, row: u32) -> (i32, u32) {
        let (row, rows) = (self.first.wrapping_add(row), self.raw.rows);
        let entry = if rows == 64 { row / 64 } else { row.checked_div(rows).unwrap_or(u32::MAX) };
        let page = self.list.entry(entry).unwrap_or(i32::MAX);
        // as an unsigned number, a negative one is no page's either
        let page = if (page as u32) < self.raw.slabs { page } else { i32::MAX };
        (page, row.wrapping_sub(entry.wrapping_mul(rows)))
    }
}
