// wrong: staging for 1 warpgroup, used by 2
// rule: soundness 3: each warpgroup has its own buffers
// expect: build E0080 "staging has buffers for each consumer warpgroup of the block"
#![forbid(unsafe_code)]
use tilewright::prelude::*;

tilewright::images!(none);

type Stage = (SharedTile<bf16, 128, 64>, Multicast<SharedTile<bf16, 256, 64>, 2>);

#[kernel(arch = "sm_90a", grid = persistent)]
pub fn gemm(
    cta: Cta<384, 2>,
    #[shared] ring: Pipeline<Stage, 4>,
    #[shared] staging: Staging<1, 2>, //~ right: #[shared] staging: Staging<2, 2>,
    a: TmaTiles<bf16, 128, 64>,
    b: TmaTiles<bf16, 256, 64>,
    c: TmaTilesMut<bf16, 256, 256, Grouped<8>>,
) {
    let (steps, rank, plan) = (a.across(), cta.rank(), c.plan());
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
