//! Streams, and the order of work across them.
//!
//! # How dependencies are tracked
//! Every stream numbers what it is given with *tickets* 1, 2, 3, ... . A tensor's memory remembers, for each stream that
//! used it, the tickets of its last read and last write ([`crate::storage`]). Before work on stream `B` uses memory
//! whose last conflicting use is ticket `t` of stream `A`, an event is recorded on `A` and awaited by `B`, unless `B`
//! has waited for `t` or a later ticket of `A` before, or `A` is known to have finished it. So an event is recorded only
//! when another stream first needs it, and work on one stream alone costs two comparisons a tensor.
//!
//! The ticket of a use is noted before the work is enqueued, and becomes *submitted* after it. An event recorded on `A`
//! covers what was submitted by then. Work that conflicts can not be noted but not yet submitted: it borrows its tensors
//! until it is, and what conflicts borrows them too. Graphs alone hold no borrows; so they are launched while nobody
//! else is enqueuing (`Context::order`).

use crate::device::Device;
use crate::driver::{self, Context, check, sys};
use crate::error::{Error, Result};
use crate::recording::{Recording, Step};
use crate::storage::Storage;
use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard};

/// A queue of work on one device: what is given to it runs in order. Cloning it gives another handle to the same queue.
///
/// On a GPU, launches and fills return at once; reading back waits. On the CPU everything is done when the call returns.
/// Dropping a stream neither waits for its work nor cancels it.
#[derive(Clone)]
pub struct Stream {
    pub(crate) inner: Arc<StreamInner>,
}

pub(crate) struct StreamInner {
    pub(crate) device: Device,
    cuda: Option<Queue>,
    id: u64,
    submitted: AtomicU64,
    completed: AtomicU64,
    state: Mutex<State>,
}

struct Queue {
    context: &'static Context,
    raw: sys::CUstream,
    owned: bool,
    /// Keeps somebody else's stream alive.
    _owner: Option<Owner>,
    /// Recorded when another stream must wait for this one.
    fence: OnceLock<Fence>,
}
// SAFETY: handles; the driver may be called with them from any thread.
unsafe impl Send for Queue {}
// SAFETY: as above.
unsafe impl Sync for Queue {}

/// Held, and never looked at.
struct Owner(#[expect(dead_code, reason = "kept for its destructor")] Arc<dyn Any + Send + Sync>);
impl std::panic::RefUnwindSafe for Owner {}
impl std::panic::UnwindSafe for Owner {}

struct Fence(sys::CUevent);
// SAFETY: as above.
unsafe impl Send for Fence {}
// SAFETY: as above.
unsafe impl Sync for Fence {}

#[derive(Default)]
struct State {
    /// Streams by id, and how far this one has waited for them.
    seen: Vec<(u64, u64)>,
    capture: Option<Capture>,
}

/// What a stream that is captured has been given.
#[derive(Default)]
pub(crate) struct Capture {
    /// What the graph uses, and whether it writes it.
    pub(crate) uses: Vec<(Storage, bool)>,
    pub(crate) launches: Vec<Recording>,
    /// On the CPU: all work, in order.
    pub(crate) steps: Vec<Step>,
}

impl Capture {
    fn uses(&mut self, storage: &Storage, write: bool) -> Result<()> {
        if storage.is_lent() {
            return Err(Error::Capturing { call: "recording the use of memory that is lent" });
        }
        match self.uses.iter_mut().find(|(s, _)| s.same(storage)) {
            Some((_, w)) => *w |= write,
            None => self.uses.push((storage.clone(), write)),
        }
        Ok(())
    }
}

/// Held shared while work runs on the CPU, and exclusively while a graph does: a graph borrows no tensors, so others may
/// be at work on them.
static CPU_ORDER: RwLock<()> = RwLock::new(());

/// How many other streams a stream remembers having waited for. Forgetting one costs an event.
const REMEMBERED: usize = 32;

impl Stream {
    fn with(device: Device, cuda: Option<Queue>) -> Stream {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Stream {
            inner: Arc::new(StreamInner {
                device,
                cuda,
                id: NEXT.fetch_add(1, Ordering::Relaxed),
                submitted: AtomicU64::new(0),
                completed: AtomicU64::new(0),
                state: Mutex::default(),
            }),
        }
    }

    pub(crate) fn create(device: Device) -> Result<Stream> {
        let Some(context) = device.cuda else { return Ok(Stream::with(device, None)) };
        context.bind()?;
        let mut raw = std::ptr::null_mut();
        let flags = sys::CUstream_flags_enum::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: writes a handle.
        check("cuStreamCreate", unsafe { sys::cuStreamCreate(&mut raw, flags) })?;
        Ok(Stream::with(device, Some(Queue { context, raw, owned: true, _owner: None, fence: OnceLock::new() })))
    }

    pub(crate) fn default_of(device: Device) -> Result<Stream> {
        static CPU: OnceLock<Arc<StreamInner>> = OnceLock::new();
        let slot = device.cuda.map_or(&CPU, |c| &c.default_stream);
        if let Some(inner) = slot.get() {
            return Ok(Stream { inner: inner.clone() });
        }
        let new = Stream::create(device)?;
        Ok(Stream { inner: slot.get_or_init(|| new.inner).clone() })
    }

    /// A CUDA stream that somebody else made and keeps, as a stream of `device`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if `device` is the CPU; [`Error::Driver`].
    ///
    /// # Safety
    /// `raw` is a `CUstream` of the device's primary context. It is not destroyed while this stream, a clone of it, or
    /// a tensor that was used on it is alive. Tensors see work given to the stream through this crate alone: what others
    /// do with a tensor's memory, they order themselves. While somebody else captures it into a graph, nothing is
    /// allocated or freed on it, what is used on it is used on no other stream, and the graph is replayed only while its
    /// tensors live and nothing else uses them.
    pub unsafe fn from_raw(device: &Device, raw: *mut std::ffi::c_void) -> Result<Stream> {
        // SAFETY: the caller's.
        unsafe { Stream::adopt(device, raw, None) }
    }

    /// # Safety
    /// As [`from_raw`](Self::from_raw).
    pub(crate) unsafe fn adopt(
        device: &Device,
        raw: *mut std::ffi::c_void,
        owner: Option<Arc<dyn Any + Send + Sync>>,
    ) -> Result<Stream> {
        let Some(context) = device.cuda else {
            return Err(Error::Unsupported { what: "a CUDA stream", device: device.to_string() });
        };
        context.bind()?;
        let queue = Queue { context, raw: raw.cast(), owned: false, _owner: owner.map(Owner), fence: OnceLock::new() };
        Ok(Stream::with(*device, Some(queue)))
    }

    /// The `CUstream`, for other libraries; null for the CPU. Work given to it behind this crate's back is not tracked.
    #[must_use]
    pub fn as_raw(&self) -> *mut std::ffi::c_void {
        self.inner.cuda.as_ref().map_or(std::ptr::null_mut(), |q| q.raw.cast())
    }

    /// The device it belongs to.
    #[must_use]
    pub fn device(&self) -> Device {
        self.inner.device
    }

    /// Waits until everything given to the stream so far is done.
    ///
    /// # Errors
    /// [`Error::Driver`] if something that ran on the GPU failed; [`Error::Kernel`] if a kernel has found a fault in its
    /// data, on whichever stream of the device; [`Error::Capturing`].
    pub fn synchronize(&self) -> Result<()> {
        self.not_capturing("synchronize")?;
        let Some(queue) = &self.inner.cuda else { return Ok(()) };
        let submitted = self.inner.submitted();
        queue.context.bind()?;
        // SAFETY: a stream of the current context.
        check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(queue.raw) })?;
        self.inner.complete(submitted);
        queue.context.reported()
    }

    /// Whether both are handles to one stream.
    pub(crate) fn same(&self, other: &Stream) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// That the stream is not being captured.
    pub(crate) fn not_capturing(&self, call: &'static str) -> Result<()> {
        if self.inner.state().capture.is_some() { Err(Error::Capturing { call }) } else { Ok(()) }
    }

    /// Begins a turn: until it is submitted or dropped, nobody else enqueues on this stream. None on the CPU.
    pub(crate) fn turn(&self) -> Result<Option<Turn<'_>>> {
        let Some(queue) = &self.inner.cuda else { return Ok(None) };
        queue.context.bind()?;
        let order = queue.context.order.read().unwrap_or_else(PoisonError::into_inner);
        let state = self.inner.state();
        Ok(Some(Turn { stream: &self.inner, raw: queue.raw, state, _order: Some(order) }))
    }

    /// A turn for work that uses memory of another GPU as well: no graph is launched there either. GPUs are held in the
    /// order of their numbers, so that no two threads wait for each other.
    pub(crate) fn turn_with(
        &self,
        other: &'static Context,
    ) -> Result<Option<(RwLockReadGuard<'static, ()>, Turn<'_>)>> {
        let hold = || other.order.read().unwrap_or_else(PoisonError::into_inner);
        let first = self.device().cuda.is_some_and(|own| other.ordinal < own.ordinal).then(hold);
        let Some(turn) = self.turn()? else { return Ok(None) };
        Ok(Some((first.unwrap_or_else(hold), turn)))
    }

    /// A turn for work that borrows nothing. The caller holds `Context::order` exclusively.
    pub(crate) fn exclusive_turn(&self) -> Option<Turn<'_>> {
        let queue = self.inner.cuda.as_ref()?;
        Some(Turn { stream: &self.inner, raw: queue.raw, state: self.inner.state(), _order: None })
    }

    /// Starts noting what a capture is given.
    pub(crate) fn begin_capture(&self) {
        self.inner.state().capture = Some(Capture::default());
    }

    /// Ends that. `end` does the same in the driver: nobody gets between the two, or a launch would be in the graph and
    /// not be noted.
    pub(crate) fn end_capture(&self, end: impl FnOnce()) -> Capture {
        let mut state = self.inner.state();
        end();
        state.capture.take().unwrap_or_default()
    }

    /// Does work on the CPU, or notes it if the stream is captured. `uses` are what it reads or writes.
    ///
    /// # Safety
    /// `work` may be done at any later time as long as the storages live, when nobody else uses them.
    pub(crate) unsafe fn on_cpu(
        &self,
        uses: &[(Option<&Storage>, bool)],
        work: impl Fn() -> Result<()> + 'static,
    ) -> Result<()> {
        let mut state = self.inner.state();
        if let Some(capture) = &mut state.capture {
            for (storage, write) in uses {
                storage.map_or(Ok(()), |s| capture.uses(s, *write))?;
            }
            capture.steps.push(Step::Work(Box::new(work)));
            return Ok(());
        }
        drop(state);
        let _order = CPU_ORDER.read().unwrap_or_else(PoisonError::into_inner);
        work()
    }

    /// As [`on_cpu`](Self::on_cpu), for work that goes between host memory and a tensor, which can not be captured.
    pub(crate) fn on_cpu_now(&self, call: &'static str, work: impl FnOnce() -> Result<()>) -> Result<()> {
        self.not_capturing(call)?;
        let _order = CPU_ORDER.read().unwrap_or_else(PoisonError::into_inner);
        work()
    }

    /// Does work that uses memory of the CPU while no graph runs there.
    pub(crate) fn beside_graphs(work: impl FnOnce() -> Result<()>) -> Result<()> {
        let _order = CPU_ORDER.read().unwrap_or_else(PoisonError::into_inner);
        work()
    }

    /// Notes a launch, if the stream is captured. What is not noted comes back.
    pub(crate) fn record(&self, uses: &[(&Storage, bool)], recording: impl FnOnce() -> Recording) -> Result<bool> {
        let mut state = self.inner.state();
        let Some(capture) = &mut state.capture else { return Ok(false) };
        for (storage, write) in uses {
            capture.uses(storage, *write)?;
        }
        capture.steps.push(Step::Launch(capture.launches.len()));
        capture.launches.push(recording());
        Ok(true)
    }

    /// Runs what was captured on the CPU, while nothing else runs there.
    pub(crate) fn replay(&self, steps: &[Step], launches: &[Recording]) -> Result<()> {
        self.not_capturing("launching a graph")?;
        let _order = CPU_ORDER.write().unwrap_or_else(PoisonError::into_inner);
        steps.iter().try_for_each(|step| match step {
            Step::Work(work) => work(),
            Step::Launch(i) => launches.get(*i).map_or(Ok(()), Recording::run),
        })
    }

    /// The GPU's context and the raw stream.
    pub(crate) fn cuda(&self) -> Option<(&'static Context, sys::CUstream)> {
        self.inner.cuda.as_ref().map(|q| (q.context, q.raw))
    }
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Stream {} of {}", self.inner.id, self.inner.device)
    }
}

/// The right to enqueue on a stream.
pub(crate) struct Turn<'s> {
    stream: &'s Arc<StreamInner>,
    pub(crate) raw: sys::CUstream,
    state: MutexGuard<'s, State>,
    _order: Option<RwLockReadGuard<'static, ()>>,
}

impl Turn<'_> {
    /// Orders this turn's work after what it conflicts with, and notes the use.
    pub(crate) fn uses(&mut self, storage: &Storage, write: bool) -> Result<()> {
        if let Some(capture) = &mut self.state.capture {
            return capture.uses(storage, write);
        }
        let ticket = self.ticket();
        storage.track(self.stream, ticket, write, &mut |other, needed| {
            wait_for(self.stream, &mut self.state.seen, other, needed)
        })
    }

    /// The device's context.
    pub(crate) fn context(&self) -> Option<&'static Context> {
        self.stream.cuda.as_ref().map(|q| q.context)
    }

    /// The number of this turn's work.
    pub(crate) fn ticket(&self) -> u64 {
        self.stream.submitted.load(Ordering::Relaxed) + 1
    }

    /// Whether this turn's work goes into a graph.
    pub(crate) fn capturing(&self) -> bool {
        self.state.capture.is_some()
    }

    /// Notes a launch, if the stream is captured.
    pub(crate) fn record(&mut self, recording: impl FnOnce(sys::CUstream) -> Recording) {
        if let Some(capture) = &mut self.state.capture {
            capture.launches.push(recording(self.raw));
        }
    }

    /// The work is enqueued.
    pub(crate) fn submit(self) {
        if self.state.capture.is_none() {
            self.stream.submitted.store(self.ticket(), Ordering::Release);
        }
    }
}

/// Makes `stream` wait for a ticket of `other`, if it is submitted. Returns up to which ticket it has waited by then.
fn wait_for(stream: &StreamInner, seen: &mut Vec<(u64, u64)>, other: &StreamInner, needed: u64) -> Result<u64> {
    if let Some((_, ticket)) = seen.iter().find(|(id, ticket)| *id == other.id && *ticket >= needed) {
        return Ok(*ticket);
    }
    let submitted = other.submitted.load(Ordering::Acquire);
    other.fence_into(stream)?;
    match seen.iter_mut().find(|(id, _)| *id == other.id) {
        Some((_, ticket)) => *ticket = submitted,
        None => {
            if seen.len() >= REMEMBERED {
                seen.remove(0);
            }
            seen.push((other.id, submitted));
        }
    }
    Ok(submitted)
}

impl StreamInner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Up to which ticket all work is known to be done.
    pub(crate) fn completed(&self) -> u64 {
        self.completed.load(Ordering::Acquire)
    }

    /// Up to which ticket work is enqueued.
    pub(crate) fn submitted(&self) -> u64 {
        self.submitted.load(Ordering::Acquire)
    }

    /// Work up to a ticket is done.
    pub(crate) fn complete(&self, ticket: u64) {
        self.completed.fetch_max(ticket, Ordering::AcqRel);
    }

    /// The raw stream.
    pub(crate) fn raw(&self) -> Option<sys::CUstream> {
        self.cuda.as_ref().map(|q| q.raw)
    }

    /// Waits on the host for everything given so far. Whether it is done. Its context is current afterwards.
    pub(crate) fn wait_on_host(&self) -> bool {
        self.cuda.as_ref().is_none_or(|queue| queue.context.bind().is_ok() && driver::drain(queue.raw).done)
    }

    /// Makes `later` wait for everything this stream was given so far. The context of `later` is current, and stays so
    /// unless this fails.
    pub(crate) fn fence_into(&self, later: &StreamInner) -> Result<()> {
        let (Some(queue), Some(later)) = (&self.cuda, &later.cuda) else { return Ok(()) };
        // An event is recorded in the context that it was made in; streams of others may wait for it.
        let crossing = !std::ptr::eq(queue.context, later.context);
        if crossing {
            queue.context.bind()?;
        }
        let fence = match queue.fence.get() {
            Some(f) => f.0,
            None => {
                let mut new = std::ptr::null_mut();
                let flags = sys::CUevent_flags_enum::CU_EVENT_DISABLE_TIMING as u32;
                // SAFETY: writes a handle.
                check("cuEventCreate", unsafe { sys::cuEventCreate(&mut new, flags) })?;
                let stored = queue.fence.get_or_init(|| Fence(new)).0;
                if stored != new {
                    // SAFETY: another thread was first; nobody else has this one.
                    let _ = unsafe { sys::cuEventDestroy_v2(new) };
                }
                stored
            }
        };
        // If two threads do this at once, one may wait for what the other recorded: later, so still enough.
        // SAFETY: event and stream are alive and of the current context.
        check("cuEventRecord", unsafe { sys::cuEventRecord(fence, queue.raw) })?;
        if crossing {
            later.context.bind()?;
        }
        // SAFETY: the event is alive; the stream is, and of the current context.
        check("cuStreamWaitEvent", unsafe { sys::cuStreamWaitEvent(later.raw, fence, 0) })
    }
}

impl Drop for StreamInner {
    fn drop(&mut self) {
        let Some(queue) = &self.cuda else { return };
        if queue.context.bind().is_err() {
            return;
        }
        if let Some(fence) = queue.fence.get() {
            // SAFETY: nobody else has the event; the driver keeps it while a stream waits for it.
            let _ = unsafe { sys::cuEventDestroy_v2(fence.0) };
        }
        if queue.owned {
            // SAFETY: nobody else has the stream; the driver lets work in it finish.
            let _ = unsafe { sys::cuStreamDestroy_v2(queue.raw) };
        }
    }
}

#[cfg(test)]
mod tests;
