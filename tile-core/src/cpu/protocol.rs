//! The slot protocol on the CPU, apart from everything else, so that it can be checked by itself: over the real atomics
//! it is what [`Barrier`](super::Barrier) is made of, over `loom`'s it is run through every order that memory allows
//! (`model`).
//!
//! Each slot has two counters that only grow. `full` gets an arrival for each fill, `empty` one from each consumer for
//! each release. Phase 0 of a counter is complete with its first round of arrivals, phase 1 with the second; phase -1 has
//! always been. A fill in trip `n` through the ring waits for phase `n - 1` of `empty`, a consumer in trip `n` for phase
//! `n` of `full`: see [`advance`](crate::pipeline::advance).

use core::sync::atomic::{AtomicU64, Ordering};

/// A counter of arrivals.
pub(crate) trait Counter {
    /// Adds one. What the caller did before is seen by whoever sees the sum with [`seen`](Self::seen).
    fn add(&self);
    /// The sum, and all that was done before its arrivals.
    fn seen(&self) -> u64;
    /// The sum, and nothing else.
    fn peek(&self) -> u64;
}

impl Counter for AtomicU64 {
    fn add(&self) {
        self.fetch_add(1, Ordering::Release);
    }
    fn seen(&self) -> u64 {
        self.load(Ordering::Acquire)
    }
    fn peek(&self) -> u64 {
        self.load(Ordering::Relaxed)
    }
}

/// Arrivals by which a phase of `arrivals` each is complete.
pub(crate) fn target(phase: u32, arrivals: u32) -> u64 {
    u64::from(phase.wrapping_add(1)) * u64::from(arrivals)
}

/// Whether a phase is complete; if so, what was done before its arrivals is seen.
pub(crate) fn complete(counter: &impl Counter, phase: u32, arrivals: u32) -> bool {
    counter.seen() >= target(phase, arrivals)
}

/// Whether a slot that was full in `phase` was filled again since.
pub(crate) fn overwritten(full: &impl Counter, phase: u32, fills: u32) -> bool {
    full.peek() > target(phase, fills)
}

#[cfg(test)]
mod model;
