//! Accumulators to global memory.

use core::arch::asm;

use super::element::Pack16;
use super::smem::Smem;
use super::sync::{tid, warpgroup_barrier};
use super::tma::{fence_for_bulk, store_box, wait_stores_read};
use super::wgmma::{Wgmma, Width};
use crate::layout::{accumulator_at, stmatrix_offset};
use crate::roles::WarpGroup;
use crate::tma::{SPAN, STORE_ROWS};
use crate::view::Window;

#[cfg(target_feature = "sm_90a")]
#[allow(improper_ctypes)]
unsafe extern "unadjusted" {
    #[link_name = "llvm.nvvm.stmatrix.sync.aligned.m8n8.x4.b16.p0"]
    fn stmatrix_x4(to: *mut u8, a: u32, b: u32, c: u32, d: u32);
}

/// Rounds and writes 64 rows straight from the accumulator, clipped to the window.
///
/// # Safety
/// By the whole warpgroup, whose window it is.
#[inline(always)]
pub(crate) unsafe fn store_rows<T: Pack16, const N: usize>(w: &Window<T>, regs: &<Width<N> as Wgmma>::Regs)
where
    Width<N>: Wgmma,
{
    let (row, col) = accumulator_at(tid() % 128, 0);
    let stride = w.stride as usize;
    let corner = w.ptr.wrapping_add(row as usize * stride + col as usize);
    // Pairs go out as one word where that is aligned.
    let words = (w.ptr as u64 | w.stride * 2) % 4 == 0;
    if w.rows >= STORE_ROWS as u32 && w.cols >= N as u32 && words {
        // SAFETY: the window holds 64 x N elements.
        Width::<N>::pairs(regs, |i, x, y| unsafe {
            *(corner.wrapping_add(i % 2 * 8 * stride + i / 2 * 8) as *mut u32) = T::pack(x, y);
        });
    } else {
        // predicated, not branched: a divergent branch would cost the main loop its uniform registers
        Width::<N>::pairs(regs, |i, x, y| {
            let (r, c) = (row + (i % 2 * 8) as u32, col + (i / 2 * 8) as u32);
            let p = corner.wrapping_add(i % 2 * 8 * stride + i / 2 * 8);
            let left = if r < w.rows && c < w.cols { w.cols - c } else { 0 };
            // SAFETY: only elements inside the window are written.
            unsafe {
                asm!("{{ .reg .pred p, q; .reg .b16 l, h; mov.b32 {{l, h}}, {0}; setp.gt.u32 p, {1}, 0; setp.gt.u32 q, {1}, 1; @p st.global.b16 [{2}], l; @q st.global.b16 [{2}+2], h; }}",
                    in(reg32) T::pack(x, y), in(reg32) left, in(reg64) p, options(nostack));
            }
        });
    }
}

/// Rounds 64 rows into the warpgroup's staging buffers, 64 columns at a time, and has the copy engine store each.
///
/// # Safety
/// By the whole warpgroup, whose buffers and rows they are.
#[inline(always)]
pub(crate) unsafe fn store_staged<T: Pack16, const N: usize, const BUFFERS: usize>(
    wg: &mut WarpGroup,
    buffers: Smem,
    map: u64,
    at: (u32, u32),
    regs: &<Width<N> as Wgmma>::Regs,
) where
    Width<N>: Wgmma,
{
    const { assert!(BUFFERS == 1 || BUFFERS == 2 || BUFFERS == 4, "1, 2 or 4 staging buffers") };
    let thread = tid() % 128;
    Width::<N>::groups(
        regs,
        #[inline(always)]
        |g, v| {
            let (chunk, group) = (g / 4, g % 4);
            let buffer = buffers.add(chunk % BUFFERS * STORE_ROWS * SPAN);
            if group == 0 {
                // The buffer is free once its last store has read it; one thread issues all of them, and knows.
                if thread == 0 {
                    match BUFFERS {
                        1 => wait_stores_read::<0>(),
                        2 => wait_stores_read::<1>(),
                        _ => wait_stores_read::<3>(),
                    }
                }
                warpgroup_barrier(wg.index);
            }
            #[cfg(target_feature = "sm_90a")]
            // SAFETY: inside this warpgroup's buffer.
            unsafe {
                stmatrix_x4(
                    buffer.add(stmatrix_offset(thread, group as u32) as usize).generic(),
                    T::pack(v[0], v[1]),
                    T::pack(v[2], v[3]),
                    T::pack(v[4], v[5]),
                    T::pack(v[6], v[7]),
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
