//! C = f(A B^T) on Hopper: A is M x K, B is N x K, both with adjacent columns; f32 accumulation, one rounding.
//!
//! | | |
//! |---|---|
//! | tile of a cluster | 256 x 256, depth 64 |
//! | blocks | cluster of 2: each takes 128 rows; the B tile is loaded once, half by each, for both |
//! | roles | 1 producer, 2 consumer warpgroups of 64 x 256 |
//! | shared memory | 4 stages of 48 KiB, 32 KiB of staging for the stores |
//! | registers | 168 at entry; producer 40, consumers 232 |
//!
//! Disjointness: `c` hands each tile to one cluster; `roles` gives each consumer of its blocks other 64 rows.

use tilewright::prelude::*;

/// C = A B^T.
#[kernel(arch = "sm_90a", grid = persistent, instances(bf16 = <bf16>, f16 = <f16>))]
pub fn plain<T: MmaElement>(
    cta: Cta<384, 2>,
    #[shared] ring: Pipeline<(SharedTile<T, 128, 64>, Multicast<SharedTile<T, 256, 64>, 2>), 4>,
    #[shared] staging: Staging<2, 2>,
    a: TmaTiles<T, 128, 64>,
    b: TmaTiles<T, 256, 64>,
    c: TmaTilesMut<T, 256, 256, Grouped<8>>,
) {
    let steps = a.across();
    let plan = c.plan();
    let rank = cta.rank();
    cta.roles(
        ring,
        c.through(staging),
        |ring| {
            for (i, j) in plan {
                for k in 0..steps {
                    ring.fill().load((a.tile(2 * i + rank, k), b.tile(j, k)));
                }
            }
        },
        |wg, ring, c| {
            for (_, out) in c {
                let mut mma = wg.mma(Acc::<256>::zero());
                for _ in 0..steps {
                    mma.step(ring.next(), |(a, b)| (a.rows_of(wg), b.all()));
                }
                out.store(wg, mma.wait());
            }
        },
    );
}
