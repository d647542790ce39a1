//! Outputs that meet a matrix of their own shape on their way: a residual, or what they held before.
//!
//! The copy engine brings a warpgroup's rows of the matrix into the very buffers that its sums leave through, while the
//! products run. The sums are combined with them there, and the copy engine takes the result to global memory.
//!
//! ```compile_fail,E0382
//! use tilewright_core::prelude::*;
//! fn brought_twice(wg: &mut WarpGroup, rows: OverRows<'_, bf16, 128, 4, 2>) {
//!     let first = rows.bring(wg);
//!     let second = rows.bring(wg);
//! }
//! ```
//!
//! ```compile_fail,E0382
//! use tilewright_core::prelude::*;
//! fn stored_twice(wg: &mut WarpGroup, rows: Brought<'_, bf16, 128, 4, 2>, bias: Packed<bf16, 128>) {
//!     rows.store_zipped(wg, Acc::zero(), &bias, |x, b, r| x + b + r);
//!     rows.store_zipped(wg, Acc::zero(), &bias, |x, b, r| x + b + r);
//! }
//! ```

use core::marker::PhantomData;

use crate::backend::{self, NotShared, Pack16, Wgmma, Width};
use crate::element::Element;
#[cfg(not(target_arch = "nvptx64"))]
use crate::epilogue::Source;
use crate::mma::{Acc, Packed};
use crate::roles::{Output, Share, WarpGroup};
use crate::schedule::{Plan, Schedule};
use crate::shared::Staging;
use crate::tma::{SPAN, STORE_ROWS, TmaTiles, TmaTilesMut};

/// Tiles that meet those of another matrix: see [`TmaTilesMut::over`].
pub struct Over<'a, T, const M: usize, const N: usize, S, const WARPGROUPS: usize, const BUFFERS: usize> {
    tiles: TmaTilesMut<'a, T, M, N, S>,
    with: TmaTiles<'a, T, STORE_ROWS, N>,
    own: bool,
    buffers: backend::Smem,
    state: backend::Smem,
}
// SAFETY: as the tiles.
unsafe impl<T: Element, const M: usize, const N: usize, S: Send, const W: usize, const B: usize> Send
    for Over<'_, T, M, N, S, W, B>
{
}

impl<'a, T: Element, const M: usize, const N: usize, S: Schedule> TmaTilesMut<'a, T, M, N, S> {
    /// The same tiles, written by way of `staging`, where each meets what `with` has in its place (zero outside of it), or
    /// with `own` what it held before. `staging` has buffers for all rows that a warpgroup has of a tile.
    #[inline(always)]
    pub fn over<const WARPGROUPS: usize, const BUFFERS: usize>(
        self,
        with: TmaTiles<'a, T, STORE_ROWS, N>,
        own: bool,
        staging: Staging<'_, WARPGROUPS, BUFFERS>,
    ) -> Over<'a, T, M, N, S, WARPGROUPS, BUFFERS> {
        Over { tiles: self, with, own, buffers: staging.base, state: staging.state }
    }
}

/// One warpgroup's part of an [`Over`].
pub struct OverRowsOf<'a, T, const M: usize, const N: usize, S, const BUFFERS: usize, const H: usize> {
    tiles: TmaTilesMut<'a, T, M, N, S>,
    with: TmaTiles<'a, T, STORE_ROWS, N>,
    own: bool,
    plan: Plan<S>,
    first: u32,
    buffers: backend::Smem,
    state: backend::Smem,
}
// SAFETY: as the whole; buffers and state are this warpgroup's.
unsafe impl<T: Element, const M: usize, const N: usize, S: Send, const B: usize, const H: usize> Send
    for OverRowsOf<'_, T, M, N, S, B, H>
{
}

// SAFETY: part `index` has rows 64 * H * index.. of every tile whose turn it is, and the buffers of its warpgroup.
unsafe impl<'a, T: Element, const M: usize, const N: usize, S: Schedule, const W: usize, const B: usize> Output
    for Over<'a, T, M, N, S, W, B>
{
    type Part<const H: usize> = OverRowsOf<'a, T, M, N, S, B, H>;
    const ROWS: usize = M;
    const WARPGROUPS: Option<usize> = Some(W);
    #[inline(always)]
    unsafe fn part<const H: usize>(&self, share: Share) -> Self::Part<H> {
        const { assert!(B * 64 == H * N, "a warpgroup has buffers for all its rows of a tile") };
        OverRowsOf {
            plan: self.tiles.plan().turn(share.turn, share.turns),
            tiles: TmaTilesMut { _p: PhantomData, ..self.tiles },
            with: self.with,
            own: self.own,
            first: share.index * (H * STORE_ROWS) as u32,
            buffers: self.buffers.add(share.warpgroup as usize * B * STORE_ROWS * SPAN),
            state: self.state.add(share.warpgroup as usize * 16),
        }
    }
    #[inline(always)]
    unsafe fn init(&self) {
        let mut warpgroup = 0;
        while warpgroup < W {
            let state = self.state.add(warpgroup * 16);
            // SAFETY: by one thread, and nobody uses it yet.
            unsafe {
                backend::Barrier(state).init(1);
                state.add(8).store_u32(0);
            }
            warpgroup += 1;
        }
    }
    #[inline(always)]
    fn drain(&self, _warpgroup: u32) {
        #[cfg(target_arch = "nvptx64")]
        backend::wait_brought(self.state.add(_warpgroup as usize * 16))
    }
}

/// `H` times 64 rows of one tile, before what they meet is there.
pub struct OverRows<'a, T, const N: usize, const BUFFERS: usize, const H: usize = 1> {
    #[cfg(not(target_arch = "nvptx64"))]
    window: crate::view::Window<T>,
    #[cfg(not(target_arch = "nvptx64"))]
    source: Source<T>,
    #[cfg(target_arch = "nvptx64")]
    map: u64,
    #[cfg(target_arch = "nvptx64")]
    source: u64,
    #[cfg(target_arch = "nvptx64")]
    at: (u32, u32),
    #[cfg(target_arch = "nvptx64")]
    buffers: backend::Smem,
    #[cfg(target_arch = "nvptx64")]
    state: backend::Smem,
    _p: PhantomData<(&'a mut T, NotShared)>,
}

impl<'a, T: Element, const M: usize, const N: usize, S: Schedule, const B: usize, const H: usize> Iterator
    for OverRowsOf<'a, T, M, N, S, B, H>
{
    type Item = ((u32, u32), OverRows<'a, T, N, B, H>);
    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        let (i, j) = self.plan.next()?;
        let (y, x) = (i * M as u32 + self.first, j * N as u32);
        #[cfg(target_arch = "nvptx64")]
        let rows = OverRows {
            map: self.tiles.map,
            source: if self.own { self.tiles.map } else { self.with.map },
            at: (x, y),
            buffers: self.buffers,
            state: self.state,
            _p: PhantomData,
        };
        #[cfg(not(target_arch = "nvptx64"))]
        let rows = {
            let _ = (self.buffers, self.state);
            let part = |base: *mut T, raw: &crate::view::RawView| crate::view::Window {
                ptr: base.wrapping_add((y as u64 * raw.row_stride + x as u64) as usize),
                rows: raw.rows.saturating_sub(y).min((H * STORE_ROWS) as u32),
                cols: raw.cols.saturating_sub(x).min(N as u32),
                stride: raw.row_stride,
                whole: None,
            };
            let window = part(self.tiles.base, &self.tiles.raw);
            let with = part(self.with.base.cast_mut(), &self.with.raw);
            OverRows { window, source: Source::plain(if self.own { &window } else { &with }), _p: PhantomData }
        };
        Some(((i, j), rows))
    }
}

impl<'a, T: Pack16, const N: usize, const BUFFERS: usize, const H: usize> OverRows<'a, T, N, BUFFERS, H>
where
    Width<N>: Wgmma,
{
    /// Has the copy engine bring what the rows meet. Waits until the buffers are free, not for the copy.
    #[inline(always)]
    pub fn bring(self, _wg: &mut WarpGroup) -> Brought<'a, T, N, BUFFERS, H> {
        #[cfg(target_arch = "nvptx64")]
        // SAFETY: the buffers and their state are this warpgroup's alone, and hold the rows.
        let turn = unsafe { backend::bring::<T, N, H>(_wg, self.state, self.buffers, self.source, self.at) };
        Brought {
            #[cfg(target_arch = "nvptx64")]
            turn,
            rows: self,
        }
    }
}

/// The same rows, and what they meet on its way. Dropped or leaked, they are not written; the next ones wait for the copy.
pub struct Brought<'a, T, const N: usize, const BUFFERS: usize, const H: usize = 1> {
    rows: OverRows<'a, T, N, BUFFERS, H>,
    /// How often the buffers had been filled before.
    #[cfg(target_arch = "nvptx64")]
    turn: u32,
}

impl<T: Pack16, const N: usize, const BUFFERS: usize, const H: usize> Brought<'_, T, N, BUFFERS, H>
where
    Width<N>: Wgmma,
{
    /// `f(element, element in the same place of the packed ones, element that it meets)` of every element, rounded once and stored by the copy engine, which clips at the
    /// edges of the matrix. The packed ones are for each of the `H` times 64 rows.
    #[inline(always)]
    pub fn store_zipped(
        self,
        wg: &mut WarpGroup,
        acc: Acc<N, H>,
        packed: &Packed<T, N>,
        f: impl Fn(f32, f32, f32) -> f32 + Sync,
    ) {
        let rows = self.rows;
        #[cfg(target_arch = "nvptx64")]
        // SAFETY: rows, buffers and state are this warpgroup's alone; the buffers were filled.
        unsafe {
            backend::store_over::<T, N, H>(
                wg,
                rows.state,
                self.turn,
                rows.buffers,
                rows.map,
                rows.at,
                &acc.regs,
                &packed.regs,
                f,
            )
        }
        #[cfg(not(target_arch = "nvptx64"))]
        // SAFETY: a view can be read, and the window is this warpgroup's alone.
        unsafe {
            let _ = wg;
            let met = Acc::<N, H>::zero().zip_source(rows.source, |_, met| met);
            let mut acc = acc;
            let packed: &[f32] = packed.regs.as_ref();
            for (acc, met) in acc.regs.iter_mut().zip(&met.regs) {
                let (acc, met): (&mut [f32], &[f32]) = (acc.as_mut(), met.as_ref());
                for (x, (p, m)) in acc.iter_mut().zip(packed.iter().zip(met)) {
                    *x = f(*x, *p, *m);
                }
            }
            backend::store_rows::<T, N, H>(&rows.window, &acc.regs)
        }
    }
}
