//! A slot's barriers on the CPU: counters of arrivals that only grow, in the eight bytes that the device's mbarrier has.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Release;

use super::Smem;
use super::monitor::{note_arrival, wait_until};
use super::protocol::{Counter, complete, overwritten, target};

/// One counter in shared memory.
#[derive(Clone, Copy)]
pub struct Barrier(pub(crate) Smem);

impl Barrier {
    fn counter<'a>(self) -> &'a AtomicU64 {
        // SAFETY: eight aligned bytes of the arena that are only ever used as this counter, once initialised.
        unsafe { AtomicU64::from_ptr(self.0.ptr.cast()) }
    }
    /// # Safety
    /// By one thread, before anybody uses it.
    pub(crate) unsafe fn init(self, _arrivals: u32) {
        self.counter().store(0, Release);
    }
    /// Nothing to announce: copies are finished when [`filled`](Self::filled) is called.
    pub(crate) fn expect(self, _bytes: usize) {}
    /// One arrival at this barrier of every block of the cluster.
    pub(crate) fn filled(self, cluster: usize) {
        release(self, cluster as u32)
    }
    /// One arrival, after everything that this thread did before.
    pub(crate) fn arrive(self) {
        self.counter().add();
        note_arrival();
    }
    /// Waits until phase `phase` (0, 1, ...) of `arrivals` each has completed; -1 has always.
    pub(crate) fn wait<const CLUSTER: usize>(self, phase: u32, arrivals: u32, what: &str) {
        let counter = self.counter();
        wait_until(
            || complete(counter, phase, arrivals),
            || {
                let (seen, target) = (counter.peek(), target(phase, arrivals));
                std::format!("{what}, phase {phase}: {seen} of {target} arrivals; do the roles use as many slots?")
            },
        );
    }
}

/// Notices a slot that was filled again while it was held: an overwrite that happens to be ordered is no data race.
pub(crate) struct Held {
    full: Barrier,
    phase: u32,
    fills: u32,
}

impl Held {
    pub(crate) fn new(full: Barrier, phase: u32, fills: u32) -> Self {
        Held { full, phase, fills }
    }
    pub(crate) fn check(&self) {
        if overwritten(self.full.counter(), self.phase, self.fills) && !std::thread::panicking() {
            std::panic!("a slot was filled again before it was released")
        }
    }
}

/// One arrival at `empty`, of every block of the cluster that fills the slot.
pub(crate) fn release(empty: Barrier, cluster: u32) {
    if cluster == 1 {
        return empty.arrive();
    }
    for rank in 0..cluster {
        Barrier(empty.0.peer(rank)).arrive();
    }
}

/// A warpgroup is one thread here.
pub(crate) fn meet_before_release(_index: u32, _cluster: u32) {}

/// A warpgroup is one thread here.
pub(crate) fn meet(_index: u32) {}

/// `f`, once a block.
///
/// # Safety
/// By the whole block.
pub(crate) unsafe fn once_a_block(f: impl FnOnce()) {
    f()
}

/// `f`, once a warpgroup.
///
/// # Safety
/// By the whole warpgroup.
pub(crate) unsafe fn by_one_thread(f: impl FnOnce()) {
    f()
}

/// `f`, once a warp.
///
/// # Safety
/// By the whole warp.
pub(crate) unsafe fn by_one_lane(f: impl FnOnce()) {
    f()
}

/// A warp is one thread here.
pub(crate) fn meet_warp() {}

/// As many arrivals as fill a slot.
pub(crate) fn publish_for(full: Barrier, fills: u32) {
    for _ in 0..fills {
        full.arrive()
    }
}

/// One arrival.
pub(crate) fn publish(full: Barrier) {
    full.arrive()
}
