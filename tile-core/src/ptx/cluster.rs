//! Sums over a cluster, through distributed shared memory (PTX ISA, "st.async").

use core::arch::asm;

use super::smem::{Smem, here};
use super::sync::{cluster_rank, tid, warp_barrier};
use super::wgmma::{Wgmma, Width};
use super::{Barrier, meet_before_release, release};
use crate::cluster::{BARRIER_BYTES, GROUP_BYTES};

/// Writes 16 bytes to a block of the cluster, counted at a barrier of it, if `condition`.
///
/// # Safety
/// If `condition`, the bytes are the caller's to write, and the barrier expects them.
#[inline(always)]
unsafe fn send_if(to: u32, v: [f32; 4], bar: u32, condition: bool) {
    // SAFETY: the caller's.
    unsafe {
        asm!("{{ .reg .pred p; setp.ne.u32 p, {6}, 0; @p st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [{0}], {{{1}, {2}, {3}, {4}}}, [{5}]; }}",
            in(reg32) to, in(reg32) v[0], in(reg32) v[1], in(reg32) v[2], in(reg32) v[3], in(reg32) bar,
            in(reg32) condition as u32, options(nostack))
    }
}

/// # Safety
/// Nobody writes the 16 bytes at the same time.
#[inline(always)]
unsafe fn load_quad(from: Smem) -> [f32; 4] {
    let (a, b, c, d);
    // SAFETY: the caller's.
    unsafe {
        asm!("ld.shared.v4.b32 {{{0}, {1}, {2}, {3}}}, [{4}];",
            out(reg32) a, out(reg32) b, out(reg32) c, out(reg32) d, in(reg32) from.0, options(nostack))
    }
    [a, b, c, d]
}

/// Adds up the accumulators of the cluster's warpgroups of this number, each block its own column groups: see
/// [`ClusterSummer::sum`](crate::cluster::ClusterSummer::sum).
///
/// # Safety
/// By the whole warpgroup `index`, whose space is at `base`; `turn` counts its calls.
#[inline(always)]
pub(crate) unsafe fn cluster_sum<const N: usize, const CLUSTER: usize>(
    base: Smem,
    index: u32,
    turn: u32,
    regs: <Width<N> as Wgmma>::Regs,
) -> <Width<N> as Wgmma>::Regs
where
    Width<N>: Wgmma,
{
    let (full, free) = (Barrier(base), Barrier(base.add(8)));
    let (rank, thread) = (cluster_rank(), here(tid() % 128));
    if turn > 0 {
        // All have read what they were sent the last time. Said late, so that a block's last sum does not wait for it.
        meet_before_release(index, CLUSTER as u32);
        release(free, CLUSTER as u32);
        warp_barrier();
        free.wait::<2>(turn - 1, 0, "");
    }
    // An arrival from every peer, even where nothing is sent: a block that leaves knows that its peers came this far, and
    // they in turn do not leave before everything that it sent has landed.
    let groups = (N as u32 / 8 + CLUSTER as u32 - 1 - rank) / CLUSTER as u32;
    if thread == rank {
        full.expect((groups * (CLUSTER as u32 - 1)) as usize * GROUP_BYTES);
    } else if thread < CLUSTER as u32 {
        full.arrive_at(thread);
    }
    warp_barrier();
    let mine = base.add(BARRIER_BYTES + thread as usize * 16);
    let regs = Width::<N>::quads(
        regs,
        #[inline(always)]
        |g, v| {
            let to = g as u32 % CLUSTER as u32;
            // my place among the peers of `to`
            let place = rank - (rank > to) as u32;
            let at = mine.add((g / CLUSTER * (CLUSTER - 1) + place as usize) * GROUP_BYTES);
            // SAFETY: this thread's 16 bytes of this block's place, which their owner has read since they were last sent.
            unsafe { send_if(at.peer(to), v, full.0.peer(to), rank != to) };
            v
        },
    );
    full.wait::<2>(turn, 0, "");
    Width::<N>::quads(
        regs,
        #[inline(always)]
        |g, mut v| {
            if g as u32 % CLUSTER as u32 == rank {
                let mut place = 0;
                while place < CLUSTER - 1 {
                    let at = mine.add((g / CLUSTER * (CLUSTER - 1) + place) * GROUP_BYTES);
                    // SAFETY: it has landed.
                    let [a, b, c, d] = unsafe { load_quad(at) };
                    v = [v[0] + a, v[1] + b, v[2] + c, v[3] + d];
                    place += 1;
                }
            }
            v
        },
    )
}
