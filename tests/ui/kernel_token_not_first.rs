// wrong: a kernel whose first parameter is not the block's token
// rule: #[kernel]: what a kernel is
// expect: check E0277+E0599 "is not the token of a block"
#![forbid(unsafe_code)]
use tilewright::prelude::*;

tilewright::images!(none);

#[kernel]
pub fn nothing(x: Tiles<f32, 1, 256>, y: TilesMut<f32, 1, 256>, n: u32) { //~ right: pub fn nothing(cta: Cta<128>, x: Tiles<f32, 1, 256>, y: TilesMut<f32, 1, 256>, n: u32) {
    let _ = (x.tile(0, n), y.plan()); //~ right: let _ = (cta, x.tile(0, n), y.plan());
}
