//! Tiles that are reduced over their rows, kept as elements, with shared memory of the kernel's own for the sums.

use core::marker::PhantomData;

use crate::backend::{self, NotShared, Smem};
use crate::element::{Element, Value};
use crate::layout::{ByColumns, Chunks};
use crate::roles::{BlockScope, Cta, Within};
use crate::shared::Shared;
use crate::tile::{Fetched, PerColumn, Tile};
use crate::tile_load::fetch;
use crate::view::TileRef;

/// Shared memory through which the warps of a block join what they have for `N` columns: a `#[shared]` parameter. `WORDS`
/// is `N` for each warp.
pub struct ColumnScratch<'b, const WORDS: usize> {
    base: Smem,
    used: bool,
    _p: PhantomData<(NotShared, Within<'b>)>,
}

// SAFETY: `WORDS` words from `tail`.
unsafe impl<'b, const WORDS: usize> Shared<'b> for ColumnScratch<'b, WORDS> {
    const BYTES: usize = 0;
    const TAIL: usize = WORDS * 4;
    #[inline(always)]
    unsafe fn claim(_: &'b BlockScope, _: Smem, tail: Smem) -> Self {
        ColumnScratch { base: tail, used: false, _p: PhantomData }
    }
}

impl<const THREADS: usize, const CLUSTER: usize> Cta<'_, THREADS, CLUSTER> {
    /// As [`load_columns`](Self::load_columns), but the values are not asked for yet: the reads are under way.
    #[inline(always)]
    pub fn fetch_columns<T: Element, const M: usize, const N: usize>(
        &mut self,
        from: TileRef<'_, T, M, N>,
    ) -> Fetched<T, M, N, ByColumns<THREADS, T::Chunk>> {
        fetch::<T, _, false, M, N>(&from.window)
    }
}

impl<T: Element<Value = f32>, const M: usize, const N: usize, const THREADS: usize, C: Chunks>
    Fetched<T, M, N, ByColumns<THREADS, C>>
{
    /// The sum of the squares of each column's values.
    #[inline(always)]
    pub fn column_squares<const WORDS: usize, const CLUSTER: usize>(
        &self,
        cta: &mut Cta<THREADS, CLUSTER>,
        scratch: &mut ColumnScratch<WORDS>,
    ) -> PerColumn<f32, N, ByColumns<THREADS, C>> {
        const { assert!(WORDS == N * (THREADS / 32), "a word for each column and warp") };
        if scratch.used {
            // others may still read what the time before left
            cta.meet();
        }
        scratch.used = true;
        let rows = if self.zero { M as u32 } else { self.rows };
        // SAFETY: the whole block is here: its token is borrowed exclusively, and so is the scratch. What is outside of `rows`
        // does not count.
        PerColumn::of(unsafe { backend::fold_column_squares::<T, THREADS, C, M, N>(scratch.base, &self.words, rows) })
    }

    /// `f` of every element, its counterparts in two columns and the value of its column, rounded. Values are not held.
    #[inline(always)]
    #[allow(clippy::type_complexity)] // a pair, as the two values of a row are
    pub fn combine_columns<W: Value, P: Value>(
        &self,
        columns: (&Tile<W, M, N, ByColumns<THREADS, C>>, &Tile<W, M, N, ByColumns<THREADS, C>>),
        per_column: &PerColumn<P, N, ByColumns<THREADS, C>>,
        f: impl Fn(T::Value, (W, W), P) -> T::Value + Sync,
    ) -> Self {
        let words = backend::combine_columns::<T, W, P, ByColumns<THREADS, C>, M, N>(
            &self.words,
            (&columns.0.values, &columns.1.values),
            per_column.values(),
            f,
        );
        Fetched { words, rows: self.rows, cols: self.cols, zero: false, _p: PhantomData }
    }
}
