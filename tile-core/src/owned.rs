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
use crate::schedule::{Linear, Plan};
#[cfg(not(target_arch = "nvptx64"))]
use crate::view::{Provenance, Tiles};
use crate::view::{RawView, TilesMut};

/// What travels for an [`OwnedTiles`].
#[doc(hidden)]
#[derive(Clone, Copy)]
#[repr(C)]
pub struct OwnedMeta {
    pub raw: RawView,
    /// Address of the table; 0: there is none.
    pub owners: u64,
    /// Entries of the table.
    pub entries: u32,
    pub group: u32,
    pub tickets: u32,
    pub reserved: u32,
}

/// A writable view cut into tiles of `M` x `N`, whose tiles belong to tickets; a block has the tickets `b, b + n, ...`.
///
/// Made on the host: with [`TilesMut::owned_by`] a table on the device says to which ticket a tile belongs, with
/// [`TilesMut::in_runs`] every ticket has the same number of them.
pub struct OwnedTiles<'a, T, const M: usize, const N: usize> {
    pub(crate) base: *mut T,
    raw: RawView,
    owners: u64,
    entries: u32,
    group: u32,
    pub(crate) tickets: u32,
    #[cfg(not(target_arch = "nvptx64"))]
    pub(crate) provenance: Provenance<'a>,
    #[cfg(not(target_arch = "nvptx64"))]
    pub(crate) owners_provenance: Option<Provenance<'a>>,
    #[cfg(not(target_arch = "nvptx64"))]
    place: backend::Place,
    _p: PhantomData<&'a mut T>,
}
// SAFETY: as `&mut [T]`.
unsafe impl<T: Element, const M: usize, const N: usize> Send for OwnedTiles<'_, T, M, N> {}

#[cfg(not(target_arch = "nvptx64"))]
impl<'a, T: Element, const M: usize, const N: usize> TilesMut<'a, T, M, N> {
    /// The same claim, shared out by a table on the device: tile `i` (of a view that is one tile wide) belongs to ticket
    /// `owners[i / group] * group + i % group`, of `tickets`. An entry that gives no ticket leaves its tiles to nobody.
    pub fn owned_by(self, owners: Tiles<'a, u32, 1, 1>, group: u32, tickets: u32) -> OwnedTiles<'a, T, M, N> {
        self.place.must_be_nowhere();
        let entries = if owners.raw.cols == 1 && owners.raw.row_stride == 1 && owners.raw.slabs == 1 {
            owners.raw.rows
        } else if owners.raw.rows == 1 {
            owners.raw.cols
        } else {
            0
        };
        OwnedTiles {
            base: self.base,
            raw: self.raw,
            owners: owners.base as u64,
            entries,
            group,
            tickets,
            provenance: self.provenance,
            owners_provenance: Some(owners.provenance),
            place: self.place,
            _p: PhantomData,
        }
    }
    /// The same claim: tile `i` belongs to ticket `i / run`, of `tickets`.
    pub fn in_runs(self, run: u32, tickets: u32) -> OwnedTiles<'a, T, M, N> {
        self.place.must_be_nowhere();
        OwnedTiles {
            base: self.base,
            raw: self.raw,
            owners: 0,
            entries: 0,
            group: run,
            tickets,
            provenance: self.provenance,
            owners_provenance: None,
            place: self.place,
            _p: PhantomData,
        }
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl<T: Element, const M: usize, const N: usize> OwnedTiles<'_, T, M, N> {
    pub(crate) fn meta(&self) -> OwnedMeta {
        let OwnedTiles { raw, owners, entries, group, tickets, .. } = *self;
        OwnedMeta { raw, owners, entries, group, tickets, reserved: 0 }
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
        let OwnedMeta { raw, owners, entries, group, tickets, .. } = meta;
        OwnedTiles { base: base as *mut T, raw, owners, entries, group, tickets, _p: PhantomData }
    }
}

impl<'a, T: Element, const M: usize, const N: usize> OwnedTiles<'a, T, M, N> {
    #[inline(always)]
    fn plan(&self) -> Plan<Linear> {
        #[cfg(target_arch = "nvptx64")]
        let (index, workers) = backend::worker();
        #[cfg(not(target_arch = "nvptx64"))]
        let (index, workers) = (self.place.worker, self.place.workers);
        Plan::new(Linear, self.tickets, 1, index, workers)
    }
    #[inline(always)]
    fn again(&self) -> Self {
        OwnedTiles { _p: PhantomData, ..*self }
    }
    #[inline(always)]
    fn part<const W: usize>(&self, first: usize) -> OwnedPart<'a, T, M, N, W> {
        OwnedPart { tiles: self.again(), plan: self.plan(), first: first as u32 }
    }
    /// Left and right halves of every tile, each a claim of its own.
    #[inline(always)]
    pub fn halves<const W: usize>(self) -> (OwnedPart<'a, T, M, N, W>, OwnedPart<'a, T, M, N, W>) {
        const { assert!(2 * W == N, "a half is half as wide as its tile") };
        (self.part(0), self.part(W))
    }
    /// All columns of every tile.
    #[inline(always)]
    pub fn whole(self) -> OwnedPart<'a, T, M, N, N> {
        self.part(0)
    }
}

/// `W` columns of an [`OwnedTiles`]: yields the tickets of the running block, in order, with the claims that go with each.
pub struct OwnedPart<'a, T, const M: usize, const N: usize, const W: usize> {
    tiles: OwnedTiles<'a, T, M, N>,
    plan: Plan<Linear>,
    first: u32,
}
// SAFETY: as the whole.
unsafe impl<T: Element, const M: usize, const N: usize, const W: usize> Send for OwnedPart<'_, T, M, N, W> {}

impl<'a, T: Element, const M: usize, const N: usize, const W: usize> Iterator for OwnedPart<'a, T, M, N, W> {
    type Item = (u32, Claims<'a, T, M, N, W>);
    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        let (ticket, _) = self.plan.next()?;
        Some((ticket, Claims { tiles: self.tiles.again(), ticket, first: self.first, from: 0, _p: PhantomData }))
    }
}

/// What belongs to one ticket. Tiles are claimed in ascending order, so that none is had twice.
pub struct Claims<'a, T, const M: usize, const N: usize, const W: usize> {
    tiles: OwnedTiles<'a, T, M, N>,
    ticket: u32,
    first: u32,
    /// Tiles before this one are not to be had any more.
    from: u32,
    _p: backend::NotShared,
}

impl<'a, T: Element, const N: usize, const W: usize> Claims<'a, T, 64, N, W> {
    /// Tile `i`, if it belongs to this ticket, and neither it nor a later one was claimed before.
    #[inline(always)]
    pub fn claim(&mut self, i: u32) -> Option<HalfMut<'a, T, N, W, Linear>> {
        let t = &self.tiles;
        if i < self.from || i == u32::MAX {
            return None;
        }
        let quotient = i.checked_div(t.group)?;
        let owner = if t.owners == 0 {
            quotient as u64
        } else {
            if quotient >= t.entries {
                return None;
            }
            // SAFETY: inside the table, which nobody writes during the launch.
            let owner = unsafe { backend::read_u32(t.owners, quotient) };
            owner as u64 * t.group as u64 + (i - quotient * t.group) as u64
        };
        if owner != self.ticket as u64 {
            return None;
        }
        self.from = i + 1;
        let tiles = TilesMut {
            base: t.base,
            raw: t.raw,
            schedule: Linear,
            #[cfg(not(target_arch = "nvptx64"))]
            provenance: t.provenance,
            #[cfg(not(target_arch = "nvptx64"))]
            place: t.place,
            _p: PhantomData,
        };
        Some(HalfMut::new(tiles, (i, 0), self.first))
    }
}
