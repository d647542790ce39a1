//! Two warpgroups with a program each, and a warp that has the copy engine supply them.
//!
//! The supplier runs ahead as far as slots are free, through all that its block has to do: the next request's first tiles
//! land while the last one's results are stored. Each of its pipelines goes to the first warpgroup, to the second, or to
//! both.

use core::marker::PhantomData;

use crate::backend::{self, Barrier, NotShared, Smem};
use crate::element::Element;
use crate::fault::Fault;
use crate::handover::ToBoth;
use crate::pages::Paged;
use crate::pipeline::{Consumer, Lent, Pipeline, Ring, advance};
use crate::shared::{Load, Multicast, SharedTile, Stage};

/// The warp that supplies two warpgroups: 32 threads. See [`Cta::pair_supplied`](crate::roles::Cta::pair_supplied).
pub struct Supplier {
    faults: backend::Faults,
    _p: NotShared,
}

impl Supplier {
    /// As [`WarpGroup::fault_if`](crate::roles::WarpGroup::fault_if).
    #[inline(always)]
    pub fn fault_if(&mut self, wrong: bool, fault: Fault) {
        if wrong {
            self.faults.report(fault.code())
        }
    }
}

/// Makes the token.
///
/// # Safety
/// Once a block, by `pair_supplied`.
#[inline(always)]
pub(crate) unsafe fn supplier(faults: backend::Faults) -> Supplier {
    Supplier { faults, _p: PhantomData }
}

/// The end of a pipeline that the supplier fills.
pub struct SupplyEnd<'p, S: Stage, const STAGES: usize> {
    ring: &'p Ring<S, STAGES>,
    slot: u32,
    /// The phase of `empty` to wait for: -1 on the first pass, when all slots are free.
    phase: u32,
    releases: u32,
    _p: Lent<'p>,
}

/// An empty slot that the supplier fills. It borrows its end, so there is one at a time; dropped or leaked unfilled, the
/// same one comes again.
pub struct SupplyFill<'q, 'p, S: Stage, const STAGES: usize> {
    from: &'q mut SupplyEnd<'p, S, STAGES>,
}

impl<'p, S: Stage, const STAGES: usize> SupplyEnd<'p, S, STAGES> {
    #[inline(always)]
    fn new(ring: &'p Ring<S, STAGES>, releases: u32) -> Self {
        SupplyEnd { ring, slot: 0, phase: u32::MAX, releases, _p: PhantomData }
    }
    /// Waits for the next slot to be empty.
    #[inline(always)]
    pub fn fill(&mut self, _: &mut Supplier) -> SupplyFill<'_, 'p, S, STAGES> {
        self.ring.empty(self.slot).wait::<1>(self.phase, self.releases, "the supplier waits for an empty slot");
        SupplyFill { from: self }
    }
    /// Has the copy engine fill the slot by `copy`, which brings all its bytes, counted at the barrier it is given.
    ///
    /// # Safety
    /// The slot is empty.
    #[inline(always)]
    unsafe fn copy(&mut self, copy: impl FnOnce(Barrier)) {
        let full = self.ring.full(self.slot);
        // A lane that has not seen the slot empty yet must, before it can be emptied again: it would wait for ever.
        backend::meet_warp();
        // SAFETY: the caller's; by one lane, and the bytes are expected.
        unsafe {
            backend::by_one_lane(|| {
                full.expect(S::BYTES);
                copy(full);
                full.filled(S::CLUSTER);
            })
        }
        self.advance();
    }
    #[inline(always)]
    fn advance(&mut self) {
        advance(&mut self.slot, &mut self.phase, STAGES as u32);
    }
}

impl<S: Load, const STAGES: usize> SupplyFill<'_, '_, S, STAGES> {
    /// Has the copy engine fill the slot; it is full when all has landed.
    #[inline(always)]
    pub fn load(self, _: &mut Supplier, source: S::Source<'_>) {
        // SAFETY: every consumer of the slot has released it.
        unsafe {
            let stage = self.from.ring.stage(self.from.slot);
            self.from.copy(|bar| stage.load(source, bar))
        }
    }
}

/// A stage of one tile that rows in pages can be gathered into. For a [`Multicast`] tile each block of the cluster brings its
/// share of the tile to all of them; they must name the same rows.
///
/// # Safety
/// Implemented here alone: the tile is at the stage's base.
pub unsafe trait Gathered<T: Element, const R: usize, const C: usize>: Stage {
    #[doc(hidden)]
    fn base(&self) -> Smem;
    /// # Safety
    /// As for [`Paged::bring`].
    #[doc(hidden)]
    unsafe fn gather(base: Smem, source: &impl Paged<T, C>, bar: Barrier);
}
// SAFETY: it is the tile.
unsafe impl<T: Element, const R: usize, const C: usize> Gathered<T, R, C> for SharedTile<T, R, C> {
    #[inline(always)]
    fn base(&self) -> Smem {
        self.base
    }
    #[inline(always)]
    unsafe fn gather(base: Smem, source: &impl Paged<T, C>, bar: Barrier) {
        // SAFETY: the caller's.
        unsafe { source.bring::<R, 1>(base, bar) }
    }
}
// SAFETY: it holds the tile.
unsafe impl<T: Element, const R: usize, const C: usize, const K: usize> Gathered<T, R, C>
    for Multicast<SharedTile<T, R, C>, K>
{
    #[inline(always)]
    fn base(&self) -> Smem {
        self.base
    }
    #[inline(always)]
    unsafe fn gather(base: Smem, source: &impl Paged<T, C>, bar: Barrier) {
        // SAFETY: the caller's.
        unsafe { source.bring::<R, K>(base, bar) }
    }
}

impl<S: Stage, const STAGES: usize> SupplyFill<'_, '_, S, STAGES> {
    /// As [`load`](SupplyFill::load), of rows that lie in pages.
    #[inline(always)]
    pub fn gather<T: Element, const R: usize, const C: usize>(self, _: &mut Supplier, source: impl Paged<T, C>)
    where
        S: Gathered<T, R, C>,
    {
        let p = self.from;
        // A lane that has not seen the slot empty yet must, before it can be emptied again: it would wait for ever.
        backend::meet_warp();
        // SAFETY: every consumer of the slot has released it, in every block that it belongs to.
        unsafe { S::gather(p.ring.stage(p.slot).base(), &source, p.ring.full(p.slot)) }
        p.advance();
    }
    /// As [`gather`](SupplyFill::gather), but only `rows` rows: the others become zero, whatever the pages hold there. When
    /// that leaves some to be zeroed, and not all, the supplier waits for the copy.
    #[inline(always)]
    pub fn gather_rows<T: Element, const R: usize, const C: usize>(
        self,
        supplier: &mut Supplier,
        source: impl Paged<T, C>,
        rows: u32,
    ) where
        S: Gathered<T, R, C>,
    {
        if rows == 0 || rows >= R as u32 {
            return self.gather(supplier, source.only(rows > 0));
        }
        let p = self.from;
        let (full, landed, times) = (p.ring.full(p.slot), p.ring.landed(), p.ring.landings());
        backend::meet_warp();
        // SAFETY: every consumer of the slot has released it, in every block that it belongs to; and nobody else touches
        // this block's before it is published.
        unsafe {
            let base: Smem = p.ring.stage(p.slot).base();
            S::gather(base, &source, landed);
            // how often it was waited for is kept in memory: that is rare, and registers are not
            let phase = times.load_u32();
            landed.wait::<1>(phase, S::CLUSTER as u32, "the supplier waits for its own copy");
            backend::zero_rows::<T, 32>(base, R, C, rows);
            backend::meet_warp();
            backend::by_one_lane(|| {
                times.store_u32(phase.wrapping_add(1));
                backend::publish_for(full, S::CLUSTER as u32);
            });
        }
        p.advance();
    }
}

/// A pipeline from the supplier to one warpgroup or both, or several: what
/// [`pair_supplied`](crate::roles::Cta::pair_supplied) cuts into ends.
///
/// # Safety
/// Implemented here alone.
pub unsafe trait Supply {
    /// What the supplier gets.
    type From<'p>;
    /// What the first warpgroup gets.
    type First<'p>;
    /// What the second gets.
    type Second<'p>;
    #[doc(hidden)]
    type Rings: Sync + 'static;
    /// Blocks that share slots.
    #[doc(hidden)]
    const CLUSTER: usize;
    #[doc(hidden)]
    fn rings(self) -> Self::Rings;
    /// # Safety
    /// By one thread, before any end exists.
    #[doc(hidden)]
    unsafe fn init(rings: &Self::Rings);
    #[doc(hidden)]
    fn from(rings: &Self::Rings) -> Self::From<'_>;
    #[doc(hidden)]
    fn first(rings: &Self::Rings) -> Self::First<'_>;
    #[doc(hidden)]
    fn second(rings: &Self::Rings) -> Self::Second<'_>;
    /// Waits until everything that was asked for has landed.
    #[doc(hidden)]
    fn drain(from: Self::From<'_>);
}

/// A pipeline that the first warpgroup reads. See [`Pipeline::to_first`].
pub struct ToFirst<'b, S: Stage, const STAGES: usize>(Pipeline<'b, S, STAGES>);
/// A pipeline that the second warpgroup reads. See [`Pipeline::to_second`].
pub struct ToSecond<'b, S: Stage, const STAGES: usize>(Pipeline<'b, S, STAGES>);

impl<'b, S: Stage, const STAGES: usize> Pipeline<'b, S, STAGES> {
    /// For [`pair_supplied`](crate::roles::Cta::pair_supplied): from the supplier to the first warpgroup.
    #[inline(always)]
    pub fn to_first(self) -> ToFirst<'b, S, STAGES> {
        ToFirst(self)
    }
    /// For [`pair_supplied`](crate::roles::Cta::pair_supplied): from the supplier to the second warpgroup.
    #[inline(always)]
    pub fn to_second(self) -> ToSecond<'b, S, STAGES> {
        ToSecond(self)
    }
}

macro_rules! supply {
    ($name:ident, $releases:literal, $first:ty, $second:ty, |$ring:ident| $make_first:expr, $make_second:expr) => {
        // SAFETY: one producing end, and as many consuming ends as releases of a slot.
        unsafe impl<S: Stage, const STAGES: usize> Supply for $name<'_, S, STAGES> {
            type From<'p> = SupplyEnd<'p, S, STAGES>;
            type First<'p> = $first;
            type Second<'p> = $second;
            type Rings = Ring<S, STAGES>;
            const CLUSTER: usize = S::CLUSTER;
            #[inline(always)]
            fn rings(self) -> Ring<S, STAGES> {
                self.0.ring
            }
            #[inline(always)]
            unsafe fn init(ring: &Ring<S, STAGES>) {
                // SAFETY: the caller's.
                unsafe {
                    ring.init_slots($releases * S::CLUSTER as u32);
                    ring.init_landed();
                }
            }
            #[inline(always)]
            fn from(ring: &Ring<S, STAGES>) -> SupplyEnd<'_, S, STAGES> {
                SupplyEnd::new(ring, $releases * S::CLUSTER as u32)
            }
            #[inline(always)]
            fn first($ring: &Ring<S, STAGES>) -> Self::First<'_> {
                $make_first
            }
            #[inline(always)]
            fn second($ring: &Ring<S, STAGES>) -> Self::Second<'_> {
                $make_second
            }
            #[inline(always)]
            fn drain(p: Self::From<'_>) {
                p.ring.wait_for_fills(p.slot, p.phase)
            }
        }
    };
}
supply!(ToFirst, 1, Consumer<'p, S, STAGES>, (), |ring| Consumer::at(ring, 0, 0, 0), {
    let _ = ring;
});
supply!(
    ToSecond,
    1,
    (),
    Consumer<'p, S, STAGES>,
    |ring| {
        let _ = ring;
    },
    Consumer::at(ring, 0, 0, 1)
);
supply!(
    ToBoth,
    2,
    Consumer<'p, S, STAGES>,
    Consumer<'p, S, STAGES>,
    |ring| Consumer::at(ring, 0, 0, 0),
    Consumer::at(ring, 0, 0, 1)
);

macro_rules! supplies {
    ($($l:ident $i:tt),*) => {
        // SAFETY: each by itself.
        unsafe impl<$($l: Supply),*> Supply for ($($l,)*) {
            type From<'p> = ($($l::From<'p>,)*);
            type First<'p> = ($($l::First<'p>,)*);
            type Second<'p> = ($($l::Second<'p>,)*);
            type Rings = ($($l::Rings,)*);
            const CLUSTER: usize = {
                let mut most = 1;
                $(if $l::CLUSTER > most {
                    most = $l::CLUSTER;
                })*
                most
            };
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
            fn from(rings: &Self::Rings) -> Self::From<'_> {
                ($($l::from(&rings.$i),)*)
            }
            #[inline(always)]
            fn first(rings: &Self::Rings) -> Self::First<'_> {
                ($($l::first(&rings.$i),)*)
            }
            #[inline(always)]
            fn second(rings: &Self::Rings) -> Self::Second<'_> {
                ($($l::second(&rings.$i),)*)
            }
            #[inline(always)]
            fn drain(from: Self::From<'_>) {
                $($l::drain(from.$i);)*
            }
        }
    };
}
supplies!(A 0, B 1);
supplies!(A 0, B 1, C 2);
supplies!(A 0, B 1, C 2, D 3);
supplies!(A 0, B 1, C 2, D 3, E 4);
supplies!(A 0, B 1, C 2, D 3, E 4, F 5);
