// wrong: a stage of one's own, whose bytes nobody checks
// rule: soundness 10
// expect: check E0200+- "requires an `unsafe impl` declaration"
#![forbid(unsafe_code)]
use tilewright::prelude::*;

pub struct Mine;
impl<'b> tilewright::__private::Shared<'b> for Mine { //~ right:
    const BYTES: usize = 0; //~ right:
    unsafe fn claim(_: &'b tilewright::__private::BlockScope, _: tilewright::__private::backend::Smem, _: tilewright::__private::backend::Smem) -> Self { Mine } //~ right:
} //~ right:
