//! Reductions of rows to two values, on the device: within each warp by shuffles, then once over the block's scratch, by the
//! rules of the reductions to one value.

use super::access::{value_anew, value_between};
use super::math::{exp2, reciprocal};
use super::smem::Smem;
use super::sync::{block_barrier, tid};
use super::tile::{HALF, PerLine, Piece, Words, join_across, partial};
use crate::element::Element;
use crate::layout::{ByRows, Chunks, Layout};
use crate::row_pairs::inside;
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

/// Calls `f(i)` for each `i` below `$n`, which is a constant and 32 at most.
macro_rules! below {
    ($f:ident, $n:expr; $($i:literal)*) => { $(if const { $i < $n } { $f($i) })* };
    ($f:ident, $n:expr) => {
        below!($f, $n; 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31)
    };
}

/// Joins `v(i)` of a thread's elements that are inside a row of `cols`. Where whole pieces are inside or outside, a piece at
/// a time is left out, which costs next to nothing; else an element at a time.
#[inline(always)]
fn fold_inside<F: Fold<f32>, T: Element, const THREADS: usize, C: Chunks, const M: usize, const N: usize>(
    cols: u32,
    v: impl Fn(usize) -> f32,
) -> f32 {
    let in_piece = const { Piece::<T, ByRows<THREADS, C>, M, N>::ELEMENTS };
    let left = cols.saturating_sub(<ByRows<THREADS, C> as Layout<M, N>>::first(tid()).1);
    let across = #[inline(always)]
    |i: usize| <ByRows<THREADS, C> as Layout<M, N>>::step(i as u32).1;
    if cols % in_piece as u32 != 0 {
        return partial::<F, f32, ByRows<THREADS, C>, M, N>(
            #[inline(always)]
            |i| {
                let v = v(i);
                if across(i) < left { v } else { F::START }
            },
        );
    }
    let mut sums = [F::START; 2];
    let mut piece = #[inline(always)]
    |q: usize| {
        let i = q * in_piece;
        let mut halves = [v(i), v(i + 1)];
        let mut join = #[inline(always)]
        |k: usize| {
            if k > 1 {
                halves[k % 2] = F::join(halves[k % 2], v(i + k));
            }
        };
        below!(join, Piece::<T, ByRows<THREADS, C>, M, N>::ELEMENTS);
        let joined = F::join(halves[0], halves[1]);
        sums[q % 2] = F::join(sums[q % 2], if across(i) < left { joined } else { F::START });
    };
    below!(piece, Piece::<T, ByRows<THREADS, C>, M, N>::COUNT);
    F::join(sums[0], sums[1])
}

/// What the warps of a row have left for each other.
struct Left<'s, const WORDS: usize> {
    first: Smem,
    scratch: &'s mut Smem,
}

impl<'s, const WORDS: usize> Left<'s, WORDS> {
    /// Leaves this warp's values, and meets.
    ///
    /// # Safety
    /// By the whole block.
    #[inline(always)]
    unsafe fn leave<const THREADS: usize, C: Chunks, const M: usize>(
        scratch: &'s mut Smem,
        mine: [f32; WORDS],
    ) -> Self {
        const { assert!(THREADS / 32 * WORDS * 4 <= HALF as usize, "a warp's values fit in half of the scratch") };
        let (t, threads) = (tid(), const { ByRows::<THREADS, C>::threads_of_row(M) });
        let own = scratch.add((t / 32) as usize * WORDS * 4);
        let mut k = 0;
        while k < WORDS {
            // SAFETY: every warp has words of its own in this half, which nobody reads any more.
            unsafe { own.add(k * 4).store_u32_if(mine[k].to_bits(), t % 32 == 0) };
            k += 1;
        }
        block_barrier();
        Left { first: scratch.add(t as usize / threads * (threads / 32) * WORDS * 4), scratch }
    }
    /// Value `k` of warp `w`. From memory each time: registers are for the row.
    #[inline(always)]
    fn read(&self, w: usize, k: usize) -> f32 {
        // SAFETY: written before the barrier, and not again before the next.
        f32::from_bits(unsafe { self.first.add((w * WORDS + k) * 4).load_u32() })
    }
}
impl<const WORDS: usize> Drop for Left<'_, WORDS> {
    #[inline(always)]
    fn drop(&mut self) {
        self.scratch.0 ^= HALF;
    }
}

/// The mean of each row, and the sum of the squares of the differences from it.
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
    cols: u32,
) -> (PerLine<f32>, PerLine<f32>) {
    let in_piece = const { Piece::<T, ByRows<THREADS, C>, M, N>::ELEMENTS };
    let threads = const { ByRows::<THREADS, C>::threads_of_row(M) };
    // what is outside is zero
    let of_lane = partial::<Sum, f32, ByRows<THREADS, C>, M, N>(
        #[inline(always)]
        |i| value_anew::<T>(&words.0[i / in_piece], i % in_piece),
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
        cols,
        #[inline(always)]
        |i| {
            let apart = value_between::<T>(&words.0[i / in_piece], i % in_piece) - mean;
            apart * apart
        },
    );
    let spread = over_lanes::<Sum>(of_lane, threads);
    if threads <= 32 {
        return (PerLine::splat(mean, 1), PerLine::splat(spread, 1));
    }
    // SAFETY: the caller's.
    let parts = unsafe { Left::<3>::leave::<THREADS, C, M>(scratch, [mean, spread, count]) };
    let mut sum = 0.0;
    let mut add = #[inline(always)]
    |w: usize| sum += parts.read(w, 0) * parts.read(w, 2);
    below!(add, ByRows::<THREADS, C>::threads_of_row(M) / 32);
    let mean = sum * reciprocal(cols as f32);
    let mut spread = 0.0;
    let mut add = #[inline(always)]
    |w: usize| {
        let apart = parts.read(w, 0) - mean;
        // the count first: a warp without elements adds nothing, however large the mean
        spread += parts.read(w, 1) + parts.read(w, 2) * apart * apart;
    };
    below!(add, ByRows::<THREADS, C>::threads_of_row(M) / 32);
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
    let in_piece = const { Piece::<T, ByRows<THREADS, C>, M, N>::ELEMENTS };
    let threads = const { ByRows::<THREADS, C>::threads_of_row(M) };
    let of_lane = fold_inside::<Greatest, T, THREADS, C, M, N>(
        cols,
        #[inline(always)]
        |i| value_anew::<T>(&words.0[i / in_piece], i % in_piece),
    );
    let most = over_lanes::<Greatest>(of_lane, threads);
    // of a warp with nothing but minus infinity, zeros are the powers
    let base = if most == f32::NEG_INFINITY && threads > 32 { 0.0 } else { most };
    let of_lane = fold_inside::<Sum, T, THREADS, C, M, N>(
        cols,
        #[inline(always)]
        |i| exp2((value_between::<T>(&words.0[i / in_piece], i % in_piece) - base) * factor),
    );
    let sum = over_lanes::<Sum>(of_lane, threads);
    if threads <= 32 {
        return (PerLine::splat(most, 1), PerLine::splat(sum, 1));
    }
    // SAFETY: the caller's.
    let parts = unsafe { Left::<2>::leave::<THREADS, C, M>(scratch, [most, sum]) };
    let mut greatest = f32::NEG_INFINITY;
    let mut join = #[inline(always)]
    |w: usize| greatest = Greatest::join(greatest, parts.read(w, 0));
    below!(join, ByRows::<THREADS, C>::threads_of_row(M) / 32);
    let mut sum = 0.0;
    let mut add = #[inline(always)]
    |w: usize| sum += parts.read(w, 1) * exp2((parts.read(w, 0) - greatest) * factor);
    below!(add, ByRows::<THREADS, C>::threads_of_row(M) / 32);
    (PerLine::splat(greatest, 1), PerLine::splat(sum, 1))
}
