//! Outputs shared out among warpgroups: each receives its own 64 rows of every tile, by value.

use core::marker::PhantomData;

use crate::backend::{self, NotShared, Pack16, Wgmma, Width};
use crate::element::Element;
use crate::mma::Acc;
use crate::roles::{Output, WarpGroup};
use crate::schedule::{Plan, Schedule};
use crate::shared::Staging;
use crate::tma::{STORE_ROWS, TmaTilesMut};
use crate::view::{TilesMut, Window};

/// One warpgroup's part of a [`TilesMut`]: yields its 64 rows of each tile of the block.
pub struct RowsOf<'a, T, const M: usize, const N: usize, S> {
    tiles: TilesMut<'a, T, M, N, S>,
    plan: Plan<S>,
    first: u32,
}
// SAFETY: as the whole.
unsafe impl<T: Element, const M: usize, const N: usize, S: Send> Send for RowsOf<'_, T, M, N, S> {}

/// 64 rows of one tile: a warpgroup's exclusive window.
pub struct RowsMut<'a, T, const N: usize> {
    window: Window<T>,
    _p: PhantomData<(&'a mut T, NotShared)>,
}

// SAFETY: part `index` has rows 64 * index.. of every tile.
unsafe impl<'a, T: Element, const M: usize, const N: usize, S: Schedule> Output for TilesMut<'a, T, M, N, S> {
    type Part = RowsOf<'a, T, M, N, S>;
    const ROWS: usize = M;
    const WARPGROUPS: Option<usize> = None;
    #[inline(always)]
    unsafe fn part(&self, index: u32, _: u32) -> Self::Part {
        let first = if cfg!(tilewright_fault = "rows") { 0 } else { index * STORE_ROWS as u32 };
        RowsOf { plan: self.plan(), tiles: TilesMut { _p: PhantomData, ..*self }, first }
    }
}

impl<'a, T: Element, const M: usize, const N: usize, S: Schedule> Iterator for RowsOf<'a, T, M, N, S> {
    type Item = ((u32, u32), RowsMut<'a, T, N>);
    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        let (i, j) = self.plan.next()?;
        // SAFETY: a plan yields each tile once, and the rows are this part's.
        let tile = unsafe { self.tiles.window(i, j) };
        let left = if tile.rows > self.first { tile.rows - self.first } else { 0 };
        let window = Window {
            ptr: tile.ptr.wrapping_add((self.first as u64 * tile.stride) as usize),
            rows: if left < STORE_ROWS as u32 { left } else { STORE_ROWS as u32 },
            ..tile
        };
        Some(((i, j), RowsMut { window, _p: PhantomData }))
    }
}

/// 64 rows of a tile that an accumulator of `N` columns is stored to, whichever way they go.
pub trait StoreRows<const N: usize>
where
    Width<N>: Wgmma,
{
    /// Rounds once and writes, clipped to the view.
    fn store(self, wg: &mut WarpGroup, acc: Acc<N>);
}

impl<T: Pack16, const N: usize> StoreRows<N> for RowsMut<'_, T, N>
where
    Width<N>: Wgmma,
{
    #[inline(always)]
    fn store(self, _wg: &mut WarpGroup, acc: Acc<N>) {
        // SAFETY: the window is this warpgroup's alone.
        unsafe { backend::store_rows::<T, N>(&self.window, &acc.regs) }
    }
}

/// Tiles on their way through shared memory: see [`TmaTilesMut::through`].
pub struct Staged<'a, T, const M: usize, const N: usize, S, const WARPGROUPS: usize, const BUFFERS: usize> {
    tiles: TmaTilesMut<'a, T, M, N, S>,
    staging: Staging<WARPGROUPS, BUFFERS>,
}
// SAFETY: as the tiles.
unsafe impl<T: Element, const M: usize, const N: usize, S: Send, const W: usize, const B: usize> Send
    for Staged<'_, T, M, N, S, W, B>
{
}

impl<'a, T: Element, const M: usize, const N: usize, S: Schedule> TmaTilesMut<'a, T, M, N, S> {
    /// The same tiles, written by way of `staging`: a warpgroup puts its rows there and the copy engine takes them to
    /// global memory while the warpgroup goes on.
    #[inline(always)]
    pub fn through<const WARPGROUPS: usize, const BUFFERS: usize>(
        self,
        staging: Staging<WARPGROUPS, BUFFERS>,
    ) -> Staged<'a, T, M, N, S, WARPGROUPS, BUFFERS> {
        Staged { tiles: self, staging }
    }
}

/// One warpgroup's part of a [`Staged`] output.
pub struct StagedRowsOf<'a, T, const M: usize, const N: usize, S, const BUFFERS: usize> {
    tiles: TmaTilesMut<'a, T, M, N, S>,
    plan: Plan<S>,
    first: u32,
    buffers: backend::Smem,
}
// SAFETY: as the whole; the buffers are this warpgroup's.
unsafe impl<T: Element, const M: usize, const N: usize, S: Send, const B: usize> Send
    for StagedRowsOf<'_, T, M, N, S, B>
{
}

/// 64 rows of one tile, to be stored by the copy engine.
pub struct StagedRowsMut<'a, T, const N: usize, const BUFFERS: usize> {
    #[cfg(not(target_arch = "nvptx64"))]
    window: Window<T>,
    #[cfg(target_arch = "nvptx64")]
    map: u64,
    #[cfg(target_arch = "nvptx64")]
    at: (u32, u32),
    #[cfg(target_arch = "nvptx64")]
    buffers: backend::Smem,
    _p: PhantomData<(&'a mut T, NotShared)>,
}

// SAFETY: part `index` has rows 64 * index.. of every tile, and the buffers of its warpgroup.
unsafe impl<'a, T: Element, const M: usize, const N: usize, S: Schedule, const W: usize, const B: usize> Output
    for Staged<'a, T, M, N, S, W, B>
{
    type Part = StagedRowsOf<'a, T, M, N, S, B>;
    const ROWS: usize = M;
    const WARPGROUPS: Option<usize> = Some(W);
    #[inline(always)]
    unsafe fn part(&self, index: u32, warpgroup: u32) -> Self::Part {
        StagedRowsOf {
            plan: self.tiles.plan(),
            tiles: TmaTilesMut { _p: PhantomData, ..self.tiles },
            first: index * STORE_ROWS as u32,

            buffers: self.staging.base.add(warpgroup as usize * B * STORE_ROWS * crate::tma::SPAN),
        }
    }
}

impl<'a, T: Element, const M: usize, const N: usize, S: Schedule, const B: usize> Iterator
    for StagedRowsOf<'a, T, M, N, S, B>
{
    type Item = ((u32, u32), StagedRowsMut<'a, T, N, B>);
    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        let (i, j) = self.plan.next()?;
        let (y, x) = (i * M as u32 + self.first, j * N as u32);
        #[cfg(target_arch = "nvptx64")]
        let rows = StagedRowsMut { map: self.tiles.map, at: (x, y), buffers: self.buffers, _p: PhantomData };
        #[cfg(not(target_arch = "nvptx64"))]
        let rows = {
            let _ = self.buffers;
            let raw = &self.tiles.raw;
            let offset = y as u64 * raw.row_stride + x as u64;
            StagedRowsMut {
                window: Window {
                    ptr: self.tiles.base.wrapping_add(offset as usize),
                    rows: raw.rows.saturating_sub(y).min(STORE_ROWS as u32),
                    cols: raw.cols.saturating_sub(x).min(N as u32),
                    stride: raw.row_stride,
                },
                _p: PhantomData,
            }
        };
        Some(((i, j), rows))
    }
}

impl<T: Pack16, const N: usize, const BUFFERS: usize> StoreRows<N> for StagedRowsMut<'_, T, N, BUFFERS>
where
    Width<N>: Wgmma,
{
    /// Returns when the rows are in the buffers or beyond; the copy engine clips at the edges of the matrix.
    #[inline(always)]
    fn store(self, wg: &mut WarpGroup, acc: Acc<N>) {
        #[cfg(target_arch = "nvptx64")]
        // SAFETY: the rows and the buffers are this warpgroup's alone.
        unsafe {
            backend::store_staged::<T, N, BUFFERS>(wg, self.buffers, self.map, self.at, &acc.regs)
        }
        #[cfg(not(target_arch = "nvptx64"))]
        // SAFETY: the window is this warpgroup's alone.
        unsafe {
            let _ = wg;
            backend::store_rows::<T, N>(&self.window, &acc.regs)
        }
    }
}
