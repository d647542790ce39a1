// wrong: a full slot is cloned
// rule: soundness 3, 4: slots, rings and products are linear
// expect: check E0277 ": Clone` is not satisfied"
#![forbid(unsafe_code)]
use tilewright::prelude::*;
fn needs<T: Clone>() {}

pub fn f() {
    needs::<FullSlot<'static, SharedTile<bf16, 64, 64>, 2>>(); //~ right: needs::<u32>();
}
