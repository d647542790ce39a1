//! The stores of a block-level product.

use core::arch::asm;

use super::dot::DotElement;
use super::element::Pack16;
use super::mma_sync::{BlockProduct, Split};
use super::sync::{shuffle_xor, tid};
use crate::view::Window;

/// Rounds and writes a block's accumulator, clipped to the window.
///
/// # Safety
/// By the whole block, whose window it is.
#[inline(always)]
pub(crate) unsafe fn store_block<T: DotElement, const M: usize, const N: usize, const THREADS: usize>(
    w: &Window<T>,
    regs: &<Split<M, N, THREADS> as BlockProduct>::Regs,
) where
    Split<M, N, THREADS>: BlockProduct,
{
    let whole =
        w.rows == M as u32 && w.cols == N as u32 && (w.ptr as u64 | w.stride * size_of::<T>() as u64) % T::VECTOR == 0;
    if whole {
        Split::<M, N, THREADS>::fours(
            regs,
            #[inline(always)]
            // SAFETY: the caller's.
            |row, column, v| unsafe { T::store_four(w, true, row, column, v) },
        );
    } else {
        Split::<M, N, THREADS>::fours(
            regs,
            #[inline(always)]
            // SAFETY: the caller's.
            |row, column, v| unsafe { T::store_four(w, false, row, column, v) },
        );
    }
}

/// One exchange of a transpose: lanes that differ in `bit` swap an off-diagonal word.
#[inline(always)]
fn exchange(lo: u32, hi: u32, lane: u32, bit: u32) -> (u32, u32) {
    let odd = lane & bit != 0;
    let got = shuffle_xor(if odd { lo } else { hi }, bit);
    if odd { (got, hi) } else { (lo, got) }
}

/// The four lanes that share a row exchange values, so that each has eight neighbours: 16 bytes.
///
/// # Safety
/// As for [`DotElement::store_four`].
#[inline(always)]
pub(super) unsafe fn store_16bit<T: Pack16>(w: &Window<T>, whole: bool, row: u32, column: u32, v: [[f32; 2]; 4]) {
    let (lane, t) = (tid() % 4, tid() % 32);
    if !whole {
        let r = row + t / 4;
        let mut i = 0;
        while i < 4 {
            let c = column + lane * 2 + 8 * i as u32;
            let to = w.ptr.wrapping_add((r as u64 * w.stride + c as u64) as usize);
            let left = if r < w.rows && c < w.cols { w.cols - c } else { 0 };
            // SAFETY: only elements inside the window are written.
            unsafe {
                asm!("{{ .reg .pred p, q; .reg .b16 l, h; mov.b32 {{l, h}}, {0}; setp.gt.u32 p, {1}, 0; setp.gt.u32 q, {1}, 1; @p st.global.b16 [{2}], l; @q st.global.b16 [{2}+2], h; }}",
                    in(reg32) T::pack(v[i][0], v[i][1]), in(reg32) left, in(reg64) to, options(nostack));
            }
            i += 1;
        }
        return;
    }
    let [a, b, c, d] =
        [T::pack(v[0][0], v[0][1]), T::pack(v[1][0], v[1][1]), T::pack(v[2][0], v[2][1]), T::pack(v[3][0], v[3][1])];
    // A transpose of 4 x 4 words between 4 lanes, in two exchanges.
    let ((a, b), (c, d)) = (exchange(a, b, lane, 1), exchange(c, d, lane, 1));
    let ((a, c), (b, d)) = (exchange(a, c, lane, 2), exchange(b, d, lane, 2));
    let (r, c0) = (row + t / 4, column + lane * 8);
    let to = w.ptr.wrapping_add((r as u64 * w.stride + c0 as u64) as usize);
    // SAFETY: inside, aligned.
    unsafe {
        asm!("st.global.v4.b32 [{0}], {{{1}, {2}, {3}, {4}}};", in(reg64) to, in(reg32) a, in(reg32) b, in(reg32) c, in(reg32) d, options(nostack))
    }
}

/// # Safety
/// As for [`DotElement::store_four`].
#[inline(always)]
pub(super) unsafe fn store_f32(w: &Window<f32>, whole: bool, row: u32, column: u32, v: [[f32; 2]; 4]) {
    let t = tid() % 32;
    let (r, c0) = (row + t / 4, column + t % 4 * 2);
    let to = w.ptr.wrapping_add((r as u64 * w.stride + c0 as u64) as usize);
    let mut i = 0;
    while i < 4 {
        let (c, to) = (c0 + 8 * i as u32, to.wrapping_add(8 * i));
        // SAFETY: only elements inside the window are written.
        unsafe {
            if whole {
                asm!("st.global.v2.f32 [{0}], {{{1}, {2}}};", in(reg64) to, in(reg32) v[i][0], in(reg32) v[i][1], options(nostack));
            } else {
                let left = if r < w.rows && c < w.cols { w.cols - c } else { 0 };
                asm!("{{ .reg .pred p, q; setp.gt.u32 p, {1}, 0; setp.gt.u32 q, {1}, 1; @p st.global.f32 [{0}], {2}; @q st.global.f32 [{0}+4], {3}; }}",
                    in(reg64) to, in(reg32) left, in(reg32) v[i][0], in(reg32) v[i][1], options(nostack));
            }
        }
        i += 1;
    }
}
