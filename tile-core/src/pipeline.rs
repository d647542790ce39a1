//! Pipelines: a ring of slots in shared memory between one producer and the consumers of a block.
//!
//! A slot is empty, being filled, full, or being read. It can be written only through a [`FillSlot`] and read only
//! through a [`FullSlot`]; both are linear. Dropping a full slot releases it; leaking it (`mem::forget`) never does, so
//! the producer waits for ever and nothing is overwritten. A fill slot dropped unfilled is offered again, never
//! published. The ends are lent to the role closures, so they can not be leaked, and a block does not exit before all
//! bytes that its producer asked for have landed ([`Channel::drain`]).
//!
//! With a [`Multicast`](crate::shared::Multicast) tile in its stage a slot belongs to the whole cluster: it is empty
//! when the consumers of all its blocks have released it.

use core::marker::PhantomData;

use crate::backend::{self, Barrier, NotShared, Smem};
use crate::roles::{BlockScope, Within};
use crate::shared::{Load, Shared, Stage};

/// Of ends and slots: they belong to their role, and their lifetime is exactly that of the ends lent to it. Could it be
/// shortened, a group in flight could be given operands that it merely borrows from a slot beside it, until it is leaked.
pub(crate) type Lent<'p> = PhantomData<(fn(&'p ()) -> &'p (), NotShared)>;

/// A ring of `STAGES` slots, each holding a stage `S`. A `#[shared]` parameter of a kernel. It lives no longer than its
/// block, `'b`.
pub struct Pipeline<'b, S: Stage, const STAGES: usize> {
    pub(crate) ring: Ring<S, STAGES>,
    _p: Within<'b>,
}

/// Where a pipeline's slots and barriers are.
#[doc(hidden)]
pub struct Ring<S: Stage, const STAGES: usize> {
    base: Smem,
    barriers: Smem,
    _p: PhantomData<fn() -> S>,
}
// SAFETY: it is an address; slots are reached through its ends alone.
unsafe impl<S: Stage, const STAGES: usize> Sync for Ring<S, STAGES> {}
// SAFETY: as above.
unsafe impl<S: Stage, const STAGES: usize> Send for Ring<S, STAGES> {}

// SAFETY: two barriers of 8 bytes for each slot, and one more, are in the tail; the slots, too, if they hold no tiles.
unsafe impl<'b, S: Stage, const STAGES: usize> Shared<'b> for Pipeline<'b, S, STAGES> {
    const BYTES: usize = {
        assert!(STAGES > 0, "a pipeline has at least one slot");
        let bytes = STAGES * S::BYTES;
        assert!(bytes <= 232_448 - 1024, "a pipeline exceeds the shared memory of a block");
        if S::ALIGN > 16 { bytes } else { 0 }
    };
    const TAIL: usize = Ring::<S, STAGES>::BARRIERS + if S::ALIGN > 16 { 0 } else { STAGES * S::BYTES };
    #[inline(always)]
    unsafe fn claim(_: &'b BlockScope, base: Smem, tail: Smem) -> Self {
        let base = if S::ALIGN > 16 { base } else { tail.add(Ring::<S, STAGES>::BARRIERS) };
        Pipeline { ring: Ring { base, barriers: tail, _p: PhantomData }, _p: PhantomData }
    }
}

impl<S: Stage, const STAGES: usize> Ring<S, STAGES> {
    const BARRIERS: usize = STAGES * 16 + 16;
    #[inline(always)]
    pub(crate) fn full(&self, slot: u32) -> Barrier {
        Barrier(self.barriers.add(slot as usize * 8))
    }
    #[inline(always)]
    pub(crate) fn empty(&self, slot: u32) -> Barrier {
        Barrier(self.barriers.add((STAGES + slot as usize) * 8))
    }
    /// Where a warpgroup that fills a slot waits for the copy engine before it goes on filling.
    #[inline(always)]
    pub(crate) fn landed(&self) -> Barrier {
        Barrier(self.barriers.add(2 * STAGES * 8))
    }
    /// How often it has waited there: behind that barrier.
    #[inline(always)]
    pub(crate) fn landings(&self) -> Smem {
        self.barriers.add((2 * STAGES + 1) * 8)
    }
    /// # Safety
    /// By one thread, before any end exists.
    #[inline(always)]
    pub(crate) unsafe fn init_landed(&self) {
        // SAFETY: the caller's.
        unsafe {
            self.landed().init(1);
            self.landings().store_u32(0);
        }
    }
    /// # Safety
    /// By one thread, before any end exists.
    #[inline(always)]
    pub(crate) unsafe fn init_slots(&self, releases: u32) {
        let mut slot = 0;
        while slot < STAGES as u32 {
            // SAFETY: the caller's.
            unsafe {
                self.full(slot).init(1);
                self.empty(slot).init(releases);
            }
            slot += 1;
        }
    }
    /// Waits until every slot is full that was filled by a producer who would go on with `slot` in `phase`.
    #[inline(always)]
    pub(crate) fn wait_for_fills(&self, next: u32, phase: u32) {
        let mut slot = 0;
        while slot < STAGES as u32 {
            // Slots before the next one were filled in the running phase, the others in the one before.
            let last = if slot < next { phase.wrapping_add(1) } else { phase };
            self.full(slot).wait::<1>(last, Self::FILLS, "a producer's end waits for copies to land");
            slot += 1;
        }
    }
    /// # Safety
    /// Of a slot that the caller holds.
    #[inline(always)]
    pub(crate) unsafe fn stage(&self, slot: u32) -> S {
        // SAFETY: the slot's bytes.
        unsafe { S::at(self.base.add(slot as usize * S::BYTES)) }
    }
    /// Arrivals that fill a slot on the CPU: one from every block that sends into it. (On the device one arrival and
    /// the bytes do.)
    pub(crate) const FILLS: u32 = S::CLUSTER as u32;
}

/// What [`roles`](crate::roles::Cta::roles) can cut into a producing end and consuming ends: a pipeline, or several.
///
/// # Safety
/// Implemented here alone.
pub unsafe trait Channel {
    /// The producing end.
    type Producer<'p>;
    /// A consuming end.
    type Consumer<'p>;
    /// What ends are made of. It knows no block, so that ends can be lent for any time within it.
    #[doc(hidden)]
    type Rings: Sync + 'static;
    /// Blocks that share slots.
    #[doc(hidden)]
    const CLUSTER: usize;
    /// Consumer warpgroups that it is made for; None: any number.
    #[doc(hidden)]
    const CONSUMERS: Option<usize> = None;
    #[doc(hidden)]
    fn rings(self) -> Self::Rings;
    /// # Safety
    /// By one thread, before any end exists.
    #[doc(hidden)]
    unsafe fn init(rings: &Self::Rings, consumers: u32);
    #[doc(hidden)]
    fn producer(rings: &Self::Rings, consumers: u32) -> Self::Producer<'_>;
    /// The end of the consumer warpgroup `index`.
    #[doc(hidden)]
    fn consumer(rings: &Self::Rings, index: u32) -> Self::Consumer<'_>;
    /// Waits until everything that the producer asked for has landed.
    #[doc(hidden)]
    fn drain(producer: Self::Producer<'_>);
}

// SAFETY: ends are made once each by `roles`.
unsafe impl<S: Load, const STAGES: usize> Channel for Pipeline<'_, S, STAGES> {
    type Producer<'p> = Producer<'p, S, STAGES>;
    type Consumer<'p> = Consumer<'p, S, STAGES>;
    type Rings = Ring<S, STAGES>;
    const CLUSTER: usize = S::CLUSTER;
    #[inline(always)]
    fn rings(self) -> Ring<S, STAGES> {
        self.ring
    }
    #[inline(always)]
    unsafe fn init(ring: &Ring<S, STAGES>, consumers: u32) {
        // SAFETY: the caller's.
        unsafe { ring.init_slots(consumers * S::CLUSTER as u32) }
    }
    #[inline(always)]
    fn producer(ring: &Ring<S, STAGES>, consumers: u32) -> Producer<'_, S, STAGES> {
        let releases = consumers * S::CLUSTER as u32;
        Producer { ring, slot: 0, phase: u32::MAX, releases, _p: PhantomData }
    }
    #[inline(always)]
    fn consumer(ring: &Ring<S, STAGES>, index: u32) -> Consumer<'_, S, STAGES> {
        Consumer::at(ring, 0, 0, index)
    }
    #[inline(always)]
    fn drain(p: Producer<'_, S, STAGES>) {
        p.ring.wait_for_fills(p.slot, p.phase)
    }
}

// SAFETY: as for each.
unsafe impl<A: Channel, B: Channel> Channel for (A, B) {
    type Producer<'p> = (A::Producer<'p>, B::Producer<'p>);
    type Consumer<'p> = (A::Consumer<'p>, B::Consumer<'p>);
    type Rings = (A::Rings, B::Rings);
    const CLUSTER: usize = if A::CLUSTER > B::CLUSTER { A::CLUSTER } else { B::CLUSTER };
    const CONSUMERS: Option<usize> = match (A::CONSUMERS, B::CONSUMERS) {
        (Some(a), Some(b)) => {
            assert!(a == b, "the parts of a channel are made for different numbers of consumers");
            Some(a)
        }
        (Some(a), None) => Some(a),
        (None, b) => b,
    };
    #[inline(always)]
    fn rings(self) -> Self::Rings {
        (self.0.rings(), self.1.rings())
    }
    #[inline(always)]
    unsafe fn init((a, b): &Self::Rings, consumers: u32) {
        // SAFETY: the caller's.
        unsafe {
            A::init(a, consumers);
            B::init(b, consumers);
        }
    }
    #[inline(always)]
    fn producer((a, b): &Self::Rings, consumers: u32) -> Self::Producer<'_> {
        (A::producer(a, consumers), B::producer(b, consumers))
    }
    #[inline(always)]
    fn consumer((a, b): &Self::Rings, index: u32) -> Self::Consumer<'_> {
        (A::consumer(a, index), B::consumer(b, index))
    }
    #[inline(always)]
    fn drain(p: Self::Producer<'_>) {
        A::drain(p.0);
        B::drain(p.1);
    }
}

/// From one slot of a ring to the next; from the last to the first, of the next phase.
#[inline(always)]
pub(crate) fn advance(slot: &mut u32, phase: &mut u32, stages: u32) {
    *slot += 1;
    if *slot == stages {
        *slot = 0;
        *phase = phase.wrapping_add(1);
    }
}

/// The end that fills slots.
pub struct Producer<'p, S: Stage, const STAGES: usize> {
    ring: &'p Ring<S, STAGES>,
    slot: u32,
    /// The phase of `empty` to wait for: -1 on the first pass, when all slots are free.
    phase: u32,
    releases: u32,
    _p: Lent<'p>,
}

/// An empty slot. It borrows the producer, so there is one at a time; dropped or leaked unfilled, the same one comes
/// again.
pub struct FillSlot<'q, 'p, S: Stage, const STAGES: usize> {
    from: &'q mut Producer<'p, S, STAGES>,
}

impl<'p, S: Stage, const STAGES: usize> Producer<'p, S, STAGES> {
    /// Waits for the next slot to be empty.
    #[inline(always)]
    pub fn fill(&mut self) -> FillSlot<'_, 'p, S, STAGES> {
        if !cfg!(tilewright_fault = "empty") {
            let what = "the producer waits for an empty slot";
            if const { S::CLUSTER > 1 } {
                self.ring.empty(self.slot).wait::<2>(self.phase, self.releases, what);
            } else {
                self.ring.empty(self.slot).wait::<1>(self.phase, self.releases, what);
            }
        }
        FillSlot { from: self }
    }
}

impl<S: Load, const STAGES: usize> FillSlot<'_, '_, S, STAGES> {
    /// Starts filling every tile of the slot; it is full when all have landed.
    #[inline(always)]
    pub fn load(self, source: S::Source<'_>) {
        let p = self.from;
        let full = p.ring.full(p.slot);
        full.expect(S::BYTES);
        // SAFETY: every consumer of the slot has released it, the producer is unique, and the bytes are expected.
        unsafe { p.ring.stage(p.slot).load(source, full) }
        full.filled(S::CLUSTER);
        advance(&mut p.slot, &mut p.phase, STAGES as u32);
    }
}

/// An end that empties slots: one for each consumer.
pub struct Consumer<'p, S: Stage, const STAGES: usize> {
    ring: &'p Ring<S, STAGES>,
    pub(crate) slot: u32,
    pub(crate) phase: u32,
    index: u32,
    _p: Lent<'p>,
}

impl<'p, S: Stage, const STAGES: usize> Consumer<'p, S, STAGES> {
    /// The end of warpgroup `index`, its next slot being `slot` in `phase`.
    #[inline(always)]
    pub(crate) fn at(ring: &'p Ring<S, STAGES>, slot: u32, phase: u32, index: u32) -> Self {
        Consumer { ring, slot, phase, index, _p: PhantomData }
    }
    /// Waits for the next slot to be full.
    #[inline(always)]
    pub fn next(&mut self) -> FullSlot<'p, S, STAGES> {
        let ring = self.ring;
        if !cfg!(tilewright_fault = "full") {
            // Of this block's scope also where peers send into the slot: what they send is the copy engine's, whose bytes
            // are visible to who has seen them counted. The cluster's scope would throw away the first-level cache each time.
            ring.full(self.slot).wait::<1>(self.phase, Ring::<S, STAGES>::FILLS, "a consumer waits for a full slot");
        }
        let release = Release {
            empty: ring.empty(self.slot),
            held: backend::Held::new(ring.full(self.slot), self.phase, Ring::<S, STAGES>::FILLS),
            cluster: S::CLUSTER as u32,
            index: self.index,
            _p: PhantomData,
        };
        // SAFETY: full, and held by the slot made here.
        let stage = unsafe { ring.stage(self.slot) };
        advance(&mut self.slot, &mut self.phase, STAGES as u32);
        FullSlot { stage, release }
    }
}

/// The duty to release one slot.
pub(crate) struct Release<'p> {
    empty: Barrier,
    held: backend::Held,
    cluster: u32,
    index: u32,
    _p: Lent<'p>,
}

impl Release<'_> {
    /// One thread of the warpgroup signs for all: right after a product has retired, which the warpgroup does together,
    /// and after a warpgroup barrier otherwise.
    #[inline(always)]
    pub(crate) fn sign(&self) {
        self.held.check();
        backend::release(self.empty, self.cluster);
    }
}

impl Drop for Release<'_> {
    /// A slot given up without a product: warps that have not seen it full yet must, before it can be filled twice.
    #[inline(always)]
    fn drop(&mut self) {
        backend::meet_before_release(self.index, self.cluster);
        self.sign()
    }
}

/// A full slot. Dropped, it is released; leaked, it never is.
pub struct FullSlot<'p, S: Stage, const STAGES: usize> {
    pub(crate) stage: S,
    pub(crate) release: Release<'p>,
}

impl<S: Stage, const STAGES: usize> core::ops::Deref for FullSlot<'_, S, STAGES> {
    type Target = S;
    /// What it holds.
    #[inline(always)]
    fn deref(&self) -> &S {
        &self.stage
    }
}
