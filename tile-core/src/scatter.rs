//! Outputs of which any block may write any row: which one is looked up in a list on the device.
//!
//! Row numbers are data. They may name a row twice, or one that does not exist; so rows are written by relaxed stores,
//! which may meet without being a data race, and only if they are there. Where two writers meet, every element is one of
//! theirs: which one's is not defined, and need not be the same for all elements of a row. Nothing can be read through
//! these views.

use core::marker::PhantomData;

use crate::backend;
use crate::element::Element;
use crate::fault::Fault;
use crate::layout::ByRows;
use crate::owned::Tickets;
use crate::roles::Cta;
use crate::tile::Fetched;
#[cfg(not(target_arch = "nvptx64"))]
use crate::view::Provenance;
use crate::view::{RawView, Tiles};

/// What travels for a [`ScatterRows`].
#[doc(hidden)]
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ScatterMeta {
    pub raw: RawView,
    pub tickets: u32,
    pub reserved: u32,
}

/// A writable stack of pages of rows of `N` columns, written row by row through a list of row numbers: row `n` is row
/// `n % rows` of page `n / rows`. The launch shares out the work as numbered tickets, of which block `b` of `n` has
/// `b, b + n, ...`.
///
/// ```
/// # extern crate tilewright_core as tilewright;
/// use tilewright_core::prelude::*;
/// tilewright::images!(none);
///
/// /// Row `k` of `x` goes to row `rows[k]` of `y`; a negative number leaves it out.
/// #[kernel(grid = persistent, faults(BAD_ROW = "the list names a row that does not exist"))]
/// fn scatter(mut cta: Cta<128>, y: ScatterRows<f32, 64>, x: Tiles<f32, 8, 64>, rows: Tiles<i64, 1, 1>) {
///     for ticket in y.tickets() {
///         let x = cta.fetch(x.tile(ticket, 0));
///         y.put(&mut cta, rows, ticket * 8, &x, BAD_ROW);
///     }
/// }
/// # fn main() {}
/// ```
pub struct ScatterRows<'a, T, const N: usize> {
    base: *mut T,
    meta: ScatterMeta,
    #[cfg(not(target_arch = "nvptx64"))]
    pub(crate) provenance: Provenance<'a>,
    #[cfg(not(target_arch = "nvptx64"))]
    place: backend::Place,
    _p: PhantomData<&'a mut T>,
}
// SAFETY: as `&mut [T]`.
unsafe impl<T: Element, const N: usize> Send for ScatterRows<'_, T, N> {}

#[cfg(not(target_arch = "nvptx64"))]
impl<'a, T: Element, const N: usize> ScatterRows<'a, T, N> {
    /// # Safety
    /// As for [`TilesMut::from_raw`](crate::view::TilesMut::from_raw); rows have `N` columns.
    #[doc(hidden)]
    pub unsafe fn from_raw(base: *mut T, raw: RawView, tickets: u32, provenance: Provenance<'a>) -> Self {
        let meta = ScatterMeta { raw, tickets, reserved: 0 };
        ScatterRows { base, meta, provenance, place: backend::Place::NOWHERE, _p: PhantomData }
    }
    pub(crate) fn base_and_meta(&self) -> (u64, ScatterMeta) {
        (self.base as u64, self.meta)
    }
    /// # Safety
    /// At most once for each worker of a launch.
    pub(crate) unsafe fn at(&self, place: backend::Place) -> Self {
        self.place.must_be_nowhere();
        ScatterRows { place, _p: PhantomData, ..*self }
    }
}

#[cfg(target_arch = "nvptx64")]
impl<T: Element, const N: usize> ScatterRows<'_, T, N> {
    /// # Safety
    /// The launcher passed `base` and `meta` for a view of this type; once a block.
    #[inline(always)]
    pub(crate) unsafe fn receive(base: *mut u8, meta: ScatterMeta) -> Self {
        ScatterRows { base: base as *mut T, meta, _p: PhantomData }
    }
}

impl<T: Element, const N: usize> ScatterRows<'_, T, N> {
    /// The running block's tickets, in order.
    #[inline(always)]
    pub fn tickets(&self) -> Tickets {
        Tickets::new(
            self.meta.tickets,
            #[cfg(not(target_arch = "nvptx64"))]
            (self.place.worker, self.place.workers),
        )
    }

    /// Writes row `r` of a tile, all `N` columns of it (zeros where the tile has none), to row `list[first + r]`. Where the
    /// list has ended, or the number is negative, the row is left out; where there is no row of that number, too, and `fault`
    /// is reported.
    #[inline(always)]
    pub fn put<const M: usize, const THREADS: usize>(
        &self,
        cta: &mut Cta<THREADS>,
        list: Tiles<'_, i64, 1, 1>,
        first: u32,
        elements: &Fetched<T, M, N, ByRows<THREADS, T::Chunk>>,
        fault: Fault,
    ) {
        let faults = cta.faults;
        let raw = self.meta.raw;
        let aligned = (self.base as u64 | ((raw.row_stride | raw.slab_stride) * size_of::<T>() as u64)) % 16 == 0;
        // SAFETY: a place is a row of this view, of `N` elements, which nobody reads during the launch, and which
        // is written by relaxed stores alone, all of them of the same width.
        unsafe {
            backend::scatter_words::<T, ByRows<THREADS, T::Chunk>, M, N>(
                &elements.words,
                elements.rows,
                aligned,
                #[inline(always)]
                |row: u32| -> Option<*mut T> {
                    let number = list.index(first as u64 + row as u64)?;
                    if number < 0 {
                        return None;
                    }
                    let (number, rows) = (number as u64, raw.rows as u64);
                    let page = number.checked_div(rows).unwrap_or(u64::MAX);
                    if page >= raw.slabs as u64 {
                        faults.report(fault.code());
                        return None;
                    }
                    let at = page * raw.slab_stride + (number - page * rows) * raw.row_stride;
                    Some(self.base.wrapping_add(at as usize))
                },
            )
        }
    }
}
