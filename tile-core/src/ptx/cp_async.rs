//! Tiles from global to shared memory by the threads themselves (PTX ISA, "cp.async"). These operations are a thread's
//! own, not convergent: `asm!` is fine for them.

use core::arch::asm;

use super::smem::Smem;
use super::sync::tid;
use crate::element::Element;
use crate::layout::operand_offset;
use crate::view::Window;

/// Ends the group of the copies started since the last.
#[inline(always)]
pub(crate) fn commit_copies() {
    // SAFETY: orders this thread's copies.
    unsafe { asm!("cp.async.commit_group;", options(nostack)) }
}

/// Waits until at most `N` of this thread's groups are under way.
#[inline(always)]
pub(crate) fn wait_copies<const N: usize>() {
    // SAFETY: orders this thread's copies.
    unsafe { asm!("cp.async.wait_group {};", const N, options(nostack)) }
}

/// Starts copying 16 bytes, past L1, if `i < n`; or puts zeros there.
///
/// # Safety
/// Both addresses are 16-byte aligned; `to` is the caller's; if `i < n`, `from` may be read.
#[inline(always)]
unsafe fn copy_16<T>(to: Smem, from: *const T, i: u32, n: u32) {
    // SAFETY: the caller's.
    unsafe {
        asm!("{{ .reg .pred p; .reg .b32 s; setp.lt.u32 p, {2}, {3}; selp.b32 s, 16, 0, p; cp.async.cg.shared.global.L2::128B [{0}], [{1}], 16, s; }}",
            in(reg32) to.0, in(reg64) from, in(reg32) i, in(reg32) n, options(nostack))
    }
}

/// The same for 4 bytes.
///
/// # Safety
/// As for [`copy_16`], 4-byte aligned.
#[inline(always)]
unsafe fn copy_4<T>(to: Smem, from: *const T, inside: bool) {
    let bytes = if inside { 4u32 } else { 0 };
    // SAFETY: the caller's.
    unsafe {
        asm!("cp.async.ca.shared.global [{0}], [{1}], 4, {2};", in(reg32) to.0, in(reg64) from, in(reg32) bytes, options(nostack))
    }
}

/// Eight elements of 2 bytes, one by one: zeros from the `left`th on.
///
/// # Safety
/// `to` is the caller's; the first `left` elements may be read.
#[inline(always)]
unsafe fn copy_elements<T>(to: Smem, from: *const T, left: u32) {
    let mut words = [0u32; 4];
    let mut i = 0;
    while i < 4 {
        // SAFETY: the caller's.
        unsafe {
            asm!(
                "{{ .reg .pred p, q; .reg .b16 l, h; mov.b16 l, 0; mov.b16 h, 0;
                 setp.gt.u32 p, {2}, {3}; setp.gt.u32 q, {2}, {4};
                 @p ld.global.b16 l, [{1}]; @q ld.global.b16 h, [{1}+2]; mov.b32 {0}, {{l, h}}; }}",
                out(reg32) words[i], in(reg64) from.wrapping_add(2 * i), in(reg32) left,
                in(reg32) 2 * i as u32, in(reg32) 2 * i as u32 + 1, options(nostack))
        }
        i += 1;
    }
    // SAFETY: the caller's.
    unsafe {
        asm!("st.shared.v4.b32 [{0}], {{{1}, {2}, {3}, {4}}};", in(reg32) to.0,
            in(reg32) words[0], in(reg32) words[1], in(reg32) words[2], in(reg32) words[3], options(nostack))
    }
}

/// Starts bringing `R` rows of `ROW` bytes to the operand tile at `to`, zeros for what lies outside the window. They are
/// there when every thread has waited for its copies and the block has met.
///
/// # Safety
/// By the whole block of `THREADS` threads; the tile is the block's to write.
#[inline(always)]
pub(crate) unsafe fn fill<T: Element, const R: usize, const ROW: usize, const THREADS: usize>(to: Smem, w: &Window<T>) {
    let chunks = const { ROW / 16 };
    let in_chunk = const { 16 / size_of::<T>() as u32 };
    // Rows that the block copies at once.
    let rows = const {
        assert!(R * ROW / 16 % THREADS == 0, "the threads of a block share an operand tile evenly");
        THREADS / (ROW / 16)
    };
    let t = tid() as usize;
    let (r, column) = ((t / chunks) as u32, (t % chunks) as u32 * in_chunk);
    let to = to.add(operand_offset(ROW, t / chunks, t % chunks * 16));
    let from = (w.ptr as *const T).wrapping_add((r as u64 * w.stride + column as u64) as usize);
    let jump = (rows as u64 * w.stride) as usize;
    let left = if column < w.cols { w.cols - column } else { 0 };
    let place = w.ptr as u64 | w.stride * size_of::<T>() as u64;
    if place % 16 == 0 && w.cols % in_chunk == 0 {
        let inside = if left > 0 { w.rows } else { 0 };
        let mut i = 0;
        while i < R / rows {
            // SAFETY: chunks lie inside or outside as a whole.
            unsafe { copy_16(to.add(i * rows * ROW), from.wrapping_add(i * jump), r + (i * rows) as u32, inside) };
            i += 1;
        }
        return;
    }
    // Not the common case: kept small rather than fast.
    let words = size_of::<T>() == 4 || (place % 4 == 0 && w.cols % 2 == 0);
    let (mut to, mut from, mut r) = (to, from, r);
    while r < R as u32 {
        let left = if r < w.rows { left } else { 0 };
        if words {
            let in_word = const { 4 / size_of::<T>() };
            let mut e = 0;
            while e < 4 {
                // SAFETY: words lie inside or outside as a whole.
                unsafe { copy_4(to.add(e * 4), from.wrapping_add(e * in_word), ((e * in_word) as u32) < left) };
                e += 1;
            }
        } else {
            // SAFETY: elements of 2 bytes, and only those inside are read.
            unsafe { copy_elements(to, from, left) };
        }
        (to, from, r) = (to.add(rows * ROW), from.wrapping_add(jump), r + rows as u32);
    }
}
