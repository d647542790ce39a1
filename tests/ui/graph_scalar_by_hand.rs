// wrong: a type of one's own as the scalar argument of a recorded launch
// rule: soundness 1: arguments can not be forged
// expect: check E0277+E0603 "is not satisfied"
#![forbid(unsafe_code)]
use tilewright::prelude::*;

#[derive(Clone, Copy)]
pub struct Pointer(pub u64);
impl tilewright::Scalar for Pointer {} //~ right:

pub fn run(graph: &mut Graph, p: Pointer) -> Result<(), Error> {
    graph.set(0, "x", p.0)
}
