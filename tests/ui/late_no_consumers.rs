// wrong: roles in a block of one warpgroup
// rule: soundness 2, 3
// expect: build E0080 "roles need a producer and one to four consumer warpgroups"
#![forbid(unsafe_code)]
use tilewright::prelude::*;

tilewright::images!(none);

type Stage = (SharedTile<bf16, 128, 64>, SharedTile<bf16, 256, 64>);

#[kernel(arch = "sm_90a", grid = persistent)]
pub fn gemm(
    cta: Cta<128>, //~ right: cta: Cta<384>,
    #[shared] ring: Pipeline<Stage, 4>,
    a: TmaTiles<bf16, 128, 64>,
    b: TmaTiles<bf16, 256, 64>,
    c: TilesMut<bf16, 128, 256, Grouped<8>>,
) {
    let steps = a.across();
    let plan = c.plan();
    cta.roles(
        ring,
        c,
        |ring| {
            for (i, j) in plan {
                for k in 0..steps {
                    ring.fill().load((a.tile(i, k), b.tile(j, k)));
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
