//! Copies between devices.

use crate::copy::{READ, Rows, WRITE, finish, note, pieces, read_back, write_from};
use crate::driver::{Context, check, sys};
use crate::error::{Error, Result, UNNAMED};
use crate::shape;
use crate::stream::Stream;
use crate::tensor::Tensor;
use crate::view::{TensorView, TensorViewMut};
use tilewright_core::element::Element;

const ACROSS: &str = "copying between devices";

impl<T: Element, const RANK: usize> TensorViewMut<'_, T, RANK> {
    /// Overwrites the elements with those of a view of the same extents on any device.
    ///
    /// `stream` belongs to this view's device; if that is the CPU, to the source's. Between GPUs, and on one device, the
    /// copy is enqueued: it comes after whatever writes the source or uses this memory on either GPU, and the call does
    /// not wait. GPUs that can not reach each other's memory are no concern: the driver then copies by way of the host.
    /// A view with gaps is copied row by row. Between the host and a GPU the call waits, as
    /// [`copy_from_slice`](Self::copy_from_slice) does.
    ///
    /// ```
    /// use tilewright_host::{Device, Tensor};
    ///
    /// let (host, device) = (Device::cpu().stream()?, Device::best().stream()?);
    /// let x = Tensor::<f32, 1>::from_slice(&host, [3], &[1.0, 2.0, 3.0])?;
    /// let mut y = Tensor::<f32, 1>::zeros(&device, [3])?;
    /// y.copy_from_peer(&device, x.view())?;
    /// assert_eq!(y.to_vec(&device)?, [1.0, 2.0, 3.0]);
    /// # Ok::<(), tilewright_host::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Shape`]; [`Error::Device`] if the stream is another device's; [`Error::Capturing`] if the devices differ
    /// and the stream is captured; [`Error::Driver`].
    pub fn copy_from_peer(&mut self, stream: &Stream, source: TensorView<'_, T, RANK>) -> Result<()> {
        let (to, from, size) = (&self.place, &source.place, size_of::<T>());
        if to.device == from.device {
            return self.copy_from(stream, source);
        }
        if to.extents != from.extents {
            let (expected, found) = (shape::show(&to.extents), shape::show(&from.extents));
            return Err(Error::Shape { arg: "source", expected, found });
        }
        match (from.device.cuda, to.device.cuda) {
            (Some(here), Some(there)) => {
                stream.device().expect(UNNAMED, to.device.number())?;
                here.bind()?; // so that it has a context
                let Some((_order, mut turn)) = stream.turn_with(here)? else { return Ok(()) };
                if turn.capturing() {
                    return Err(Error::Capturing { call: ACROSS });
                }
                note(&mut turn, from, false)?;
                note(&mut turn, to, true)?;
                let done = pieces(&to.extents, &from.strides, &to.strides, size, &mut |r| {
                    // SAFETY: one view is borrowed to read, the other to write; both uses are noted, so the memory stays
                    // until the stream is done.
                    unsafe { copy_peer(turn.raw, (here, from.base as u64), (there, to.base as u64), r) }
                });
                turn.submit();
                done
            }
            (None, _) => {
                stream.device().expect(UNNAMED, to.device.number())?;
                Stream::beside_graphs(|| {
                    let Some(mut turn) = stream.turn()? else { return Ok(()) };
                    if turn.capturing() {
                        return Err(Error::Capturing { call: WRITE });
                    }
                    note(&mut turn, to, true)?;
                    // SAFETY: the source is borrowed to read, this to write; waited for below.
                    let done = unsafe { write_from(&turn, to, from.base, &from.strides, size) };
                    let finished = finish(turn);
                    done.and(finished)
                })
            }
            (_, None) => {
                stream.device().expect("source", from.device.number())?;
                Stream::beside_graphs(|| {
                    let Some(mut turn) = stream.turn()? else { return Ok(()) };
                    if turn.capturing() {
                        return Err(Error::Capturing { call: READ });
                    }
                    note(&mut turn, from, false)?;
                    // SAFETY: the source is borrowed to read, this to write; waited for below.
                    let done = unsafe { read_back(&turn, from, to.base, &to.strides, size) };
                    let finished = finish(turn);
                    done.and(finished)
                })
            }
        }
    }
}

impl<T: Element, const RANK: usize> Tensor<T, RANK> {
    /// Overwrites the elements with those of a view of the same extents on any device. See
    /// [`TensorViewMut::copy_from_peer`].
    ///
    /// # Errors
    /// As there.
    pub fn copy_from_peer(&mut self, stream: &Stream, source: TensorView<'_, T, RANK>) -> Result<()> {
        self.view_mut().copy_from_peer(stream, source)
    }
}

/// Enqueues the copy of one piece from one GPU to another.
///
/// # Safety
/// Both ends are memory of the piece's extents, each of its GPU; the stream is the target's.
unsafe fn copy_peer(stream: sys::CUstream, from: (&Context, u64), to: (&Context, u64), r: Rows) -> Result<()> {
    let [source, target] = [from, to].map(|(context, _)| context.raw().unwrap_or(std::ptr::null_mut()));
    r.each_row(|[a, b], width| {
        // SAFETY: the caller's; both contexts were made current, so they are there.
        let code = unsafe { sys::cuMemcpyPeerAsync(to.1 + b as u64, target, from.1 + a as u64, source, width, stream) };
        check("cuMemcpyPeerAsync", code)
    })
}
