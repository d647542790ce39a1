//! CUDA graphs: launches recorded once and replayed at the price of one.

use crate::driver::{self, Context, check, sys};
use crate::error::{Error, Result};
use crate::storage::Storage;
use crate::stream::Stream;
use std::sync::PoisonError;

/// Recorded work. It keeps the memory that it uses, also when the tensors are dropped; a replay is ordered with other
/// uses of the tensors as the single launches would have been.
///
/// ```no_run
/// # use tilewright_host::{Device, Result, Tensor};
/// # fn main() -> Result<()> {
/// let stream = Device::cuda(0)?.stream()?;
/// let x = Tensor::<f32, 1>::full(&stream, [8], 1.0)?;
/// let mut y = Tensor::<f32, 1>::zeros(&stream, [8])?;
/// let mut graph = stream.capture(|s| y.copy_from(s, x.view()))?;
/// graph.launch(&stream)?;
/// assert_eq!(y.to_vec(&stream)?, [1.0; 8]);
/// # Ok(()) }
/// ```
pub struct Graph {
    context: &'static Context,
    exec: sys::CUgraphExec,
    uses: Vec<(Storage, bool)>,
    /// Where it was launched and may still run.
    launched: Vec<Stream>,
}
// SAFETY: the handle may be used from any thread, by one at a time: `launch` borrows exclusively.
unsafe impl Send for Graph {}
// SAFETY: a shared reference gives access to nothing.
unsafe impl Sync for Graph {}

impl Stream {
    /// Records what `record` gives to the stream that it is called with, without running it. Kernels must have been
    /// loaded ([`prepare`](crate::Launch::prepare)); tensors are made outside.
    ///
    /// # Errors
    /// Those of `record`; [`Error::Unsupported`] on the CPU, which has no graphs; [`Error::Driver`].
    pub fn capture(&self, record: impl FnOnce(&Stream) -> Result<()>) -> Result<Graph> {
        if self.device().is_cpu() {
            return Err(Error::Unsupported { what: "recording a graph", device: self.device().to_string() });
        }
        // A stream of its own: nothing else can get into the graph.
        let stream = self.device().new_stream()?;
        let Some((context, raw)) = stream.cuda() else {
            return Err(Error::Unsupported { what: "recording a graph", device: self.device().to_string() });
        };
        context.bind()?;
        let mode = sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: a stream of the current context that nobody else has.
        check("cuStreamBeginCapture", unsafe { sys::cuStreamBeginCapture_v2(raw, mode) })?;
        stream.set_capture(true);
        let mut capture = Capture { stream: &stream, context, raw, ended: false };
        let recorded = record(&stream);
        let ended = capture.end();
        recorded?; // what went wrong first is what is told
        let (graph, uses) = ended?;
        let mut exec = std::ptr::null_mut();
        // SAFETY: the graph is alive; writes a handle.
        let code = unsafe { sys::cuGraphInstantiateWithFlags(&mut exec, graph.0, 0) };
        check("cuGraphInstantiate", code)?;
        Ok(Graph { context, exec, uses, launched: Vec::new() })
    }
}

/// A capture under way. Ends it also if the recording closure panics.
struct Capture<'a> {
    stream: &'a Stream,
    context: &'static Context,
    raw: sys::CUstream,
    ended: bool,
}

impl Capture<'_> {
    fn end(&mut self) -> Result<(Recorded, Vec<(Storage, bool)>)> {
        self.ended = true;
        let uses = self.stream.set_capture(false);
        self.context.bind()?;
        let mut graph = std::ptr::null_mut();
        // SAFETY: the stream is being captured; writes a handle.
        let mut end = || check("cuStreamEndCapture", unsafe { sys::cuStreamEndCapture(self.raw, &mut graph) });
        let ended = end();
        if ended.is_err() {
            // A spoilt recording has ended by now. If this call alone failed, the stream still records: it must not be
            // destroyed so.
            let _ = end();
        }
        let graph = Recorded(graph);
        ended.map(|()| (graph, uses))
    }
}

impl Drop for Capture<'_> {
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
        // SAFETY: nobody else has the graph; what was made from it does not need it.
        let _ = unsafe { sys::cuGraphDestroy(self.0) };
    }
}

impl Graph {
    /// Enqueues the recorded work.
    ///
    /// # Errors
    /// [`Error::Device`] if the stream is another device's; [`Error::Capturing`], [`Error::Driver`].
    pub fn launch(&mut self, stream: &Stream) -> Result<()> {
        stream.device().expect("graph", self.context.ordinal)?;
        self.context.bind()?;
        // A graph borrows no tensors, so others may be about to enqueue work on them: not now.
        let order = self.context.order.write().unwrap_or_else(PoisonError::into_inner);
        let Some(mut turn) = stream.exclusive_turn() else { return Ok(()) };
        if turn.capturing() {
            return Err(Error::Capturing { call: "launching a graph" });
        }
        for (storage, write) in &self.uses {
            turn.uses(storage, *write)?;
        }
        // SAFETY: the graph and the stream are alive and of the current context; the graph's memory is kept by `uses`,
        // and other uses of it are ordered.
        let code = unsafe { sys::cuGraphLaunch(self.exec, turn.raw) };
        turn.submit();
        drop(order);
        check("cuGraphLaunch", code)?;
        if !self.launched.iter().any(|s| s.same(stream)) {
            self.launched.push(stream.clone());
        }
        Ok(())
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // The driver does not say what becomes of a graph that is destroyed while it runs.
        if self.context.bind().is_err() {
            return;
        }
        let raw = self.launched.iter().filter_map(|s| s.cuda());
        if raw.map(|(_, raw)| driver::drain(raw).done).fold(true, |all, done| all && done) {
            // SAFETY: nobody else has it, and it does not run.
            let _ = unsafe { sys::cuGraphExecDestroy(self.exec) };
        }
    }
}
