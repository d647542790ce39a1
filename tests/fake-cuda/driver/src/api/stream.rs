//! Streams and events.
#![allow(unsafe_op_in_unsafe_fn)] // every function here is given pointers by the caller's contract

use super::{api, put};
use crate::queue::{Op, Point, Stream};
use crate::world::{Code, Event, INVALID_HANDLE, INVALID_VALUE, NOT_READY, STREAM_CAPTURE_UNSUPPORTED, World};
use std::ffi::c_void;

const NON_BLOCKING: u32 = 1;

impl World {
    fn event(&mut self, event: u64) -> Result<Option<Point>, Code> {
        match self.events.get(&event) {
            Some(e) => {
                let (device, point) = (e.device, e.point);
                self.belongs("an event", device)?;
                Ok(point)
            }
            None => {
                self.violation(format!("event {event:#x} is none, or was destroyed"));
                Err(INVALID_HANDLE)
            }
        }
    }

    /// What a recording stream does not allow spoils the graph.
    pub(crate) fn not_recording(&mut self, stream: u64) -> Result<(), Code> {
        if let Some(s) = self.streams.get_mut(&stream)
            && let Some(capture) = &mut s.capture
        {
            *capture = Err(STREAM_CAPTURE_UNSUPPORTED);
            return Err(STREAM_CAPTURE_UNSUPPORTED);
        }
        Ok(())
    }

    fn create(&mut self, blocking: bool) -> Result<*mut c_void, Code> {
        let device = self.current()?;
        let handle = self.handle();
        self.streams.insert(handle, Stream::new(device, blocking));
        Ok(handle as *mut c_void)
    }

    fn last(&self, stream: u64) -> Point {
        Point { stream, number: self.streams.get(&stream).map_or(0, |s| s.given) }
    }
}

api! {
    fn cuStreamCreate(stream: *mut *mut c_void, flags: u32) |w| {
        let new = w.create(flags & NON_BLOCKING == 0)?;
        put(stream, new)
    }
    fn cuStreamCreateWithPriority(stream: *mut *mut c_void, flags: u32, _priority: i32) |w| {
        let new = w.create(flags & NON_BLOCKING == 0)?;
        put(stream, new)
    }
    fn cuStreamDestroy_v2(stream: *mut c_void) |w| {
        let key = w.stream(stream as u64)?;
        let Some(s) = w.streams.get_mut(&key) else { return Err(INVALID_HANDLE) };
        s.destroyed = true; // its work goes on
        if s.capture.is_some() {
            w.violation("a stream is destroyed while it records");
        }
        Ok(())
    }
    fn cuStreamSynchronize(stream: *mut c_void) |w| {
        let key = w.stream(stream as u64)?;
        w.not_recording(key)?;
        w.run_all(key);
        Ok(())
    }
    fn cuStreamQuery(stream: *mut c_void) |w| {
        let key = w.stream(stream as u64)?;
        w.not_recording(key)?;
        if w.is_done(w.last(key)) { Ok(()) } else { Err(NOT_READY) }
    }
    fn cuStreamGetCtx(stream: *mut c_void, context: *mut *mut c_void) |w| {
        let key = w.stream(stream as u64)?;
        let device = w.streams.get(&key).map_or(0, |s| s.device);
        put(context, crate::world::context_handle(device))
    }
    fn cuStreamWaitEvent(stream: *mut c_void, event: *mut c_void, _flags: u32) |w| {
        let key = w.stream(stream as u64)?;
        // An event may be of another device's context; its own must be known all the same.
        match w.events.get(&(event as u64)).map(|e| e.point) {
            None => {
                w.violation("a stream waits for an event that is none, or was destroyed");
                Err(INVALID_HANDLE)
            }
            Some(None) => Ok(()),
            Some(Some(point)) => {
                w.not_recording(key)?;
                w.enqueue(key, Op::Wait(point))
            }
        }
    }
    fn cuEventCreate(event: *mut *mut c_void, _flags: u32) |w| {
        let device = w.current()?;
        let handle = w.handle();
        w.events.insert(handle, Event { device, point: None });
        put(event, handle as *mut c_void)
    }
    fn cuEventDestroy_v2(event: *mut c_void) |w| {
        w.event(event as u64)?;
        w.events.remove(&(event as u64));
        Ok(())
    }
    fn cuEventRecord(event: *mut c_void, stream: *mut c_void) |w| {
        w.event(event as u64)?;
        let key = w.stream(stream as u64)?;
        w.not_recording(key)?;
        w.enqueue(key, Op::Mark)?;
        let point = w.last(key);
        if let Some(e) = w.events.get_mut(&(event as u64)) {
            e.point = Some(point);
        }
        Ok(())
    }
    fn cuEventQuery(event: *mut c_void) |w| {
        match w.event(event as u64)? {
            Some(p) if !w.is_done(p) => Err(NOT_READY),
            _ => Ok(()),
        }
    }
    fn cuEventSynchronize(event: *mut c_void) |w| {
        if let Some(p) = w.event(event as u64)? {
            w.run(p);
        }
        Ok(())
    }
    fn cuEventElapsedTime(ms: *mut f32, start: *mut c_void, end: *mut c_void) |w| {
        let (Some(a), Some(b)) = (w.event(start as u64)?, w.event(end as u64)?) else { return Err(INVALID_VALUE) };
        if !w.is_done(a) || !w.is_done(b) {
            return Err(NOT_READY);
        }
        put(ms, 0.25)
    }
    fn cuEventElapsedTime_v2(ms: *mut f32, start: *mut c_void, end: *mut c_void) |w| {
        let (Some(_), Some(_)) = (w.event(start as u64)?, w.event(end as u64)?) else { return Err(INVALID_VALUE) };
        put(ms, 0.25)
    }
}
