// wrong: an option that does not exist
// rule: #[kernel]: what a kernel is
// expect: check - "expected `arch`, `grid`, `min_blocks`, `faults` or `instances`"
#![forbid(unsafe_code)]
use tilewright::prelude::*;

tilewright::images!(none);

#[kernel(threads = 128)] //~ right: #[kernel]
pub fn nothing(cta: Cta<128>, x: Tiles<f32, 1, 256>, y: TilesMut<f32, 1, 256>, n: u32) {
    let _ = (cta, x.tile(0, n), y.plan());
}
