// wrong: a method as a kernel
// rule: #[kernel]: what a kernel is
// expect: check - "a kernel is a free function"
#![forbid(unsafe_code)]
use tilewright::prelude::*;

tilewright::images!(none);

pub struct S; //~ right:
impl S { //~ right:
#[kernel]
pub fn nothing(&self, cta: Cta<128>, x: Tiles<f32, 1, 256>, y: TilesMut<f32, 1, 256>, n: u32) { //~ right: pub fn nothing(cta: Cta<128>, x: Tiles<f32, 1, 256>, y: TilesMut<f32, 1, 256>, n: u32) {
    let _ = (cta, x.tile(0, n), y.plan());
}
} //~ right:
