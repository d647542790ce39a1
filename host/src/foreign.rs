//! Memory of other libraries, lent to kernels for the duration of a call.

use crate::device::Device;
use crate::driver;
use crate::error::{Error, Result, UNNAMED};
use crate::shape;
use crate::storage::Storage;
use crate::stream::Stream;
use crate::view::{Place, TensorView, TensorViewMut};
use std::any::Any;
use std::cell::RefCell;
use std::ffi::c_void;
use std::marker::PhantomData;
use std::sync::Arc;
use tilewright_core::element::Element;

/// Lends memory that somebody else owns to whatever runs in a closure.
///
/// The memory is used in the order of `home`, the stream on which its owner works with it: what is given to *any* stream
/// comes after `home`'s work so far, and when `scope` returns, `home` has been made to wait for all of it (with
/// [`Ending::OnHost`] it has been waited for). So the owner can go on with the memory on `home` as with its own. Views can
/// not leave the closure, and lent memory can not be recorded into a graph, which might be replayed later:
/// [`Error::Capturing`]. That holds for errors and panics in the closure, too.
///
/// ```
/// use tilewright_host::{Device, foreign};
///
/// let stream = Device::cpu().stream()?;
/// let mut memory = vec![1.0f32, 2.0, 3.0];
/// let (address, len) = (memory.as_mut_ptr(), memory.len());
/// foreign::scope(&stream, foreign::Ending::OnStream, |scope| {
///     // SAFETY: the vector is not touched until the scope has ended
///     let mut view = unsafe { scope.view_mut(address, len, [3], [1]) }?;
///     view.fill(scope.stream(), 7.0)
/// })?;
/// assert_eq!(memory, [7.0; 3]);
/// # Ok::<(), tilewright_host::Error>(())
/// ```
///
/// # Errors
/// Those of the closure; [`Error::Driver`].
pub fn scope<'env, R>(
    home: &'env Stream,
    ending: Ending,
    body: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> Result<R>,
) -> Result<R> {
    let scope = Scope { home, loans: RefCell::default(), scope: PhantomData };
    let open = Open { loans: &scope.loans, home, ending, ended: false };
    let result = body(&scope);
    let ended = open.end();
    let result = result?; // what went wrong first is what is told
    ended.map(|()| result)
}

/// How a [`scope`] ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The home stream waits for all that was given to streams.
    OnStream,
    /// So does the host: for owners whose use of the memory follows no stream's order.
    OnHost,
}

/// Boxed: views point to them.
type Loans = Vec<Box<Storage>>;

/// What memory can be lent to: see [`scope`].
pub struct Scope<'scope, 'env: 'scope> {
    home: &'env Stream,
    loans: RefCell<Loans>,
    /// Invariant, as those of [`std::thread::Scope`].
    scope: PhantomData<(&'scope mut &'scope (), &'env mut &'env ())>,
}

/// Ends a scope, also in a panic.
struct Open<'s> {
    loans: &'s RefCell<Loans>,
    home: &'s Stream,
    ending: Ending,
    ended: bool,
}

impl Open<'_> {
    fn end(mut self) -> Result<()> {
        self.settle()
    }

    fn settle(&mut self) -> Result<()> {
        self.ended = true;
        let mut result = Ok(());
        let mut note = |r: Result<()>| {
            if result.is_ok() {
                result = r;
            }
        };
        for loan in self.loans.borrow().iter() {
            note(loan.settle(&self.home.inner));
        }
        if self.ending == Ending::OnHost {
            note(self.home.finish());
        }
        result
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        if !self.ended {
            let _ = self.settle();
        }
    }
}

impl<'scope, 'env> Scope<'scope, 'env> {
    /// The home stream.
    #[must_use]
    pub fn stream(&self) -> &'env Stream {
        self.home
    }

    fn lend<T: Element, const R: usize>(
        &'scope self,
        memory: *mut T,
        len: usize,
        extents: [usize; R],
        strides: [usize; R],
    ) -> Result<Place<'scope, R>> {
        let device: Device = self.home.device();
        let place = Place::foreign(&device, memory, extents, strides)?;
        let found = shape::span(&extents, &strides, size_of::<T>()).unwrap_or(usize::MAX);
        if found > len {
            return Err(Error::Shape {
                arg: UNNAMED,
                expected: format!("a view within {len} elements"),
                found: format!("{} with strides {}", shape::show(&extents), shape::show(&strides)),
            });
        }
        // SAFETY: the caller's: the memory is there until the scope has ended.
        let loan = Box::new(unsafe { Storage::lent(device, memory.cast(), len * size_of::<T>()) });
        // What the owner did so far counts as a write on the home stream.
        if let Some(mut turn) = self.home.turn()? {
            turn.uses(&loan, true)?;
            turn.submit();
        }
        let storage: *const Storage = &raw const *loan;
        self.loans.borrow_mut().push(loan);
        // SAFETY: loans are kept, in boxes, until the scope ends; and 'scope ends before that.
        Ok(Place { storage: Some(unsafe { &*storage }), ..place })
    }

    /// A view of `len` elements of memory that somebody else owns. Strides count elements and may be anything, 0
    /// included.
    ///
    /// # Errors
    /// [`Error::Shape`] if the view reaches beyond the memory, or the size beyond the address space;
    /// [`Error::Alignment`] if the address does not suit `T`; [`Error::Capturing`] if the home stream records.
    ///
    /// # Safety
    /// The memory holds initialised elements and lies on the home stream's device (on the CPU: in this process). Until
    /// the scope has ended it is neither freed nor written, except by work that comes before, on the home stream.
    pub unsafe fn view<T: Element, const R: usize>(
        &'scope self,
        memory: *const T,
        len: usize,
        extents: [usize; R],
        strides: [usize; R],
    ) -> Result<TensorView<'scope, T, R>> {
        Ok(TensorView::at(self.lend(memory.cast_mut(), len, extents, strides)?))
    }

    /// A view to write of `len` elements of memory that somebody else owns.
    ///
    /// # Errors
    /// As [`view`](Self::view); [`Error::Stride`] unless it is plain from the strides that no two indices mean the same
    /// element.
    ///
    /// # Safety
    /// The memory holds initialised elements and lies on the home stream's device (on the CPU: in this process). Until
    /// the scope has ended it is not freed and nobody else uses it, except work that comes before, on the home stream.
    pub unsafe fn view_mut<T: Element, const R: usize>(
        &'scope self,
        memory: *mut T,
        len: usize,
        extents: [usize; R],
        strides: [usize; R],
    ) -> Result<TensorViewMut<'scope, T, R>> {
        shape::expect_injective(&extents, &strides)?;
        Ok(TensorViewMut::at(self.lend(memory, len, extents, strides)?))
    }
}

impl Stream {
    /// As [`from_raw`](Self::from_raw), for a stream that has an owner which can be shared: it is kept as long as anything
    /// here may still use the stream.
    ///
    /// # Errors
    /// As [`from_raw`](Self::from_raw).
    ///
    /// # Safety
    /// `raw` is a `CUstream` of the device's primary context, and is not destroyed while `owner` lives. The rest is as for
    /// [`from_raw`](Self::from_raw).
    pub unsafe fn from_owner(device: &Device, raw: *mut c_void, owner: Arc<dyn Any + Send + Sync>) -> Result<Stream> {
        // SAFETY: the caller's.
        unsafe { Stream::adopt(device, raw, Some(owner)) }
    }

    /// Waits until all work so far is done, whatever comes of it.
    pub(crate) fn finish(&self) -> Result<()> {
        let Some((context, raw)) = self.cuda() else { return Ok(()) };
        self.not_capturing("waiting for lent memory")?;
        context.bind()?;
        let submitted = self.inner.submitted();
        let drained = driver::drain(raw);
        if drained.done {
            self.inner.complete(submitted);
        }
        drained.result
    }
}
