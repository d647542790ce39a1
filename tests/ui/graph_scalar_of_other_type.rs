// wrong: a recorded launch is given an argument of a type that no kernel takes
// rule: soundness 1: arguments can not be forged
// expect: check E0277 "the trait bound `f64: Scalar` is not satisfied"
#![forbid(unsafe_code)]
use tilewright::prelude::*;

pub fn run(graph: &mut Graph) -> Result<(), Error> {
    graph.set(0, "eps", 1e-6f64) //~ right: graph.set(0, "eps", 1e-6f32)
}
