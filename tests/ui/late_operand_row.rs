// wrong: an operand tile of 96 bytes a row
// rule: contracts: tile not divisible by the MMA shape
// expect: check E0080 "a row of an operand tile has 64 or 128 bytes"
#![forbid(unsafe_code)]
use tilewright::prelude::*;

tilewright::images!(none);

#[kernel]
pub fn product(
    mut cta: Cta<128>,
    #[shared] mut stages: Stages<f32, 64, 64, 24, 4>, //~ right: #[shared] mut stages: Stages<f32, 64, 64, 16, 4>,
    a: Tiles<f32, 64, 24>, //~ right: a: Tiles<f32, 64, 16>,
    b: Tiles<f32, 64, 24>, //~ right: b: Tiles<f32, 64, 16>,
    c: TilesMut<f32, 64, 64>,
) {
    for ((i, j), out) in c {
        let acc = cta.accumulate(&mut stages, a.across(), |k| (a.tile(i, k), b.tile(j, k)), BlockAcc::zero());
        out.store_acc(&mut cta, acc);
    }
}
