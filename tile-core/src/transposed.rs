//! Outputs whose rows are an accumulator's columns: products with operands exchanged, `C^T = B A^T`, that store C.

use core::marker::PhantomData;

use crate::backend::{self, AccElement, NotShared, Pack16, Wgmma, Width};
use crate::element::Element;
use crate::mma::{Acc, Packed};
use crate::roles::{Output, Share, WarpGroup};
use crate::schedule::{Plan, Schedule};
use crate::tma::STORE_ROWS;
use crate::view::{TileRef, TilesMut, Window};

/// The tiles of an output of `N` x `M`, stored from accumulators of `M` x `N`: see [`TilesMut::transposed`].
pub struct Transposed<'a, T, const N: usize, const M: usize, S, const CLUSTER: usize> {
    tiles: TilesMut<'a, T, N, M, S>,
}
// SAFETY: as the tiles.
unsafe impl<T: Element, const N: usize, const M: usize, S: Send, const C: usize> Send
    for Transposed<'_, T, N, M, S, C>
{
}

impl<'a, T: Element, const N: usize, const M: usize, S: Schedule> TilesMut<'a, T, N, M, S> {
    /// The same tiles, each stored from an accumulator of its transpose: a consumer warpgroup gets 64 of its `M` columns,
    /// for 64 rows of the accumulator. The `CLUSTER` blocks of a cluster share every tile by its rows: in groups of 8, in
    /// turn, as a [`ClusterSum`](crate::cluster::ClusterSum) leaves them.
    #[inline(always)]
    pub fn transposed<const CLUSTER: usize>(self) -> Transposed<'a, T, N, M, S, CLUSTER> {
        Transposed { tiles: self }
    }
}

/// One warpgroup's part of a [`Transposed`] output.
pub struct ColumnsOf<'a, T, const N: usize, const M: usize, S, const CLUSTER: usize> {
    tiles: TilesMut<'a, T, N, M, S>,
    plan: Plan<S>,
    first: u32,
    rank: u32,
}
// SAFETY: as the whole.
unsafe impl<T: Element, const N: usize, const M: usize, S: Send, const C: usize> Send for ColumnsOf<'_, T, N, M, S, C> {}

/// 64 columns of one tile, and of these this block's rows: what a warpgroup stores an accumulator to.
pub struct ColumnsMut<'a, T, const N: usize, const CLUSTER: usize> {
    window: Window<T>,
    rank: u32,
    _p: PhantomData<(&'a mut T, NotShared)>,
}

// SAFETY: part `index` has, of the columns of one of the M / 64 warpgroups of a block, the rows of one of its blocks.
unsafe impl<'a, T: Element, const N: usize, const M: usize, S: Schedule, const C: usize> Output
    for Transposed<'a, T, N, M, S, C>
{
    type Part<const H: usize> = ColumnsOf<'a, T, N, M, S, C>;
    /// Every block of the cluster has accumulators of all `M`.
    const ROWS: usize = M * C;
    const WARPGROUPS: Option<usize> = None;
    #[inline(always)]
    unsafe fn part<const H: usize>(&self, share: Share) -> Self::Part<H> {
        const {
            assert!(H == 1, "a transposed output takes accumulators of 64 rows");
            assert!(M % STORE_ROWS == 0 && N % 8 == 0, "tiles are cut by 64 columns and 8 rows");
        }
        let warpgroups = (M / STORE_ROWS) as u32;
        ColumnsOf {
            plan: self.tiles.plan().turn(share.turn, share.turns),
            tiles: TilesMut { _p: PhantomData, ..self.tiles },
            first: share.index % warpgroups * STORE_ROWS as u32,
            rank: share.index / warpgroups,
        }
    }
}

impl<'a, T: Element, const N: usize, const M: usize, S: Schedule, const C: usize> Iterator
    for ColumnsOf<'a, T, N, M, S, C>
{
    type Item = ((u32, u32), ColumnsMut<'a, T, N, C>);
    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        let (i, j) = self.plan.next()?;
        // SAFETY: a plan yields each tile once, and the columns and rows are this part's.
        let tile = unsafe { self.tiles.window(i, j) };
        let left = if tile.cols > self.first { tile.cols - self.first } else { 0 };
        let window = Window {
            ptr: tile.ptr.wrapping_add(self.first as usize),
            cols: if left < STORE_ROWS as u32 { left } else { STORE_ROWS as u32 },
            ..tile
        };
        Some(((i, j), ColumnsMut { window, rank: self.rank, _p: PhantomData }))
    }
}

impl<T: AccElement, const N: usize, const CLUSTER: usize> ColumnsMut<'_, T, N, CLUSTER>
where
    Width<N>: Wgmma,
{
    /// What the block's rows meet: those of `tile`, or with `own` what they hold now. Nothing of the other blocks' rows.
    #[inline(always)]
    pub fn fetch(&self, _wg: &mut WarpGroup, tile: TileRef<'_, T, N, 64>, own: bool) -> Packed<T, N>
    where
        T: Pack16,
    {
        let w = if own { self.window } else { tile.window };
        // SAFETY: a view can be read, and is written by nobody during the launch; the rows are this block's alone.
        Packed::new(unsafe { backend::fetch_transposed::<T, N, CLUSTER>(&w, self.rank) })
    }

    /// Rounds once and writes the block's share, clipped to the view.
    #[inline(always)]
    pub fn store(self, _wg: &mut WarpGroup, acc: Acc<N>) {
        let [regs] = acc.regs;
        // SAFETY: the columns are this warpgroup's alone, and the rows this block's.
        unsafe { backend::store_transposed::<T, N, CLUSTER>(&self.window, self.rank, regs) }
    }
}
