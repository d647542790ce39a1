// wrong: a claim from nothing
// rule: soundness 1: mutable views are never Copy, Clone or Default
// expect: check E0277 ": Default` is not satisfied"
#![forbid(unsafe_code)]
use tilewright::prelude::*;
fn needs<T: Default>() {}

pub fn f() {
    needs::<TilesMut<f32, 1, 256>>(); //~ right: needs::<u32>();
}
