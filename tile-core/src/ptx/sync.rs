//! Convergent operations, each an LLVM intrinsic: LLVM neither duplicates them nor moves them across divergent branches,
//! as it does with `asm!` (see docs/compiler-faults.md).

use core::arch::nvptx;

#[allow(improper_ctypes)]
unsafe extern "unadjusted" {
    #[link_name = "llvm.nvvm.barrier.cta.sync.aligned.all"]
    fn barrier_all(id: u32);
    #[link_name = "llvm.nvvm.barrier.cta.sync.aligned.count"]
    fn barrier_count(id: u32, threads: u32);
    #[link_name = "llvm.nvvm.bar.warp.sync"]
    fn bar_warp_sync(mask: u32);
    #[link_name = "llvm.nvvm.shfl.sync.bfly.i32"]
    fn shfl_bfly(mask: u32, value: u32, lane: u32, clamp: u32) -> u32;
    #[link_name = "llvm.nvvm.shfl.sync.idx.i32"]
    fn shfl_idx(mask: u32, value: u32, lane: u32, clamp: u32) -> u32;
    #[link_name = "llvm.nvvm.vote.any.sync"]
    fn vote_any(mask: u32, condition: bool) -> bool;
}

#[cfg(target_feature = "sm_90a")]
#[allow(improper_ctypes)]
unsafe extern "unadjusted" {
    #[link_name = "llvm.nvvm.setmaxnreg.dec.sync.aligned.u32"]
    fn setmaxnreg_dec(registers: u32);
    #[link_name = "llvm.nvvm.setmaxnreg.inc.sync.aligned.u32"]
    fn setmaxnreg_inc(registers: u32);
    #[link_name = "llvm.nvvm.barrier.cluster.arrive.aligned"]
    fn cluster_arrive();
    #[link_name = "llvm.nvvm.barrier.cluster.wait.aligned"]
    fn cluster_wait();
    #[link_name = "llvm.nvvm.elect.sync"]
    fn elect_sync(mask: u32) -> (u32, bool);
}

/// The thread's number in its block.
#[inline(always)]
pub(crate) fn tid() -> u32 {
    // SAFETY: a special register.
    unsafe { nvptx::_thread_idx_x() as u32 }
}

/// Zero, of which no compiler knows: launches have one dimension, so that every block's second coordinate is zero.
#[inline(always)]
pub(crate) fn unknown_zero() -> u32 {
    let zero: u32;
    // SAFETY: a special register.
    unsafe { core::arch::asm!("mov.u32 {0}, %ctaid.y;", out(reg32) zero, options(pure, nomem, nostack)) }
    zero
}

/// Another.
#[inline(always)]
pub(crate) fn other_unknown_zero() -> u32 {
    let zero: u32;
    // SAFETY: a special register.
    unsafe { core::arch::asm!("mov.u32 {0}, %ctaid.z;", out(reg32) zero, options(pure, nomem, nostack)) }
    zero
}

/// The block's (in a cluster launch: the cluster's) number, and how many there are.
#[inline(always)]
pub(crate) fn worker() -> (u32, u32) {
    #[cfg(target_feature = "sm_90a")]
    {
        let (id, n): (u32, u32);
        // SAFETY: special registers. Without a cluster launch every block is a cluster of its own.
        unsafe {
            core::arch::asm!("mov.u32 {0}, %clusterid.x;", out(reg32) id, options(pure, nomem, nostack));
            core::arch::asm!("mov.u32 {0}, %nclusterid.x;", out(reg32) n, options(pure, nomem, nostack));
        }
        (id, n)
    }
    #[cfg(not(target_feature = "sm_90a"))]
    // SAFETY: special registers.
    unsafe {
        (nvptx::_block_idx_x() as u32, nvptx::_grid_dim_x() as u32)
    }
}

/// The block's number among all blocks, and how many there are: read anew by every call.
#[inline(always)]
pub(crate) fn block_here() -> (u32, u32) {
    let (id, n): (u32, u32);
    // SAFETY: special registers.
    unsafe {
        core::arch::asm!("mov.u32 {0}, %ctaid.x; mov.u32 {1}, %nctaid.x;", out(reg32) id, out(reg32) n, options(nostack));
    }
    (id, n)
}

/// The block's number in its cluster.
#[inline(always)]
pub(crate) fn cluster_rank() -> u32 {
    #[cfg(target_feature = "sm_90a")]
    {
        let rank: u32;
        // SAFETY: a special register.
        unsafe { core::arch::asm!("mov.u32 {0}, %cluster_ctarank;", out(reg32) rank, options(pure, nomem, nostack)) }
        rank
    }
    #[cfg(not(target_feature = "sm_90a"))]
    0
}

/// All threads of the block meet.
#[inline(always)]
pub(crate) fn block_barrier() {
    // SAFETY: see the module.
    unsafe { barrier_all(0) }
}

/// The 128 threads of warpgroup `index` meet, at hardware barrier `index + 1`. The ids are literals: with an id from a
/// register ptxas would reserve all sixteen.
#[inline(always)]
pub(crate) fn warpgroup_barrier(index: u32) {
    // SAFETY: see the module.
    unsafe {
        match index {
            0 => barrier_count(1, 128),
            1 => barrier_count(2, 128),
            2 => barrier_count(3, 128),
            _ => barrier_count(4, 128),
        }
    }
}

/// The warp meets again after a branch that only some of its lanes took.
#[inline(always)]
pub(crate) fn warp_barrier() {
    // SAFETY: see the module.
    unsafe { bar_warp_sync(u32::MAX) }
}

/// `value` of the lane whose number differs by `lane_mask`.
#[inline(always)]
pub(crate) fn shuffle_xor(value: u32, lane_mask: u32) -> u32 {
    // SAFETY: see the module.
    unsafe { shfl_bfly(u32::MAX, value, lane_mask, 31) }
}

/// Whether `condition` holds in any lane of the warp.
#[inline(always)]
pub(crate) fn any_lane(condition: bool) -> bool {
    // SAFETY: see the module.
    unsafe { vote_any(u32::MAX, condition) }
}

/// True in one lane of the warp. Behind it the assembler knows that a single thread runs, which it needs for the copy
/// engine's instructions: else it puts a loop around each.
#[inline(always)]
pub(crate) fn elect() -> bool {
    #[cfg(target_feature = "sm_90a")]
    // SAFETY: see the module.
    unsafe {
        elect_sync(u32::MAX).1
    }
    #[cfg(not(target_feature = "sm_90a"))]
    {
        tid() % 32 == 0
    }
}

/// `value` of lane `lane`.
#[inline(always)]
pub(crate) fn shuffle(value: u32, lane: u32) -> u32 {
    // SAFETY: see the module.
    unsafe { shfl_idx(u32::MAX, value, lane, 31) }
}

/// All threads of all blocks of the cluster meet; what they wrote before is visible to all after.
#[inline(always)]
pub(crate) fn cluster_barrier() {
    #[cfg(target_feature = "sm_90a")]
    // SAFETY: see the module.
    unsafe {
        cluster_arrive();
        cluster_wait();
    }
}

/// Registers a thread of the producer and of the consumers, for `warpgroups` warpgroups: 512 a thread slot in all.
/// None: the registers at entry do.
pub(crate) const fn register_budget(warpgroups: usize) -> Option<(u32, u32)> {
    match warpgroups {
        3 => Some((40, 232)),
        4 => Some((32, 160)),
        _ => None,
    }
}

/// Gives registers back.
#[inline(always)]
pub(crate) fn give_registers<const WARPGROUPS: usize>() {
    #[cfg(target_feature = "sm_90a")]
    // SAFETY: by all warps of the producer's warpgroup, once.
    unsafe {
        match const { register_budget(WARPGROUPS) } {
            Some((40, _)) => setmaxnreg_dec(40),
            Some(_) => setmaxnreg_dec(32),
            None => {}
        }
    }
}

/// Takes registers.
#[inline(always)]
pub(crate) fn take_registers<const WARPGROUPS: usize>() {
    #[cfg(target_feature = "sm_90a")]
    // SAFETY: by all warps of a consumer's warpgroup, once.
    unsafe {
        match const { register_budget(WARPGROUPS) } {
            Some((_, 232)) => setmaxnreg_inc(232),
            Some(_) => setmaxnreg_inc(160),
            None => {}
        }
    }
}
