// wrong: a resident slot is read while the group owns it
// rule: soundness 4: in flight means owned
// expect: check E0382 "borrow of moved value: `slot`"
#![forbid(unsafe_code)]
use tilewright::prelude::*;

tilewright::images!(none);

type Stage = (SharedTile<bf16, 128, 64>, SharedTile<bf16, 256, 64>);

#[kernel(arch = "sm_90a", grid = persistent)]
pub fn gemm(
    cta: Cta<384>,
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
                let slot = ring.next(); //~ right: let mut mma = wg.mma(Acc::<256>::zero());
                let mut mma = wg.mma_with(Acc::<256>::zero(), slot); //~ right:
                let _ = &slot.0; //~ right:
                for _ in 0..steps {
                    mma.step_with(ring.next(), |_, (a, b)| (a.rows_of(wg), b.all())); //~ right: mma.step(ring.next(), |(a, b)| (a.rows_of(wg), b.all()));
                }
                out.store(wg, mma.wait_with().0); //~ right: out.store(wg, mma.wait());
            }
        },
    );
}
