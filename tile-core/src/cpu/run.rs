//! Runs the blocks of a launch.

use core::any::Any;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::string::{String, ToString};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::vec::Vec;

use super::memory::{Arena, Smem};
use super::monitor::{Monitor, PeerFailed};
use crate::kernel::{Args, Kernel};
use crate::view::Provenance;

/// Where a block stands: its cluster's number among the clusters, and its own in the cluster.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The cluster's (without clusters: the block's) number.
    pub worker: u32,
    /// How many there are.
    pub workers: u32,
    /// The block's number in its cluster.
    pub rank: u32,
    /// Blocks of a cluster.
    pub cluster: u32,
}

impl Place {
    /// On the host, before a launch: no tile is there to be worked on.
    pub const NOWHERE: Place = Place { worker: u32::MAX, workers: 1, rank: 0, cluster: 1 };

    /// The block's number among all blocks, and how many there are.
    pub(crate) fn block(self) -> (u32, u32) {
        (self.worker.wrapping_mul(self.cluster) + self.rank, self.workers * self.cluster)
    }

    /// What a block received is its share of an output. Launched once more, or put into another order than other
    /// blocks have, it would reach into the shares of others. On the device neither can be written.
    pub(crate) fn must_be_nowhere(self) {
        if self.worker != u32::MAX {
            std::panic!("a block's share of an output can not be launched or scheduled again");
        }
    }
}

/// One running block: where it stands and its shared memory.
pub struct Block {
    place: Place,
    memory: Smem,
    faults: Faults,
}

impl Block {
    /// Where it stands.
    pub fn place(&self) -> Place {
        self.place
    }
    /// Where it reports what it finds wrong.
    pub fn faults(&self) -> Faults {
        self.faults
    }
    /// Its shared memory from `offset` on.
    pub fn shared_at(&self, offset: usize) -> Smem {
        self.memory.add(offset)
    }
}

/// Where the launch's first fault is kept, and the block that reports to it.
#[derive(Clone, Copy)]
pub struct Faults {
    first: *const AtomicU64,
    block: u32,
}
// SAFETY: an atomic of the launch, which outlives its blocks and their roles.
unsafe impl Send for Faults {}
// SAFETY: as above.
unsafe impl Sync for Faults {}

impl Faults {
    /// The first report stays: its code, and the block.
    pub(crate) fn report(self, code: u32) {
        let both = u64::from(self.block) << 32 | u64::from(code);
        // SAFETY: see above. Relaxed: it must not order anything, or it would hide missing waits from ThreadSanitizer.
        let _ = unsafe { &*self.first }.compare_exchange(0, both, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// What went wrong in which block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The block's number.
    pub block: u32,
    /// What it said.
    pub message: String,
}

/// What all threads of a launch look at. Arguments are views of memory: each block takes its own by [`Args::at`].
struct Launch<A> {
    args: A,
    workers: u32,
    next: AtomicU32,
    stop: AtomicBool,
    fault: Mutex<Option<Fault>>,
    /// What a block reported: its number in the upper half, the fault's code in the lower.
    reported: AtomicU64,
}
// SAFETY: arguments are only read, and what blocks make of them is disjoint or read-only.
unsafe impl<A> Sync for Launch<A> {}

/// Runs `workers` blocks (clusters, if the kernel has them) of a launch, as many at a time as there are processors, and
/// waits for all of them.
pub fn run<K: Kernel>(args: K::Args<'_>, workers: u32) -> Result<(), Fault> {
    let mut elsewhere = None;
    args.facts(&mut |i, facts| {
        if facts.provenance.is_some_and(|p| ![Provenance::CPU, Provenance::SLICE].contains(&p.device)) {
            elsewhere = Some(i);
        }
    });
    if let Some(i) = elsewhere {
        return Err(Fault { block: 0, message: std::format!("argument {i} does not lie in the CPU's memory") });
    }
    let launch = Launch {
        args,
        workers,
        next: AtomicU32::new(0),
        stop: AtomicBool::new(false),
        fault: Mutex::new(None),
        reported: AtomicU64::new(0),
    };
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get()).min(workers as usize);
    if threads <= 1 {
        work::<K>(&launch);
    } else {
        std::thread::scope(|s| {
            let launch = &launch;
            let all: Vec<_> = (0..threads).map(|_| s.spawn(move || work::<K>(launch))).collect();
            // joined one by one: that is an edge that sanitizers know, the scope's own counter is not
            for t in all {
                let _ = t.join();
            }
        });
    }
    match launch.fault.into_inner() {
        Ok(None) => match launch.reported.into_inner() {
            0 => Ok(()),
            both => Err(Fault { block: (both >> 32) as u32, message: declared::<K>(both as u32).to_string() }),
        },
        Ok(Some(fault)) => Err(fault),
        Err(_) => Err(Fault { block: 0, message: "a launch thread failed".to_string() }),
    }
}

/// The message of a reported code.
pub fn declared<K: Kernel>(code: u32) -> &'static str {
    K::FAULTS.get(code.wrapping_sub(1) as usize).copied().unwrap_or("a fault that the kernel does not declare")
}

fn work<K: Kernel>(launch: &Launch<K::Args<'_>>) {
    let mut arena = Arena::new(K::SHARED_BYTES as usize, K::CLUSTER as usize);
    while !launch.stop.load(Ordering::Relaxed) {
        let worker = launch.next.fetch_add(1, Ordering::Relaxed);
        if worker >= launch.workers {
            break;
        }
        arena.poison();
        let result = catch_unwind(AssertUnwindSafe(|| cluster::<K>(launch, &arena, worker)));
        if let Err(payload) = result {
            launch.stop.store(true, Ordering::Relaxed);
            let fault = Fault { block: worker * K::CLUSTER, message: message(&*payload) };
            let mut first = locked(&launch.fault);
            let earlier = first.as_ref().is_some_and(|f| f.block <= fault.block);
            if !earlier {
                *first = Some(fault);
            }
        }
    }
}

/// Asks for the lock until it has it: what the standard library does where it must wait is not instrumented, so that
/// sanitizers do not see that one holder comes after the other.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    loop {
        match mutex.try_lock() {
            Ok(guard) => return guard,
            Err(TryLockError::Poisoned(guard)) => return guard.into_inner(),
            Err(TryLockError::WouldBlock) => std::thread::yield_now(),
        }
    }
}

fn cluster<K: Kernel>(launch: &Launch<K::Args<'_>>, arena: &Arena, worker: u32) {
    let monitor = Monitor::default();
    let block = |rank: u32| {
        let place = Place { worker, workers: launch.workers, rank, cluster: K::CLUSTER };
        let faults = Faults { first: &launch.reported, block: worker * K::CLUSTER + rank };
        let block = Block { place, memory: arena.of(rank, K::CLUSTER), faults };
        let _role = monitor.enter("block");
        // SAFETY: the counter gives each worker once, and each of its ranks runs once.
        K::block(&block, unsafe { launch.args.at(place) });
    };
    if K::CLUSTER == 1 {
        return block(0);
    }
    let block = Together(&block);
    std::thread::scope(|s| {
        let block = &block;
        join((0..K::CLUSTER).map(|rank| s.spawn(move || block.0(rank))).collect());
    });
}

/// A closure that several threads may call: `cluster` sees to it that they do not disturb each other.
struct Together<F>(F);
// SAFETY: see `Launch`; the monitor is atomics.
unsafe impl<F> Sync for Together<F> {}

/// Joins, and passes on the failure that came first in cause.
pub(crate) fn join(threads: Vec<std::thread::ScopedJoinHandle<'_, ()>>) {
    let mut failure: Option<std::boxed::Box<dyn Any + Send>> = None;
    for t in threads {
        if let Err(payload) = t.join()
            && failure.as_ref().is_none_or(|f| f.is::<PeerFailed>())
        {
            failure = Some(payload);
        }
    }
    if let Some(payload) = failure {
        resume_unwind(payload)
    }
}

fn message(payload: &(dyn Any + Send)) -> String {
    if let Some(s) = payload.downcast_ref::<&str>() {
        s.to_string()
    } else if let Some(s) = payload.downcast_ref::<String>() {
        s.clone()
    } else {
        "the block ended without a message".to_string()
    }
}
