//! Epilogues: what a product's accumulator meets before it is rounded and stored. Elements of global memory are combined
//! with those of an accumulator in `f32`; what lies outside a view counts as zero.
//!
//! ```
//! use tilewright_core::prelude::*;
//!
//! /// `relu(acc + bias) + residual`, for a kernel that calls it between a product and its store.
//! fn epilogue(
//!     acc: Acc<128, 2>,
//!     wg: &mut WarpGroup,
//!     bias: &Packed<bf16, 128>,
//!     residual: TileRef<'_, bf16, 128, 128>,
//! ) -> Acc<128, 2> {
//!     let acc = acc.zip_packed(bias, |x, b| (x + b).max(0.0));
//!     acc.zip(wg, residual, |x, r| x + r)
//! }
//!
//! /// The bias is fetched before the products, and is there when they end.
//! fn before(wg: &mut WarpGroup, bias: TileRef<'_, bf16, 1, 128>) -> Packed<bf16, 128> {
//!     wg.fetch_columns(bias)
//! }
//! ```
//!
//! Loads that follow the products are waited for while nothing else happens. What is fetched before them is not, and a
//! matrix of C's shape is better still brought by the copy engine: see [`over`](crate::over).

use crate::backend::{self, AccElement, Pack16, Wgmma, Width};
use crate::mma::{Acc, Packed};
use crate::roles::WarpGroup;
use crate::rows::AccRows;
use crate::view::{TileRef, Window};

/// Where the elements that an accumulator is combined with lie: that of row `r` and column `c` at
/// `ptr + r * row_step + c * col_step`.
pub(crate) struct Source<U> {
    pub(crate) ptr: *const U,
    pub(crate) rows: u32,
    pub(crate) cols: u32,
    pub(crate) row_step: usize,
    pub(crate) col_step: usize,
}

impl<U> Source<U> {
    /// A window, as it lies.
    #[inline(always)]
    pub(crate) fn plain(w: &Window<U>) -> Self {
        Source { ptr: w.ptr, rows: w.rows, cols: w.cols, row_step: w.stride as usize, col_step: 1 }
    }
}

impl<const N: usize, const H: usize> Acc<N, H>
where
    Width<N>: Wgmma,
{
    /// # Safety
    /// As for `backend::zip`.
    #[inline(always)]
    pub(crate) unsafe fn zip_source<U: AccElement>(
        self,
        source: Source<U>,
        f: impl Fn(f32, f32) -> f32 + Sync,
    ) -> Self {
        let regs = backend::map_stack(
            self.regs,
            #[inline(always)]
            // SAFETY: the caller's.
            |h, regs| unsafe { backend::zip::<U, N>(&source, 64 * h, regs, &f) },
        );
        Acc { regs }
    }

    /// `f(element, element of the tile)` of every element: a residual.
    #[inline(always)]
    pub fn zip<U: AccElement, const R: usize>(
        self,
        _wg: &mut WarpGroup,
        tile: TileRef<'_, U, R, N>,
        f: impl Fn(f32, f32) -> f32 + Sync,
    ) -> Self {
        const { assert!(R == 64 * H, "an accumulator is combined with a tile of its own shape") };
        // SAFETY: a view can be read, and is written by nobody during the launch.
        unsafe { self.zip_source(Source::plain(&tile.window), f) }
    }

    /// `f(element, value of its column)` of every element: a bias of each column, in a tile of one row.
    #[inline(always)]
    pub fn zip_columns<U: AccElement>(
        self,
        _wg: &mut WarpGroup,
        tile: TileRef<'_, U, 1, N>,
        f: impl Fn(f32, f32) -> f32 + Sync,
    ) -> Self {
        let w = &tile.window;
        let rows = if w.rows > 0 { 64 * H as u32 } else { 0 };
        let source = Source { ptr: w.ptr, rows, cols: w.cols, row_step: 0, col_step: 1 };
        // SAFETY: as above.
        unsafe { self.zip_source(source, f) }
    }
}

impl WarpGroup {
    /// The elements of a tile of one row, for the columns of an accumulator, in every row: a bias that is fetched before the
    /// products end. See [`Acc::zip_packed`].
    #[inline(always)]
    pub fn fetch_columns<T: Pack16, const N: usize>(&mut self, tile: TileRef<'_, T, 1, N>) -> Packed<T, N>
    where
        Width<N>: Wgmma,
    {
        // SAFETY: a view can be read, and is written by nobody during the launch.
        Packed::new(unsafe { backend::fetch_columns::<T, N>(&tile.window) })
    }

    /// The elements of a tile of one row, for the rows of an accumulator. See [`Acc::map_rows`].
    #[inline(always)]
    pub fn fetch_rows<T: Pack16>(&mut self, tile: TileRef<'_, T, 1, 64>) -> AccRows {
        // SAFETY: as above.
        AccRows::new(unsafe { backend::fetch_rows::<T>(&tile.window) })
    }

    /// The elements of a tile of one column, for the rows of an accumulator: factors of each row. What lies outside is zero.
    #[inline(always)]
    pub fn fetch_column(&mut self, tile: TileRef<'_, f32, 64, 1>) -> AccRows {
        // SAFETY: as above.
        AccRows::new(unsafe { backend::fetch_column(&tile.window) })
    }
}

impl<const N: usize, const H: usize> Acc<N, H>
where
    Width<N>: Wgmma,
{
    /// `f(element, element in the same place of the packed ones)` of every element, of each of its `H` times 64 rows.
    #[inline(always)]
    pub fn zip_packed<T: Pack16>(self, packed: &Packed<T, N>, f: impl Fn(f32, f32) -> f32 + Sync) -> Self {
        let regs = backend::map_stack(
            self.regs,
            #[inline(always)]
            |_, regs| backend::zip_packed::<T, N>(regs, &packed.regs, &f),
        );
        Acc { regs }
    }
}
