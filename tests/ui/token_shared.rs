// wrong: a block's token is shared among threads
// rule: soundness 2: tokens are neither copied nor sent
// expect: check E0277 "cannot be shared between threads safely"
#![forbid(unsafe_code)]
use tilewright::prelude::*;
fn needs<T: Sync>() {}

pub fn f() {
    needs::<Cta<128>>(); //~ right: needs::<u32>();
}
