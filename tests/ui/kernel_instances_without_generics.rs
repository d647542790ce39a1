// wrong: instances of a kernel that is not generic
// rule: #[kernel]: what a kernel is
// expect: check - "only a generic kernel has instances"
#![forbid(unsafe_code)]
use tilewright::prelude::*;

tilewright::images!(none);

#[kernel(instances(a = <f32>))] //~ right: #[kernel]
pub fn nothing(cta: Cta<128>, x: Tiles<f32, 1, 256>, y: TilesMut<f32, 1, 256>, n: u32) {
    let _ = (cta, x.tile(0, n), y.plan());
}
