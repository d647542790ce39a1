//! The protocol, run by `loom`: one producer, some consumers, a ring of slots, several trips. Each planted fault must be
//! found.
//!
//! Two slots, three trips and two consumers have more orders than a test can wait for. They are run through all those in
//! which a thread goes on until it waits (and through all that memory may show it); smaller rings through every order
//! with a number of switches in between, or through every order at all.

use super::{Counter, complete, overwritten};
use crate::pipeline::advance;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::string::{String, ToString};
use std::vec::Vec;

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

/// How large a model is, and how often a thread is interrupted where it does not wait: None as often as may be.
#[derive(Clone, Copy)]
struct Model {
    stages: u32,
    trips: u32,
    consumers: u32,
    switches: Option<usize>,
}

/// Slots, trips, consumers, switches.
const SMALLER: [(u32, u32, u32, Option<usize>); 3] = [(1, 1, 2, Some(1)), (2, 3, 1, Some(3)), (2, 2, 1, None)];

const WHOLE: Model = Model { stages: 2, trips: 3, consumers: 2, switches: Some(0) };

#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    /// A consumer reads without having waited for the slot to be full.
    NoWaitForFull,
    /// The producer fills without having waited for the slot to be empty.
    NoWaitForEmpty,
    /// The slot counts as empty when one consumer of two has released it.
    OneReleaseIsEnough,
    /// A consumer releases the slot before it reads it.
    ReleasedBeforeRead,
    /// A consumer waits for phase 0 in every trip.
    ConsumerKeepsItsPhase,
    /// The producer waits for phase -1 in every trip.
    ProducerKeepsItsPhase,
    /// The slot is declared full before it is written.
    FullBeforeWritten,
}

#[derive(Default)]
struct Slot {
    full: AtomicU64,
    empty: AtomicU64,
    contents: UnsafeCell<u32>,
}

fn wait(counter: &AtomicU64, phase: u32, arrivals: u32) {
    while !complete(counter, phase, arrivals) {
        loom::thread::yield_now();
    }
}

fn produce(ring: &[Slot], model: Model, fault: Fault) {
    let (mut slot, mut phase) = (0, u32::MAX);
    for item in 1..=model.stages * model.trips {
        let s = &ring[slot as usize];
        let releases = if fault == Fault::OneReleaseIsEnough { 1 } else { model.consumers };
        if fault != Fault::NoWaitForEmpty {
            wait(&s.empty, phase, releases);
        }
        if fault == Fault::FullBeforeWritten {
            s.full.add();
        }
        // SAFETY: what is being checked: loom reports an access that is not ordered after all others.
        s.contents.with_mut(|p| unsafe { *p = item });
        if fault != Fault::FullBeforeWritten {
            s.full.add();
        }
        advance(&mut slot, &mut phase, model.stages);
        if fault == Fault::ProducerKeepsItsPhase {
            phase = u32::MAX;
        }
    }
}

fn consume(ring: &[Slot], model: Model, fault: Fault) {
    let (mut slot, mut phase) = (0, 0);
    for item in 1..=model.stages * model.trips {
        let s = &ring[slot as usize];
        if fault != Fault::NoWaitForFull {
            wait(&s.full, phase, 1);
        }
        if fault == Fault::ReleasedBeforeRead {
            s.empty.add();
        }
        // SAFETY: as above.
        let found = s.contents.with(|p| unsafe { *p });
        assert_eq!(found, item, "another trip's contents");
        if fault != Fault::ReleasedBeforeRead {
            assert!(!overwritten(&s.full, phase, 1), "filled again while it was held");
            s.empty.add();
        }
        advance(&mut slot, &mut phase, model.stages);
        if fault == Fault::ConsumerKeepsItsPhase {
            phase = 0;
        }
    }
}

/// Runs a model. What loom found wrong, if anything.
fn check(model: Model, fault: Fault) -> Option<String> {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = model.switches;
    builder.max_branches = 20_000;
    let run = AssertUnwindSafe(|| {
        builder.check(move || {
            let ring: Arc<Vec<Slot>> = Arc::new((0..model.stages).map(|_| Slot::default()).collect());
            let consumers: Vec<_> = (0..model.consumers)
                .map(|_| {
                    let ring = ring.clone();
                    loom::thread::spawn(move || consume(&ring, model, fault))
                })
                .collect();
            produce(&ring, model, fault);
            for c in consumers {
                c.join().unwrap();
            }
        });
    });
    let payload = catch_unwind(run).err()?;
    let text = payload.downcast_ref::<String>().cloned();
    Some(text.or(payload.downcast_ref::<&str>().map(|s| s.to_string())).unwrap_or_default())
}

#[test]
fn the_slot_protocol_has_no_race() {
    assert_eq!(check(WHOLE, Fault::None), None);
    for (stages, trips, consumers, switches) in SMALLER {
        assert_eq!(check(Model { stages, trips, consumers, switches }, Fault::None), None);
    }
}

/// A race, or what it leads to.
fn found(fault: Fault) {
    let said = check(WHOLE, fault).expect("the planted fault was not found");
    let known = ["Causality violation", "another trip's contents", "filled again while it was held"];
    assert!(known.iter().any(|k| said.contains(k)), "{said}");
}

#[test]
fn a_missing_wait_for_full_is_found() {
    found(Fault::NoWaitForFull);
    found(Fault::FullBeforeWritten);
}

#[test]
fn a_slot_reused_early_is_found() {
    found(Fault::NoWaitForEmpty);
    found(Fault::OneReleaseIsEnough);
    found(Fault::ReleasedBeforeRead);
}

#[test]
fn a_wrong_phase_from_the_second_trip_on_is_found() {
    found(Fault::ConsumerKeepsItsPhase);
    found(Fault::ProducerKeepsItsPhase);
}
