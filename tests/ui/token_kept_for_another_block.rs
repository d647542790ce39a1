// wrong: a block keeps its token in a thread-local, for another block or another launch
// rule: soundness 2: tokens live no longer than their block
// expect: check E0521 "borrowed data escapes outside of function"
#![forbid(unsafe_code)]
use tilewright::prelude::*;

tilewright::images!(none);

std::thread_local! {
    static KEPT: std::cell::RefCell<Option<Cta<'static, 128>>> = const { std::cell::RefCell::new(None) };
}

#[kernel]
pub fn nothing(cta: Cta<128>, x: Tiles<f32, 1, 256>, y: TilesMut<f32, 1, 256>, n: u32) {
    KEPT.set(Some(cta)); //~ right: let _ = (cta, x.tile(0, n), y.plan());
    let _ = (x.tile(0, n), y.plan()); //~ right:
}
