// wrong: an output tile is asked for by its coordinates
// rule: soundness 3: each tile once
// expect: check E0599 "no method named `tile` found"
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
    let _ = c.tile(0, 0); //~ right:
    for ((i, j), out) in c {
        let acc = cta.accumulate(&mut stages, a.across(), |k| (a.tile(i, k), b.tile(j, k)), BlockAcc::zero());
        out.store_acc(&mut cta, acc);
    }
}
