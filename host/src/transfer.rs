//! Copies between tensors and the host that do not wait.
//!
//! # Why nothing is in use when it is freed
//! The buffer belongs to the [`Transfer`] until the copy is done: nobody can look at it, write it or free it. There is no
//! guard whose loss would give it back early: a transfer that is forgotten keeps its buffer for ever. One that is dropped
//! waits; if the driver will not say that the copy is done, the buffer is lost rather than freed. The tensor's memory is
//! kept as for a kernel: the use is noted, and whatever comes next on any stream, also its release, comes after it.

use crate::copy::{READ, WRITE, length, note, read_back, write_from};
use crate::error::{Error, Result, UNNAMED};
use crate::event::Event;
use crate::pinned::Pinned;
use crate::shape;
use crate::stream::Stream;
use crate::tensor::Tensor;
use crate::view::{TensorView, TensorViewMut};
use std::fmt;
use tilewright_core::element::Element;

/// A copy under way, with the buffer that it reads or writes. Dropping it waits; see [`Pinned`] for an example.
#[must_use = "dropping it waits for the copy, and frees the buffer"]
pub struct Transfer<T: Element> {
    buffer: Pinned<T>,
    /// Where the copy is; None once it is done.
    under_way: Option<Stream>,
    /// Behind the copy. None if it could not be recorded.
    end: Option<Event>,
}

impl<T: Element> Transfer<T> {
    fn done(buffer: Pinned<T>) -> Transfer<T> {
        Transfer { buffer, under_way: None, end: None }
    }

    /// Takes charge of what a stream was given; `enqueued` says whether all of it was.
    fn begin(stream: &Stream, buffer: Pinned<T>, enqueued: Result<()>) -> Result<Transfer<T>> {
        let mut new = Transfer { buffer, under_way: Some(stream.clone()), end: None };
        enqueued?; // waits for the part that was
        new.end = Some(Event::record(stream)?);
        Ok(new)
    }

    /// Whether the copy is done, so that [`wait`](Self::wait) would not wait.
    ///
    /// # Errors
    /// [`Error::Driver`], also if something that ran on the GPU failed.
    pub fn is_done(&self) -> Result<bool> {
        match (&self.under_way, &self.end) {
            (Some(_), Some(end)) => end.is_done(),
            _ => Ok(true),
        }
    }

    /// Waits for the copy, and gives the buffer back.
    ///
    /// # Errors
    /// [`Error::Driver`] if the copy, or something before it on the GPU, failed; [`Error::Kernel`] if a kernel has found a
    /// fault in its data, on whichever stream of the device. The buffer is then freed if nothing uses it, and lost
    /// otherwise.
    pub fn wait(mut self) -> Result<Pinned<T>> {
        if let Some(end) = self.end.take() {
            end.pass()?;
            if let Some((context, _)) = self.under_way.take().as_ref().and_then(Stream::cuda) {
                context.reported()?;
            }
        }
        Ok(self.buffer.take())
    }
}

impl<T: Element> Drop for Transfer<T> {
    fn drop(&mut self) {
        let Some(stream) = self.under_way.take() else { return };
        let passed = self.end.as_ref().is_some_and(|end| end.pass().is_ok());
        if !passed && !stream.inner.wait_on_host() {
            std::mem::forget(self.buffer.take());
        }
    }
}

impl<T: Element> fmt::Debug for Transfer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Transfer of {:?}", self.buffer)
    }
}

impl<T: Element, const RANK: usize> TensorView<'_, T, RANK> {
    /// Starts copying the elements into `buffer`, the last dimension running fastest, after whatever writes them. Does
    /// not wait; on the CPU it is done when the call returns. On an error the buffer is freed.
    ///
    /// # Errors
    /// [`Error::Length`], [`Error::Device`], [`Error::Capturing`], [`Error::Driver`].
    pub fn download(&self, stream: &Stream, mut buffer: Pinned<T>) -> Result<Transfer<T>> {
        length(self.len(), buffer.len())?;
        let place = &self.place;
        stream.device().expect(UNNAMED, place.device.number())?;
        let Some(mut turn) = stream.turn()? else {
            self.copy_to_slice(stream, &mut buffer)?;
            return Ok(Transfer::done(buffer));
        };
        if turn.capturing() {
            return Err(Error::Capturing { call: READ });
        }
        note(&mut turn, place, false)?;
        let to = buffer.as_mut_ptr().cast();
        // SAFETY: the view is borrowed to read; the buffer is as long, and goes to the transfer, which keeps it.
        let enqueued = unsafe { read_back(&turn, place, to, &shape::contiguous(&place.extents), size_of::<T>()) };
        turn.submit();
        Transfer::begin(stream, buffer, enqueued)
    }
}

impl<T: Element, const RANK: usize> TensorViewMut<'_, T, RANK> {
    /// Starts overwriting the elements with those of `buffer`, the last dimension running fastest. What is launched next,
    /// on any stream, sees them. Does not wait; on the CPU it is done when the call returns. On an error the buffer is
    /// freed.
    ///
    /// # Errors
    /// [`Error::Length`], [`Error::Device`], [`Error::Capturing`], [`Error::Driver`].
    pub fn upload(&mut self, stream: &Stream, buffer: Pinned<T>) -> Result<Transfer<T>> {
        length(self.len(), buffer.len())?;
        stream.device().expect(UNNAMED, self.place.device.number())?;
        let Some(mut turn) = stream.turn()? else {
            self.copy_from_slice(stream, &buffer)?;
            return Ok(Transfer::done(buffer));
        };
        let place = &self.place;
        if turn.capturing() {
            return Err(Error::Capturing { call: WRITE });
        }
        note(&mut turn, place, true)?;
        let from = buffer.as_ptr().cast();
        // SAFETY: the view is borrowed to write; the buffer is as long, and goes to the transfer, which keeps it.
        let enqueued = unsafe { write_from(&turn, place, from, &shape::contiguous(&place.extents), size_of::<T>()) };
        turn.submit();
        Transfer::begin(stream, buffer, enqueued)
    }
}

impl<T: Element, const RANK: usize> Tensor<T, RANK> {
    /// Starts copying the elements into `buffer`. See [`TensorView::download`].
    ///
    /// # Errors
    /// As there.
    pub fn download(&self, stream: &Stream, buffer: Pinned<T>) -> Result<Transfer<T>> {
        self.view().download(stream, buffer)
    }

    /// Starts overwriting the elements with those of `buffer`. See [`TensorViewMut::upload`].
    ///
    /// # Errors
    /// As there.
    pub fn upload(&mut self, stream: &Stream, buffer: Pinned<T>) -> Result<Transfer<T>> {
        self.view_mut().upload(stream, buffer)
    }
}
