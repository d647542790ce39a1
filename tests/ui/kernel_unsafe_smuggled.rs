// wrong: unsafe code in a kernel of a crate that forbids it
// rule: forbid(unsafe_code) holds in kernels
// expect: check - "usage of an `unsafe` block"
#![forbid(unsafe_code)]
use tilewright::prelude::*;

tilewright::images!(none);

#[kernel]
pub fn nothing(cta: Cta<128>, x: Tiles<f32, 1, 256>, y: TilesMut<f32, 1, 256>, n: u32) {
    unsafe { core::hint::unreachable_unchecked() }; //~ right:
    let _ = (cta, x.tile(0, n), y.plan());
}
