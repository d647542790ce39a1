// wrong: a view made from an address
// rule: soundness 1: private constructors
// expect: check E0451 "are private"
#![forbid(unsafe_code)]
use tilewright::prelude::*;

pub fn f<'a>(x: tilewright::view::Tiles<'a, f32, 1, 8>) -> Tiles<'a, f32, 1, 8> {
    Tiles { base: 8 as *const f32, ..x } //~ right: x
}
