// wrong: more blocks an SM than there can be
// rule: #[kernel]: what a kernel is
// expect: check - "an SM holds 1 to 32 blocks"
#![forbid(unsafe_code)]
use tilewright::prelude::*;

tilewright::images!(none);

#[kernel(min_blocks = 64)] //~ right: #[kernel]
pub fn nothing(cta: Cta<128>, x: Tiles<f32, 1, 256>, y: TilesMut<f32, 1, 256>, n: u32) {
    let _ = (cta, x.tile(0, n), y.plan());
}
