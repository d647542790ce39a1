//! Graph replay in interleaved rounds.

use tilewright::prelude::*;

/// Work recorded once: `calls` of it in one graph.
pub struct Candidate {
    pub name: &'static str,
    graph: Graph,
    calls: usize,
    replays: usize,
    times: Vec<f64>,
}

/// Sets of buffers that together are three times the L2 cache, at most 16.
pub fn sets(bytes_a_call: usize) -> usize {
    const L2: usize = 60 << 20;
    (3 * L2).div_ceil(bytes_a_call.max(1)).clamp(1, 16)
}

/// Records `call(stream, set)` for each set, often enough to be worth a replay.
pub fn candidate(
    stream: &Stream,
    name: &'static str,
    sets: usize,
    mut call: impl FnMut(&Stream, usize) -> Result<(), Error>,
) -> Result<Candidate, Error> {
    // once outside: kernels are loaded then, and a failure is a plain one
    for set in 0..sets {
        call(stream, set)?;
    }
    stream.synchronize()?;
    let rounds = 8usize.div_ceil(sets);
    let graph = stream.capture(|s| {
        for _ in 0..rounds {
            for set in 0..sets {
                call(s, set)?;
            }
        }
        Ok(())
    })?;
    Ok(Candidate { name, graph, calls: rounds * sets, replays: 1, times: Vec::new() })
}

impl Candidate {
    fn replay(&mut self, stream: &Stream) -> Result<f64, Error> {
        let start = Event::record(stream)?;
        for _ in 0..self.replays {
            self.graph.launch(stream)?;
        }
        let end = Event::record(stream)?;
        Ok(end.micros_since(&start)? / (self.replays * self.calls) as f64)
    }

    /// Microseconds a call: the median round.
    pub fn micros(&self) -> f64 {
        let mut t = self.times.clone();
        t.sort_by(f64::total_cmp);
        t.get(t.len() / 2).copied().unwrap_or(f64::NAN)
    }
}

/// Times all candidates in turn, `rounds` times, about `ms` a turn.
pub fn measure(stream: &Stream, all: &mut [Candidate], rounds: usize, ms: f64) -> Result<(), Error> {
    for c in all.iter_mut() {
        let once = c.replay(stream)? * c.calls as f64;
        c.replays = ((ms * 1e3 / once.max(1.0)).ceil() as usize).clamp(1, 4000);
        c.replay(stream)?;
    }
    for _ in 0..rounds {
        for c in all.iter_mut() {
            let t = c.replay(stream)?;
            c.times.push(t);
        }
    }
    Ok(())
}
