//! How register tiles are loaded.

use core::marker::PhantomData;

use crate::backend;
use crate::element::{Element, Value};
use crate::layout::{ByColumns, ByRows, Layout, Over};
use crate::roles::Cta;
use crate::row_tiles::PartMut;
use crate::tile::{Fetched, Tile};
use crate::view::{TileMut, TileRef, Window};

impl<const THREADS: usize, const CLUSTER: usize> Cta<'_, THREADS, CLUSTER> {
    /// Loads a tile, rows shared out among adjacent threads. Data that passes once: it is not kept in the L1 cache.
    #[inline(always)]
    pub fn load<T: Element, const M: usize, const N: usize>(
        &mut self,
        from: TileRef<'_, T, M, N>,
    ) -> Tile<T::Value, M, N, ByRows<THREADS, T::Chunk>> {
        read::<T, _, false, M, N>(&from.window)
    }

    /// As [`load`](Self::load), but the values are not asked for yet: the reads are under way, and the block goes on.
    #[inline(always)]
    pub fn fetch<T: Element, const M: usize, const N: usize>(
        &mut self,
        from: TileRef<'_, T, M, N>,
    ) -> Fetched<T, M, N, ByRows<THREADS, T::Chunk>> {
        fetch::<T, _, false, M, N>(&from.window)
    }

    /// As [`load_mut`](Self::load_mut), but the values are not asked for yet.
    #[inline(always)]
    pub fn fetch_mut<T: Element, const M: usize, const N: usize>(
        &mut self,
        from: &TileMut<'_, T, M, N>,
    ) -> Fetched<T, M, N, ByRows<THREADS, T::Chunk>> {
        const {
            assert!(
                CLUSTER == 1,
                "the tiles of an output belong to a whole cluster: in one, `roles` or `part` shares them out"
            )
        };
        fetch::<T, _, false, M, N>(&from.window)
    }

    /// As [`fetch_mut`](Self::fetch_mut), of the block's part of a tile that belongs to its cluster.
    #[inline(always)]
    pub fn fetch_part<T: Element, const M: usize, const P: usize>(
        &mut self,
        from: &PartMut<'_, T, M, P>,
    ) -> Fetched<T, M, P, ByRows<THREADS, T::Chunk>> {
        fetch::<T, _, false, M, P>(&from.tile.window)
    }

    /// As [`load_row_as`](Self::load_row_as), but the values are not asked for yet.
    #[inline(always)]
    pub fn fetch_row_as<T: Element, const M: usize, const N: usize, L: Layout<M, N> + Over<THREADS>>(
        &mut self,
        from: TileRef<'_, T, 1, N>,
    ) -> Fetched<T, M, N, L> {
        fetch::<T, L, true, M, N>(&repeated::<T, M, N>(&from))
    }

    /// Loads a tile, threads running along the columns first: for reductions over rows.
    #[inline(always)]
    pub fn load_columns<T: Element, const M: usize, const N: usize>(
        &mut self,
        from: TileRef<'_, T, M, N>,
    ) -> Tile<T::Value, M, N, ByColumns<THREADS, T::Chunk>> {
        read::<T, _, false, M, N>(&from.window)
    }

    /// Loads a tile in the layout of another, so that elements can be paired.
    #[inline(always)]
    pub fn load_like<T: Element, V: Value, const M: usize, const N: usize, L: Layout<M, N> + Over<THREADS>>(
        &mut self,
        _like: &Tile<V, M, N, L>,
        from: TileRef<'_, T, M, N>,
    ) -> Tile<T::Value, M, N, L> {
        read::<T, L, false, M, N>(&from.window)
    }

    /// Loads one row in the layout of a tile, and repeats it in all `M` rows. It is kept in the L1 cache.
    #[inline(always)]
    pub fn load_row_like<T: Element, V: Value, const M: usize, const N: usize, L: Layout<M, N> + Over<THREADS>>(
        &mut self,
        _like: &Tile<V, M, N, L>,
        from: TileRef<'_, T, 1, N>,
    ) -> Tile<T::Value, M, N, L> {
        self.load_row_as(from)
    }

    /// As [`load_row_like`](Self::load_row_like), in the layout that the context asks for.
    #[inline(always)]
    pub fn load_row_as<T: Element, const M: usize, const N: usize, L: Layout<M, N> + Over<THREADS>>(
        &mut self,
        from: TileRef<'_, T, 1, N>,
    ) -> Tile<T::Value, M, N, L> {
        read::<T, L, true, M, N>(&repeated::<T, M, N>(&from))
    }

    /// Loads one column in the layout of a tile, and repeats it in all `N` columns. It is kept in the L1 cache.
    #[inline(always)]
    pub fn load_column_like<T: Element, V: Value, const M: usize, const N: usize, L: Layout<M, N> + Over<THREADS>>(
        &mut self,
        _like: &Tile<V, M, N, L>,
        from: TileRef<'_, T, M, 1>,
    ) -> Tile<T::Value, M, N, L> {
        self.load_column_as(from)
    }

    /// As [`load_column_like`](Self::load_column_like), in the layout that the context asks for.
    #[inline(always)]
    pub fn load_column_as<T: Element, const M: usize, const N: usize, L: Layout<M, N> + Over<THREADS>>(
        &mut self,
        from: TileRef<'_, T, M, 1>,
    ) -> Tile<T::Value, M, N, L> {
        let column = &from.window;
        // SAFETY: the column is readable as far as the window says.
        let values = unsafe { backend::load_column::<T, L, M, N>(column) };
        Tile { values, rows: column.rows, cols: column.cols * N as u32, zero: true, _p: PhantomData }
    }

    /// Loads what the block's own tile of an output holds, for kernels that update in place.
    #[inline(always)]
    pub fn load_mut<T: Element, const M: usize, const N: usize>(
        &mut self,
        from: &TileMut<'_, T, M, N>,
    ) -> Tile<T::Value, M, N, ByRows<THREADS, T::Chunk>> {
        const {
            assert!(
                CLUSTER == 1,
                "the tiles of an output belong to a whole cluster: in one, `roles` or `part` shares them out"
            )
        };
        read::<T, _, false, M, N>(&from.window)
    }
}

#[inline(always)]
pub(crate) fn read<T: Element, L: Layout<M, N>, const KEEP: bool, const M: usize, const N: usize>(
    window: &Window<T>,
) -> Tile<T::Value, M, N, L> {
    let Fetched { words, rows, cols, zero, _p } = fetch::<T, L, KEEP, M, N>(window);
    Tile { values: backend::unpack::<T, L, M, N>(&words), rows, cols, zero, _p }
}

#[inline(always)]
pub(crate) fn fetch<T: Element, L: Layout<M, N>, const KEEP: bool, const M: usize, const N: usize>(
    window: &Window<T>,
) -> Fetched<T, M, N, L> {
    // SAFETY: the window's rows and columns are readable: it is a shared view's, or the block's own.
    let words = unsafe { backend::fetch_tile::<T, L, KEEP, M, N>(window) };
    Fetched { words, rows: window.rows, cols: window.cols, zero: true, _p: PhantomData }
}

/// A row, as a window of `M` times that row.
#[inline(always)]
pub(crate) fn repeated<T: Element, const M: usize, const N: usize>(row: &TileRef<'_, T, 1, N>) -> Window<T> {
    Window { rows: row.window.rows * M as u32, stride: 0, ..row.window }
}
