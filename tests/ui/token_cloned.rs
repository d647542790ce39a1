// wrong: a block's token is cloned
// rule: soundness 2: tokens are neither copied nor sent
// expect: check E0277 ": Clone` is not satisfied"
#![forbid(unsafe_code)]
use tilewright::prelude::*;
fn needs<T: Clone>() {}

pub fn f() {
    needs::<Cta<128>>(); //~ right: needs::<u32>();
}
