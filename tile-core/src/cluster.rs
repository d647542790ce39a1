//! Sums over the blocks of a cluster: how blocks that share a product by its depth join their parts.
//!
//! The blocks reduce and scatter: the accumulator's columns, in groups of 8, belong to the blocks in turn, and each block
//! sends the others theirs, through distributed shared memory. The order in which parts are added is fixed, so that
//! results repeat bit by bit.

use core::marker::PhantomData;

use crate::backend::{self, Barrier, Smem, Wgmma, Width};
use crate::mma::Acc;
use crate::pipeline::{Channel, Lent};
use crate::roles::{BlockScope, WarpGroup, Within};
use crate::shared::Shared;

/// Where the parts of a cluster's accumulators of `N` columns meet, for `WARPGROUPS` consumers of each of `CLUSTER`
/// blocks. A `#[shared]` parameter of a kernel, and beside its pipeline the channel of its roles: consumers get a
/// [`ClusterSummer`].
pub struct ClusterSum<'b, const N: usize, const WARPGROUPS: usize, const CLUSTER: usize> {
    at: SpaceAt,
    _p: Within<'b>,
}

/// Where the space of a [`ClusterSum`] is.
#[doc(hidden)]
pub struct SpaceAt(Smem);
// SAFETY: an address; the memory is reached through its ends alone.
unsafe impl Sync for SpaceAt {}
// SAFETY: as above.
unsafe impl Send for SpaceAt {}

/// Bytes of 64 rows of a group of 8 columns.
pub(crate) const GROUP_BYTES: usize = 64 * 8 * 4;
/// Bytes of the barriers before a warpgroup's buffers.
pub(crate) const BARRIER_BYTES: usize = 16;

impl<const N: usize, const W: usize, const CLUSTER: usize> ClusterSum<'_, N, W, CLUSTER> {
    /// Two barriers, and what the others send of the groups that this block has.
    const SPACE: usize =
        if CLUSTER == 1 { 0 } else { BARRIER_BYTES + (N / 8).div_ceil(CLUSTER) * (CLUSTER - 1) * GROUP_BYTES };
}

// SAFETY: the tail is what the warpgroups' ends use.
unsafe impl<'b, const N: usize, const W: usize, const CLUSTER: usize> Shared<'b> for ClusterSum<'b, N, W, CLUSTER> {
    const BYTES: usize = 0;
    const TAIL: usize = W * Self::SPACE;
    #[inline(always)]
    unsafe fn claim(_: &'b BlockScope, _: Smem, tail: Smem) -> Self {
        ClusterSum { at: SpaceAt(tail), _p: PhantomData }
    }
}

// SAFETY: ends are made once each by `roles`.
unsafe impl<const N: usize, const W: usize, const CLUSTER: usize> Channel for ClusterSum<'_, N, W, CLUSTER> {
    type Producer<'p> = ();
    type Consumer<'p> = ClusterSummer<'p, N, CLUSTER>;
    type Rings = SpaceAt;
    const CLUSTER: usize = CLUSTER;
    const CONSUMERS: Option<usize> = Some(W);
    #[inline(always)]
    fn rings(self) -> SpaceAt {
        self.at
    }
    #[inline(always)]
    unsafe fn init(at: &SpaceAt, _consumers: u32) {
        if CLUSTER == 1 {
            return;
        }
        let mut index = 0;
        while index < W {
            let base = at.0.add(index * Self::SPACE);
            // SAFETY: the caller's.
            unsafe {
                Barrier(base).init(CLUSTER as u32);
                Barrier(base.add(8)).init(CLUSTER as u32);
            }
            index += 1;
        }
    }
    #[inline(always)]
    fn producer(_: &SpaceAt, _consumers: u32) -> Self::Producer<'_> {}
    #[inline(always)]
    fn consumer(at: &SpaceAt, index: u32) -> Self::Consumer<'_> {
        ClusterSummer { base: at.0.add(index as usize * Self::SPACE), index, turn: 0, _p: PhantomData }
    }
    #[inline(always)]
    fn drain(_: Self::Producer<'_>) {}
}

/// A warpgroup's end of a [`ClusterSum`].
pub struct ClusterSummer<'p, const N: usize, const CLUSTER: usize> {
    base: Smem,
    index: u32,
    turn: u32,
    _p: Lent<'p>,
}

impl<const N: usize, const CLUSTER: usize> ClusterSummer<'_, N, CLUSTER>
where
    Width<N>: Wgmma,
{
    /// Adds up what the warpgroups of this number in all blocks of the cluster pass. Each block gets the sums of its own
    /// columns: of those groups of 8 whose number is the block's, modulo the number of blocks. In other columns it gets
    /// back its own part. An output that is [`transposed`](crate::view::TilesMut::transposed) stores the sums.
    ///
    /// All blocks must call it equally often: a call returns when all have made theirs.
    #[inline(always)]
    pub fn sum(&mut self, _wg: &mut WarpGroup, acc: Acc<N>) -> Acc<N> {
        if CLUSTER == 1 {
            return acc;
        }
        let [regs] = acc.regs;
        // SAFETY: by the whole warpgroup, whose space it is; turns are counted.
        let regs = unsafe { backend::cluster_sum::<N, CLUSTER>(self.base, self.index, self.turn, regs) };
        self.turn = self.turn.wrapping_add(1);
        Acc { regs: [regs] }
    }
}
