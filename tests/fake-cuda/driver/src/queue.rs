//! Streams: queues of work that runs as late as it may.

use crate::control::Launched;
use crate::memory::State;
use crate::world::{Code, INVALID_HANDLE, World};
use std::collections::VecDeque;
use std::sync::Arc;

/// A moment in a stream's work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    pub stream: u64,
    pub number: u64,
}

/// One end of a copy.
#[derive(Clone, Copy, Debug)]
pub struct End {
    pub address: u64,
    pub pitch: usize,
    /// Memory of a device, to be checked; of the host otherwise.
    pub device: bool,
}

#[derive(Clone)]
pub enum Op {
    Allocate(u64),
    Free(u64),
    Copy {
        from: End,
        to: End,
        width: usize,
        rows: usize,
        /// What `from` names, if the driver has made a copy of it.
        _staged: Option<Arc<[u8]>>,
    },
    Set {
        to: u64,
        unit: Vec<u8>,
        count: usize,
    },
    Launch {
        name: String,
        params: Vec<Vec<u8>>,
        grid: [u32; 3],
    },
    Wait(Point),
    /// Nothing: a moment.
    Mark,
}

pub struct Stream {
    pub device: i32,
    /// How many pieces of work it was given, and how many are done.
    pub given: u64,
    pub done: u64,
    queue: VecDeque<Op>,
    /// What is being recorded instead of queued; the graph is spoilt once this holds an error.
    pub capture: Option<Result<Vec<Op>, Code>>,
    pub destroyed: bool,
    /// Waits for the legacy default stream, and is waited for by it.
    pub blocking: bool,
}

impl Stream {
    pub fn new(device: i32, blocking: bool) -> Stream {
        Stream { device, given: 0, done: 0, queue: VecDeque::new(), capture: None, destroyed: false, blocking }
    }
}

impl World {
    /// The stream of a handle, in its context. Null is the context's default stream.
    pub fn stream(&mut self, handle: u64) -> Result<u64, Code> {
        let current = self.current()?;
        let key = if handle == 0 { 1 + current as u64 } else { handle };
        if handle == 0 {
            self.streams.entry(key).or_insert_with(|| Stream::new(current, true));
        }
        match self.streams.get(&key) {
            Some(s) if !s.destroyed => {
                let device = s.device;
                self.belongs("a stream", device).map(|()| key)
            }
            _ => {
                self.violation(format!("stream {handle:#x} is none, or was destroyed"));
                Err(INVALID_HANDLE)
            }
        }
    }

    /// Gives work to a stream, or to the graph that it records.
    pub fn enqueue(&mut self, stream: u64, op: Op) -> Result<(), Code> {
        let Some(s) = self.streams.get_mut(&stream) else { return Err(INVALID_HANDLE) };
        match &mut s.capture {
            Some(Ok(nodes)) => {
                nodes.push(op);
                return Ok(());
            }
            Some(Err(code)) => return Err(*code),
            None => {}
        }
        let (device, blocking) = (s.device, s.blocking);
        if blocking {
            // the legacy stream's rule, in full: nothing overlaps it
            let others: Vec<u64> = self
                .streams
                .iter()
                .filter(|(k, o)| **k != stream && o.device == device && o.blocking)
                .map(|(k, _)| *k)
                .collect();
            others.into_iter().for_each(|o| self.run_all(o));
        }
        if let Some(s) = self.streams.get_mut(&stream) {
            s.queue.push_back(op);
            s.given += 1;
        }
        if self.seed != 0 {
            self.run_some();
        }
        Ok(())
    }

    /// Runs a random amount of work of random streams.
    fn run_some(&mut self) {
        let mut keys: Vec<u64> = self.streams.keys().copied().collect();
        keys.sort_unstable();
        for _ in 0..self.next_random() % 4 {
            let key = keys[self.next_random() as usize % keys.len()];
            let Some(s) = self.streams.get(&key) else { continue };
            let left = s.given - s.done;
            if left > 0 {
                let to = s.done + 1 + self.next_random() % left;
                self.run(Point { stream: key, number: to });
            }
        }
    }

    pub fn run_all(&mut self, stream: u64) {
        let number = self.streams.get(&stream).map_or(0, |s| s.given);
        self.run(Point { stream, number });
    }

    /// Runs a stream's work up to a point, and what that waits for.
    pub fn run(&mut self, point: Point) {
        if self.lost {
            return;
        }
        loop {
            let Some(s) = self.streams.get_mut(&point.stream) else { return };
            if s.done >= point.number {
                return;
            }
            let Some(op) = s.queue.front().cloned() else { return };
            let device = s.device;
            if let Op::Wait(other) = op {
                self.run(other);
            }
            self.execute(device, op);
            if let Some(s) = self.streams.get_mut(&point.stream) {
                s.queue.pop_front();
                s.done += 1;
            }
        }
    }

    /// Drops all work that waits.
    pub fn forget(&mut self) {
        for s in self.streams.values_mut() {
            s.queue.clear();
            s.done = s.given;
        }
    }

    pub fn is_done(&self, point: Point) -> bool {
        self.streams.get(&point.stream).is_none_or(|s| s.done >= point.number)
    }

    fn checked(&mut self, what: &str, address: u64, bytes: usize, device: Option<i32>) -> bool {
        match self.memory.refuse(address, bytes, device) {
            None => true,
            Some(why) => {
                self.violation(format!("{what}: {why}"));
                false
            }
        }
    }

    /// One end of a copy. Of memory of the host only what was made page-locked is known.
    fn reachable(&mut self, what: &str, on_device: bool, at: u64, bytes: usize, device: Option<i32>) -> bool {
        let known = on_device || self.memory.at(at).is_some();
        !known || self.checked(what, at, bytes, device.filter(|_| on_device))
    }

    fn execute(&mut self, device: i32, op: Op) {
        match op {
            Op::Wait(_) | Op::Mark => {}
            Op::Allocate(address) => {
                if let Some(p) = self.memory.piece(address) {
                    p.state = State::Live;
                }
            }
            Op::Free(address) => {
                if self.memory.at(address).is_some_and(|(_, p)| p.state == State::Coming) {
                    self.violation(format!("memory at {address:#x} is freed before its allocation, in stream order"));
                }
                if !self.memory.free(address) {
                    self.violation(format!("memory at {address:#x} is freed twice"));
                }
            }
            Op::Set { to, unit, count } => {
                if self.checked("a fill", to, unit.len() * count, Some(device)) {
                    for i in 0..count {
                        // SAFETY: checked above.
                        unsafe {
                            std::ptr::copy_nonoverlapping(
                                unit.as_ptr(),
                                (to as *mut u8).add(i * unit.len()),
                                unit.len(),
                            )
                        };
                    }
                }
            }
            Op::Copy { from, to, width, rows, .. } => {
                let peer = from.device && to.device;
                for i in 0..rows {
                    let (a, b) = (from.address + (i * from.pitch) as u64, to.address + (i * to.pitch) as u64);
                    let own = if peer { None } else { Some(device) };
                    let readable = self.reachable("a copy's source", from.device, a, width, None);
                    let writable = self.reachable("a copy's target", to.device, b, width, own);
                    if readable && writable {
                        // SAFETY: what the driver gave out was checked; other memory of the host is the caller's to keep. They may
                        // overlap only if the caller says so, and then nothing is promised.
                        unsafe { std::ptr::copy(a as *const u8, b as *mut u8, width) };
                    }
                }
            }
            Op::Launch { name, params, grid } => {
                let Some((_, body)) = self.kernels.get(&name).cloned() else { return };
                Launched { world: self, device, params, grid }.call(body);
            }
        }
    }
}
