//! Execution resources as tokens: the block, its warpgroups, and the split of a block into roles.
//!
//! A token stands for all threads of its resource: whoever holds it, they all do. Tokens can not be copied, sent or
//! shared, and an operation that needs all the threads takes the token of all the threads. So a barrier can not be
//! reached by half of a block.

use core::marker::PhantomData;

use crate::backend::{self, NotShared, Smem};
use crate::pipeline::Channel;

/// The whole block of `THREADS` threads, in a cluster of `CLUSTER` blocks. By value: gone once the block has split into
/// roles.
pub struct Cta<const THREADS: usize, const CLUSTER: usize = 1> {
    pub(crate) scratch: Smem,
    pub(crate) place: backend::Place,
    _p: NotShared,
}

/// One warpgroup: 128 threads, which alone can start warpgroup products.
pub struct WarpGroup {
    pub(crate) index: u32,
    _p: NotShared,
}

impl WarpGroup {
    /// Its number among the consumers.
    #[inline(always)]
    pub(crate) fn index(&self) -> u32 {
        self.index
    }
}

/// The launch size in a type: what `#[kernel]` reads off the block's token.
#[doc(hidden)]
pub trait Block {
    const THREADS: usize;
    const CLUSTER: usize;
}
impl<const THREADS: usize, const CLUSTER: usize> Block for Cta<THREADS, CLUSTER> {
    const THREADS: usize = {
        assert!(THREADS % 32 == 0 && THREADS > 0 && THREADS <= 1024, "a block has 32 to 1024 threads, whole warps");
        THREADS
    };
    const CLUSTER: usize = {
        assert!(CLUSTER > 0 && CLUSTER <= 8, "a cluster has 1 to 8 blocks");
        CLUSTER
    };
}

/// An output that can be shared out among the consumer warpgroups of a cluster, by rows.
///
/// # Safety
/// Parts with different indices are disjoint.
pub unsafe trait Output {
    /// One warpgroup's part.
    type Part;
    /// Rows of a tile: 64 for each warpgroup of the cluster.
    #[doc(hidden)]
    const ROWS: usize;
    /// Warpgroups of a block that there are buffers for; None: any number.
    #[doc(hidden)]
    const WARPGROUPS: Option<usize>;
    /// # Safety
    /// Once for each of `index` in `0..parts`, and the whole is not used any more.
    #[doc(hidden)]
    unsafe fn part(&self, index: u32, warpgroup: u32) -> Self::Part;
}

impl<const THREADS: usize, const CLUSTER: usize> Cta<THREADS, CLUSTER> {
    /// # Safety
    /// Once a block, by the generated entry.
    #[doc(hidden)]
    #[inline(always)]
    pub unsafe fn begin(scratch: Smem, place: backend::Place) -> Self {
        Cta { scratch, place, _p: PhantomData }
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
        assert!(THREADS % 128 == 0 && THREADS >= 256, "roles need a producer and at least one consumer warpgroup");
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
        consumer: impl for<'p> Fn(&mut WarpGroup, &mut C::Consumer<'p>, O::Part) + Sync,
    ) where
        O::Part: Send,
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
        }
        backend::roles::<C, O, THREADS, CLUSTER>(self, channel, output, producer, consumer)
    }
}

/// Makes the token of a warpgroup.
///
/// # Safety
/// Once for each warpgroup, by `roles`.
#[inline(always)]
pub(crate) unsafe fn warpgroup(index: u32) -> WarpGroup {
    WarpGroup { index, _p: PhantomData }
}
