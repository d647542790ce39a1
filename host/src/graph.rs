//! Graphs: launches recorded once and replayed at the price of one.

use crate::device::Device;
use crate::driver::{self, Context, check, sys};
use crate::error::{Error, Result};
use crate::recording::{Recording, Step};
use crate::storage::Storage;
use crate::stream::{Capture, Stream};
use std::sync::PoisonError;

/// Recorded work. It keeps the memory that it uses, also when the tensors are dropped; a replay is ordered with other
/// uses of the tensors as the single launches would have been.
///
/// ```
/// # use tilewright_host::{Device, Result, Tensor};
/// # fn main() -> Result<()> {
/// let stream = Device::best().stream()?;
/// let x = Tensor::<f32, 1>::full(&stream, [8], 1.0)?;
/// let mut y = Tensor::<f32, 1>::zeros(&stream, [8])?;
/// let mut graph = stream.capture(|s| y.copy_from(s, x.view()))?;
/// assert_eq!(y.to_vec(&stream)?, [0.0; 8]); // recorded, not run
/// graph.launch(&stream)?;
/// assert_eq!(y.to_vec(&stream)?, [1.0; 8]);
/// # Ok(()) }
/// ```
pub struct Graph {
    device: Device,
    /// Dropped before the memory that it uses.
    work: Work,
    uses: Vec<(Storage, bool)>,
    launches: Vec<Recording>,
}

enum Work {
    Cpu(Vec<Step>),
    Cuda(Exec),
}

/// The driver's graph.
struct Exec {
    context: &'static Context,
    raw: sys::CUgraphExec,
    /// What it was made from: by its nodes launches are named when they are changed.
    _recorded: Recorded,
    /// Where it was launched and may still run.
    launched: Vec<Stream>,
}
// SAFETY: the handle may be used from any thread, by one at a time: `launch` borrows exclusively.
unsafe impl Send for Exec {}
// SAFETY: a shared reference gives access to nothing that changes.
unsafe impl Sync for Graph {}

static_assertions::assert_impl_all!(Graph: Send, Sync);

/// A scalar argument of kernels. Sealed.
pub trait Scalar: Copy + 'static + sealed::Sealed {}
mod sealed {
    pub trait Sealed {}
}
macro_rules! scalars {
    ($($t:ty),*) => {$(
        impl sealed::Sealed for $t {}
        impl Scalar for $t {}
    )*};
}
scalars!(f32, i32, u32, u64);

impl Stream {
    /// Records what `record` gives to the stream that it is called with, without running it. Kernels must have been
    /// loaded ([`prepare`](crate::Launch::prepare)); tensors are made outside. What would wait, allocate or load a kernel
    /// is an error ([`Error::Capturing`], [`Error::NotLoaded`]) and leaves the recording as it is.
    ///
    /// # Errors
    /// Those of `record`; [`Error::Driver`].
    pub fn capture(&self, record: impl FnOnce(&Stream) -> Result<()>) -> Result<Graph> {
        // A stream of its own: nothing else can get into the graph.
        let stream = self.device().new_stream()?;
        let device = self.device();
        let Some((context, raw)) = stream.cuda() else {
            stream.begin_capture();
            let recorded = record(&stream);
            let Capture { uses, launches, steps } = stream.end_capture(|| {});
            recorded?;
            return Ok(Graph { device, uses, launches, work: Work::Cpu(steps) });
        };
        context.bind()?;
        let mode = sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: a stream of the current context that nobody else has.
        check("cuStreamBeginCapture", unsafe { sys::cuStreamBeginCapture_v2(raw, mode) })?;
        stream.begin_capture();
        let mut open = Open { stream: &stream, context, raw, ended: false };
        let recorded = record(&stream);
        let ended = open.end();
        recorded?; // what went wrong first is what is told
        let (graph, capture) = ended?;
        let mut exec = std::ptr::null_mut();
        // SAFETY: the graph is alive; writes a handle.
        let code = unsafe { sys::cuGraphInstantiateWithFlags(&mut exec, graph.0, 0) };
        check("cuGraphInstantiate", code)?;
        let Capture { uses, launches, .. } = capture;
        let exec = Exec { context, raw: exec, _recorded: graph, launched: Vec::new() };
        Ok(Graph { device, uses, launches, work: Work::Cuda(exec) })
    }
}

/// A capture under way. Ends it also if the recording closure panics.
struct Open<'a> {
    stream: &'a Stream,
    context: &'static Context,
    raw: sys::CUstream,
    ended: bool,
}

impl Open<'_> {
    fn end(&mut self) -> Result<(Recorded, Capture)> {
        self.ended = true;
        let (mut graph, mut ended) = (std::ptr::null_mut(), Ok(()));
        let capture = self.stream.end_capture(|| {
            // SAFETY: the stream is being captured; writes a handle.
            let mut end = || check("cuStreamEndCapture", unsafe { sys::cuStreamEndCapture(self.raw, &mut graph) });
            ended = self.context.bind().and_then(|()| end());
            if ended.is_err() {
                // A spoilt recording has ended by now. If this call alone failed, the stream still records: it must not
                // be destroyed so.
                let _ = end();
            }
        });
        let graph = Recorded(graph);
        ended.map(|()| (graph, capture))
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        if !self.ended {
            let _ = self.end();
        }
    }
}

struct Recorded(sys::CUgraph);
impl Drop for Recorded {
    fn drop(&mut self) {
        if self.0.is_null() {
            return;
        }
        // SAFETY: nobody else has the graph; what was made from it runs without it.
        let _ = unsafe { sys::cuGraphDestroy(self.0) };
    }
}

impl Graph {
    /// Enqueues the recorded work. On the CPU it is done when the call returns, and nothing else runs there meanwhile.
    ///
    /// # Errors
    /// [`Error::Device`] if the stream is another device's; [`Error::Capturing`]; [`Error::Kernel`] if a kernel fails on
    /// the CPU; [`Error::Driver`].
    pub fn launch(&mut self, stream: &Stream) -> Result<()> {
        stream.device().expect("graph", self.device.number())?;
        let exec = match &mut self.work {
            Work::Cpu(steps) => return stream.replay(steps, &self.launches),
            Work::Cuda(exec) => exec,
        };
        exec.context.bind()?;
        // A graph borrows no tensors, so others may be about to enqueue work on them: not now.
        let order = exec.context.order.write().unwrap_or_else(PoisonError::into_inner);
        let Some(mut turn) = stream.exclusive_turn() else { return Ok(()) };
        if turn.capturing() {
            return Err(Error::Capturing { call: "launching a graph" });
        }
        for (storage, write) in &self.uses {
            turn.uses(storage, *write)?;
        }
        // SAFETY: the graph and the stream are alive and of the current context; the graph's memory is kept by `uses`,
        // and other uses of it are ordered.
        let code = unsafe { sys::cuGraphLaunch(exec.raw, turn.raw) };
        turn.submit();
        drop(order);
        check("cuGraphLaunch", code)?;
        if !exec.launched.iter().any(|s| s.same(stream)) {
            exec.launched.push(stream.clone());
        }
        Ok(())
    }

    /// How many launches of kernels were recorded.
    #[must_use]
    pub fn launches(&self) -> usize {
        self.launches.len()
    }

    /// Gives scalar argument `arg` of the `launch`th recorded launch (counted from 0) another value, for replays from now
    /// on; those that are under way keep the old one. Nothing is recorded anew.
    ///
    /// # Errors
    /// [`Error::Recorded`] if there is no such launch, or no argument of that name that is a `V`;
    /// [`Error::Unsupported`] if the driver is too old for it; [`Error::Driver`].
    pub fn set<V: Scalar>(&mut self, launch: usize, arg: &str, value: V) -> Result<()> {
        let n = self.launches.len();
        let Some(recording) = self.launches.get_mut(launch) else {
            let expected = format!("a launch below {n}");
            return Err(Error::Recorded { launch, expected, found: launch.to_string() });
        };
        let exec = match &self.work {
            Work::Cpu(_) => None,
            Work::Cuda(exec) => {
                exec.context.bind()?;
                Some(exec.raw)
            }
        };
        recording.set(launch, arg, value, exec)
    }
}

impl Drop for Exec {
    fn drop(&mut self) {
        // The driver does not say what becomes of a graph that is destroyed while it runs.
        if self.context.bind().is_err() {
            return;
        }
        let mut streams = self.launched.iter().filter_map(|s| s.cuda());
        if streams.all(|(_, raw)| driver::drain(raw).done) {
            // SAFETY: nobody else has it, and it does not run.
            let _ = unsafe { sys::cuGraphExecDestroy(self.raw) };
        }
    }
}
