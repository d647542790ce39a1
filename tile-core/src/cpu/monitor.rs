//! Watches the roles of a cluster: a role that fails ends its peers, and roles that all wait are reported as a deadlock.
//!
//! All its atomics are relaxed: it must not order anything, or it would hide missing waits from ThreadSanitizer.

use core::cell::Cell;
use core::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::time::{Duration, Instant};

/// How long all roles must wait, with nothing happening, to be called deadlocked: in milliseconds.
static PATIENCE: AtomicU64 = AtomicU64::new(10_000);

/// Sets how long all roles of a cluster must wait, with nothing happening, to be called deadlocked: 10 s unless set. For
/// the whole process; meant for tests.
pub fn set_patience(patience: Duration) {
    PATIENCE.store(u64::try_from(patience.as_millis()).unwrap_or(u64::MAX), Relaxed);
}

/// The payload of a role that ended because another one failed: not the cause.
pub(crate) struct PeerFailed;

#[derive(Default)]
pub(crate) struct Monitor {
    alive: AtomicU32,
    waiting: AtomicU32,
    arrivals: AtomicU64,
    failed: AtomicBool,
    pub(crate) ready: AtomicU32,
    exchange: Exchange,
}

/// Words that the blocks of a cluster leave for each other: two of each, used by turns. Here the counter orders, as the
/// cluster's barrier does on the device.
#[derive(Default)]
struct Exchange {
    words: [[AtomicU32; 8]; 2],
    arrivals: AtomicU64,
}

/// What all blocks of the cluster brought to exchange number `turn`, in the order of their ranks.
pub(crate) fn exchange<const CLUSTER: usize>(rank: u32, turn: u32, word: u32) -> [u32; CLUSTER] {
    const { assert!(CLUSTER <= 8, "a cluster has 1 to 8 blocks") };
    let monitor = match current() {
        // SAFETY: a block's monitor outlives it.
        Some(m) => unsafe { &*m },
        None => std::panic!("a block runs in a launch"),
    };
    let (words, arrivals) = (&monitor.exchange.words[turn as usize % 2], &monitor.exchange.arrivals);
    words[rank as usize].store(word, Relaxed);
    arrivals.fetch_add(1, Release);
    note_arrival();
    wait_until(
        || arrivals.load(Acquire) >= (u64::from(turn) + 1) * CLUSTER as u64,
        || std::format!("a block waits for its cluster in exchange {turn}"),
    );
    core::array::from_fn(|i| words[i].load(Relaxed))
}

std::thread_local! {
    static CURRENT: Cell<Option<(*const Monitor, &'static str)>> = const { Cell::new(None) };
}

/// While it lives, this thread is a role of the cluster.
pub(crate) struct Role<'m>(&'m Monitor, Option<(*const Monitor, &'static str)>);

impl Monitor {
    /// The block's own thread counts as waiting while its roles run.
    pub(crate) fn rest(&self, resting: bool) {
        if resting {
            self.waiting.fetch_add(1, Relaxed);
        } else {
            self.waiting.fetch_sub(1, Relaxed);
        }
    }
    pub(crate) fn enter(&self, name: &'static str) -> Role<'_> {
        self.alive.fetch_add(1, Relaxed);
        Role(self, CURRENT.replace(Some((self, name))))
    }
}

impl Drop for Role<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.failed.store(true, Relaxed);
        }
        self.0.alive.fetch_sub(1, Relaxed);
        CURRENT.set(self.1);
    }
}

/// The cluster that this thread belongs to.
pub(crate) fn current() -> Option<*const Monitor> {
    CURRENT.get().map(|(m, _)| m)
}

/// Tells the monitor that something happened.
pub(crate) fn note_arrival() {
    if let Some(m) = current() {
        // SAFETY: a role's monitor outlives it.
        unsafe { &*m }.arrivals.fetch_add(1, Relaxed);
    }
}

/// Spins until `done`.
pub(crate) fn wait_until(done: impl Fn() -> bool, what: impl Fn() -> std::string::String) {
    let mut spins = 0u32;
    let mut stuck: Option<(Instant, u64)> = None;
    let here = CURRENT.get();
    while !done() {
        spins += 1;
        if spins < 64 {
            core::hint::spin_loop();
            continue;
        }
        std::thread::yield_now();
        if spins % 1024 != 0 {
            continue;
        }
        let Some((monitor, role)) = here else { continue };
        // SAFETY: a role's monitor outlives it.
        let m = unsafe { &*monitor };
        if m.failed.load(Relaxed) {
            std::panic::resume_unwind(std::boxed::Box::new(PeerFailed));
        }
        let arrivals = m.arrivals.load(Relaxed);
        match stuck {
            None => {
                m.waiting.fetch_add(1, Relaxed);
                stuck = Some((Instant::now(), arrivals));
            }
            Some((_, before)) if before != arrivals || m.waiting.load(Relaxed) < m.alive.load(Relaxed) => {
                stuck = Some((Instant::now(), arrivals));
            }
            Some((since, _)) if since.elapsed() > Duration::from_millis(PATIENCE.load(Relaxed)) => {
                std::panic!("deadlock: all roles wait; the {role} role: {}", what());
            }
            Some(_) => {}
        }
    }
    if stuck.is_some()
        && let Some((monitor, _)) = here
    {
        // SAFETY: as above.
        unsafe { &*monitor }.waiting.fetch_sub(1, Relaxed);
    }
}
