//! The bulk tensor copy engine (PTX ISA, "cp.async.bulk.tensor").

use super::sync::cluster_rank;
use super::{Barrier, Smem, here};
use crate::pages::TmaGather;
use crate::tma::{SPAN, TmaTile};
use core::arch::asm;

/// Copies the box at (`column`, `row`) of a tile to `dst`, counting its bytes at `bar`.
///
/// # Safety
/// By one thread; `dst` is free and `bar` expects the bytes.
#[inline(always)]
pub(crate) unsafe fn load<T, const R: usize, const C: usize>(
    dst: Smem,
    tile: &TmaTile<'_, T, R, C>,
    column: usize,
    row: usize,
    _rows: usize,
    bar: Barrier,
) {
    // SAFETY: the caller's.
    unsafe { load_box(dst, tile.map, tile.x + column as u32, tile.y + row as u32, bar) }
}

/// As [`load`], to all `K` blocks of the cluster.
///
/// # Safety
/// As for [`load`], in all those blocks.
#[inline(always)]
pub(crate) unsafe fn multicast<T, const R: usize, const C: usize, const K: usize>(
    dst: Smem,
    tile: &TmaTile<'_, T, R, C>,
    column: usize,
    row: usize,
    _rows: usize,
    bar: Barrier,
) {
    let mask = const { (1u16 << K) - 1 };
    // SAFETY: the caller's.
    unsafe { multicast_box(dst, tile.map, tile.x + column as u32, tile.y + row as u32, bar, mask) }
}

/// The running block's number in its cluster.
#[inline(always)]
pub(crate) fn rank_of(_: Smem) -> u32 {
    cluster_rank()
}

/// Copies one box of a tile to `dst`, counting its bytes at `bar`.
///
/// # Safety
/// By one thread; `dst` is free and 1024-byte aligned, and `bar` expects the bytes.
#[inline(always)]
pub(crate) unsafe fn load_box(dst: Smem, map: u64, x: u32, y: u32, bar: Barrier) {
    // SAFETY: the caller's.
    unsafe {
        asm!("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [{0}], [{1}, {{{3}, {4}}}], [{2}];",
            in(reg32) dst.0, in(reg64) map, in(reg32) bar.0.0, in(reg32) x, in(reg32) y, options(nostack))
    }
}

/// As [`load_box`], to the same place of every block in `mask`, counting at the same barrier of each.
///
/// # Safety
/// As for [`load_box`], in all those blocks.
#[inline(always)]
pub(crate) unsafe fn multicast_box(dst: Smem, map: u64, x: u32, y: u32, bar: Barrier, mask: u16) {
    // SAFETY: the caller's.
    unsafe {
        asm!("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [{0}], [{1}, {{{3}, {4}}}], [{2}], {5};",
            in(reg32) dst.0, in(reg64) map, in(reg32) bar.0.0, in(reg32) x, in(reg32) y, in(reg16) mask, options(nostack))
    }
}

/// Copies `C` columns of `rows` rows, wherever their pages lie, to `dst`, counting their bytes at `bar`.
///
/// # Safety
/// By one thread; the tile of `rows` x `C` at `dst` is free and 1024-byte aligned, and `bar` expects its bytes.
#[inline(always)]
pub(crate) unsafe fn gather<T, const C: usize>(dst: Smem, from: &TmaGather<'_, T, C>, rows: usize, bar: Barrier)
where
    T: crate::element::Element,
{
    let mut row = 0;
    while row < rows as u32 {
        let (page, y) = from.at(row);
        // computed here: as variables of the loop, the addresses of all slabs would each take a register
        let (at, column) = (dst.add(row as usize * SPAN).here(), here(from.x));
        let mut slab = 0;
        while slab < const { C * size_of::<T>() / SPAN } {
            let to = at.add(slab * rows * SPAN);
            let x = column + (slab * (SPAN / size_of::<T>())) as u32;
            // SAFETY: the caller's; the box lies in the tile.
            unsafe {
                asm!("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [{0}], [{1}, {{{3}, {4}, {5}}}], [{2}];",
                    in(reg32) to.0, in(reg64) from.map, in(reg32) bar.0.0, in(reg32) x, in(reg32) y, in(reg32) page, options(nostack))
            }
            slab += 1;
        }
        row += from.high;
    }
}

/// Brings a tensor map into the descriptor cache.
#[inline(always)]
pub(crate) fn prefetch_map(map: u64) {
    // SAFETY: a hint.
    unsafe { asm!("prefetch.tensormap [{0}];", in(reg64) map, options(nostack)) }
}

/// Starts storing a box from `src`, as a bulk group of its own.
///
/// # Safety
/// By one thread; `src` holds the box, made visible by [`fence_for_bulk`] in every thread that wrote it.
#[inline(always)]
pub(crate) unsafe fn store_box(src: Smem, map: u64, x: u32, y: u32) {
    // SAFETY: the caller's.
    unsafe {
        asm!("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [{1}, {{{2}, {3}}}], [{0}];",
            in(reg32) src.0, in(reg64) map, in(reg32) x, in(reg32) y, options(nostack));
        asm!("cp.async.bulk.commit_group;", options(nostack));
    }
}

/// Waits until at most `N` of this thread's stores still read their source.
#[inline(always)]
pub(crate) fn wait_stores_read<const N: usize>() {
    // SAFETY: a wait.
    unsafe { asm!("cp.async.bulk.wait_group.read {0};", const N, options(nostack)) }
}

/// Orders this thread's ordinary writes to shared memory before the copy engine's and the tensor cores' reads.
#[inline(always)]
pub(crate) fn fence_for_bulk() {
    // SAFETY: a fence.
    unsafe { asm!("fence.proxy.async.shared::cta;", options(nostack)) }
}
