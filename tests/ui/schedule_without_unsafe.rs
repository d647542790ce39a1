// wrong: a schedule of one's own: nothing proves that it hands each tile to one block
// rule: soundness 13
// expect: check E0200 "requires an `unsafe impl` declaration"
#![forbid(unsafe_code)]
use tilewright::prelude::*;

#[derive(Clone, Copy, Debug)]
pub struct Same;
impl Schedule for Same { //~ right:
    const ID: u64 = 9; //~ right:
    fn at(&self, _: u32, _: u32, _: u32) -> (u32, u32) { (0, 0) } //~ right:
} //~ right:
