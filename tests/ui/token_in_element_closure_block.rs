// wrong: an element closure reaches for the block
// rule: soundness 5: element closures see nothing of the lanes, and reach no barrier
// expect: check E0277 "cannot be shared between threads safely"
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
        let acc = acc.map(|x| { let _ = &cta; x }); //~ right:
        out.store_acc(&mut cta, acc);
    }
}
