// wrong: a block of 100 threads: not whole warps
// rule: soundness 2
// expect: check E0080 "a block has 32 to 1024 threads, whole warps"
#![forbid(unsafe_code)]
use tilewright::prelude::*;

tilewright::images!(none);

#[kernel]
pub fn nothing(cta: Cta<100>, x: Tiles<f32, 1, 256>, y: TilesMut<f32, 1, 256>, n: u32) { //~ right: pub fn nothing(cta: Cta<128>, x: Tiles<f32, 1, 256>, y: TilesMut<f32, 1, 256>, n: u32) {
    let _ = (cta, x.tile(0, n), y.plan());
}
