//! Reductions of register tiles on the device.
//!
//! Warps meet through the block's scratch, 1024 bytes in two halves that are used by turns: who writes a half for the
//! second time has passed the barrier of the turn between, and so have, before that, all readers of the first time. One
//! barrier a turn is enough.

use super::access::{value, value_anew};
use super::entry::Place;
use super::smem::Smem;
use super::sync::{block_barrier, cluster_barrier, cluster_rank, shuffle_xor, tid};
use super::tile::{PerLine, Piece, Spread, Words, each, upto_16, upto_64};
use crate::element::{Element, Value};
use crate::layout::{ByColumns, ByRows, Chunks, Layout};
use crate::tile::Fold;

pub(super) const HALF: u32 = 512;

/// Four partial results, so that the joins of one need not wait for each other.
#[inline(always)]
fn partial<F: Fold<V>, V: Value, L: Layout<M, N>, const M: usize, const N: usize>(v: impl Fn(usize) -> V) -> V {
    let mut sums = [v(0), v(1), v(2), v(3)];
    let mut join = #[inline(always)]
    |i: usize| {
        if i >= 4 {
            sums[i % 4] = F::join(sums[i % 4], v(i));
        }
    };
    upto_64!(each, join, L::PER_THREAD);
    F::join(F::join(sums[0], sums[1]), F::join(sums[2], sums[3]))
}

#[inline(always)]
pub(super) fn join_across<F: Fold<V>, V: Value>(v: V, lanes: u32) -> V {
    F::join(v, V::from_bits32(shuffle_xor(v.to_bits32(), lanes)))
}

/// Joins the values of each row.
///
/// # Safety
/// By the whole block.
#[inline(always)]
pub(crate) unsafe fn fold_rows<
    F: Fold<V>,
    V: Value,
    const THREADS: usize,
    C: Chunks,
    const M: usize,
    const N: usize,
>(
    scratch: &mut Smem,
    v: &Spread<V>,
    cols: u32,
) -> PerLine<V> {
    let s = if cols >= N as u32 {
        partial::<F, V, ByRows<THREADS, C>, M, N>(
            #[inline(always)]
            |i| v.0[i],
        )
    } else {
        let left = cols.saturating_sub(<ByRows<THREADS, C> as Layout<M, N>>::first(tid()).1);
        partial::<F, V, ByRows<THREADS, C>, M, N>(
            #[inline(always)]
            |i| {
                let (_, across) = <ByRows<THREADS, C> as Layout<M, N>>::step(i as u32);
                if across < left { v.0[i] } else { F::START }
            },
        )
    };
    // SAFETY: the caller's.
    unsafe { join_row::<F, V, THREADS, C, M>(scratch, s) }
}

/// Joins `f` of the elements of each row and the row's value: of all elements that the tile can hold if `all`, else of those
/// that are inside. Values are made where they are used, a piece at a time.
///
/// # Safety
/// By the whole block.
#[inline(always)]
pub(crate) unsafe fn fold_words<
    F: Fold<V>,
    T: Element,
    P: Value,
    V: Value,
    const THREADS: usize,
    C: Chunks,
    const M: usize,
    const N: usize,
>(
    scratch: &mut Smem,
    words: &Words<T>,
    per_row: &PerLine<P>,
    all: bool,
    cols: u32,
    f: impl Fn(T::Value, P) -> V,
) -> PerLine<V> {
    let in_piece = const { Piece::<T, ByRows<THREADS, C>, M, N>::ELEMENTS };
    let s = if all || cols >= N as u32 {
        partial::<F, V, ByRows<THREADS, C>, M, N>(
            #[inline(always)]
            |i| f(value_anew::<T>(&words.0[i / in_piece], i % in_piece), per_row.0[0]),
        )
    } else {
        let left = cols.saturating_sub(<ByRows<THREADS, C> as Layout<M, N>>::first(tid()).1);
        partial::<F, V, ByRows<THREADS, C>, M, N>(
            #[inline(always)]
            |i| {
                let (_, across) = <ByRows<THREADS, C> as Layout<M, N>>::step(i as u32);
                let v = f(value::<T>(&words.0[i / in_piece], i % in_piece), per_row.0[0]);
                if across < left { v } else { F::START }
            },
        )
    };
    // SAFETY: the caller's.
    unsafe { join_row::<F, V, THREADS, C, M>(scratch, s) }
}

/// Joins what the threads of each row have.
///
/// # Safety
/// By the whole block.
#[inline(always)]
pub(super) unsafe fn join_row<F: Fold<V>, V: Value, const THREADS: usize, C: Chunks, const M: usize>(
    scratch: &mut Smem,
    mut s: V,
) -> PerLine<V> {
    let t = tid();
    let threads = const { ByRows::<THREADS, C>::threads_of_row(M) };
    if threads > 16 {
        s = join_across::<F, V>(s, 16);
    }
    if threads > 8 {
        s = join_across::<F, V>(s, 8);
    }
    if threads > 4 {
        s = join_across::<F, V>(s, 4);
    }
    if threads > 2 {
        s = join_across::<F, V>(s, 2);
    }
    if threads > 1 {
        s = join_across::<F, V>(s, 1);
    }
    if threads > 32 {
        let warps = threads / 32;
        // SAFETY: every warp has a word of its own in this half; see above.
        unsafe { scratch.add((t / 32 * 4) as usize).store_u32_if(s.to_bits32(), t % 32 == 0) };
        block_barrier();
        let first = scratch.add((t / threads as u32 * (warps * 4) as u32) as usize);
        // SAFETY: written before the barrier.
        s = V::from_bits32(unsafe { first.load_u32() });
        let mut join = #[inline(always)]
        |w: usize| {
            if w > 0 {
                // SAFETY: as above.
                s = F::join(s, V::from_bits32(unsafe { first.add(w * 4).load_u32() }));
            }
        };
        // 32 at most
        upto_64!(each, join, ByRows::<THREADS, C>::threads_of_row(M) / 32);
        scratch.0 ^= HALF;
    }
    PerLine::splat(s, 1)
}

/// Where the blocks of a cluster leave values for this one, in the first half, behind what reductions of rows use of it:
/// a word for each block, twice, used by turns.
const EXCHANGE: usize = 128;
const EXCHANGE_TURN: usize = 64;

/// Joins the one value that each block of the cluster has.
///
/// # Safety
/// By all blocks of the cluster, in all of which `exchanges` is equal: how often they have done this before.
#[inline(always)]
pub(crate) unsafe fn join_cluster<F: Fold<V>, V: Value, const CLUSTER: usize>(
    scratch: Smem,
    _: Place,
    exchanges: u32,
    v: &PerLine<V>,
) -> PerLine<V> {
    if CLUSTER == 1 {
        return PerLine::splat(v.0[0], 1);
    }
    if exchanges == 0 {
        // the others have begun: before that their memory is not there
        cluster_barrier();
    }
    // A block that writes for the second time to one half has passed the meeting of the turn between, and so have,
    // before that, all readers of the first time.
    let half = Smem(scratch.0 & !HALF).add(EXCHANGE).add((exchanges % 2) as usize * EXCHANGE_TURN);
    // SAFETY: every block has a word of its own in every other's half; written by one thread for each of them.
    unsafe { half.add(cluster_rank() as usize * 4).store_u32_to_peers(v.0[0].to_bits32(), CLUSTER as u32) };
    cluster_barrier();
    // SAFETY: written before the meeting.
    let mut s = V::from_bits32(unsafe { half.load_u32() });
    let mut join = #[inline(always)]
    |rank: usize| {
        if rank > 0 {
            // SAFETY: as above.
            s = F::join(s, V::from_bits32(unsafe { half.add(rank * 4).load_u32() }));
        }
    };
    upto_16!(each, join, CLUSTER);
    PerLine::splat(s, 1)
}

/// How the sums of columns travel between warps: in rounds, as many columns at a time as half the scratch holds.
struct Rounds<const THREADS: usize, C, const N: usize>(C);
impl<const THREADS: usize, C: Chunks, const N: usize> Rounds<THREADS, C, N> {
    /// Columns of a thread in one round.
    const COLUMNS: usize = {
        let words = N * (THREADS / 32);
        let rounds = words.div_ceil(HALF as usize / 4);
        assert!(C::LEN % rounds == 0, "too many threads for the scratch of a reduction over rows");
        C::LEN / rounds
    };
}

/// Joins the values of each column.
///
/// # Safety
/// By the whole block.
#[inline(always)]
pub(crate) unsafe fn fold_columns<
    F: Fold<V>,
    V: Value,
    const THREADS: usize,
    C: Chunks,
    const M: usize,
    const N: usize,
>(
    scratch: &mut Smem,
    v: &Spread<V>,
    rows: u32,
) -> PerLine<V> {
    let t = tid();
    let across = const { (N / C::LEN) as u32 };
    let left = rows.saturating_sub(<ByColumns<THREADS, C> as Layout<M, N>>::first(t).0);
    let column = #[inline(always)]
    |k: usize| {
        if k >= C::LEN {
            return V::ZERO;
        }
        let mut s = F::START;
        let mut join = #[inline(always)]
        |i: usize| {
            if i % C::LEN == k {
                let (down, _) = <ByColumns<THREADS, C> as Layout<M, N>>::step(i as u32);
                s = F::join(s, if down < left { v.0[i] } else { F::START });
            }
        };
        upto_64!(each, join, <ByColumns<THREADS, C> as Layout<M, N>>::PER_THREAD);
        if across <= 1 {
            s = join_across::<F, V>(s, 1);
        }
        if across <= 2 {
            s = join_across::<F, V>(s, 2);
        }
        if across <= 4 {
            s = join_across::<F, V>(s, 4);
        }
        if across <= 8 {
            s = join_across::<F, V>(s, 8);
        }
        if across <= 16 {
            s = join_across::<F, V>(s, 16);
        }
        s
    };
    let mut sums = PerLine::<V>::of(column);
    if THREADS > 32 {
        let in_round = const { Rounds::<THREADS, C, N>::COLUMNS };
        let mut round = #[inline(always)]
        |r: usize| {
            let lane = t % 32;
            let mine = scratch.add((t / 32 * across + lane) as usize * in_round * 4);
            let write = #[inline(always)]
            |k: usize| {
                // SAFETY: the words of this warp's columns, written by the first lane that has the column.
                unsafe { mine.add(k * 4).store_u32_if(sums.0[r * in_round + k].to_bits32(), lane < across) }
            };
            upto_16!(each, write, Rounds::<THREADS, C, N>::COLUMNS);
            block_barrier();
            let all = scratch.add((t % across) as usize * in_round * 4);
            let mut read = #[inline(always)]
            |k: usize| {
                let from = all.add(k * 4);
                // SAFETY: written before the barrier.
                let mut s = V::from_bits32(unsafe { from.load_u32() });
                let mut join = #[inline(always)]
                |w: usize| {
                    if w > 0 {
                        // SAFETY: as above.
                        let other = unsafe { from.add(w * across as usize * in_round * 4).load_u32() };
                        s = F::join(s, V::from_bits32(other));
                    }
                };
                upto_64!(each, join, THREADS / 32);
                sums.0[r * in_round + k] = s;
            };
            upto_16!(each, read, Rounds::<THREADS, C, N>::COLUMNS);
            scratch.0 ^= HALF;
        };
        upto_16!(each, round, C::LEN / Rounds::<THREADS, C, N>::COLUMNS);
    }
    sums
}
