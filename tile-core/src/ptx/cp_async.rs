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

/// If `go`, starts copying 16 bytes, past L1, if `n > i`, and puts zeros there otherwise. Predicated, not branched: a
/// branch would keep the products around it apart.
///
/// # Safety
/// Both addresses are 16-byte aligned; `to` is the caller's; if `n > i`, `from` may be read.
#[inline(always)]
pub(super) unsafe fn copy_16<T>(to: Smem, from: *const T, n: u32, i: u32, go: u32) {
    // SAFETY: the caller's.
    unsafe {
        asm!("{{ .reg .pred p, q; .reg .b32 s; setp.gt.u32 p, {2}, {3}; setp.ne.u32 q, {4}, 0; selp.b32 s, 16, 0, p;
             @q cp.async.cg.shared.global.L2::128B [{0}], [{1}], 16, s; }}",
            in(reg32) to.0, in(reg64) from, in(reg32) n, in(reg32) i, in(reg32) go, options(nostack))
    }
}

/// Starts copying 4 bytes; or puts zeros there.
///
/// # Safety
/// Both addresses are 4-byte aligned; `to` is the caller's; if `inside`, `from` may be read.
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
pub(super) unsafe fn copy_elements<T>(to: Smem, from: *const T, left: u32) {
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

/// Where a thread begins in an operand tile of rows of `ROW` bytes, and how it goes on.
struct Part<T> {
    to: Smem,
    from: *const T,
    row: u32,
    /// Elements of its columns that lie inside the window.
    left: u32,
    /// Elements to the next row that it copies, `ROWS` further down.
    jump: usize,
}

/// Rows that a block copies at once, 16 bytes a thread.
const fn rows_at_once<const R: usize, const ROW: usize, const THREADS: usize>() -> usize {
    assert!(R * ROW / 16 % THREADS == 0, "the threads of a block share an operand tile evenly");
    THREADS / (ROW / 16)
}

#[inline(always)]
fn part<T: Element, const ROW: usize>(to: Smem, w: &Window<T>, rows: usize) -> Part<T> {
    let (chunks, in_chunk) = const { (ROW as u32 / 16, 16 / size_of::<T>() as u32) };
    let (row, chunk) = (tid() / chunks, tid() % chunks);
    let column = chunk * in_chunk;
    Part {
        to: to.add(operand_offset(ROW, row as usize, chunk as usize * 16)),
        from: (w.ptr as *const T).wrapping_add((row as u64 * w.stride + column as u64) as usize),
        row,
        left: if column < w.cols { w.cols - column } else { 0 },
        jump: (rows as u64 * w.stride) as usize,
    }
}

/// All addresses that a copy of the window reads, or'ed as far as alignment goes.
#[inline(always)]
fn alignment<T>(w: &Window<T>) -> u32 {
    w.ptr as u32 | (w.stride * size_of::<T>() as u64) as u32
}

/// Whether the window can be copied 16 bytes at a time: chunks are aligned, and lie inside or outside as a whole.
#[inline(always)]
pub(crate) fn in_chunks<T>(w: &Window<T>) -> bool {
    (alignment(w) % 16) | (w.cols * size_of::<T>() as u32 % 16) == 0
}

/// If `go`, starts bringing `R` rows of `ROW` bytes to the operand tile at `to`, zeros for what lies outside the window.
/// They are there when every thread has waited for its copies and the block has met. Straight-line code.
///
/// # Safety
/// By the whole block of `THREADS` threads; the tile is the block's to write; if `go`, the window is `in_chunks`.
#[inline(always)]
pub(crate) unsafe fn copy_chunks<T: Element, const R: usize, const ROW: usize, const THREADS: usize>(
    to: Smem,
    w: &Window<T>,
    go: bool,
) {
    let rows = const { rows_at_once::<R, ROW, THREADS>() };
    let p = part::<T, ROW>(to, w, rows);
    // Rows of the window from this thread's first on: then constants tell which of its chunks are inside.
    let inside = if p.left > 0 && w.rows > p.row { w.rows - p.row } else { 0 };
    let mut from = p.from;
    let mut i = 0;
    while i < const { R / rows_at_once::<R, ROW, THREADS>() } {
        // SAFETY: the caller's.
        unsafe { copy_16(p.to.add(i * rows * ROW), from, inside, (i * rows) as u32, go as u32) };
        from = from.wrapping_add(p.jump);
        i += 1;
    }
}

/// As [`copy_chunks`], of any window, in smaller pieces: small code rather than fast.
///
/// # Safety
/// By the whole block of `THREADS` threads; the tile is the block's to write.
#[inline(always)]
pub(crate) unsafe fn copy_pieces<T: Element, const R: usize, const ROW: usize, const THREADS: usize>(
    to: Smem,
    w: &Window<T>,
) {
    let rows = const { rows_at_once::<R, ROW, THREADS>() };
    let Part { mut to, mut from, mut row, left, jump } = part::<T, ROW>(to, w, rows);
    let words = size_of::<T>() == 4 || (alignment(w) % 4 == 0 && w.cols % 2 == 0);
    // Strides are below 2^63: this is R, which the compiler does not know. The loop stays a loop, of the same trips for all.
    let end = R as u32 + (w.stride >> 63) as u32;
    let mut first = 0;
    while first < end {
        let left = if row < w.rows { left } else { 0 };
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
        (to, from, row) = (to.add(rows * ROW), from.wrapping_add(jump), row + rows as u32);
        first += rows as u32;
    }
}
