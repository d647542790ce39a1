// wrong: a grid that does not exist
// rule: #[kernel]: what a kernel is
// expect: check - "expected `per_tile`, `one_tile` or `persistent`"
#![forbid(unsafe_code)]
use tilewright::prelude::*;

tilewright::images!(none);

#[kernel(grid = whole)] //~ right: #[kernel]
pub fn nothing(cta: Cta<128>, x: Tiles<f32, 1, 256>, y: TilesMut<f32, 1, 256>, n: u32) {
    let _ = (cta, x.tile(0, n), y.plan());
}
