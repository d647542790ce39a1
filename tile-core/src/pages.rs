//! Pages of rows behind a tensor map, gathered through lists of page numbers that lie on the device.
//!
//! Page numbers are data, and may be anything: one that is no page's reads as zeros. The page is the outermost coordinate
//! of the copy, which the engine checks, and it is compared before.

use core::marker::PhantomData;

use crate::backend::{self, Barrier, Smem};
use crate::element::Element;
use crate::supply::Supplier;
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
    /// The rows from `first` on that `list` names, 256 of them at least. What no entry of the list names, or one that is not a
    /// page's number, reads as zeros. The list is read here, so that no copy waits for it.
    #[inline(always)]
    pub fn gather(&self, _warp: &mut Supplier, list: Strip<'a, i32, 1, 1>, first: u32) -> TmaGather<'a, T, N> {
        let () = Self::VALID;
        let (raw, high) = (self.raw, page_box(self.raw.rows, BOX as u32));
        TmaGather {
            #[cfg(not(target_arch = "nvptx64"))]
            base: self.base,
            #[cfg(target_arch = "nvptx64")]
            map: self.map,
            raw,
            found: backend::find(
                #[inline(always)]
                |row| locate(&raw, &list, first, row),
                high,
            ),
            most: BOX as u32,
            x: 0,
            _p: PhantomData,
        }
    }
}

/// The page and the row in it of row `first + row` of what `list` names. 2^31 - 1 is no page.
#[inline(always)]
fn locate(raw: &RawView, list: &Strip<'_, i32, 1, 1>, first: u32, row: u32) -> (i32, u32) {
    let (row, rows) = (first.wrapping_add(row), raw.rows);
    let entry = if rows == 64 { row / 64 } else { row.checked_div(rows).unwrap_or(u32::MAX) };
    let page = list.entry(entry).unwrap_or(i32::MAX);
    // as an unsigned number, a negative one is no page's either
    let page = if (page as u32) < raw.slabs { page } else { i32::MAX };
    (page, row.wrapping_sub(entry.wrapping_mul(rows)))
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
    /// Where its boxes lie.
    pub(crate) found: backend::Found,
    /// Rows of a box at most.
    most: u32,
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

/// Rows of two stacks of pages side by side: see [`beside`](TmaGather::beside).
pub struct Beside<'a, T, const N: usize, const M: usize, const ALL: usize> {
    left: TmaGather<'a, T, N>,
    right: backend::Pages<'a, T, M>,
}
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
    /// Starts the copies of the first `R` rows to the tile at `to`, and has `bar` expect and count their bytes. In a cluster
    /// of `K` the block does its share, for all of them.
    ///
    /// # Safety
    /// By a whole warp; the tile of `R` x `C` at `to` is free and 1024-byte aligned, in every block.
    #[doc(hidden)]
    unsafe fn bring<const R: usize, const K: usize>(&self, to: Smem, bar: Barrier);
}

impl<T: Element, const C: usize> Paged<T, C> for TmaGather<'_, T, C> {
    #[inline(always)]
    fn only(self, any: bool) -> Self {
        if any { self } else { TmaGather { found: self.found.nowhere(), ..self } }
    }
    #[inline(always)]
    unsafe fn bring<const R: usize, const K: usize>(&self, to: Smem, bar: Barrier) {
        // SAFETY: the caller's; no column is of the right stack.
        unsafe { backend::gather::<T, R, C, 0, K>(to, self, &backend::Pages::NONE, bar) }
    }
}

impl<T: Element, const N: usize, const M: usize, const ALL: usize> Paged<T, ALL> for Beside<'_, T, N, M, ALL> {
    #[inline(always)]
    fn only(self, any: bool) -> Self {
        Beside { left: self.left.only(any), ..self }
    }
    #[inline(always)]
    unsafe fn bring<const R: usize, const K: usize>(&self, to: Smem, bar: Barrier) {
        // SAFETY: the caller's.
        unsafe { backend::gather::<T, R, N, M, K>(to, &self.left, &self.right, bar) }
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
            found: self.found,
            most: self.most,
            x: self.x + FROM as u32,
            _p: PhantomData,
        }
    }
    /// These rows, continued by the same rows of the same pages of `other`: `ALL` columns in all. How keys that are kept in two
    /// tensors fill one tile. Where the pages of `other` have another number of rows, or there are fewer, they read as zeros.
    #[inline(always)]
    pub fn beside<const BOX: usize, const M: usize, const ALL: usize>(
        self,
        other: &TmaPages<'a, T, BOX, M>,
    ) -> Beside<'a, T, N, M, ALL> {
        const { assert!(N + M == ALL, "two sources side by side are as wide as both") };
        let () = TmaPages::<T, BOX, M>::VALID;
        // boxes are as high if as many rows at most are copied at once; none are if not
        let rows = if BOX as u32 == self.most { other.raw.rows } else { 0 };
        #[cfg(target_arch = "nvptx64")]
        let right = backend::Pages::new(other.map, rows);
        #[cfg(not(target_arch = "nvptx64"))]
        let right = backend::Pages::new(other.base, RawView { rows, ..other.raw });
        Beside { left: self, right }
    }
    /// Rows copied at once: of a box. Computed for each use: what follows from it would fill the supplier's registers.
    #[inline(always)]
    pub(crate) fn high(&self) -> u32 {
        page_box(backend::here(self.raw.rows), self.most)
    }
    /// The rows from row 64 on.
    #[inline(always)]
    pub fn after_64(self, _warp: &mut Supplier) -> Self {
        TmaGather { found: self.found.skip(64 / self.high()), ..self }
    }
    /// Whether any of the first `rows` rows (256 at most) lies in a page that does not exist.
    #[inline(always)]
    pub fn lack(&self, _warp: &mut Supplier, rows: u32) -> bool {
        self.found.any_missing(rows.div_ceil(self.high()))
    }
}
