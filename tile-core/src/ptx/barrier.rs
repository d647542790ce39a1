//! mbarriers (PTX ISA, "Parallel Synchronization and Communication Instructions: mbarrier").

use super::Smem;
use super::sync::{tid, warpgroup_barrier};
use core::arch::asm;

/// One mbarrier in shared memory, 8 bytes.
#[derive(Clone, Copy)]
pub struct Barrier(pub(crate) Smem);

impl Barrier {
    /// # Safety
    /// By one thread, before anybody uses it.
    #[inline(always)]
    pub(crate) unsafe fn init(self, arrivals: u32) {
        // SAFETY: the caller's.
        unsafe {
            asm!("mbarrier.init.shared::cta.b64 [{0}], {1};", in(reg32) self.0.0, in(reg32) arrivals, options(nostack))
        }
    }
    /// Makes the inits visible to the copy engine and to the cluster.
    #[inline(always)]
    pub(crate) fn publish_inits() {
        // SAFETY: a fence.
        unsafe { asm!("fence.mbarrier_init.release.cluster;", options(nostack)) }
    }
    /// One arrival, and `bytes` that copies will bring in this phase.
    #[inline(always)]
    pub(crate) fn expect(self, bytes: usize) {
        // SAFETY: the barrier is initialised.
        unsafe {
            asm!("mbarrier.arrive.expect_tx.shared::cta.b64 _, [{0}], {1};", in(reg32) self.0.0, in(reg32) bytes as u32, options(nostack))
        }
    }
    /// The copies themselves count: nothing to say.
    #[inline(always)]
    pub(crate) fn filled(self, _cluster: usize) {}
    /// One arrival, after everything that this thread did before.
    #[inline(always)]
    pub(crate) fn arrive(self) {
        // SAFETY: the barrier is initialised.
        unsafe { asm!("mbarrier.arrive.shared::cta.b64 _, [{0}];", in(reg32) self.0.0, options(nostack)) }
    }
    /// One arrival at the same barrier of block `rank` of the cluster. It orders nothing for the peer: products have
    /// retired before it, and ordinary reads of a slot are fenced by [`meet_before_release`].
    #[inline(always)]
    pub(crate) fn arrive_at(self, rank: u32) {
        let remote = self.0.peer(rank);
        // SAFETY: the barrier is initialised (the cluster met since), and the block has not exited (it meets at its end).
        unsafe { asm!("mbarrier.arrive.shared::cluster.b64 _, [{0}];", in(reg32) remote, options(nostack)) }
    }
    /// Waits until phase `phase` (0, 1, ...) has completed; -1 has always.
    #[inline(always)]
    pub(crate) fn wait<const CLUSTER: usize>(self, phase: u32, _arrivals: u32, _what: &str) {
        let parity = phase & 1;
        loop {
            let done: u32;
            // SAFETY: the barrier is initialised.
            unsafe {
                if CLUSTER > 1 {
                    asm!("{{ .reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [{1}], {2}; selp.u32 {0}, 1, 0, p; }}",
                        out(reg32) done, in(reg32) self.0.0, in(reg32) parity, options(nostack))
                } else {
                    asm!("{{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [{1}], {2}; selp.u32 {0}, 1, 0, p; }}",
                        out(reg32) done, in(reg32) self.0.0, in(reg32) parity, options(nostack))
                }
            }
            if done != 0 {
                break;
            }
        }
    }
}

/// Nothing to check on the device: a slot's phase can not advance before all its consumers have released it.
pub(crate) struct Held;

impl Held {
    #[inline(always)]
    pub(crate) fn new(_full: Barrier, _phase: u32, _fills: u32) -> Self {
        Held
    }
    #[inline(always)]
    pub(crate) fn check(&self) {}
}

/// One arrival a warpgroup at `empty`, of every block of the cluster that fills the slot.
#[inline(always)]
pub(crate) fn release(empty: Barrier, cluster: u32) {
    let lane = tid() % 128;
    if cluster == 1 {
        if lane == 0 {
            empty.arrive();
        }
    } else if lane < cluster {
        empty.arrive_at(lane);
    }
}

/// Warpgroup `index`, the running one, meets, and what it read of a slot is behind it also for the peers in its cluster.
#[inline(always)]
pub(crate) fn meet_before_release(index: u32, cluster: u32) {
    if cluster > 1 {
        // SAFETY: a fence.
        unsafe { asm!("fence.acq_rel.cluster;", options(nostack)) }
    }
    warpgroup_barrier(index)
}

/// As [`publish`], of a slot that a cluster fills together: this block's part of it, which was waited for.
#[inline(always)]
pub(crate) fn publish_for(full: Barrier, _fills: u32) {
    full.arrive()
}

/// One arrival by the running thread, after what its warpgroup wrote before it met.
#[inline(always)]
pub(crate) fn publish(full: Barrier) {
    full.arrive()
}
