// wrong: a host reference as a parameter
// rule: soundness 1
// expect: check - "a kernel takes views of device memory, not references"
#![forbid(unsafe_code)]
use tilewright::prelude::*;

tilewright::images!(none);

#[kernel]
pub fn nothing(cta: Cta<128>, x: Tiles<f32, 1, 256>, y: TilesMut<f32, 1, 256>, n: &[f32]) { //~ right: pub fn nothing(cta: Cta<128>, x: Tiles<f32, 1, 256>, y: TilesMut<f32, 1, 256>, n: u32) {
    let _ = (cta, x.tile(0, n.len() as u32), y.plan()); //~ right: let _ = (cta, x.tile(0, n), y.plan());
}
