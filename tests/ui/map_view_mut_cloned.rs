// wrong: a claim on an output behind a map is cloned
// rule: soundness 1: mutable views are never Copy, Clone or Default
// expect: check E0277 ": Clone` is not satisfied"
#![forbid(unsafe_code)]
use tilewright::prelude::*;
fn needs<T: Clone>() {}

pub fn f() {
    needs::<TmaTilesMut<bf16, 64, 64>>(); //~ right: needs::<u32>();
}
