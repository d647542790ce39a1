// wrong: two handles on the same buffers
// rule: soundness 3, 4: slots, rings and products are linear
// expect: check E0277 ": Clone` is not satisfied"
#![forbid(unsafe_code)]
use tilewright::prelude::*;
fn needs<T: Clone>() {}

pub fn f() {
    needs::<Staging<2, 2>>(); //~ right: needs::<u32>();
}
