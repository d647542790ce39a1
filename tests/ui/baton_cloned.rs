// wrong: a second claim on the ring's end
// rule: soundness 3: a ring has one consuming end
// expect: check E0599 "no method named `clone` found"
#![forbid(unsafe_code)]
use tilewright::prelude::*;

tilewright::images!(none);

#[kernel(arch = "sm_90a", grid = persistent)]
pub fn gemm(
    cta: Cta<384>,
    #[shared] ring: Pipeline<(SharedTile<bf16, 128, 64>, SharedTile<bf16, 128, 64>), 4>,
    #[shared] turns: Turns,
    a: TmaTiles<bf16, 128, 64>,
    b: TmaTiles<bf16, 128, 64>,
    c: TilesMut<bf16, 128, 128>,
) {
    let (steps, plan) = (a.across(), c.plan());
    cta.ping_pong(
        ring,
        turns,
        c,
        |ring| {
            for (i, j) in plan {
                for k in 0..steps {
                    ring.fill().load((a.tile(i, k), b.tile(j, k)));
                }
            }
        },
        |wg, baton, c| {
            for (_, out) in c {
                let mut mma = wg.mma(Acc::<128, 2>::zero());
                let mut ring = baton.clone().take(wg); //~ right: let mut ring = baton.take(wg);
                for _ in 0..steps {
                    mma.step(ring.next(), |(a, b)| (a.rows(), b.all()));
                }
                baton.give(wg, ring);
                out.store(wg, mma.wait());
            }
        },
    );
}
