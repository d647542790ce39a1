// wrong: a cluster of 9 blocks
// rule: soundness 10
// expect: check E0080 "a cluster has 1 to 8 blocks"
#![forbid(unsafe_code)]
use tilewright::prelude::*;

tilewright::images!(none);

#[kernel]
pub fn nothing(cta: Cta<128, 9>, x: Tiles<f32, 1, 256>, y: TilesMut<f32, 1, 256>, n: u32) { //~ right: pub fn nothing(cta: Cta<128>, x: Tiles<f32, 1, 256>, y: TilesMut<f32, 1, 256>, n: u32) {
    let _ = (cta, x.tile(0, n), y.plan());
}
