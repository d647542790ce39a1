// wrong: a block keeps the stages of its products in a thread-local, for another block or another launch
// rule: soundness 3: shared memory is a block's for no longer than it runs
// expect: check E0521 "borrowed data escapes outside of function"
#![forbid(unsafe_code)]
use tilewright::prelude::*;

tilewright::images!(none);

type Ring<'b> = Stages<'b, f32, 64, 64, 16, 4>;

std::thread_local! {
    static KEPT: std::cell::RefCell<Option<Ring<'static>>> = const { std::cell::RefCell::new(None) };
}

#[kernel]
pub fn nothing(cta: Cta<128>, #[shared] stages: Ring, x: Tiles<f32, 1, 256>, y: TilesMut<f32, 1, 256>, n: u32) {
    KEPT.set(Some(stages)); //~ right: let _ = stages;
    let _ = (cta, x.tile(0, n), y.plan());
}
