// wrong: a shared tile is copied out of its slot
// rule: soundness 3, 4: slots, rings and products are linear
// expect: check E0277 ": Copy` is not satisfied"
#![forbid(unsafe_code)]
use tilewright::prelude::*;
fn needs<T: Copy>() {}

pub fn f() {
    needs::<SharedTile<bf16, 64, 64>>(); //~ right: needs::<u32>();
}
