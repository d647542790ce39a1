//! Outputs shared out among warpgroups: each receives its own 64 rows of every tile, by value.

use core::marker::PhantomData;

use crate::backend::{self, AccElement, NotShared, Pack16, Wgmma, Width};
use crate::element::Element;
use crate::epilogue::Source;
use crate::mma::{Acc, Packed};
use crate::roles::{Output, Share, WarpGroup};
use crate::rows::AccRows;
use crate::schedule::{Plan, Schedule};
use crate::shared::Staging;
use crate::tma::{STORE_ROWS, TmaTilesMut};
use crate::view::{TilesMut, Window};

/// One warpgroup's part of a [`TilesMut`]: yields its `H` times 64 rows of each tile of the block whose turn it is.
pub struct RowsOf<'a, T, const M: usize, const N: usize, S, const H: usize> {
    tiles: TilesMut<'a, T, M, N, S>,
    plan: Plan<S>,
    first: u32,
}
// SAFETY: as the whole.
unsafe impl<T: Element, const M: usize, const N: usize, S: Send, const H: usize> Send for RowsOf<'_, T, M, N, S, H> {}

/// `H` times 64 rows of one tile: a warpgroup's exclusive window.
pub struct RowsMut<'a, T, const N: usize, const H: usize = 1> {
    window: Window<T>,
    _p: PhantomData<(&'a mut T, NotShared)>,
}

// SAFETY: part `index` has rows 64 * H * index.. of every tile whose turn it is.
unsafe impl<'a, T: Element, const M: usize, const N: usize, S: Schedule> Output for TilesMut<'a, T, M, N, S> {
    type Part<const H: usize> = RowsOf<'a, T, M, N, S, H>;
    const ROWS: usize = M;
    const WARPGROUPS: Option<usize> = None;
    #[inline(always)]
    unsafe fn part<const H: usize>(&self, share: Share) -> Self::Part<H> {
        let first = if cfg!(tilewright_fault = "rows") { 0 } else { share.index * (H * STORE_ROWS) as u32 };
        RowsOf { plan: self.plan().turn(share.turn, share.turns), tiles: TilesMut { _p: PhantomData, ..*self }, first }
    }
}

impl<'a, T: Element, const M: usize, const N: usize, S: Schedule, const H: usize> Iterator
    for RowsOf<'a, T, M, N, S, H>
{
    type Item = ((u32, u32), RowsMut<'a, T, N, H>);
    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        let (i, j) = self.plan.next()?;
        // SAFETY: a plan yields each tile once, and the rows are this part's.
        let tile = unsafe { self.tiles.window(i, j) };
        let left = if tile.rows > self.first { tile.rows - self.first } else { 0 };
        let window = Window {
            ptr: tile.ptr.wrapping_add((self.first as u64 * tile.stride) as usize),
            rows: if left < (H * STORE_ROWS) as u32 { left } else { (H * STORE_ROWS) as u32 },
            ..tile
        };
        Some(((i, j), RowsMut { window, _p: PhantomData }))
    }
}

/// 64 `H` rows of a tile that an accumulator of `N` columns is stored to, whichever way they go.
pub trait StoreRows<const N: usize, const H: usize = 1>
where
    Width<N>: Wgmma,
{
    /// Rounds once and writes, clipped to the view.
    fn store(self, wg: &mut WarpGroup, acc: Acc<N, H>);
}

impl<T: AccElement, const N: usize, const H: usize> StoreRows<N, H> for RowsMut<'_, T, N, H>
where
    Width<N>: Wgmma,
{
    #[inline(always)]
    fn store(self, _wg: &mut WarpGroup, acc: Acc<N, H>) {
        // SAFETY: the window is this warpgroup's alone.
        unsafe { backend::store_rows::<T, N, H>(&self.window, &acc.regs) }
    }
}

impl<T: AccElement, const N: usize, const H: usize> RowsMut<'_, T, N, H>
where
    Width<N>: Wgmma,
{
    /// `f(element, what is there now)` of every element if `condition`; otherwise nothing is read, and it counts as zero.
    #[inline(always)]
    pub fn zip_if(
        &self,
        condition: bool,
        _wg: &mut WarpGroup,
        acc: Acc<N, H>,
        f: impl Fn(f32, f32) -> f32 + Sync,
    ) -> Acc<N, H> {
        let rows = if condition { self.window.rows } else { 0 };
        // SAFETY: the window is this warpgroup's alone.
        unsafe { acc.zip_source(Source::plain(&Window { rows, ..self.window }), f) }
    }
}

/// Tiles on their way through shared memory: see [`TmaTilesMut::through`].
pub struct Staged<'a, T, const M: usize, const N: usize, S, const WARPGROUPS: usize, const BUFFERS: usize> {
    tiles: TmaTilesMut<'a, T, M, N, S>,
    staging: backend::Smem,
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
        staging: Staging<'_, WARPGROUPS, BUFFERS>,
    ) -> Staged<'a, T, M, N, S, WARPGROUPS, BUFFERS> {
        Staged { tiles: self, staging: staging.base }
    }
}

/// One warpgroup's part of a [`Staged`] output.
pub struct StagedRowsOf<'a, T, const M: usize, const N: usize, S, const BUFFERS: usize, const H: usize> {
    tiles: TmaTilesMut<'a, T, M, N, S>,
    plan: Plan<S>,
    first: u32,
    buffers: backend::Smem,
}
// SAFETY: as the whole; the buffers are this warpgroup's.
unsafe impl<T: Element, const M: usize, const N: usize, S: Send, const B: usize, const H: usize> Send
    for StagedRowsOf<'_, T, M, N, S, B, H>
{
}

/// `H` times 64 rows of one tile, to be stored by the copy engine.
pub struct StagedRowsMut<'a, T, const N: usize, const BUFFERS: usize, const H: usize = 1> {
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

// SAFETY: part `index` has rows 64 * H * index.. of every tile whose turn it is, and the buffers of its warpgroup.
unsafe impl<'a, T: Element, const M: usize, const N: usize, S: Schedule, const W: usize, const B: usize> Output
    for Staged<'a, T, M, N, S, W, B>
{
    type Part<const H: usize> = StagedRowsOf<'a, T, M, N, S, B, H>;
    const ROWS: usize = M;
    const WARPGROUPS: Option<usize> = Some(W);
    #[inline(always)]
    unsafe fn part<const H: usize>(&self, share: Share) -> Self::Part<H> {
        StagedRowsOf {
            plan: self.tiles.plan().turn(share.turn, share.turns),
            tiles: TmaTilesMut { _p: PhantomData, ..self.tiles },
            first: share.index * (H * STORE_ROWS) as u32,
            buffers: self.staging.add(share.warpgroup as usize * B * STORE_ROWS * crate::tma::SPAN),
        }
    }
}

impl<'a, T: Element, const M: usize, const N: usize, S: Schedule, const B: usize, const H: usize> Iterator
    for StagedRowsOf<'a, T, M, N, S, B, H>
{
    type Item = ((u32, u32), StagedRowsMut<'a, T, N, B, H>);
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
                    rows: raw.rows.saturating_sub(y).min((H * STORE_ROWS) as u32),
                    cols: raw.cols.saturating_sub(x).min(N as u32),
                    stride: raw.row_stride,
                    whole: None,
                },
                _p: PhantomData,
            }
        };
        Some(((i, j), rows))
    }
}

impl<T: Pack16, const N: usize, const BUFFERS: usize, const H: usize> StoreRows<N, H>
    for StagedRowsMut<'_, T, N, BUFFERS, H>
where
    Width<N>: Wgmma,
{
    /// Returns when the rows are in the buffers or beyond; the copy engine clips at the edges of the matrix.
    #[inline(always)]
    fn store(self, wg: &mut WarpGroup, acc: Acc<N, H>) {
        #[cfg(target_arch = "nvptx64")]
        // SAFETY: the rows and the buffers are this warpgroup's alone.
        unsafe {
            backend::store_staged::<T, N, BUFFERS, H>(
                wg,
                self.buffers,
                self.map,
                self.at,
                &acc.regs,
                #[inline(always)]
                |_, v| v,
            )
        }
        #[cfg(not(target_arch = "nvptx64"))]
        // SAFETY: the window is this warpgroup's alone.
        unsafe {
            let _ = wg;
            backend::store_rows::<T, N, H>(&self.window, &acc.regs)
        }
    }
}

impl<T: Pack16, const N: usize, const BUFFERS: usize, const H: usize> StagedRowsMut<'_, T, N, BUFFERS, H>
where
    Width<N>: Wgmma,
{
    /// As [`store`](StoreRows::store), of `f(element, element in the same place of the packed ones)`, for each of the `H`
    /// times 64 rows. Computed as it is stored, not before.
    #[inline(always)]
    pub fn store_zipped(
        self,
        wg: &mut WarpGroup,
        acc: Acc<N, H>,
        packed: &Packed<T, N>,
        f: impl Fn(f32, f32) -> f32 + Sync,
    ) {
        #[cfg(target_arch = "nvptx64")]
        // SAFETY: the rows and the buffers are this warpgroup's alone.
        unsafe {
            backend::store_staged::<T, N, BUFFERS, H>(
                wg,
                self.buffers,
                self.map,
                self.at,
                &acc.regs,
                #[inline(always)]
                |g, v| backend::zip_8(v, backend::packed_values::<T, N>(&packed.regs, g), &f),
            )
        }
        #[cfg(not(target_arch = "nvptx64"))]
        self.store(wg, acc.zip_packed(packed, f))
    }
}

/// One half of the columns of a [`TilesMut`]: yields 64 rows and `W` columns of each tile of the block.
pub struct HalfOf<'a, T, const N: usize, const W: usize, S> {
    tiles: TilesMut<'a, T, 64, N, S>,
    plan: Plan<S>,
    first: u32,
}
// SAFETY: as the whole.
unsafe impl<T: Element, const N: usize, const W: usize, S: Send> Send for HalfOf<'_, T, N, W, S> {}

impl<'a, T: Element, const N: usize, S: Schedule> TilesMut<'a, T, 64, N, S> {
    /// Left and right halves of every tile of the block, each a claim of its own.
    #[inline(always)]
    pub fn halves<const W: usize>(self) -> (HalfOf<'a, T, N, W, S>, HalfOf<'a, T, N, W, S>) {
        const { assert!(2 * W == N, "a half is half as wide as its tile") };
        let half = |first: usize| HalfOf {
            plan: self.plan(),
            tiles: TilesMut { _p: PhantomData, ..self },
            first: first as u32,
        };
        (half(0), half(W))
    }
    /// The tiles of the block, for one warpgroup.
    #[inline(always)]
    pub fn whole(self) -> HalfOf<'a, T, N, N, S> {
        HalfOf { plan: self.plan(), tiles: self, first: 0 }
    }
}

/// 64 rows and `W` columns of one tile: a warpgroup's exclusive window. Its address is computed when it is stored to.
pub struct HalfMut<'a, T, const N: usize, const W: usize, S> {
    tiles: TilesMut<'a, T, 64, N, S>,
    at: (u32, u32),
    first: u32,
    rows: u32,
    _p: NotShared,
}

impl<'a, T: Element, const N: usize, const W: usize, S: Schedule> Iterator for HalfOf<'a, T, N, W, S> {
    type Item = ((u32, u32), HalfMut<'a, T, N, W, S>);
    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        let at = self.plan.next()?;
        // A plan yields each tile once, and the columns are this half's.
        let tiles = TilesMut { _p: PhantomData, ..self.tiles };
        Some((at, HalfMut { tiles, at, first: self.first, rows: 64, _p: PhantomData }))
    }
}

impl<'a, T: Element, const N: usize, const W: usize, S: Schedule> HalfMut<'a, T, N, W, S> {
    /// The claim on `W` columns from `first` on of tile `at`, which is nobody else's.
    #[inline(always)]
    pub(crate) fn new(tiles: TilesMut<'a, T, 64, N, S>, at: (u32, u32), first: u32) -> Self {
        HalfMut { tiles, at, first, rows: 64, _p: PhantomData }
    }
    /// The first `rows` rows of it alone: the others are not written.
    #[inline(always)]
    pub fn first_rows(self, rows: u32) -> Self {
        HalfMut { rows: if rows < self.rows { rows } else { self.rows }, ..self }
    }
    #[inline(always)]
    fn window(self) -> Window<T> {
        // SAFETY: `self` is this part's claim on the tile, and it ends here.
        let tile = unsafe { self.tiles.window(self.at.0, self.at.1) };
        let left = if tile.cols > self.first { tile.cols - self.first } else { 0 };
        Window {
            ptr: tile.ptr.wrapping_add(self.first as usize),
            cols: if left < W as u32 { left } else { W as u32 },
            rows: if tile.rows < self.rows { tile.rows } else { self.rows },
            ..tile
        }
    }
}

impl<T: AccElement, const N: usize, const W: usize, S: Schedule> HalfMut<'_, T, N, W, S>
where
    Width<W>: Wgmma,
{
    /// Rounds once and writes, clipped to the view.
    #[inline(always)]
    pub fn store(self, _wg: &mut WarpGroup, acc: Acc<W>) {
        // SAFETY: the window is this warpgroup's alone.
        unsafe { backend::store_wide::<T, W>(&self.window(), acc.regs) }
    }
}

impl<S: Schedule> HalfMut<'_, f32, 1, 1, S> {
    /// Writes one value a row, clipped to the view.
    #[inline(always)]
    pub fn store_rows(self, _wg: &mut WarpGroup, rows: AccRows) {
        // SAFETY: the window is this warpgroup's alone.
        unsafe { backend::store_column(&self.window(), rows.values) }
    }
}
