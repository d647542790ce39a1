// wrong: one output tile is stored twice
// rule: soundness 3: each tile once
// expect: check E0382 "use of moved value: `out`"
#![forbid(unsafe_code)]
use tilewright::prelude::*;

tilewright::images!(none);

#[kernel]
pub fn product(
    mut cta: Cta<128>,
    #[shared] mut stages: Stages<f32, 64, 64, 16, 4>,
    a: Tiles<f32, 64, 16>,
    b: Tiles<f32, 64, 16>,
    c: TilesMut<f32, 64, 64>,
) {
    for ((i, j), out) in c {
        let acc = cta.accumulate(&mut stages, a.across(), |k| (a.tile(i, k), b.tile(j, k)), BlockAcc::zero());
        out.store_acc(&mut cta, acc);
        out.store_acc(&mut cta, BlockAcc::zero()); //~ right:
    }
}
