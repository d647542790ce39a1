// wrong: an output tile is cloned
// rule: soundness 1: mutable views are never Copy, Clone or Default
// expect: check E0277 ": Clone` is not satisfied"
#![forbid(unsafe_code)]
use tilewright::prelude::*;
fn needs<T: Clone>() {}

pub fn f() {
    needs::<tilewright::view::TileMut<f32, 1, 256>>(); //~ right: needs::<u32>();
}
