//! Accumulators to global memory by way of buffers that hold what they meet: see [`over`](crate::over).

use super::Barrier;
use super::element::Pack16;
use super::epilogue::packed_values;
use super::mma_sync::ldmatrix;
use super::smem::Smem;
use super::store::stmatrix;
use super::sync::{tid, warp_barrier, warpgroup_barrier};
use super::tma::{fence_for_bulk, load_box, store_box, wait_stores_read};
use super::wgmma::{Wgmma, Width};
use crate::layout::stmatrix_offset;
use crate::roles::WarpGroup;
use crate::tma::{SPAN, STORE_ROWS};

/// Waits until what was brought last has landed. `state` is a barrier, and behind it how often the buffers were filled.
#[inline(always)]
pub(crate) fn wait_brought(state: Smem) {
    // SAFETY: a word of this warpgroup's own.
    let turns = unsafe { state.add(8).load_u32() };
    Barrier(state).wait::<1>(turns.wrapping_sub(1), 1, "");
}

/// Has the copy engine fill the buffers with `H` times 64 rows of `N` columns from `at` (column, row) on, once their last
/// stores have read them. The number of the turn.
///
/// # Safety
/// By the whole warpgroup, whose buffers they are; they hold the rows.
#[inline(always)]
pub(crate) unsafe fn bring<T, const N: usize, const H: usize>(
    wg: &mut WarpGroup,
    state: Smem,
    buffers: Smem,
    map: u64,
    at: (u32, u32),
) -> u32 {
    // SAFETY: a word of this warpgroup's own, which is written behind the barrier.
    let turn = unsafe { state.add(8).load_u32() };
    warpgroup_barrier(wg.index);
    if tid() % 128 == 0 {
        let bar = Barrier(state);
        // long ago, unless the rows before were given up
        bar.wait::<1>(turn.wrapping_sub(1), 1, "");
        // this thread issued all stores that read the buffers
        wait_stores_read::<0>();
        bar.expect(H * N * STORE_ROWS * size_of::<T>());
        let mut box_ = 0;
        while box_ < H * N / 64 {
            let (h, chunk) = (box_ / (N / 64), box_ % (N / 64));
            let to = buffers.add(box_ * STORE_ROWS * SPAN);
            // SAFETY: the buffer is free, and its bytes are expected.
            unsafe { load_box(to, map, at.0 + chunk as u32 * 64, at.1 + h as u32 * 64, bar) };
            box_ += 1;
        }
        // SAFETY: all have read it.
        unsafe { state.add(8).store_u32(turn.wrapping_add(1)) };
    }
    warp_barrier();
    // The word is written before anybody reads it for the next turn, even if this one is given up.
    warpgroup_barrier(wg.index);
    turn
}

/// Waits for what was brought in `turn`, combines it with the accumulator, rounds, and has the copy engine store it.
///
/// # Safety
/// By the whole warpgroup, whose buffers and rows they are; [`bring`] has filled the buffers in `turn`.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
pub(crate) unsafe fn store_over<T: Pack16, const N: usize, const H: usize>(
    wg: &mut WarpGroup,
    state: Smem,
    turn: u32,
    buffers: Smem,
    map: u64,
    at: (u32, u32),
    regs: &[<Width<N> as Wgmma>::Regs; H],
    packed: &<Width<N> as Wgmma>::Packed,
    f: impl Fn(f32, f32, f32) -> f32,
) where
    Width<N>: Wgmma,
{
    Barrier(state).wait::<1>(turn, 1, "");
    // SAFETY: the caller's.
    unsafe {
        over_64::<T, N>(wg, buffers, map, at, &regs[0], packed, &f);
        if H > 1 {
            let buffers = buffers.add(N / 64 * STORE_ROWS * SPAN);
            over_64::<T, N>(wg, buffers, map, (at.0, at.1 + 64), &regs[H - 1], packed, &f);
        }
    }
}

/// # Safety
/// As for [`store_over`], of 64 rows.
#[inline(always)]
unsafe fn over_64<T: Pack16, const N: usize>(
    wg: &mut WarpGroup,
    buffers: Smem,
    map: u64,
    at: (u32, u32),
    regs: &<Width<N> as Wgmma>::Regs,
    packed: &<Width<N> as Wgmma>::Packed,
    f: &impl Fn(f32, f32, f32) -> f32,
) where
    Width<N>: Wgmma,
{
    let thread = tid() % 128;
    Width::<N>::groups(
        regs,
        #[inline(always)]
        |g, v| {
            let (chunk, group) = (g / 4, g % 4);
            let buffer = buffers.add(chunk * STORE_ROWS * SPAN);
            let place = buffer.add(stmatrix_offset(thread, group as u32) as usize);
            let p = packed_values::<T, N>(packed, g);
            // SAFETY: inside this warpgroup's buffer; a warp writes what it has read itself.
            unsafe {
                let [a, b, c, d] = ldmatrix(place);
                let (a, b, c, d) = (T::unpack(a), T::unpack(b), T::unpack(c), T::unpack(d));
                stmatrix(
                    place,
                    [
                        T::pack(f(v[0], p[0], a[0]), f(v[1], p[1], a[1])),
                        T::pack(f(v[2], p[2], b[0]), f(v[3], p[3], b[1])),
                        T::pack(f(v[4], p[4], c[0]), f(v[5], p[5], c[1])),
                        T::pack(f(v[6], p[6], d[0]), f(v[7], p[7], d[1])),
                    ],
                );
            }
            if group == 3 {
                fence_for_bulk();
                warpgroup_barrier(wg.index);
                if thread == 0 {
                    // SAFETY: every thread of the warpgroup has fenced its writes to the buffer.
                    unsafe { store_box(buffer, map, at.0 + chunk as u32 * 64, at.1) };
                }
            }
        },
    );
}
