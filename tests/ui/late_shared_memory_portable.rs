// wrong: more shared memory than every sm_80 machine has
// rule: contracts: shared memory (101,376 bytes in portable images)
// expect: check E0080 "the kernel's shared memory exceeds what a block can have"
#![forbid(unsafe_code)]
use tilewright::prelude::*;

tilewright::images!(none);

#[kernel]
pub fn product(
    mut cta: Cta<128>,
    #[shared] mut stages: Stages<f32, 64, 64, 16, 13>, //~ right: #[shared] mut stages: Stages<f32, 64, 64, 16, 4>,
    a: Tiles<f32, 64, 16>,
    b: Tiles<f32, 64, 16>,
    c: TilesMut<f32, 64, 64>,
) {
    for ((i, j), out) in c {
        let acc = cta.accumulate(&mut stages, a.across(), |k| (a.tile(i, k), b.tile(j, k)), BlockAcc::zero());
        out.store_acc(&mut cta, acc);
    }
}
