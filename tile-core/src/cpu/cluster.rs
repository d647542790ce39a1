//! Sums over a cluster on the CPU: the same places and the same order as on the device.

use super::monitor::note_arrival;
use super::{Barrier, Smem, Wgmma, Width, release};
use crate::cluster::{BARRIER_BYTES, GROUP_BYTES};

/// Adds up the accumulators of the cluster's warpgroups of this number, each block its own column groups: see
/// [`ClusterSummer::sum`](crate::cluster::ClusterSummer::sum).
///
/// # Safety
/// By warpgroup `index`, whose space is at `base`; `turn` counts its calls.
pub(crate) unsafe fn cluster_sum<const N: usize, const CLUSTER: usize>(
    base: Smem,
    _index: u32,
    turn: u32,
    mut regs: <Width<N> as Wgmma>::Regs,
) -> <Width<N> as Wgmma>::Regs
where
    Width<N>: Wgmma,
{
    let (full, free) = (Barrier(base), Barrier(base.add(8)));
    let (cluster, rank) = (CLUSTER as u32, base.rank);
    if turn > 0 {
        release(free, cluster);
        free.wait::<2>(turn - 1, cluster, "a sum over the cluster waits for its buffers");
    }
    let place_of =
        |g: usize, place: usize| base.add(BARRIER_BYTES + (g / CLUSTER * (CLUSTER - 1) + place) * GROUP_BYTES);
    for g in 0..N / 8 {
        let to = (g % CLUSTER) as u32;
        if to != rank {
            let place = rank - u32::from(rank > to);
            let at = place_of(g, place as usize).peer(to);
            for i in 0..64 * 8 {
                // SAFETY: this block's place of the group, which its owner has read since it was last sent.
                unsafe { (at.ptr as *mut f32).add(i).write(regs.as_ref()[i / 8 * N + 8 * g + i % 8]) }
            }
        }
    }
    for peer in (0..cluster).filter(|peer| *peer != rank) {
        Barrier(full.0.peer(peer)).arrive();
    }
    note_arrival();
    full.wait::<2>(turn, cluster - 1, "a sum over the cluster waits for its peers' parts");
    for g in (0..N / 8).filter(|g| g % CLUSTER == rank as usize) {
        for place in 0..CLUSTER - 1 {
            let at: Smem = place_of(g, place);
            for i in 0..64 * 8 {
                // SAFETY: it has been written, and not again before this block releases it.
                regs.as_mut()[i / 8 * N + 8 * g + i % 8] += unsafe { (at.ptr as *const f32).add(i).read() };
            }
        }
    }
    regs
}
