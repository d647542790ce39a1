// wrong: more shared memory than sm_80 has
// rule: contracts: shared memory (166,912 bytes with `large_shared`)
// expect: check E0080 "the kernel's shared memory exceeds what a block can have"
#![forbid(unsafe_code)]
use tilewright::prelude::*;

tilewright::images!(none);

#[kernel(large_shared)]
pub fn product(
    mut cta: Cta<128>,
    #[shared] mut stages: Stages<f32, 64, 64, 16, 21>, //~ right: #[shared] mut stages: Stages<f32, 64, 64, 16, 4>,
    a: Tiles<f32, 64, 16>,
    b: Tiles<f32, 64, 16>,
    c: TilesMut<f32, 64, 64>,
) {
    for ((i, j), out) in c {
        let acc = cta.accumulate(&mut stages, a.across(), |k| (a.tile(i, k), b.tile(j, k)), BlockAcc::zero());
        out.store_acc(&mut cta, acc);
    }
}
