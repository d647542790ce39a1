// wrong: an unsafe call in a kernel, outside of any unsafe block
// rule: forbid(unsafe_code) holds in kernels
// expect: check E0133 "call to unsafe function"
#![forbid(unsafe_code)]
use tilewright::prelude::*;

tilewright::images!(none);

#[kernel]
pub fn nothing(cta: Cta<128>, x: Tiles<f32, 1, 256>, y: TilesMut<f32, 1, 256>, n: u32) {
    core::hint::unreachable_unchecked(); //~ right:
    let _ = (cta, x.tile(0, n), y.plan());
}
