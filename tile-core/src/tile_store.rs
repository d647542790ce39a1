//! How register tiles are stored.

use crate::backend;
use crate::element::{Element, Value};
use crate::layout::{ByRows, Chunks, Layout, Over};
use crate::roles::Cta;
use crate::row_tiles::PartMut;
use crate::tile::{Fetched, PerRow, Tile};
use crate::tile_load::{read, repeated};
use crate::view::{StripMut, TileMut, TileRef};

impl<T: Element, const M: usize, const N: usize> TileMut<'_, T, M, N> {
    /// Rounds once and writes, clipped to the view.
    #[inline(always)]
    pub fn store<L: Layout<M, N> + Over<THREADS>, const THREADS: usize, const CLUSTER: usize>(
        self,
        cta: &mut Cta<THREADS, CLUSTER>,
        tile: &Tile<T::Value, M, N, L>,
    ) {
        self.put(cta, &tile.round());
    }

    /// Writes, clipped to the view.
    #[inline(always)]
    pub fn put<L: Layout<M, N> + Over<THREADS>, const THREADS: usize, const CLUSTER: usize>(
        self,
        cta: &mut Cta<THREADS, CLUSTER>,
        elements: &Fetched<T, M, N, L>,
    ) {
        const {
            assert!(
                CLUSTER == 1,
                "the tiles of an output belong to a whole cluster: in one, `roles` or `part` shares them out"
            )
        };
        self.write::<L, false, THREADS, CLUSTER>(cta, elements)
    }

    /// As [`put`](Self::put), of data that nobody reads soon: it is the first that the L2 cache gives up. Outputs that are
    /// larger than the cache go to memory faster this way, for they do not push out what is still being read.
    #[inline(always)]
    pub fn stream<L: Layout<M, N> + Over<THREADS>, const THREADS: usize, const CLUSTER: usize>(
        self,
        cta: &mut Cta<THREADS, CLUSTER>,
        elements: &Fetched<T, M, N, L>,
    ) {
        const {
            assert!(
                CLUSTER == 1,
                "the tiles of an output belong to a whole cluster: in one, `roles` or `part` shares them out"
            )
        };
        self.write::<L, true, THREADS, CLUSTER>(cta, elements)
    }

    /// Of a window that is the block's alone.
    #[inline(always)]
    fn write<L: Layout<M, N> + Over<THREADS>, const STREAM: bool, const THREADS: usize, const CLUSTER: usize>(
        self,
        cta: &mut Cta<THREADS, CLUSTER>,
        elements: &Fetched<T, M, N, L>,
    ) {
        if const { L::ID != <ByRows<THREADS, T::Chunk> as Own<M, N>>::ID } {
            // other threads than those that write an element here may have read it before, by `load_mut` or `fetch_mut`
            cta.meet();
        }
        // SAFETY: the window is this block's alone, and nobody reads it any more.
        unsafe { backend::store_words::<T, L, STREAM, M, N>(&self.window, &elements.words) }
    }
}

impl<T: Element, const M: usize, const P: usize> PartMut<'_, T, M, P> {
    /// Writes, clipped to the view.
    #[inline(always)]
    pub fn put<L: Layout<M, P> + Over<THREADS>, const THREADS: usize, const CLUSTER: usize>(
        self,
        cta: &mut Cta<THREADS, CLUSTER>,
        elements: &Fetched<T, M, P, L>,
    ) {
        self.tile.write::<L, false, THREADS, CLUSTER>(cta, elements)
    }

    /// As [`put`](Self::put), of data that nobody reads soon: see [`TileMut::stream`].
    #[inline(always)]
    pub fn stream<L: Layout<M, P> + Over<THREADS>, const THREADS: usize, const CLUSTER: usize>(
        self,
        cta: &mut Cta<THREADS, CLUSTER>,
        elements: &Fetched<T, M, P, L>,
    ) {
        self.tile.write::<L, true, THREADS, CLUSTER>(cta, elements)
    }
}

impl<T: Element, const M: usize, const N: usize> TileMut<'_, T, M, N> {
    /// What [`Fetched::combine_row`] gives, streamed, a piece after the other: for rows that fill the registers.
    #[inline(always)]
    pub fn stream_row<W: Element, P: Value, const THREADS: usize>(
        self,
        _cta: &mut Cta<THREADS>,
        x: &Fetched<T, M, N, ByRows<THREADS, T::Chunk>>,
        row: TileRef<'_, W, 1, N>,
        per_row: &PerRow<P, M, THREADS>,
        f: impl Fn(T::Value, W::Value, P) -> T::Value + Sync,
    ) {
        let row = repeated::<W, M, N>(&row);
        // SAFETY: the window is this block's alone, written in the layout in which it reads its tiles; the row is a
        // shared view's.
        unsafe {
            backend::stream_row::<T, W, P, ByRows<THREADS, T::Chunk>, M, N>(
                &self.window,
                &x.words,
                &row,
                &per_row.values,
                f,
            )
        }
    }
}

/// The number of the layout in which a block reads its own tiles; it need not be able to hold the tile.
trait Own<const M: usize, const N: usize> {
    const ID: usize;
}
impl<const M: usize, const N: usize, const THREADS: usize, C: Chunks> Own<M, N> for ByRows<THREADS, C> {
    const ID: usize = C::LEN;
}

impl<T: Element, const M: usize, const N: usize> StripMut<'_, T, M, N> {
    /// Loads what tile `j` of the strip holds. Outside the view it is empty.
    #[inline(always)]
    pub fn load<const THREADS: usize, const CLUSTER: usize>(
        &self,
        _cta: &mut Cta<THREADS, CLUSTER>,
        j: u32,
    ) -> Tile<T::Value, M, N, ByRows<THREADS, T::Chunk>> {
        const {
            assert!(
                CLUSTER == 1,
                "the tiles of an output belong to a whole cluster: in one, `roles` or `part` shares them out"
            )
        };
        read::<T, _, false, M, N>(&self.window(j))
    }

    /// Rounds once and writes to tile `j` of the strip, clipped to the view. In the one layout in which strips are read,
    /// so that a thread that reads an element again reads what it wrote itself.
    #[inline(always)]
    pub fn store<const THREADS: usize, const CLUSTER: usize>(
        &mut self,
        _cta: &mut Cta<THREADS, CLUSTER>,
        j: u32,
        tile: &Tile<T::Value, M, N, ByRows<THREADS, T::Chunk>>,
    ) {
        const {
            assert!(
                CLUSTER == 1,
                "the tiles of an output belong to a whole cluster: in one, `roles` or `part` shares them out"
            )
        };
        // SAFETY: the window is this block's alone.
        unsafe {
            backend::store_words::<T, ByRows<THREADS, T::Chunk>, false, M, N>(&self.window(j), &tile.round().words)
        }
    }
}
