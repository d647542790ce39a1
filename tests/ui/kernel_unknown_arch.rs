// wrong: an architecture that no image is built for
// rule: #[kernel]: what a kernel is
// expect: check - "images are built for "sm_80" and "sm_90a""
#![forbid(unsafe_code)]
use tilewright::prelude::*;

tilewright::images!(none);

#[kernel(arch = "sm_100")] //~ right: #[kernel]
pub fn nothing(cta: Cta<128>, x: Tiles<f32, 1, 256>, y: TilesMut<f32, 1, 256>, n: u32) {
    let _ = (cta, x.tile(0, n), y.plan());
}
