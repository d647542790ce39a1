//! The bulk tensor copy engine (PTX ISA, "cp.async.bulk.tensor").

use super::entry::by_one_lane;
use super::sync::{any_lane, cluster_rank, shuffle, tid};
use super::{Barrier, Smem, here};
use crate::pages::TmaGather;
use crate::tma::{SPAN, TmaTile};
use core::arch::asm;
use core::marker::PhantomData;

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
    unsafe { load_box(dst, tile.map, here(tile.x) + column as u32, tile.y + row as u32, bar) }
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

/// Where the boxes of a gathered source lie: each lane of the supplier's warp knows one, all know the first.
#[derive(Clone, Copy)]
pub(crate) struct Found {
    /// Of the box whose number is the lane's.
    mine: (i32, u32),
    /// Of the source's first box, which is that of lane `lane`.
    first: (i32, u32),
    lane: u32,
    none: bool,
}

/// Finds the boxes of `high` rows by `locate(row)`.
#[inline(always)]
pub(crate) fn find(locate: impl Fn(u32) -> (i32, u32), high: u32) -> Found {
    let mine = locate(tid() % 32 * high);
    Found { mine, first: (0, 0), lane: 0, none: false }.skip(0)
}

impl Found {
    #[inline(always)]
    fn of(&self, lane: u32) -> (i32, u32) {
        (shuffle(self.mine.0 as u32, lane) as i32, shuffle(self.mine.1, lane))
    }
    /// From box `boxes` on.
    #[inline(always)]
    pub(crate) fn skip(self, boxes: u32) -> Self {
        let lane = self.lane + boxes;
        Found { first: self.of(lane), lane, ..self }
    }
    /// No box exists.
    #[inline(always)]
    pub(crate) fn nowhere(self) -> Self {
        Found { first: (i32::MAX, 0), none: true, ..self }
    }
    /// Whether any of the first `boxes` boxes has no page.
    #[inline(always)]
    pub(crate) fn any_missing(&self, boxes: u32) -> bool {
        let lane = (tid() % 32).wrapping_sub(self.lane);
        any_lane(lane < boxes && self.mine.0 == i32::MAX)
    }
}

/// A column that no view has, for the copy engine to read zeros from.
const OUTSIDE: u32 = 1 << 30;

/// A stack of pages that columns on the right of a gathered tile come from: its map, and the rows of a page.
pub struct Pages<'a, T, const M: usize>(u64, u32, PhantomData<&'a T>);

impl<T, const M: usize> Clone for Pages<'_, T, M> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}
impl<T, const M: usize> Copy for Pages<'_, T, M> {}

impl<T, const M: usize> Pages<'_, T, M> {
    pub(crate) const NONE: Self = Pages(0, 0, PhantomData);
    #[inline(always)]
    pub(crate) fn new(map: u64, rows: u32) -> Self {
        Pages(map, rows, PhantomData)
    }
}

/// Copies a tile of `R` rows, wherever their pages lie, to `dst`: `N` columns, and after them `M` of the same rows of `right`.
/// `bar` expects and counts their bytes. In a cluster of `K` the block does every `K`th slab, for all of them.
///
/// # Safety
/// By a whole warp; the tile of `R` x `N + M` at `dst` is free and 1024-byte aligned, in every block. A box of `right` is as
/// high as one of `from`.
#[inline(always)]
pub(crate) unsafe fn gather<T, const R: usize, const N: usize, const M: usize, const K: usize>(
    dst: Smem,
    from: &TmaGather<'_, T, N>,
    right: &Pages<'_, T, M>,
    bar: Barrier,
) where
    T: crate::element::Element,
{
    let (left, slabs) = (N * size_of::<T>() / SPAN, (N + M) * size_of::<T>() / SPAN);
    // asked for at each copy: the addresses that follow from it are many, and would be kept in registers
    let rank = if K > 1 { here(cluster_rank()) } else { 0 };
    let (mut row, mut lane, mut place) = (0, from.found.lane, from.found.first);
    loop {
        let (page, y) = place;
        // computed here: as variables of the loop, the addresses of all slabs would each take a register
        let (at, column) = (dst.add(here(row) as usize * SPAN).here(), here(from.x));
        // SAFETY: the caller's; the boxes lie in the tile, and are expected before the first is asked for.
        unsafe {
            by_one_lane(
                #[inline(always)]
                || {
                    if row == 0 {
                        bar.expect(R * SPAN * slabs);
                    }
                    let mut first = 0;
                    while first < slabs {
                        let slab = first as u32 + rank;
                        let to = Smem(at.0 + slab * (R * SPAN) as u32);
                        let columns = (SPAN / size_of::<T>()) as u32;
                        // known here but for slabs that straddle the border
                        let in_left = first + K <= left || first < left && slab < left as u32;
                        let (mut map, mut x) = (from.map, column + slab * columns);
                        if !in_left {
                            x = (slab - left as u32) * columns;
                            // A map says how many bytes a box has: one whose boxes are not as high as those that are expected
                            // is not used, and zeros are read. Asked for here: it would be kept in registers.
                            let alike = here(right.1) == from.raw.rows;
                            map = if alike { right.0 } else { map };
                            x = if alike { x } else { OUTSIDE };
                        }
                        if K == 1 {
                            asm!("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [{0}], [{1}, {{{3}, {4}, {5}}}], [{2}];",
                                in(reg32) to.0, in(reg64) map, in(reg32) bar.0.0, in(reg32) x, in(reg32) y, in(reg32) page, options(nostack));
                        } else if first + K <= slabs || slab < slabs as u32 {
                            let mask = const { (1u16 << K) - 1 };
                            asm!("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [{0}], [{1}, {{{3}, {4}, {5}}}], [{2}], {6};",
                                in(reg32) to.0, in(reg64) map, in(reg32) bar.0.0, in(reg32) x, in(reg32) y, in(reg32) page, in(reg16) mask, options(nostack));
                        }
                        first += K;
                    }
                },
            )
        }
        row += from.high();
        lane += 1;
        if row >= R as u32 {
            break;
        }
        place = if from.found.none { place } else { from.found.of(here(lane)) };
    }
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
