//! Execution resources as tokens: the block, its warpgroups, and the split of a block into roles.
//!
//! A token stands for all threads of its resource: whoever holds it, they all do. Tokens can not be copied, sent or
//! shared, and an operation that needs all the threads takes the token of all the threads. So a barrier can not be
//! reached by half of a block.

use core::marker::PhantomData;

use crate::backend::{self, NotShared, Smem};
use crate::fault::Fault;
use crate::handover::{Baton, Link, Turns};
use crate::pipeline::{Channel, Pipeline};
use crate::shared::Load;
use crate::supply::{Supplier, Supply};

/// The time in which one block runs. The block's token and its shared memory borrow it, so that nothing of them can be
/// kept for another block or another launch.
#[doc(hidden)]
pub struct BlockScope(backend::Faults);

impl BlockScope {
    /// # Safety
    /// By the generated entry, for the block that it runs.
    #[doc(hidden)]
    #[inline(always)]
    pub unsafe fn new(faults: backend::Faults) -> Self {
        BlockScope(faults)
    }
}

/// Of what belongs to a block: it lives exactly as long.
pub(crate) type Within<'b> = PhantomData<fn(&'b ()) -> &'b ()>;

/// The whole block of `THREADS` threads, in a cluster of `CLUSTER` blocks. By value: gone once the block has split into
/// roles. It lives no longer than the block, `'b`, which signatures leave out: `cta: Cta<256>`.
pub struct Cta<'b, const THREADS: usize, const CLUSTER: usize = 1> {
    pub(crate) scratch: Smem,
    pub(crate) place: backend::Place,
    pub(crate) faults: backend::Faults,
    /// How often the blocks of the cluster have exchanged values.
    pub(crate) exchanges: u32,
    _p: PhantomData<(NotShared, Within<'b>)>,
}

/// One warpgroup: 128 threads, which alone can start warpgroup products.
pub struct WarpGroup {
    pub(crate) index: u32,
    faults: backend::Faults,
    _p: NotShared,
}

impl WarpGroup {
    /// Its number among the consumers of its block.
    #[inline(always)]
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Reports `fault` if `wrong`: the host returns the first one of a launch as an error. The kernel goes on, so it takes
    /// something harmless in place of what was wrong.
    #[inline(always)]
    pub fn fault_if(&mut self, wrong: bool, fault: Fault) {
        if wrong {
            self.faults.report(fault.code())
        }
    }
}

/// The block's token, a warpgroup's or a supplier's: what stands for all threads of something. Sealed.
pub trait Token: sealed::Sealed {}
impl<const THREADS: usize, const CLUSTER: usize> Token for Cta<'_, THREADS, CLUSTER> {}
impl Token for WarpGroup {}
impl Token for Supplier {}

mod sealed {
    pub trait Sealed {}
    impl<const THREADS: usize, const CLUSTER: usize> Sealed for super::Cta<'_, THREADS, CLUSTER> {}
    impl Sealed for super::WarpGroup {}
    impl Sealed for crate::supply::Supplier {}
}

/// The launch size in a type: what `#[kernel]` reads off the block's token.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not the token of a block",
    note = "a kernel's first parameter is the block's token, by value: `cta: Cta<256>`"
)]
pub trait Block {
    const THREADS: usize;
    const CLUSTER: usize;
}
impl<const THREADS: usize, const CLUSTER: usize> Block for Cta<'_, THREADS, CLUSTER> {
    const THREADS: usize = {
        assert!(THREADS % 32 == 0 && THREADS > 0 && THREADS <= 1024, "a block has 32 to 1024 threads, whole warps");
        THREADS
    };
    const CLUSTER: usize = {
        assert!(CLUSTER > 0 && CLUSTER <= 8, "a cluster has 1 to 8 blocks");
        CLUSTER
    };
}

/// An output that can be shared out among the consumer warpgroups of a cluster.
///
/// # Safety
/// Parts with different indices are disjoint, and so are parts of different turns.
pub unsafe trait Output {
    /// One warpgroup's part: `H` times 64 rows of the tiles that it yields.
    type Part<const H: usize>;
    /// Rows of a tile.
    #[doc(hidden)]
    const ROWS: usize;
    /// Warpgroups of a block that there are buffers for; None: any number.
    #[doc(hidden)]
    const WARPGROUPS: Option<usize>;
    /// Rows `64 * H * share.index..` of every tile whose turn it is.
    /// # Safety
    /// Once for each warpgroup of the cluster, with different shares, and the whole is not used any more.
    #[doc(hidden)]
    unsafe fn part<const H: usize>(&self, share: Share) -> Self::Part<H>;
    /// Prepares what the parts use.
    /// # Safety
    /// By one thread of the block, before any part exists.
    #[doc(hidden)]
    #[inline(always)]
    unsafe fn init(&self) {}
    /// Waits until nothing that the block's warpgroup of this number asked for is on its way to the block's memory.
    #[doc(hidden)]
    #[inline(always)]
    fn drain(&self, _warpgroup: u32) {}
}

/// What one warpgroup gets of a cluster's tiles.
#[doc(hidden)]
#[derive(Clone, Copy)]
pub struct Share {
    /// Which rows of a tile.
    pub index: u32,
    /// Of every `turns` tiles, number `turn`.
    pub turn: u32,
    /// How many take turns.
    pub turns: u32,
    /// The warpgroup's number among the consumers of its block: whose buffers it uses.
    pub warpgroup: u32,
}

impl<'b, const THREADS: usize, const CLUSTER: usize> Cta<'b, THREADS, CLUSTER> {
    /// # Safety
    /// Once a block, by the generated entry.
    #[doc(hidden)]
    #[inline(always)]
    pub unsafe fn begin(block: &'b BlockScope, scratch: Smem, place: backend::Place) -> Self {
        Cta { scratch, place, faults: block.0, exchanges: 0, _p: PhantomData }
    }

    /// Reports `fault` if `wrong`: the host returns the first one of a launch as an error. The kernel goes on, so it takes
    /// something harmless in place of what was wrong.
    #[inline(always)]
    pub fn fault_if(&mut self, wrong: bool, fault: Fault) {
        if wrong {
            self.faults.report(fault.code())
        }
    }

    /// The block's number in its cluster.
    #[inline(always)]
    pub fn rank(&self) -> u32 {
        if CLUSTER > 1 { backend::rank_of(self.scratch) } else { 0 }
    }

    /// All threads of the block meet.
    #[inline(always)]
    pub(crate) fn meet(&mut self) {
        backend::block_barrier()
    }

    const WARPGROUPS: usize = {
        assert!(
            THREADS % 128 == 0 && THREADS >= 256 && THREADS <= 640,
            "roles need a producer and one to four consumer warpgroups"
        );
        THREADS / 128
    };

    /// Splits the block: one producer, and `THREADS / 128 - 1` consumer warpgroups, each of which gets a consuming end
    /// of `channel` and its own 64 rows of every tile of `output`. Returns when all are done and no copy is in flight.
    ///
    /// The closures are called with the ends of the channel; write `#[inline(always)]` on them in library code
    /// (`#[kernel]` adds it in kernels), for a call would serialise the products.
    ///
    /// Source of the scheme: CUTLASS's warp-specialised kernels; registers move from the producer to the consumers
    /// (PTX ISA, "setmaxnreg").
    #[inline(always)]
    pub fn roles<C: Channel, O: Output>(
        self,
        channel: C,
        output: O,
        producer: impl for<'p> FnOnce(&mut C::Producer<'p>) + Send,
        consumer: impl for<'p> Fn(&mut WarpGroup, &mut C::Consumer<'p>, O::Part<1>) + Sync,
    ) where
        O::Part<1>: Send,
    {
        const {
            assert!(C::CLUSTER == 1 || C::CLUSTER == CLUSTER, "a multicast tile is shared by the whole cluster");
            assert!(
                O::ROWS == 64 * (Self::WARPGROUPS - 1) * CLUSTER,
                "an output tile has 64 rows for each consumer warpgroup of the cluster"
            );
            assert!(
                match O::WARPGROUPS {
                    Some(n) => n == Self::WARPGROUPS - 1,
                    None => true,
                },
                "staging has buffers for each consumer warpgroup of the block"
            );
            assert!(
                match C::CONSUMERS {
                    Some(n) => n == Self::WARPGROUPS - 1,
                    None => true,
                },
                "a sum over the cluster has buffers for each consumer warpgroup of the block"
            );
        }
        let (place, rings) = (self.place, channel.rings());
        let share = move |rank: u32, index: u32| Share {
            index: rank * (Self::WARPGROUPS as u32 - 1) + index,
            turn: 0,
            turns: 1,
            warpgroup: index,
        };
        backend::roles::<_, THREADS, CLUSTER>(
            place,
            self.faults,
            // SAFETY: by one thread, before any end exists.
            #[inline(always)]
            || unsafe {
                C::init(&rings, Self::WARPGROUPS as u32 - 1);
                output.init();
            },
            #[inline(always)]
            || {
                let mut end = C::producer(&rings, Self::WARPGROUPS as u32 - 1);
                producer(&mut end);
                C::drain(end);
            },
            // SAFETY: once for each warpgroup of the cluster.
            #[inline(always)]
            |rank, index| unsafe { output.part::<1>(share(rank, index)) },
            #[inline(always)]
            |wg, part| {
                let mut end = C::consumer(&rings, wg.index());
                consumer(wg, &mut end, part);
                #[cfg(target_arch = "nvptx64")] // on the CPU nothing is on its way
                output.drain(wg.index());
            },
        )
    }

    /// Splits the block: one producer, and two consumer warpgroups that take turns at `ring`, a whole tile each. While one
    /// multiplies the other stores. Each gets a [`Baton`], its claim on the ring's one consuming end, and every second of
    /// the cluster's tiles of `output`, of which it stores the `H` times 64 rows of its block.
    ///
    /// Source of the scheme: CUTLASS's ping-pong kernels.
    #[inline(always)]
    pub fn ping_pong<S: Load, const STAGES: usize, O: Output, const H: usize>(
        self,
        ring: Pipeline<S, STAGES>,
        turns: Turns,
        output: O,
        producer: impl for<'p> FnOnce(&mut crate::pipeline::Producer<'p, S, STAGES>) + Send,
        consumer: impl for<'p> Fn(&mut WarpGroup, &mut Baton<'p, S, STAGES>, O::Part<H>) + Sync,
    ) where
        O::Part<H>: Send,
    {
        const {
            assert!(THREADS == 384, "ping-pong has a producer and two consumer warpgroups");
            assert!(S::CLUSTER == 1 || S::CLUSTER == CLUSTER, "a multicast tile is shared by the whole cluster");
            assert!(
                O::ROWS == 64 * H * CLUSTER,
                "an output tile has the accumulator's rows for each block of the cluster"
            );
            assert!(
                match O::WARPGROUPS {
                    Some(n) => n == 2,
                    None => true,
                },
                "staging has buffers for each consumer warpgroup of the block"
            );
        }
        let (ring, turns) = (ring.ring, turns.at);
        backend::roles::<_, THREADS, CLUSTER>(
            self.place,
            self.faults,
            // SAFETY: by one thread, before any end exists. A slot is released by one warpgroup of each block.
            #[inline(always)]
            || unsafe {
                <Pipeline<S, STAGES> as Channel>::init(&ring, 1);
                turns.init();
                output.init();
            },
            #[inline(always)]
            || {
                let mut end = <Pipeline<S, STAGES> as Channel>::producer(&ring, 1);
                producer(&mut end);
                <Pipeline<S, STAGES> as Channel>::drain(end);
            },
            // SAFETY: once for each warpgroup of the cluster; blocks have different rows, warpgroups different turns.
            #[inline(always)]
            |rank, index| unsafe { output.part::<H>(Share { index: rank, turn: index, turns: 2, warpgroup: index }) },
            #[inline(always)]
            |wg, part| {
                let mut baton = turns.baton(&ring, wg.index());
                consumer(wg, &mut baton, part);
                #[cfg(target_arch = "nvptx64")] // on the CPU nothing is on its way
                output.drain(wg.index());
            },
        )
    }

    /// Splits the block into two warpgroups with a program each, and pipelines between them: the first fills
    /// `from_first`, the second `from_second`. A pipeline is read by the warpgroup that does not fill it, or by both
    /// ([`Pipeline::to_both`]). Returns when both are done and no copy is in flight.
    ///
    /// Each closure gets the ends that it fills, then those of the other's pipelines that it reads.
    #[inline(always)]
    pub fn pair<A: Link, B: Link>(
        self,
        from_first: A,
        from_second: B,
        first: impl for<'p> FnOnce(&mut WarpGroup, &mut A::From<'p>, &mut B::To<'p>) + Send,
        second: impl for<'p> FnOnce(&mut WarpGroup, &mut B::From<'p>, &mut A::To<'p>) + Send,
    ) {
        const {
            assert!(THREADS == 256, "a pair is two warpgroups: 256 threads");
            assert!(CLUSTER == 1, "a pair is a block of its own");
        }
        let (from_first, from_second) = (from_first.rings(), from_second.rings());
        backend::pair(
            self.faults,
            // SAFETY: by one thread, before any end exists.
            #[inline(always)]
            || unsafe {
                A::init(&from_first);
                B::init(&from_second);
            },
            #[inline(always)]
            |wg| {
                let (mut from, mut to) = (A::from(&from_first, 0), B::to(&from_second, 0));
                first(wg, &mut from, &mut to);
                A::drain(from);
            },
            #[inline(always)]
            |wg| {
                let (mut from, mut to) = (B::from(&from_second, 1), A::to(&from_first, 1));
                second(wg, &mut from, &mut to);
                B::drain(from);
            },
        )
    }
}

impl<const THREADS: usize, const CLUSTER: usize> Cta<'_, THREADS, CLUSTER> {
    /// As [`pair`](Cta::pair), with a third role: a warp that has the copy engine fill `supplies`, each for the first
    /// warpgroup, the second, or both ([`Pipeline::to_first`], [`Pipeline::to_second`], [`Pipeline::to_both`]).
    ///
    /// The supplier gets the filling ends; each warpgroup gets what it reads of them, then as in `pair`. Registers move from
    /// the supplier's warps to the others.
    #[inline(always)]
    pub fn pair_supplied<F: Supply, A: Link, B: Link>(
        self,
        supplies: F,
        from_first: A,
        from_second: B,
        supplier: impl for<'p> FnOnce(&mut Supplier, &mut F::From<'p>) + Send,
        first: impl for<'p> FnOnce(&mut WarpGroup, &mut F::First<'p>, &mut A::From<'p>, &mut B::To<'p>) + Send,
        second: impl for<'p> FnOnce(&mut WarpGroup, &mut F::Second<'p>, &mut B::From<'p>, &mut A::To<'p>) + Send,
    ) {
        const {
            assert!(THREADS == 384, "a supplied pair is three warpgroups, one of them the supplier's: 384 threads");
            assert!(F::CLUSTER == 1 || F::CLUSTER == CLUSTER, "a multicast tile is shared by the whole cluster");
        }
        let (supplies, from_first, from_second) = (supplies.rings(), from_first.rings(), from_second.rings());
        backend::pair_supplied::<CLUSTER>(
            self.faults,
            // SAFETY: by one thread, before any end exists.
            #[inline(always)]
            || unsafe {
                F::init(&supplies);
                A::init(&from_first);
                B::init(&from_second);
            },
            #[inline(always)]
            |warp| {
                let mut from = F::from(&supplies);
                supplier(warp, &mut from);
                F::drain(from);
            },
            #[inline(always)]
            |wg| {
                let (mut supplied, mut from, mut to) =
                    (F::first(&supplies), A::from(&from_first, 0), B::to(&from_second, 0));
                first(wg, &mut supplied, &mut from, &mut to);
                A::drain(from);
            },
            #[inline(always)]
            |wg| {
                let (mut supplied, mut from, mut to) =
                    (F::second(&supplies), B::from(&from_second, 1), A::to(&from_first, 1));
                second(wg, &mut supplied, &mut from, &mut to);
                B::drain(from);
            },
        )
    }
}

/// Makes the token of a warpgroup.
///
/// # Safety
/// Once for each warpgroup, by `roles`.
#[inline(always)]
pub(crate) unsafe fn warpgroup(index: u32, faults: backend::Faults) -> WarpGroup {
    WarpGroup { index, faults, _p: PhantomData }
}
