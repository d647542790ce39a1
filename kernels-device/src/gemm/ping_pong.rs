//! C = f(A B^T) on Hopper, in ping-pong: as `hopper`, but each of the two consumer warpgroups works on a tile of its own,
//! and stores it while the other multiplies.
//!
//! | | |
//! |---|---|
//! | tile of a cluster | 256 x 128, depth 64 |
//! | blocks | cluster of 2: each takes 128 rows; the B tile is loaded once, half by each, for both |
//! | roles | 1 producer, 2 consumer warpgroups of 128 x 128, a tile each, in turns |
//! | shared memory | 5 stages of 32 KiB, 32 KiB of staging for the stores |
//! | registers | 168 at entry; producer 40, consumers 232 |
//!
//! Disjointness: `c` hands each tile to one cluster; `ping_pong` gives every second one to each warpgroup, and of it the
//! rows of its block. The ring has one consuming end, which the warpgroups pass to each other.

use tilewright::prelude::*;

/// C = A B^T.
#[kernel(arch = "sm_90a", grid = persistent, instances(bf16 = <bf16>))]
pub fn plain<T: MmaElement>(
    cta: Cta<384, 2>,
    #[shared] ring: Pipeline<(SharedTile<T, 128, 64>, Multicast<SharedTile<T, 128, 64>, 2>), 5>,
    #[shared] staging: Staging<2, 2>,
    #[shared] turns: Turns,
    a: TmaTiles<T, 128, 64>,
    b: TmaTiles<T, 128, 64>,
    c: TmaTilesMut<T, 256, 128, Grouped<8>>,
) {
    let steps = a.across();
    let plan = c.plan();
    let rank = cta.rank();
    cta.ping_pong(
        ring,
        turns,
        c.through(staging),
        |ring| {
            for (i, j) in plan {
                for k in 0..steps {
                    ring.fill().load((a.tile(2 * i + rank, k), b.tile(j, k)));
                }
            }
        },
        |wg, baton, c| {
            for (_, out) in c {
                let mut mma = wg.mma(Acc::<128, 2>::zero());
                let mut ring = baton.take(wg);
                for _ in 0..steps {
                    mma.step(ring.next(), |(a, b)| (a.rows(), b.all()));
                }
                baton.give(wg, ring);
                out.store(wg, mma.wait());
            }
        },
    );
}
