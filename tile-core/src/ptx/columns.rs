//! Sums over the rows of a tile, on the device: in each thread, over the lanes of its warp that have the same columns, and once
//! over scratch of the kernel's own.

use core::arch::asm;

use super::access::value_anew;
use super::fold::join_across;
use super::math::fma;
use super::smem::Smem;
use super::sync::{block_barrier, tid};
use super::tile::{PerLine, Piece, Words};
use crate::element::Element;
use crate::layout::{ByColumns, Chunks, Layout};
use crate::row_pairs::below;
use crate::tile::Sum;

/// Writes four words if `condition`.
///
/// # Safety
/// The 16 bytes are the caller's to write, and aligned.
#[inline(always)]
unsafe fn store_four(to: Smem, v: [f32; 4], condition: bool) {
    // SAFETY: the caller's.
    unsafe {
        asm!("{{ .reg .pred p; setp.ne.u32 p, {5}, 0; @p st.shared.v4.f32 [{0}], {{{1}, {2}, {3}, {4}}}; }}",
            in(reg32) to.0, in(reg32) v[0], in(reg32) v[1], in(reg32) v[2], in(reg32) v[3], in(reg32) condition as u32,
            options(nostack))
    }
}

/// # Safety
/// Nobody writes the 16 bytes at the same time. They are aligned.
#[inline(always)]
unsafe fn load_four(from: Smem) -> [f32; 4] {
    let (a, b, c, d);
    // SAFETY: the caller's.
    unsafe {
        asm!("ld.shared.v4.f32 {{{0}, {1}, {2}, {3}}}, [{4}];", out(reg32) a, out(reg32) b, out(reg32) c, out(reg32) d,
            in(reg32) from.0, options(nostack))
    }
    [a, b, c, d]
}

/// The sum of the squares of each column's elements, by way of a word for each column and warp in `scratch`: of the
/// first `rows` rows.
///
/// # Safety
/// By the whole block, with scratch that nobody uses.
#[inline(always)]
pub(crate) unsafe fn fold_column_squares<
    T: Element<Value = f32>,
    const THREADS: usize,
    C: Chunks,
    const M: usize,
    const N: usize,
>(
    scratch: Smem,
    words: &Words<T>,
    rows: u32,
) -> PerLine<f32> {
    const { assert!(C::LEN % 4 == 0, "columns travel in fours") };
    let t = tid();
    let across = const { (N / C::LEN) as u32 };
    let in_piece = const { Piece::<T, ByColumns<THREADS, C>, M, N>::ELEMENTS };
    let mut sums = PerLine::<f32>::splat(0.0, 1);
    let first = <ByColumns<THREADS, C> as Layout<M, N>>::first(t).0;
    let mut piece = #[inline(always)]
    |q: usize| {
        if rows < M as u32 && first + <ByColumns<THREADS, C> as Layout<M, N>>::step((q * in_piece) as u32).0 >= rows {
            return;
        }
        let mut add = #[inline(always)]
        |k: usize| {
            let x = value_anew::<T>(&words.0[q], k);
            let at = &mut sums.0[(q * in_piece + k) % C::LEN];
            *at = fma(x, x, *at);
        };
        below!(add, Piece::<T, ByColumns<THREADS, C>, M, N>::ELEMENTS);
    };
    below!(piece, Piece::<T, ByColumns<THREADS, C>, M, N>::COUNT);
    let over_lanes = #[inline(always)]
    |mut s: f32| {
        if across <= 1 {
            s = join_across::<Sum, f32>(s, 1);
        }
        if across <= 2 {
            s = join_across::<Sum, f32>(s, 2);
        }
        if across <= 4 {
            s = join_across::<Sum, f32>(s, 4);
        }
        if across <= 8 {
            s = join_across::<Sum, f32>(s, 8);
        }
        if across <= 16 {
            s = join_across::<Sum, f32>(s, 16);
        }
        s
    };
    let mut of_warp = #[inline(always)]
    |k: usize| sums.0[k] = over_lanes(sums.0[k]);
    below!(of_warp, C::LEN);
    let (warp, lane) = (t / 32, t % 32);
    let columns = scratch.add((lane % across) as usize * C::LEN * 4);
    let mine = columns.add(warp as usize * N * 4);
    let write = #[inline(always)]
    |k: usize| {
        if k % 4 == 0 {
            let four = [sums.0[k], sums.0[k + 1], sums.0[k + 2], sums.0[k + 3]];
            // SAFETY: the words of this warp's columns, written by the first lane that has the columns.
            unsafe { store_four(mine.add(k * 4), four, lane < across) }
        }
    };
    below!(write, C::LEN);
    block_barrier();
    // The lanes that have the same columns read what different warps have left, and join that as before.
    let (group, groups) = (lane / across, const { 32 / (N / C::LEN) });
    let theirs = columns.add(group as usize * N * 4);
    let mut read = #[inline(always)]
    |k: usize| {
        if k % 4 == 0 {
            let mut all = [0.0; 4];
            let mut join = #[inline(always)]
            |turn: usize| {
                let w = turn * groups;
                if w < THREADS / 32 && (group as usize) < THREADS / 32 - w {
                    // SAFETY: written before the barrier.
                    let four = unsafe { load_four(theirs.add(k * 4 + w * N * 4)) };
                    all = [all[0] + four[0], all[1] + four[1], all[2] + four[2], all[3] + four[3]];
                }
            };
            below!(join, THREADS / 32);
            let mut put = #[inline(always)]
            |i: usize| sums.0[k + i] = over_lanes(all[i]);
            below!(put, 4);
        }
    };
    below!(read, C::LEN);
    sums
}
