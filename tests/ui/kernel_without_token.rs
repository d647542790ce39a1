// wrong: a kernel without a block
// rule: #[kernel]: what a kernel is
// expect: check - "first parameter is the block's token"
#![forbid(unsafe_code)]
use tilewright::prelude::*;

tilewright::images!(none);

#[kernel]
pub fn nothing() { //~ right: pub fn nothing(cta: Cta<128>, x: Tiles<f32, 1, 256>, y: TilesMut<f32, 1, 256>, n: u32) {
 //~ right: let _ = (cta, x.tile(0, n), y.plan());
}
