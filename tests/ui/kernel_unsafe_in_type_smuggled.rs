// wrong: an unsafe call in a type of the signature, which the attribute repeats inside its own unsafe code
// rule: forbid(unsafe_code) holds in kernels
// expect: check E0133 "call to unsafe function"
use tilewright::prelude::*;

tilewright::images!(none);

pub const unsafe fn size() -> usize { //~ right: pub const fn size() -> usize {
    128
}

#[kernel]
pub fn nothing(cta: Cta<{ size() }>, x: Tiles<f32, 1, 256>, y: TilesMut<f32, 1, 256>, n: u32) {
    let _ = (cta, x.tile(0, n), y.plan());
}
