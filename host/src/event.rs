//! Points in a stream's work, and the time between them.

use crate::device::Device;
use crate::driver::{Context, check, optional, sys};
use crate::error::{Error, Result};
use crate::stream::Stream;
use std::sync::OnceLock;
use std::time::Instant;

/// A point in a stream's work. Recorded again, it means the new point.
///
/// ```
/// use tilewright_host::{Device, Event};
/// let stream = Device::cpu().stream()?;
/// let (start, end) = (Event::record(&stream)?, Event::record(&stream)?);
/// assert!(end.micros_since(&start)? >= 0.0);
/// # Ok::<(), tilewright_host::Error>(())
/// ```
#[derive(Debug)]
pub struct Event {
    device: Device,
    at: At,
}

#[derive(Debug)]
enum At {
    Cpu(Instant),
    Cuda(Handle),
}

struct Handle {
    context: &'static Context,
    raw: sys::CUevent,
}
// SAFETY: a handle; the driver may be called with it from any thread.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:p}", self.raw)
    }
}

impl Event {
    /// The point that the stream's work has reached now.
    ///
    /// # Errors
    /// [`Error::Capturing`], [`Error::Driver`].
    pub fn record(stream: &Stream) -> Result<Event> {
        let device = stream.device();
        stream.not_capturing("recording an event")?;
        let Some((context, _)) = stream.cuda() else {
            return Ok(Event { device, at: At::Cpu(Instant::now()) });
        };
        context.bind()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: writes a handle.
        check("cuEventCreate", unsafe { sys::cuEventCreate(&mut raw, 0) })?;
        let mut event = Event { device, at: At::Cuda(Handle { context, raw }) };
        event.record_again(stream)?;
        Ok(event)
    }

    /// Moves the event to the point that a stream's work has reached now.
    ///
    /// # Errors
    /// [`Error::Device`] if the stream is another device's; [`Error::Capturing`], [`Error::Driver`].
    pub fn record_again(&mut self, stream: &Stream) -> Result<()> {
        stream.device().expect("event", self.device.number())?;
        stream.not_capturing("recording an event")?;
        match (&mut self.at, stream.cuda()) {
            (At::Cuda(h), Some((context, raw))) => {
                context.bind()?;
                // SAFETY: both are alive and of the current context.
                check("cuEventRecord", unsafe { sys::cuEventRecord(h.raw, raw) })
            }
            (at, _) => {
                *at = At::Cpu(Instant::now());
                Ok(())
            }
        }
    }

    /// Waits until the stream has passed the point.
    ///
    /// # Errors
    /// [`Error::Driver`] if something that ran on the GPU failed; [`Error::Kernel`] if a kernel has found a fault in its
    /// data, on whichever stream of the device.
    pub fn synchronize(&self) -> Result<()> {
        self.pass()?;
        let At::Cuda(h) = &self.at else { return Ok(()) };
        h.context.reported()
    }

    /// Waits, and leaves what kernels have reported to whoever asks.
    pub(crate) fn pass(&self) -> Result<()> {
        let At::Cuda(h) = &self.at else { return Ok(()) };
        h.context.bind()?;
        // SAFETY: an event of the current context.
        check("cuEventSynchronize", unsafe { sys::cuEventSynchronize(h.raw) })
    }

    /// Whether the stream has passed the point. Does not wait.
    ///
    /// # Errors
    /// [`Error::Driver`], also if something that ran on the GPU failed.
    pub fn is_done(&self) -> Result<bool> {
        let At::Cuda(h) = &self.at else { return Ok(true) };
        h.context.bind()?;
        // SAFETY: an event of the current context.
        match unsafe { sys::cuEventQuery(h.raw) } {
            sys::CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            code => check("cuEventQuery", code).map(|()| true),
        }
    }

    /// Microseconds from `earlier` to this point, measured on the device. Waits for both.
    ///
    /// # Errors
    /// [`Error::Device`] if they are events of different devices; [`Error::Driver`].
    pub fn micros_since(&self, earlier: &Event) -> Result<f64> {
        self.device.expect("event", earlier.device.number())?;
        match (&self.at, &earlier.at) {
            (At::Cuda(end), At::Cuda(start)) => {
                earlier.synchronize()?;
                self.synchronize()?;
                let mut ms = 0.0f32;
                let elapsed = elapsed()
                    .ok_or(Error::Unsupported { what: "the time between events", device: self.device.to_string() })?;
                // SAFETY: writes a float; the events are alive.
                check("cuEventElapsedTime", unsafe { elapsed(&mut ms, start.raw, end.raw) })?;
                Ok(f64::from(ms) * 1e3)
            }
            (At::Cpu(end), At::Cpu(start)) => Ok(end.saturating_duration_since(*start).as_secs_f64() * 1e6),
            // the devices are equal
            _ => Err(Error::Unsupported { what: "the time between these events", device: self.device.to_string() }),
        }
    }
}

type Elapsed = unsafe extern "C" fn(*mut f32, sys::CUevent, sys::CUevent) -> sys::CUresult;

/// In every driver, but declared under different names by different versions of its headers.
fn elapsed() -> Option<Elapsed> {
    static ELAPSED: OnceLock<Option<Elapsed>> = OnceLock::new();
    // SAFETY: the function's type.
    *ELAPSED.get_or_init(|| unsafe { optional("cuEventElapsedTime") })
}

impl Stream {
    /// Makes what the stream is given from now on wait for an event. Tensors need no such help: it is for work that this
    /// crate does not see.
    ///
    /// # Errors
    /// [`Error::Device`] if the event is another device's; [`Error::Capturing`], [`Error::Driver`].
    pub fn wait(&self, event: &Event) -> Result<()> {
        self.device().expect("event", event.device.number())?;
        self.not_capturing("waiting for an event")?;
        let (At::Cuda(h), Some((context, raw))) = (&event.at, self.cuda()) else { return Ok(()) };
        context.bind()?;
        // SAFETY: both are alive and of the current context.
        check("cuStreamWaitEvent", unsafe { sys::cuStreamWaitEvent(raw, h.raw, 0) })
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.context.bind().is_ok() {
            // SAFETY: nobody else has the event; the driver keeps it while it is needed.
            let _ = unsafe { sys::cuEventDestroy_v2(self.raw) };
        }
    }
}
