//! The order of work across streams, checked against a model with vector clocks.

use super::*;
use crate::device::Device;

impl Stream {
    /// A turn on a stream without a driver: fences do nothing, the rest is as ever.
    fn pretend(&self) -> Turn<'_> {
        Turn { stream: &self.inner, raw: std::ptr::null_mut(), state: self.inner.state(), _order: None }
    }
}

/// A stream, and for each ticket what had happened before its work ends: the last ticket of every stream.
struct Model {
    stream: Stream,
    clocks: Vec<Vec<u64>>,
}

fn streams(n: usize) -> Vec<Model> {
    (0..n).map(|_| Model { stream: Stream::with(Device::cpu(), None), clocks: vec![vec![0; n]] }).collect()
}

/// Gives `all[at]` work that uses the storages; how many streams it waited for.
fn work(all: &mut [Model], at: usize, uses: &[(&Storage, bool)]) -> usize {
    let (before, ticket, after) = {
        let mut turn = all[at].stream.pretend();
        let before = turn.state.seen.clone();
        for (storage, write) in uses {
            turn.uses(storage, *write).unwrap();
        }
        let ticket = turn.ticket();
        let after = turn.state.seen.clone();
        turn.submit();
        (before, ticket, after)
    };
    let mut clock = all[at].clocks.last().unwrap().clone();
    clock[at] = ticket;
    let mut waits = 0;
    for (id, seen) in &after {
        waits += usize::from(!before.contains(&(*id, *seen)));
        let other = all.iter().find(|m| m.stream.inner.id == *id).unwrap();
        for (mine, theirs) in clock.iter_mut().zip(&other.clocks[*seen as usize]) {
            *mine = (*mine).max(*theirs);
        }
    }
    all[at].clocks.push(clock);
    waits
}

fn storage() -> Storage {
    Storage::zeroed(&Stream::with(Device::cpu(), None), 8).unwrap()
}

#[test]
fn one_stream_waits_for_nothing() {
    let (mut all, s) = (streams(1), storage());
    for i in 0..10 {
        assert_eq!(work(&mut all, 0, &[(&s, i % 3 == 0)]), 0);
    }
}

#[test]
fn an_event_only_when_first_needed() {
    let (mut all, s, t) = (streams(2), storage(), storage());
    assert_eq!(work(&mut all, 0, &[(&s, true), (&t, true)]), 0);
    assert_eq!(work(&mut all, 1, &[(&s, false)]), 1); // reads what stream 0 wrote
    assert_eq!(work(&mut all, 1, &[(&t, false)]), 0); // which has been waited for
    assert_eq!(work(&mut all, 0, &[(&s, false)]), 0); // readers do not wait for each other
    assert_eq!(work(&mut all, 0, &[(&s, true)]), 1); // but a writer for both
    assert_eq!(work(&mut all, 0, &[(&t, true)]), 0); // that wait covers the other reading too
}

/// Random work: whatever conflicts is ordered, with waits for what was submitted alone.
#[test]
fn conflicts_are_ordered() {
    let mut random = 1u64;
    let mut next = move |n: u64| {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (random >> 33) % n
    };
    for round in 0..20 {
        let n = 2 + round % 4;
        let mut all = streams(n);
        let storages = [storage(), storage(), storage()];
        // (stream, ticket, write) of all uses of each storage
        let mut history: [Vec<(usize, u64, bool)>; 3] = Default::default();
        for _ in 0..300 {
            let at = next(n as u64) as usize;
            let (a, b) = (next(3) as usize, next(3) as usize);
            let mut uses = vec![(a, next(2) == 0)];
            if b != a {
                uses.push((b, next(3) == 0));
            }
            let given: Vec<_> = uses.iter().map(|(i, w)| (&storages[*i], *w)).collect();
            work(&mut all, at, &given);
            let (ticket, clock) = (all[at].clocks.len() as u64 - 1, all[at].clocks.last().unwrap());
            for (i, write) in uses {
                for (stream, earlier, wrote) in &history[i] {
                    assert!(!(write || *wrote) || clock[*stream] >= *earlier);
                }
                history[i].push((at, ticket, write));
            }
            if next(50) == 0 {
                // the host has waited for a stream, and so for all that this stream has waited for
                let done = all[at].clocks.last().unwrap().clone();
                let s = &all[at].stream.inner;
                s.completed.store(s.submitted.load(Ordering::Relaxed), Ordering::Relaxed);
                for h in &mut history {
                    h.retain(|(stream, ticket, _)| *ticket > done[*stream]);
                }
            }
        }
    }
}

/// Work on a part of a tensor is noted by one thread and not submitted yet when another uses another part: it must
/// not be forgotten.
#[test]
fn what_is_not_submitted_is_remembered() {
    let (mut all, s) = (streams(3), storage());
    let stream = all[0].stream.clone();
    let mut slow = stream.pretend();
    slow.uses(&s, true).unwrap();
    work(&mut all, 1, &[(&s, true)]); // can not wait for it: it is not there yet
    slow.submit();
    all[0].clocks.push(vec![1, 0, 0]);
    work(&mut all, 2, &[(&s, false)]);
    assert_eq!(all[2].clocks[1], [1, 1, 1]);
}

/// Storages keep streams that they may have to wait for, and no others.
#[test]
fn streams_live_as_long_as_they_are_needed() {
    let (s, a, b) = (storage(), Stream::with(Device::cpu(), None), Stream::with(Device::cpu(), None));
    let mut turn = a.pretend();
    turn.uses(&s, false).unwrap();
    turn.submit();
    let weak = Arc::downgrade(&a.inner);
    drop(a);
    assert!(weak.upgrade().is_some());
    let mut turn = b.pretend();
    turn.uses(&s, true).unwrap();
    turn.submit();
    assert!(weak.upgrade().is_none());
}

#[test]
fn a_capture_notes_and_does_not_track() {
    let (s, t, a) = (storage(), storage(), Stream::with(Device::cpu(), None));
    a.begin_capture();
    assert!(matches!(a.not_capturing("x"), Err(Error::Capturing { call: "x" })));
    let mut turn = a.pretend();
    for (storage, write) in [(&s, false), (&t, false), (&s, true)] {
        turn.uses(storage, write).unwrap();
    }
    turn.submit();
    let uses = a.end_capture(|| {}).uses;
    assert!(uses.len() == 2 && uses[0].0.same(&s) && uses[0].1 && uses[1].0.same(&t) && !uses[1].1);
    assert_eq!(a.inner.submitted.load(Ordering::Relaxed), 0);
}
