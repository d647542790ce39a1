//! Outputs shared out by a table on the device: which block may write a tile is looked up, and never follows from what a
//! block believes.
//!
//! A scheduler that runs on the device decides which block works on which part of the output. Its table is data: it may
//! hold anything, and name a tile twice. So a tile does not go to whoever was told to write it, but to the one ticket that
//! the table's entry for this tile names. All blocks read the same entry, which nobody writes during the launch; so at
//! most one of them gets the tile, whatever the entry says.

use core::marker::PhantomData;

use crate::backend;
use crate::element::Element;
use crate::output::HalfMut;
use crate::roles::Cta;
use crate::schedule::Linear;
#[cfg(not(target_arch = "nvptx64"))]
use crate::view::{Provenance, Tiles};
use crate::view::{RawView, TileMut, TilesMut, Window};

/// What travels for an [`OwnedTiles`].
#[doc(hidden)]
#[derive(Clone, Copy)]
#[repr(C)]
pub struct OwnedMeta {
    pub raw: RawView,
    pub rows: RawView,
    /// Addresses of the view of rows, and of the table; without a table 0.
    pub rows_base: u64,
    pub owners: u64,
    /// Entries of the table.
    pub entries: u32,
    pub group: u32,
    pub tickets: u32,
    pub reserved: u32,
}

/// A writable view cut into tiles of `M` x `N`, with a second one of a value for each row. Their tiles belong to tickets; a
/// block of `n` has the tickets `b, b + n, ...`; the blocks of a cluster follow each other.
///
/// Made on the host: with [`TilesMut::owned_by`] a table on the device says to which ticket a tile belongs, with
/// [`TilesMut::in_runs`] every ticket has the same number of them.
pub struct OwnedTiles<'a, T, const M: usize, const N: usize> {
    pub(crate) base: *mut T,
    meta: OwnedMeta,
    #[cfg(not(target_arch = "nvptx64"))]
    pub(crate) provenance: [Option<Provenance<'a>>; 3],
    #[cfg(not(target_arch = "nvptx64"))]
    place: backend::Place,
    _p: PhantomData<&'a mut T>,
}
// SAFETY: as `&mut [T]`.
unsafe impl<T: Element, const M: usize, const N: usize> Send for OwnedTiles<'_, T, M, N> {}

#[cfg(not(target_arch = "nvptx64"))]
impl<'a, T: Element, const M: usize, const N: usize> TilesMut<'a, T, M, N> {
    /// The same claim and that on `rows`, shared out by a table on the device: tile `i` (of views that are one tile wide)
    /// belongs to ticket `owners[i / group] * group + i % group`, of `tickets`. An entry that gives no ticket leaves its
    /// tiles to nobody.
    pub fn owned_by(
        self,
        rows: TilesMut<'a, f32, M, 1>,
        owners: Tiles<'a, u32, 1, 1>,
        group: u32,
        tickets: u32,
    ) -> OwnedTiles<'a, T, M, N> {
        let raw = owners.raw;
        let adjacent = raw.slabs == 1 && raw.cols == 1 && (raw.row_stride == 1 || raw.rows <= 1);
        let entries = if adjacent { raw.rows } else { 0 };
        self.owned(rows, Some((owners.base as u64, entries, owners.provenance)), group, tickets)
    }
    /// The same claim and that on `rows`: tile `i` belongs to ticket `i / run`, of `tickets`.
    pub fn in_runs(self, rows: TilesMut<'a, f32, M, 1>, run: u32, tickets: u32) -> OwnedTiles<'a, T, M, N> {
        self.owned(rows, None, run, tickets)
    }
    fn owned(
        self,
        rows: TilesMut<'a, f32, M, 1>,
        owners: Option<(u64, u32, Provenance<'a>)>,
        group: u32,
        tickets: u32,
    ) -> OwnedTiles<'a, T, M, N> {
        self.place.must_be_nowhere();
        rows.place.must_be_nowhere();
        let (owners, entries, provenance) = match owners {
            Some((base, entries, provenance)) => (base, entries, Some(provenance)),
            None => (0, 0, None),
        };
        let rows_base = rows.base as u64;
        OwnedTiles {
            base: self.base,
            meta: OwnedMeta { raw: self.raw, rows: rows.raw, rows_base, owners, entries, group, tickets, reserved: 0 },
            provenance: [Some(self.provenance), Some(rows.provenance), provenance],
            place: self.place,
            _p: PhantomData,
        }
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl<T: Element, const M: usize, const N: usize> OwnedTiles<'_, T, M, N> {
    pub(crate) fn meta(&self) -> OwnedMeta {
        self.meta
    }
    /// # Safety
    /// At most once for each worker of a launch.
    pub(crate) unsafe fn at(&self, place: backend::Place) -> Self {
        self.place.must_be_nowhere();
        OwnedTiles { place, _p: PhantomData, ..*self }
    }
}

#[cfg(target_arch = "nvptx64")]
impl<T: Element, const M: usize, const N: usize> OwnedTiles<'_, T, M, N> {
    /// # Safety
    /// The launcher passed `base` and `meta` for a view of this type; once a block.
    #[inline(always)]
    pub(crate) unsafe fn receive(base: *mut u8, meta: OwnedMeta) -> Self {
        OwnedTiles { base: base as *mut T, meta, _p: PhantomData }
    }
}

impl<'a, T: Element, const M: usize, const N: usize> OwnedTiles<'a, T, M, N> {
    #[inline(always)]
    fn block(&self) -> (u32, u32) {
        #[cfg(target_arch = "nvptx64")]
        return backend::block_here();
        #[cfg(not(target_arch = "nvptx64"))]
        self.place.block()
    }
    /// The running block's tickets, in order. They give no right to write.
    #[inline(always)]
    pub fn tickets(&self) -> Tickets {
        Tickets {
            end: self.meta.tickets,
            #[cfg(not(target_arch = "nvptx64"))]
            worker: self.block(),
        }
    }
    /// Rows of the view (of one slab).
    #[inline(always)]
    pub fn rows(&self) -> u32 {
        self.meta.raw.rows
    }
    #[inline(always)]
    fn part<const W: usize, const ROWS: bool>(&self, first: usize) -> OwnedPart<'a, T, M, N, W, ROWS> {
        let tiles = OwnedTiles { _p: PhantomData, ..*self };
        OwnedPart { tiles, first: first as u32 }
    }
    /// Whether tile `i` belongs to `ticket` and that to the running block.
    #[inline(always)]
    fn owns(&self, ticket: u32, i: u32) -> bool {
        let m = &self.meta;
        let (worker, workers) = self.block();
        if ticket.checked_rem(workers) != Some(worker) {
            return false;
        }
        let Some(quotient) = i.checked_div(m.group) else {
            return false;
        };
        let owner = if m.owners == 0 {
            quotient as u64
        } else if quotient < m.entries {
            // SAFETY: inside the table, which nobody writes during the launch.
            let owner = unsafe { backend::read_u32(m.owners, quotient) };
            owner as u64 * m.group as u64 + (i - quotient * m.group) as u64
        } else {
            return false;
        };
        owner == ticket as u64
    }
    /// The running block's tickets, in order, each with the right to one tile.
    #[inline(always)]
    pub fn claims(self) -> Claims<'a, T, M, N> {
        let tickets = self.tickets().into_iter();
        Claims { tiles: self, tickets }
    }
    /// Left and right halves of every tile, each a claim of its own. The values of the rows go with the left one.
    #[inline(always)]
    pub fn halves<const W: usize>(self) -> (OwnedPart<'a, T, M, N, W, true>, OwnedPart<'a, T, M, N, W>) {
        const { assert!(2 * W == N, "a half is half as wide as its tile") };
        (self.part(0), self.part(W))
    }
}

/// A tile of an [`OwnedTiles`] with the values of its rows: a block's, to be written by one that has a single role.
pub struct OwnedTile<'a, T, const M: usize, const N: usize> {
    pub(crate) window: Window<T>,
    pub(crate) rows: Window<f32>,
    _p: PhantomData<(&'a mut T, backend::NotShared)>,
}

impl<'a, T: Element, const M: usize, const N: usize> OwnedTiles<'a, T, M, N> {
    /// Tile `i`, if it belongs to `ticket` and that to the running block.
    ///
    /// It may be claimed again. That is no second writer: it is the same block's, every element of a tile is only ever
    /// written, and by the same thread, so that the last store counts.
    #[inline(always)]
    pub fn claim<const THREADS: usize>(
        &mut self,
        _cta: &mut Cta<THREADS>,
        ticket: u32,
        i: u32,
    ) -> Option<OwnedTile<'a, T, M, N>> {
        if !self.owns(ticket, i) {
            return None;
        }
        let rows: TilesMut<'a, f32, M, 1> = linear(backend::global(self.meta.rows_base), self.meta.rows);
        let tiles: TilesMut<'a, T, M, N> = linear(self.base, self.meta.raw);
        // SAFETY: the tile is the running block's alone; see above.
        let (window, rows) = unsafe { (tiles.window(i, 0), rows.window(i, 0)) };
        Some(OwnedTile { window, rows, _p: PhantomData })
    }
}

/// The tickets of one block, in order: what `for` runs over, in every role.
#[derive(Clone, Copy, Debug)]
pub struct Tickets {
    end: u32,
    #[cfg(not(target_arch = "nvptx64"))]
    worker: (u32, u32),
}

impl Tickets {
    /// Those of a block, of `end` in all.
    #[inline(always)]
    pub(crate) fn new(end: u32, #[cfg(not(target_arch = "nvptx64"))] worker: (u32, u32)) -> Self {
        Tickets {
            end,
            #[cfg(not(target_arch = "nvptx64"))]
            worker,
        }
    }
}

impl IntoIterator for Tickets {
    type Item = u32;
    type IntoIter = TicketsIter;
    #[inline(always)]
    fn into_iter(self) -> TicketsIter {
        // asked for here, and for each step, rather than kept in registers
        #[cfg(target_arch = "nvptx64")]
        let worker = backend::block_here();
        #[cfg(not(target_arch = "nvptx64"))]
        let worker = self.worker;
        TicketsIter { next: worker.0, tickets: self }
    }
}

/// See [`Tickets`].
#[derive(Clone, Copy, Debug)]
pub struct TicketsIter {
    next: u32,
    tickets: Tickets,
}

impl Iterator for TicketsIter {
    type Item = u32;
    #[inline(always)]
    fn next(&mut self) -> Option<u32> {
        let ticket = self.next;
        if ticket >= self.tickets.end {
            return None;
        }
        #[cfg(target_arch = "nvptx64")]
        let worker = backend::block_here();
        #[cfg(not(target_arch = "nvptx64"))]
        let worker = self.tickets.worker;
        self.next = ticket.saturating_add(worker.1);
        Some(ticket)
    }
}

/// See [`OwnedTiles::claims`].
pub struct Claims<'a, T, const M: usize, const N: usize> {
    tiles: OwnedTiles<'a, T, M, N>,
    tickets: TicketsIter,
}

impl<'a, T: Element, const M: usize, const N: usize> Iterator for Claims<'a, T, M, N> {
    type Item = Claim<'a, T, M, N>;
    #[inline(always)]
    fn next(&mut self) -> Option<Claim<'a, T, M, N>> {
        let ticket = self.tickets.next()?;
        Some(Claim { tiles: OwnedTiles { _p: PhantomData, ..self.tiles }, ticket })
    }
}

/// One ticket of the running block. There is one of each, and it is used up by the tile that it gets: since a tile has one
/// owner, nobody gets it twice.
///
/// ```compile_fail,E0382
/// use tilewright_core::prelude::*;
/// fn takes_two_tiles(cta: Cta<128>, out: OwnedTiles<f32, 1, 512>) {
///     for claim in out.claims() {
///         let (first, second) = (claim.tile(0), claim.tile(1));
///     }
/// }
/// ```
pub struct Claim<'a, T, const M: usize, const N: usize> {
    tiles: OwnedTiles<'a, T, M, N>,
    ticket: u32,
}

impl<'a, T: Element, const M: usize, const N: usize> Claim<'a, T, M, N> {
    /// The ticket's number.
    #[inline(always)]
    pub fn ticket(&self) -> u32 {
        self.ticket
    }
    /// Tile `i` and the values of its rows, if they are this ticket's.
    #[inline(always)]
    pub fn tile(self, i: u32) -> Option<(TileMut<'a, T, M, N>, TileMut<'a, f32, M, 1>)> {
        if !self.tiles.owns(self.ticket, i) {
            return None;
        }
        let (m, base) = (self.tiles.meta, self.tiles.base);
        let rows = linear::<f32, M, 1>(backend::global(m.rows_base), m.rows);
        // SAFETY: the tile is this ticket's, which ends here.
        Some(unsafe { (TileMut::new(linear::<T, M, N>(base, m.raw).window(i, 0)), TileMut::new(rows.window(i, 0))) })
    }
}

/// `W` columns of an [`OwnedTiles`], with the values of the rows if `ROWS`: one warpgroup's.
///
/// A tile may be claimed again. That is no second writer: it is the same warpgroup's, every element of a tile is only ever
/// written, and by the same thread, so that the last store counts.
pub struct OwnedPart<'a, T, const M: usize, const N: usize, const W: usize, const ROWS: bool = false> {
    tiles: OwnedTiles<'a, T, M, N>,
    first: u32,
}
// SAFETY: as the whole.
unsafe impl<T: Element, const M: usize, const N: usize, const W: usize, const ROWS: bool> Send
    for OwnedPart<'_, T, M, N, W, ROWS>
{
}

impl<'a, T: Element, const N: usize, const W: usize, const ROWS: bool> OwnedPart<'a, T, 64, N, W, ROWS> {
    #[inline(always)]
    fn tile(&self, i: u32) -> HalfMut<'a, T, N, W, Linear> {
        HalfMut::new(linear(self.tiles.base, self.tiles.meta.raw), (i, 0), self.first)
    }
}

impl<'a, T: Element, const N: usize, const W: usize> OwnedPart<'a, T, 64, N, W> {
    /// Tile `i`, if it belongs to `ticket` and that to the running block.
    #[inline(always)]
    pub fn claim(&mut self, ticket: u32, i: u32) -> Option<HalfMut<'a, T, N, W, Linear>> {
        if self.tiles.owns(ticket, i) { Some(self.tile(i)) } else { None }
    }
}

impl<'a, T: Element, const N: usize, const W: usize> OwnedPart<'a, T, 64, N, W, true> {
    /// As [`claim`](OwnedPart::claim) of the other half, with the values of the rows.
    #[inline(always)]
    pub fn claim_with_rows(
        &mut self,
        ticket: u32,
        i: u32,
    ) -> Option<(HalfMut<'a, T, N, W, Linear>, HalfMut<'a, f32, 1, 1, Linear>)> {
        if !self.tiles.owns(ticket, i) {
            return None;
        }
        let m = &self.tiles.meta;
        Some((self.tile(i), HalfMut::new(linear(backend::global(m.rows_base), m.rows), (i, 0), 0)))
    }
}

/// A view that is used for one tile of it alone, which is nobody else's.
#[inline(always)]
fn linear<'a, T, const M: usize, const N: usize>(base: *mut T, raw: RawView) -> TilesMut<'a, T, M, N> {
    TilesMut {
        base,
        raw,
        schedule: Linear,
        #[cfg(not(target_arch = "nvptx64"))]
        provenance: Provenance::UNTRACKED_CPU,
        #[cfg(not(target_arch = "nvptx64"))]
        place: backend::Place::NOWHERE,
        _p: PhantomData,
    }
}
