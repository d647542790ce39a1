//! Reductions of rows to two values, on the device: within each warp by shuffles, then once over the block's scratch, by the
//! rules of the reductions to one value.

use super::access::{value_anew, value_between};
use super::fold::{HALF, join_across, join_row};
use super::math::{exp2, fma, reciprocal};
use super::smem::Smem;
use super::sync::{block_barrier, tid};
use super::tile::{PerLine, Piece, Words};
use crate::element::Element;
use crate::layout::{ByRows, Chunks, Layout};
use crate::row_pairs::{below, inside};
use crate::tile::{Fold, Greatest, Sum};

/// Joins a value over the lanes of a warp that belong to one row of `threads` threads.
#[inline(always)]
fn over_lanes<F: Fold<f32>>(mut s: f32, threads: usize) -> f32 {
    if threads > 16 {
        s = join_across::<F, f32>(s, 16);
    }
    if threads > 8 {
        s = join_across::<F, f32>(s, 8);
    }
    if threads > 4 {
        s = join_across::<F, f32>(s, 4);
    }
    if threads > 2 {
        s = join_across::<F, f32>(s, 2);
    }
    if threads > 1 {
        s = join_across::<F, f32>(s, 1);
    }
    s
}

/// Joins a thread's elements that are inside a row of `cols`: `add(sum, piece, k)` is the sum with element `k` of a piece. A
/// piece that is outside is left out whole; one that is not whole is looked at once more, element by element.
#[inline(always)]
fn fold_inside<F: Fold<f32>, T: Element, const THREADS: usize, C: Chunks, const M: usize, const N: usize>(
    words: &Words<T>,
    cols: u32,
    add: impl Fn(f32, &[u32; 4], usize) -> f32,
) -> f32 {
    let in_piece = const { Piece::<T, ByRows<THREADS, C>, M, N>::ELEMENTS };
    let left = cols.saturating_sub(<ByRows<THREADS, C> as Layout<M, N>>::first(tid()).1);
    let across = #[inline(always)]
    |q: usize| <ByRows<THREADS, C> as Layout<M, N>>::step((q * in_piece) as u32).1;
    let mut sums = [F::START; 2];
    let mut piece = #[inline(always)]
    |q: usize| {
        let mut halves = [F::START; 2];
        let mut each = #[inline(always)]
        |k: usize| halves[k % 2] = add(halves[k % 2], &words.0[q], k);
        below!(each, Piece::<T, ByRows<THREADS, C>, M, N>::ELEMENTS);
        let joined = F::join(halves[0], halves[1]);
        sums[q % 2] = F::join(sums[q % 2], if across(q) + in_piece as u32 <= left { joined } else { F::START });
    };
    below!(piece, Piece::<T, ByRows<THREADS, C>, M, N>::COUNT);
    let mut sum = F::join(sums[0], sums[1]);
    if cols % in_piece as u32 != 0 {
        // the row ends in the same one of every thread's pieces
        let (mut last, mut inside) = (words.0[0], left);
        let mut find = #[inline(always)]
        |q: usize| {
            if q > 0 && across(q) < cols {
                (last, inside) = (words.0[q], left.saturating_sub(across(q)));
            }
        };
        below!(find, Piece::<T, ByRows<THREADS, C>, M, N>::COUNT);
        let mut each = #[inline(always)]
        |k: usize| {
            if inside < in_piece as u32 && (k as u32) < inside {
                sum = add(sum, &last, k);
            }
        };
        below!(each, Piece::<T, ByRows<THREADS, C>, M, N>::ELEMENTS);
    }
    sum
}

/// The sum of the squares of each row. What is outside is zero.
///
/// # Safety
/// By the whole block.
#[inline(always)]
pub(crate) unsafe fn fold_squares<
    T: Element<Value = f32>,
    const THREADS: usize,
    C: Chunks,
    const M: usize,
    const N: usize,
>(
    scratch: &mut Smem,
    words: &Words<T>,
) -> PerLine<f32> {
    let mut sums = [0.0; 4];
    let mut piece = #[inline(always)]
    |q: usize| {
        let mut each = #[inline(always)]
        |k: usize| {
            let x = value_anew::<T>(&words.0[q], k);
            sums[k % 4] = fma(x, x, sums[k % 4]);
        };
        below!(each, Piece::<T, ByRows<THREADS, C>, M, N>::ELEMENTS);
    };
    below!(piece, Piece::<T, ByRows<THREADS, C>, M, N>::COUNT);
    // SAFETY: the caller's.
    unsafe { join_row::<Sum, f32, THREADS, C, M>(scratch, (sums[0] + sums[1]) + (sums[2] + sums[3])) }
}

/// What the warps of a row have for each other: every warp leaves its values, all meet, and lane `w` gets those of warp `w`, or
/// `none`. A reduction over all lanes then is one over the row.
///
/// # Safety
/// By the whole block.
#[inline(always)]
unsafe fn exchange<const WORDS: usize, const THREADS: usize, C: Chunks, const M: usize>(
    scratch: &mut Smem,
    mine: [f32; WORDS],
    none: [f32; WORDS],
) -> [f32; WORDS] {
    const { assert!(THREADS / 32 * WORDS * 4 <= HALF as usize, "a warp's values fit in half of the scratch") };
    let (t, threads) = (tid(), const { ByRows::<THREADS, C>::threads_of_row(M) });
    let (warp, lane) = (t / 32, t % 32);
    let own = scratch.add(warp as usize * WORDS * 4);
    let leave = #[inline(always)]
    |k: usize| {
        // SAFETY: every warp has words of its own in this half, which nobody reads any more.
        unsafe { own.add(k * 4).store_u32_if(mine[k].to_bits(), lane == 0) }
    };
    below!(leave, WORDS);
    block_barrier();
    let warps = (threads / 32) as u32;
    // a number for each lane of the power of two that holds all warps
    let of = lane % warps.next_power_of_two();
    let there = scratch.add(((warp / warps * warps + of) as usize) * WORDS * 4);
    let mut theirs = none;
    let mut read = #[inline(always)]
    |k: usize| {
        if of < warps {
            // SAFETY: written before the barrier.
            theirs[k] = f32::from_bits(unsafe { there.add(k * 4).load_u32() });
        }
    };
    below!(read, WORDS);
    scratch.0 ^= HALF;
    theirs
}

/// The mean of each row, and the sum of the squares of the differences from it. With `zero`, what is outside is zero.
///
/// # Safety
/// By the whole block.
#[inline(always)]
pub(crate) unsafe fn fold_moments<
    T: Element<Value = f32>,
    const THREADS: usize,
    C: Chunks,
    const M: usize,
    const N: usize,
>(
    scratch: &mut Smem,
    words: &Words<T>,
    zero: bool,
    cols: u32,
) -> (PerLine<f32>, PerLine<f32>) {
    let threads = const { ByRows::<THREADS, C>::threads_of_row(M) };
    // what is outside is zero
    // what is outside adds nothing if it is zero
    let of_lane = fold_inside::<Sum, T, THREADS, C, M, N>(
        words,
        if zero { N as u32 } else { cols },
        #[inline(always)]
        |sum, piece, k| sum + value_anew::<T>(piece, k),
    );
    let sum = over_lanes::<Sum>(of_lane, threads);
    let count = if threads > 32 {
        let per_thread = const { <ByRows<THREADS, C> as Layout<M, N>>::PER_THREAD };
        let first = tid() % threads as u32 / 32 * 32;
        inside(first, 32, threads as u32, C::LEN as u32, (per_thread / C::LEN) as u32, cols) as f32
    } else {
        cols as f32
    };
    let mean = sum * reciprocal(if count > 0.0 { count } else { 1.0 });
    let of_lane = fold_inside::<Sum, T, THREADS, C, M, N>(
        words,
        cols,
        #[inline(always)]
        |sum, piece, k| {
            let apart = value_between::<T>(piece, k) - mean;
            fma(apart, apart, sum)
        },
    );
    let spread = over_lanes::<Sum>(of_lane, threads);
    if threads <= 32 {
        return (PerLine::splat(mean, 1), PerLine::splat(spread, 1));
    }
    // SAFETY: the caller's.
    let [mean_there, spread, count] = unsafe { exchange::<3, THREADS, C, M>(scratch, [mean, spread, count], [0.0; 3]) };
    let warps = (threads / 32).next_power_of_two();
    let mean = over_lanes::<Sum>(mean_there * count, warps) * reciprocal(cols as f32);
    let apart = mean_there - mean;
    // the count first: a warp without elements adds nothing, however large the mean
    let spread = over_lanes::<Sum>(spread + count * apart * apart, warps);
    (PerLine::splat(mean, 1), PerLine::splat(spread, 1))
}

/// The greatest value of each row, and the sum of the powers of two of the differences from it, times `factor`.
///
/// # Safety
/// By the whole block.
#[inline(always)]
pub(crate) unsafe fn fold_powers<
    T: Element<Value = f32>,
    const THREADS: usize,
    C: Chunks,
    const M: usize,
    const N: usize,
>(
    scratch: &mut Smem,
    words: &Words<T>,
    cols: u32,
    factor: f32,
) -> (PerLine<f32>, PerLine<f32>) {
    let threads = const { ByRows::<THREADS, C>::threads_of_row(M) };
    let of_lane = fold_inside::<Greatest, T, THREADS, C, M, N>(
        words,
        cols,
        #[inline(always)]
        |most, piece, k| Greatest::join(most, value_anew::<T>(piece, k)),
    );
    let most = over_lanes::<Greatest>(of_lane, threads);
    // of a warp with nothing but minus infinity, zeros are the powers
    let base = if most == f32::NEG_INFINITY && threads > 32 { 0.0 } else { most };
    let of_lane = fold_inside::<Sum, T, THREADS, C, M, N>(
        words,
        cols,
        #[inline(always)]
        |sum, piece, k| sum + exp2((value_between::<T>(piece, k) - base) * factor),
    );
    let sum = over_lanes::<Sum>(of_lane, threads);
    if threads <= 32 {
        return (PerLine::splat(most, 1), PerLine::splat(sum, 1));
    }
    // SAFETY: the caller's.
    let [most, sum] = unsafe { exchange::<2, THREADS, C, M>(scratch, [most, sum], [f32::NEG_INFINITY, 0.0]) };
    let warps = (threads / 32).next_power_of_two();
    let greatest = over_lanes::<Greatest>(most, warps);
    let sum = over_lanes::<Sum>(sum * exp2((most - greatest) * factor), warps);
    (PerLine::splat(greatest, 1), PerLine::splat(sum, 1))
}
