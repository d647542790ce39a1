// wrong: a warpgroup's token goes to another thread
// rule: soundness 2: tokens are neither copied nor sent
// expect: check E0277 "cannot be sent between threads safely"
#![forbid(unsafe_code)]
use tilewright::prelude::*;
fn needs<T: Send>() {}

pub fn f() {
    needs::<WarpGroup>(); //~ right: needs::<u32>();
}
