//! Hand-over between warpgroups: of a pipeline's consuming end ([`Baton`]), and of what a warpgroup has computed or
//! fetched ([`GroupProducer`], [`Link`]).
//!
//! Two warpgroups that share one ring in turns pass its only consuming end to and fro. The end is a value: who has given
//! it away has it no more. Two warpgroups that work on each other's results write them into slots of pipelines between
//! them, which are filled by one and read by the other, or by both.

use core::marker::PhantomData;

use crate::backend::{self, Barrier, Smem};
use crate::element::Element;
use crate::pipeline::{Consumer, Lent, Pipeline, Ring, advance};
use crate::roles::{BlockScope, WarpGroup, Within};
use crate::shared::{Load, Shared, SharedTile, Stage, Store};

/// Shared memory for the hand-over of a pipeline's consuming end between two warpgroups: a `#[shared]` parameter. See
/// [`Cta::ping_pong`](crate::roles::Cta::ping_pong).
pub struct Turns<'b> {
    pub(crate) at: TurnsAt,
    _p: Within<'b>,
}

/// Where the hand-over's words are.
pub(crate) struct TurnsAt {
    base: Smem,
}
// SAFETY: an address, reached through `Baton`s.
unsafe impl Sync for TurnsAt {}
// SAFETY: as above.
unsafe impl Send for TurnsAt {}

// SAFETY: the ring's state in 8 bytes, and a barrier for each warpgroup.
unsafe impl<'b> Shared<'b> for Turns<'b> {
    const BYTES: usize = 0;
    const TAIL: usize = 24;
    #[inline(always)]
    unsafe fn claim(_: &'b BlockScope, _: Smem, tail: Smem) -> Self {
        Turns { at: TurnsAt { base: tail }, _p: PhantomData }
    }
}

impl TurnsAt {
    #[inline(always)]
    fn turn(&self, index: u32) -> Barrier {
        Barrier(self.base.add(8 + 8 * index as usize))
    }
    /// # Safety
    /// By one thread, before any baton exists.
    #[inline(always)]
    pub(crate) unsafe fn init(&self) {
        // SAFETY: the caller's.
        unsafe {
            self.base.store_u32(0);
            self.base.add(4).store_u32(0);
            self.turn(0).init(1);
            self.turn(1).init(1);
        }
    }
    /// The baton of warpgroup `index`: the first has the first turn.
    #[inline(always)]
    pub(crate) fn baton<'p, S: Stage, const STAGES: usize>(
        &'p self,
        ring: &'p Ring<S, STAGES>,
        index: u32,
    ) -> Baton<'p, S, STAGES> {
        Baton { turns: self, ring, phase: index.wrapping_sub(1), _p: PhantomData }
    }
}

/// One of two warpgroups' claim on the consuming end of a ring that they use in turns.
///
/// There is one such end in the block. [`take`](Baton::take) waits for it, [`give`](Baton::give) passes it on; leaked or
/// dropped, it is never passed on and the other warpgroup waits for ever.
///
/// ```compile_fail,E0382
/// use tilewright_core::{prelude::*, shared::Stage};
/// fn keeps_what_it_gave<S: Stage>(wg: &mut WarpGroup, baton: &mut Baton<'_, S, 4>) {
///     let mut ring = baton.take(wg);
///     baton.give(wg, ring);
///     ring.next();
/// }
/// ```
pub struct Baton<'p, S: Stage, const STAGES: usize> {
    turns: &'p TurnsAt,
    ring: &'p Ring<S, STAGES>,
    /// The phase of this warpgroup's turn to wait for.
    phase: u32,
    _p: Lent<'p>,
}

impl<'p, S: Stage, const STAGES: usize> Baton<'p, S, STAGES> {
    /// Waits for this warpgroup's turn, and takes the ring's consuming end, which goes on where the other left off.
    #[inline(always)]
    pub fn take(&mut self, wg: &mut WarpGroup) -> Consumer<'p, S, STAGES> {
        self.turns.turn(wg.index()).wait::<1>(self.phase, 1, "a warpgroup waits for its turn");
        self.phase = self.phase.wrapping_add(1);
        // SAFETY: written before the arrival just waited for, and not again before this warpgroup gives the end back.
        let (slot, phase) = unsafe { (self.turns.base.load_u32(), self.turns.base.add(4).load_u32()) };
        Consumer::at(self.ring, slot, phase, wg.index())
    }
    /// Passes the end on. Products that read its slots may still be in flight: their group owns the slots.
    #[inline(always)]
    pub fn give(&mut self, wg: &mut WarpGroup, end: Consumer<'p, S, STAGES>) {
        // All threads of the warpgroup have read the state when one writes it anew.
        backend::meet(wg.index());
        // SAFETY: the end is unique (`ping_pong` makes one ring's, and no other of its lifetime), so the state is ours.
        unsafe {
            backend::by_one_thread(|| {
                self.turns.base.store_u32(end.slot);
                self.turns.base.add(4).store_u32(end.phase);
                backend::publish(self.turns.turn(1 - wg.index()));
            })
        }
    }
}

/// The end of a pipeline that a whole warpgroup fills.
pub struct GroupProducer<'p, S: Stage, const STAGES: usize> {
    ring: &'p Ring<S, STAGES>,
    slot: u32,
    /// The phase of `empty` to wait for: -1 on the first pass, when all slots are free.
    phase: u32,
    releases: u32,
    _p: Lent<'p>,
}

/// An empty slot that a warpgroup fills. It borrows its producer, so there is one at a time; dropped or leaked unfilled,
/// the same one comes again.
///
/// ```compile_fail,E0499
/// use tilewright_core::prelude::*;
/// fn two_slots_at_once(wg: &mut WarpGroup, ring: &mut GroupProducer<'_, SharedRow, 2>) {
///     let first = ring.fill(wg);
///     let second = ring.fill(wg);
///     first.store(wg, &AccRows::splat(0.0));
/// }
/// ```
///
/// ```compile_fail,E0382
/// use tilewright_core::prelude::*;
/// fn writes_after_publishing(wg: &mut WarpGroup, ring: &mut GroupProducer<'_, SharedRow, 2>) {
///     let slot = ring.fill(wg);
///     slot.store(wg, &AccRows::splat(0.0));
///     slot.store(wg, &AccRows::splat(1.0));
/// }
/// ```
pub struct GroupFill<'q, 'p, S: Stage, const STAGES: usize> {
    from: &'q mut GroupProducer<'p, S, STAGES>,
}

impl<'p, S: Stage, const STAGES: usize> GroupProducer<'p, S, STAGES> {
    #[inline(always)]
    fn new(ring: &'p Ring<S, STAGES>, releases: u32) -> Self {
        GroupProducer { ring, slot: 0, phase: u32::MAX, releases, _p: PhantomData }
    }
    /// Waits for the next slot to be empty.
    #[inline(always)]
    pub fn fill(&mut self, _wg: &mut WarpGroup) -> GroupFill<'_, 'p, S, STAGES> {
        if !cfg!(tilewright_fault = "empty") {
            self.ring.empty(self.slot).wait::<1>(self.phase, self.releases, "a warpgroup waits for an empty slot");
        }
        GroupFill { from: self }
    }
    #[inline(always)]
    fn advance(&mut self) {
        advance(&mut self.slot, &mut self.phase, STAGES as u32);
    }
}

impl<S: Stage, const STAGES: usize> GroupFill<'_, '_, S, STAGES> {
    /// Fills the slot from registers; it is full when the warpgroup has written all of it.
    #[inline(always)]
    pub fn store<V>(self, wg: &mut WarpGroup, value: &V)
    where
        S: Store<V>,
    {
        let p = self.from;
        let full = p.ring.full(p.slot);
        // SAFETY: every consumer of the slot has released it, and this end is the only one that fills it.
        unsafe {
            p.ring.stage(p.slot).store(wg, value);
            backend::meet(wg.index());
            backend::by_one_thread(|| backend::publish(full));
        }
        p.advance();
    }
    /// Has the copy engine fill the slot; it is full when all has landed.
    #[inline(always)]
    pub fn load(self, wg: &mut WarpGroup, source: S::Source<'_>)
    where
        S: Load,
    {
        let p = self.from;
        let full = p.ring.full(p.slot);
        // A warp that has not seen the slot empty yet must, before it can be emptied again: it would wait for ever.
        backend::meet(wg.index());
        // SAFETY: as above; by one thread, and the bytes are expected.
        unsafe {
            backend::by_one_thread(|| {
                full.expect(S::BYTES);
                p.ring.stage(p.slot).load(source, full);
                full.filled(1);
            })
        }
        p.advance();
    }
}

impl<T: Element, const R: usize, const C: usize, const STAGES: usize> GroupFill<'_, '_, SharedTile<T, R, C>, STAGES> {
    /// As [`load`](GroupFill::load), but only `rows` rows: the others become zero, whatever the source holds there. When
    /// that leaves any to be zeroed, the warpgroup waits for the copy.
    #[inline(always)]
    pub fn load_rows(self, wg: &mut WarpGroup, source: crate::tma::TmaTile<'_, T, R, C>, rows: u32) {
        if rows >= R as u32 {
            return self.load(wg, source);
        }
        let p = self.from;
        let (full, landed) = (p.ring.full(p.slot), p.ring.landed());
        // SAFETY: as above. Nobody but this warpgroup touches the slot before it is published.
        unsafe {
            let tile = p.ring.stage(p.slot);
            backend::by_one_thread(|| {
                landed.expect(SharedTile::<T, R, C>::BYTES);
                tile.load(source, landed);
                landed.filled(1);
            });
            // how often it was waited for is kept in memory: that is rare, and registers are not
            let times = p.ring.landings();
            let phase = times.load_u32();
            landed.wait::<1>(phase, 1, "a warpgroup waits for its own copy");
            backend::zero_rows::<T, 128>(tile.base, R, C, rows);
            backend::meet(wg.index());
            backend::by_one_thread(|| {
                times.store_u32(phase.wrapping_add(1));
                backend::publish(full)
            });
        }
        p.advance();
    }
}

/// A pipeline between two warpgroups, or several: what [`pair`](crate::roles::Cta::pair) cuts into the ends of the
/// warpgroup that fills it and of the one that does not.
///
/// # Safety
/// Implemented here alone.
pub unsafe trait Link {
    /// What the filling warpgroup gets.
    type From<'p>;
    /// What the other gets.
    type To<'p>;
    /// What ends are made of. It knows no block, so that ends can be lent for any time within it.
    #[doc(hidden)]
    type Rings: Sync + 'static;
    #[doc(hidden)]
    fn rings(self) -> Self::Rings;
    /// # Safety
    /// By one thread, before any end exists.
    #[doc(hidden)]
    unsafe fn init(rings: &Self::Rings);
    #[doc(hidden)]
    fn from(rings: &Self::Rings, index: u32) -> Self::From<'_>;
    #[doc(hidden)]
    fn to(rings: &Self::Rings, index: u32) -> Self::To<'_>;
    /// Waits until everything that was asked for has landed.
    #[doc(hidden)]
    fn drain(from: Self::From<'_>);
}

// SAFETY: one end each; a slot is released once, by the other warpgroup.
unsafe impl<S: Stage, const STAGES: usize> Link for Pipeline<'_, S, STAGES> {
    type From<'p> = GroupProducer<'p, S, STAGES>;
    type To<'p> = Consumer<'p, S, STAGES>;
    type Rings = Ring<S, STAGES>;
    #[inline(always)]
    fn rings(self) -> Ring<S, STAGES> {
        self.ring
    }
    #[inline(always)]
    unsafe fn init(ring: &Ring<S, STAGES>) {
        const { assert!(S::CLUSTER == 1, "a pipeline between warpgroups belongs to one block") };
        // SAFETY: the caller's.
        unsafe {
            ring.init_slots(1);
            ring.init_landed();
        }
    }
    #[inline(always)]
    fn from(ring: &Ring<S, STAGES>, _: u32) -> Self::From<'_> {
        GroupProducer::new(ring, 1)
    }
    #[inline(always)]
    fn to(ring: &Ring<S, STAGES>, index: u32) -> Self::To<'_> {
        Consumer::at(ring, 0, 0, index)
    }
    #[inline(always)]
    fn drain(p: Self::From<'_>) {
        p.ring.wait_for_fills(p.slot, p.phase)
    }
}

/// A pipeline that both warpgroups read, the one that fills it included. See [`Pipeline::to_both`].
pub struct ToBoth<'b, S: Stage, const STAGES: usize>(pub(crate) Pipeline<'b, S, STAGES>);

impl<'b, S: Stage, const STAGES: usize> Pipeline<'b, S, STAGES> {
    /// For [`pair`](crate::roles::Cta::pair): read by both warpgroups, where a pipeline is otherwise read by the one that
    /// does not fill it.
    #[inline(always)]
    pub fn to_both(self) -> ToBoth<'b, S, STAGES> {
        ToBoth(self)
    }
}

// SAFETY: one producing end, two consuming ends; a slot is released twice.
unsafe impl<S: Stage, const STAGES: usize> Link for ToBoth<'_, S, STAGES> {
    type From<'p> = (GroupProducer<'p, S, STAGES>, Consumer<'p, S, STAGES>);
    type To<'p> = Consumer<'p, S, STAGES>;
    type Rings = Ring<S, STAGES>;
    #[inline(always)]
    fn rings(self) -> Ring<S, STAGES> {
        self.0.ring
    }
    #[inline(always)]
    unsafe fn init(ring: &Ring<S, STAGES>) {
        const { assert!(S::CLUSTER == 1, "a pipeline between warpgroups belongs to one block") };
        // SAFETY: the caller's.
        unsafe {
            ring.init_slots(2);
            ring.init_landed();
        }
    }
    #[inline(always)]
    fn from(ring: &Ring<S, STAGES>, index: u32) -> Self::From<'_> {
        (GroupProducer::new(ring, 2), Consumer::at(ring, 0, 0, index))
    }
    #[inline(always)]
    fn to(ring: &Ring<S, STAGES>, index: u32) -> Self::To<'_> {
        Consumer::at(ring, 0, 0, index)
    }
    #[inline(always)]
    fn drain(from: Self::From<'_>) {
        let p = from.0;
        p.ring.wait_for_fills(p.slot, p.phase)
    }
}

macro_rules! links {
    ($($l:ident $i:tt),*) => {
        // SAFETY: each by itself.
        unsafe impl<$($l: Link),*> Link for ($($l,)*) {
            type From<'p> = ($($l::From<'p>,)*);
            type To<'p> = ($($l::To<'p>,)*);
            type Rings = ($($l::Rings,)*);
            #[inline(always)]
            fn rings(self) -> Self::Rings {
                ($(self.$i.rings(),)*)
            }
            #[inline(always)]
            unsafe fn init(rings: &Self::Rings) {
                // SAFETY: the caller's.
                unsafe { $($l::init(&rings.$i);)* }
            }
            #[inline(always)]
            fn from(rings: &Self::Rings, index: u32) -> Self::From<'_> {
                ($($l::from(&rings.$i, index),)*)
            }
            #[inline(always)]
            fn to(rings: &Self::Rings, index: u32) -> Self::To<'_> {
                ($($l::to(&rings.$i, index),)*)
            }
            #[inline(always)]
            fn drain(from: Self::From<'_>) {
                $($l::drain(from.$i);)*
            }
        }
    };
}
links!(A 0, B 1);
links!(A 0, B 1, C 2);
links!(A 0, B 1, C 2, D 3);
