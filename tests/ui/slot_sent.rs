// wrong: a full slot goes to another thread
// rule: soundness 3, 4: slots, rings and products are linear
// expect: check E0277 "cannot be sent between threads safely"
#![forbid(unsafe_code)]
use tilewright::prelude::*;
fn needs<T: Send>() {}

pub fn f() {
    needs::<FullSlot<'static, SharedTile<bf16, 64, 64>, 2>>(); //~ right: needs::<u32>();
}
