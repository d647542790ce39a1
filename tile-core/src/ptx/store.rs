//! Accumulators to global memory.

use core::arch::asm;

use super::element::Pack16;
use super::epilogue::AccElement;
use super::smem::{Smem, here};
use super::sync::{any_lane, shuffle_xor, tid, warp_barrier, warpgroup_barrier};
use super::tma::{fence_for_bulk, store_box, wait_stores_read};
use super::wgmma::{Wgmma, Width};
use crate::layout::{accumulator_at, fragment_at, stmatrix_offset, tile_offset};
use crate::mma::Packed;
use crate::roles::WarpGroup;
use crate::rows::AccRows;
use crate::tma::{SPAN, STORE_ROWS};
use crate::view::Window;

#[cfg(target_feature = "sm_90a")]
#[allow(improper_ctypes)]
unsafe extern "unadjusted" {
    #[link_name = "llvm.nvvm.stmatrix.sync.aligned.m8n8.x4.b16.p0"]
    fn stmatrix_x4(to: *mut u8, a: u32, b: u32, c: u32, d: u32);
}

/// Writes 16 x 16 elements of a warp's accumulator to where its threads point.
///
/// # Safety
/// By the whole warp; the places are its to write.
#[inline(always)]
pub(crate) unsafe fn stmatrix(to: Smem, [a, b, c, d]: [u32; 4]) {
    #[cfg(target_feature = "sm_90a")]
    // SAFETY: the caller's.
    unsafe {
        stmatrix_x4(to.generic(), a, b, c, d)
    }
    #[cfg(not(target_feature = "sm_90a"))]
    let _ = (to, a, b, c, d);
}

/// Rounds and writes the rows of an accumulator, clipped to the window.
///
/// # Safety
/// By the whole warpgroup, whose window it is.
#[inline(always)]
pub(crate) unsafe fn store_rows<T: AccElement, const N: usize, const H: usize>(
    w: &Window<T>,
    regs: &[<Width<N> as Wgmma>::Regs; H],
) where
    Width<N>: Wgmma,
{
    // SAFETY: the caller's.
    unsafe {
        store_64::<T, N>(w, 0, &regs[0]);
        if H > 1 {
            store_64::<T, N>(w, 64, &regs[H - 1]);
        }
    }
}

/// Rounds and writes 64 rows straight from the accumulator, clipped to the window.
///
/// # Safety
/// As for [`store_rows`].
#[inline(always)]
unsafe fn store_64<T: AccElement, const N: usize>(w: &Window<T>, first: u32, regs: &<Width<N> as Wgmma>::Regs)
where
    Width<N>: Wgmma,
{
    let (row, col) = accumulator_at(here(tid() % 128), 0);
    let row = first + row;
    let stride = w.stride as usize;
    let corner = w.ptr.wrapping_add(row as usize * stride + col as usize);
    // Pairs go out as one word where that is aligned.
    let words = (w.ptr as u64 | (w.stride * size_of::<T>() as u64)) % (2 * size_of::<T>() as u64) == 0;
    if w.rows >= first + STORE_ROWS as u32 && w.cols >= N as u32 && words {
        // SAFETY: the window holds 64 x N elements.
        Width::<N>::pairs(regs, |i, x, y| unsafe {
            T::store_pair(corner.wrapping_add(i % 2 * 8 * stride + i / 2 * 8), x, y);
        });
    } else {
        // predicated, not branched: a divergent branch would cost the main loop its uniform registers
        Width::<N>::pairs(regs, |i, x, y| {
            let (r, c) = (row + (i % 2 * 8) as u32, col + (i / 2 * 8) as u32);
            let p = corner.wrapping_add(i % 2 * 8 * stride + i / 2 * 8);
            let inside = [r < w.rows && c < w.cols, r < w.rows && c + 1 < w.cols];
            // SAFETY: only elements inside the window are written.
            unsafe { T::store_two([p, p.wrapping_add(1)], [x, y], inside) }
        });
    }
}

/// As [`store_rows`] of 64 rows, 16 bytes at a time where the window is wide and aligned enough. Elements of 16 bits change
/// lanes for that: as they lie, half a sector is written at once, which is ten times as slow.
///
/// # Safety
/// As for [`store_rows`].
#[inline(always)]
pub(crate) unsafe fn store_wide<T: AccElement, const N: usize>(w: &Window<T>, regs: [<Width<N> as Wgmma>::Regs; 1])
where
    Width<N>: Wgmma,
{
    let [regs] = regs;
    let aligned = (w.ptr as u64 | (w.stride * size_of::<T>() as u64)) % 16 == 0;
    if const { N < 32 } || !aligned || w.cols < N as u32 {
        // SAFETY: the caller's.
        return unsafe { store_64::<T, N>(w, 0, &regs) };
    }
    let t = here(tid() % 128);
    let (lane, row) = (t % 4, t / 32 * 16 + t % 32 / 4);
    let stride = w.stride as usize;
    if const { size_of::<T>() == 4 } {
        // two elements of each of four lanes are a sector
        let corner = w.ptr.wrapping_add(row as usize * stride + lane as usize * 2);
        return Width::<N>::pairs(
            &regs,
            #[inline(always)]
            |i, x, y| {
                let down = i % 2 * 8;
                let (inside, to) = (row + (down as u32) < w.rows, corner.wrapping_add(down * stride + i / 2 * 8));
                // SAFETY: rows inside the window, of which all columns are.
                unsafe {
                    asm!("{{ .reg .pred p; setp.ne.u32 p, {3}, 0; @p st.global.v2.b32 [{0}], {{{1}, {2}}}; }}",
                        in(reg64) to, in(reg32) x, in(reg32) y, in(reg32) inside as u32, options(nostack))
                }
            },
        );
    }
    let corner = w.ptr.wrapping_add(row as usize * stride + lane as usize * 8);
    Width::<N>::chunks(
        regs,
        #[inline(always)]
        |g, v| {
            let two = |i: usize| T::bits_of_two(v[i], v[i + 1]);
            let to = corner.wrapping_add(32 * g);
            // SAFETY: rows inside the window, of which all columns are.
            unsafe {
                store_16_bytes(to, row < w.rows, across_four(lane, [two(0), two(4), two(8), two(12)]));
                let to = to.wrapping_add(8 * stride);
                store_16_bytes(to, row + 8 < w.rows, across_four(lane, [two(2), two(6), two(10), two(14)]));
            }
            v
        },
    );
}

/// Four lanes have four words each; word `i` of lane `j` becomes word `j` of lane `i`. `lane` is the running one of the four.
///
/// By whole warps.
#[inline(always)]
fn across_four(lane: u32, w: [u32; 4]) -> [u32; 4] {
    let odd = lane % 2 == 1;
    let (a, b) = if odd { (w[0], w[2]) } else { (w[1], w[3]) };
    let (a, b) = (shuffle_xor(a, 1), shuffle_xor(b, 1));
    let w = if odd { [a, w[1], b, w[3]] } else { [w[0], a, w[2], b] };
    let high = lane >= 2;
    let (a, b) = if high { (w[0], w[1]) } else { (w[2], w[3]) };
    let (a, b) = (shuffle_xor(a, 2), shuffle_xor(b, 2));
    if high { [a, b, w[2], w[3]] } else { [w[0], w[1], a, b] }
}

/// # Safety
/// If `condition`, 16 aligned bytes are the caller's to write.
#[inline(always)]
unsafe fn store_16_bytes<T>(to: *mut T, condition: bool, v: [u32; 4]) {
    // SAFETY: the caller's.
    unsafe {
        asm!("{{ .reg .pred p; setp.ne.u32 p, {1}, 0; @p st.global.v4.b32 [{0}], {{{2}, {3}, {4}, {5}}}; }}",
            in(reg64) to, in(reg32) condition as u32, in(reg32) v[0], in(reg32) v[1], in(reg32) v[2], in(reg32) v[3],
            options(nostack))
    }
}

/// The address of global memory as a pointer.
#[inline(always)]
pub(crate) fn global<T>(address: u64) -> *mut T {
    address as *mut T
}

/// Element `i` of the table at `base`.
///
/// # Safety
/// It is there, and nobody writes it during the launch.
#[inline(always)]
pub(crate) unsafe fn read_u32(base: u64, i: u32) -> u32 {
    let v: u32;
    // SAFETY: the caller's.
    unsafe {
        asm!("ld.global.nc.b32 {0}, [{1}];", out(reg32) v, in(reg64) base + 4 * i as u64, options(pure, readonly, nostack))
    }
    v
}

/// Rounds `f(g, ..)` of an accumulator's groups of 16 columns into the warpgroup's staging buffers, 64 rows and columns at a
/// time, and has the copy engine store each. What `f` computes is used at once: for a whole accumulator it would not fit.
///
/// # Safety
/// By the whole warpgroup, whose buffers and rows they are.
#[inline(always)]
pub(crate) unsafe fn store_staged<T: Pack16, const N: usize, const BUFFERS: usize, const H: usize>(
    wg: &mut WarpGroup,
    buffers: Smem,
    map: u64,
    at: (u32, u32),
    regs: &[<Width<N> as Wgmma>::Regs; H],
    f: impl Fn(usize, [f32; 8]) -> [f32; 8],
) where
    Width<N>: Wgmma,
{
    // SAFETY: the caller's.
    unsafe {
        stage_64::<T, N, BUFFERS>(wg, buffers, map, at, &regs[0], &f);
        if H > 1 {
            // the buffers go round: a multiple of their number was used
            stage_64::<T, N, BUFFERS>(wg, buffers, map, (at.0, at.1 + 64), &regs[H - 1], &f);
        }
    }
}

/// # Safety
/// As for [`store_staged`].
#[inline(always)]
unsafe fn stage_64<T: Pack16, const N: usize, const BUFFERS: usize>(
    wg: &mut WarpGroup,
    buffers: Smem,
    map: u64,
    at: (u32, u32),
    regs: &<Width<N> as Wgmma>::Regs,
    f: &impl Fn(usize, [f32; 8]) -> [f32; 8],
) where
    Width<N>: Wgmma,
{
    const { assert!(N % 64 == 0 && N / 64 % BUFFERS == 0, "a tile passes through each staging buffer equally often") };
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
            let v = f(g, v);
            // SAFETY: inside this warpgroup's buffer.
            unsafe {
                stmatrix(
                    buffer.add(stmatrix_offset(thread, group as u32) as usize),
                    [T::pack(v[0], v[1]), T::pack(v[2], v[3]), T::pack(v[4], v[5]), T::pack(v[6], v[7])],
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

/// Rounds and writes 64 rows of an accumulator as columns of the window, clipped to it: of its column groups of 8 those
/// whose number is `rank` modulo `SPLIT`.
///
/// # Safety
/// By the whole warpgroup; these elements of the window are its alone.
#[inline(always)]
pub(crate) unsafe fn store_transposed<T: AccElement, const N: usize, const SPLIT: usize>(
    w: &Window<T>,
    rank: u32,
    regs: <Width<N> as Wgmma>::Regs,
) where
    Width<N>: Wgmma,
{
    let thread = here(tid() % 128);
    let (row, col) = accumulator_at(thread, 0);
    let stride = w.stride as usize;
    // Neighbours in a column of the accumulator go out as one word where that is aligned.
    if size_of::<T>() == 2 && w.cols >= STORE_ROWS as u32 && (w.ptr as u64 | w.stride * 2) % 4 == 0 {
        // They are in the threads whose numbers differ by 4. Of their two columns each of the two takes one.
        let odd = row % 2;
        let col = col + odd;
        let corner = w.ptr.wrapping_add(col as usize * stride + (row - odd) as usize);
        let order = if odd == 1 { 0x3276 } else { 0x5410 };
        Width::<N>::quads(
            regs,
            #[inline(always)]
            |g, v| {
                if SPLIT == 1 || g as u32 % SPLIT as u32 == rank {
                    let (top, bottom) = (T::bits_of_two(v[0], v[1]), T::bits_of_two(v[2], v[3]));
                    let top = permute(top, shuffle_xor(top, 4), order);
                    let bottom = permute(bottom, shuffle_xor(bottom, 4), order);
                    // SAFETY: all 64 rows are inside the window; the column is looked at.
                    unsafe {
                        asm!("{{ .reg .pred p; setp.lt.u32 p, {3}, {4}; @p st.global.b32 [{0}], {1}; @p st.global.b32 [{0}+16], {2}; }}",
                            in(reg64) corner.wrapping_add(8 * g * stride), in(reg32) top, in(reg32) bottom,
                            in(reg32) col + 8 * g as u32, in(reg32) w.rows, options(nostack));
                    }
                }
                v
            },
        );
        return;
    }
    let corner = w.ptr.wrapping_add(col as usize * stride + row as usize);
    // how many columns there are of this thread's two rows
    let (top, bottom) = (if row < w.cols { w.rows } else { 0 }, if row + 8 < w.cols { w.rows } else { 0 });
    Width::<N>::quads(
        regs,
        #[inline(always)]
        |g, v| {
            if SPLIT == 1 || g as u32 % SPLIT as u32 == rank {
                let p = corner.wrapping_add(8 * g * stride);
                let col = col + 8 * g as u32;
                // SAFETY: only elements inside the window are written.
                unsafe {
                    let inside = [col < top, col + 1 < top];
                    T::store_two([p, p.wrapping_add(stride)], [v[0], v[1]], inside);
                    let inside = [col < bottom, col + 1 < bottom];
                    T::store_two([p.wrapping_add(8), p.wrapping_add(stride + 8)], [v[2], v[3]], inside);
                }
            }
            v
        },
    );
}

/// Four of the eight bytes of two words, as `order` says (PTX ISA, "prmt").
#[inline(always)]
fn permute(a: u32, b: u32, order: u32) -> u32 {
    let r: u32;
    // SAFETY: arithmetic on registers.
    unsafe {
        asm!("prmt.b32 {0}, {1}, {2}, {3};", out(reg32) r, in(reg32) a, in(reg32) b, in(reg32) order, options(pure, nomem, nostack))
    }
    r
}

/// Writes a packed operand into a shared tile of 64 rows, for products and threads of any warpgroup to read once this one
/// has met.
///
/// # Safety
/// By the whole warpgroup; the tile at `base` is free.
#[inline(always)]
pub(crate) unsafe fn write_packed<T, const K: usize>(_: &mut WarpGroup, base: Smem, value: &Packed<T, K>)
where
    Width<K>: Wgmma,
{
    let thread = here(tid() % 128);
    Width::<K>::packed_groups(
        &value.regs,
        #[inline(always)]
        |g, [a, b, c, d]| {
            let to = base.add(g / 4 * 64 * SPAN + stmatrix_offset(thread, g as u32 % 4) as usize);
            // SAFETY: inside the tile.
            unsafe { stmatrix(to, [a, b, c, d]) };
        },
    );
    fence_for_bulk();
}

/// Reads a shared tile of 64 rows as a packed operand.
///
/// # Safety
/// By the whole warpgroup; the tile is full.
#[inline(always)]
pub(crate) unsafe fn read_packed<T, const K: usize>(_: &mut WarpGroup, base: Smem) -> Packed<T, K>
where
    Width<K>: Wgmma,
{
    let thread = here(tid() % 128);
    Packed::new(Width::<K>::packed_from(
        #[inline(always)]
        |i| {
            let (row, k) = fragment_at(thread, i as u32 % 4);
            let offset = tile_offset(64, row as usize, k as usize * 2 + i / 4 % 4 * 32) + i / 16 * 64 * SPAN;
            // SAFETY: inside the tile.
            unsafe { base.add(offset).load_u32() }
        },
    ))
}

/// Writes a value a row.
///
/// # Safety
/// By the whole warpgroup; the row at `base` is free.
#[inline(always)]
pub(crate) unsafe fn write_row(_: &mut WarpGroup, base: Smem, value: &AccRows) {
    let thread = here(tid() % 128);
    let (row, column) = accumulator_at(thread, 0);
    let at = base.add(row as usize * 4);
    // by the lane that has the row's first column
    if column == 0 {
        // SAFETY: 64 words.
        unsafe {
            at.store_u32(value.values[0].to_bits());
            at.add(32).store_u32(value.values[1].to_bits());
        }
    }
    warp_barrier();
}

/// Reads a value a row.
///
/// # Safety
/// By the whole warpgroup; the row is full.
#[inline(always)]
pub(crate) unsafe fn read_row(_: &mut WarpGroup, base: Smem) -> AccRows {
    let (row, _) = accumulator_at(here(tid() % 128), 0);
    let at = base.add(row as usize * 4);
    // SAFETY: 64 words.
    unsafe { AccRows::new([f32::from_bits(at.load_u32()), f32::from_bits(at.add(32).load_u32())]) }
}

/// Zeroes rows `from..rows` of a shared tile, for products of any warpgroup to read once this one has met.
///
/// # Safety
/// By `THREADS` threads (a warp or a warpgroup), whose tile it is.
#[inline(always)]
pub(crate) unsafe fn zero_rows<T, const THREADS: u32>(base: Smem, rows: usize, cols: usize, from: u32) {
    let slabs = (cols * size_of::<T>() / SPAN) as u32;
    // 16 bytes at a time; the swizzle stays within a row of a slab
    let chunks = (rows as u32 - from) * slabs * 8;
    let mut i = tid() % THREADS;
    while i < chunks {
        let (row, slab, chunk) = (from + i / 8 / slabs, i / 8 % slabs, i % 8);
        let at = base.add(slab as usize * rows * SPAN + row as usize * SPAN + chunk as usize * 16);
        // SAFETY: inside the tile.
        unsafe {
            asm!("st.shared.v4.b32 [{0}], {{{1}, {1}, {1}, {1}}};", in(reg32) at.0, in(reg32) 0u32, options(nostack))
        }
        i += THREADS;
    }
    fence_for_bulk();
}

/// Writes a value a row into the first column of a window, clipped.
///
/// # Safety
/// By the whole warpgroup, whose window it is.
#[inline(always)]
pub(crate) unsafe fn store_column(w: &Window<f32>, values: RowValues) {
    let (row, column) = accumulator_at(here(tid() % 128), 0);
    let at = w.ptr.wrapping_add(row as usize * w.stride as usize);
    // SAFETY: inside the window, by the lane that has the row's first column.
    unsafe {
        if column == 0 && w.cols > 0 {
            if row < w.rows {
                *at = values[0];
            }
            if row + 8 < w.rows {
                *at.wrapping_add(8 * w.stride as usize) = values[1];
            }
        }
    }
    warp_barrier();
}

/// The values of rows r and r + 8 of the warp's 16.
pub(crate) type RowValues = [f32; 2];

#[inline(always)]
pub(crate) fn zip_rows(a: RowValues, b: RowValues, f: impl Fn(f32, f32) -> f32) -> RowValues {
    [f(a[0], b[0]), f(a[1], b[1])]
}

/// Every element times its row's value; nothing is done where a warp's rows are all to be multiplied by one.
///
/// By whole warps.
#[inline(always)]
pub(crate) fn scale_rows<const N: usize>(regs: <Width<N> as Wgmma>::Regs, by: RowValues) -> <Width<N> as Wgmma>::Regs
where
    Width<N>: Wgmma,
{
    if any_lane(by[0] != 1.0 || by[1] != 1.0) { Width::<N>::map_rows(regs, by, |x, s| x * s) } else { regs }
}

/// Folds every row by an associative and commutative `f`: in the thread, then over the four lanes that share the row.
#[inline(always)]
pub(crate) fn fold_acc_rows<const N: usize>(regs: &<Width<N> as Wgmma>::Regs, f: impl Fn(f32, f32) -> f32) -> RowValues
where
    Width<N>: Wgmma,
{
    let mut rows = [0.0; 2];
    Width::<N>::pairs(
        regs,
        #[inline(always)]
        |i, x, y| rows[i % 2] = if i < 2 { f(x, y) } else { f(rows[i % 2], f(x, y)) },
    );
    rows.map(
        #[inline(always)]
        |x| {
            let x = f(x, f32::from_bits(shuffle_xor(x.to_bits(), 1)));
            f(x, f32::from_bits(shuffle_xor(x.to_bits(), 2)))
        },
    )
}
