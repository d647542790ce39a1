// wrong: a block's token from nothing
// rule: soundness 2: tokens are neither copied nor sent
// expect: check E0277 ": Default` is not satisfied"
#![forbid(unsafe_code)]
use tilewright::prelude::*;
fn needs<T: Default>() {}

pub fn f() {
    needs::<Cta<128>>(); //~ right: needs::<u32>();
}
