// wrong: a tensor is read back by a closure that has claimed it for the recording
// rule: contracts, launch boundary: one buffer as input and `&mut` output
// expect: check E0502 "cannot borrow `y` as immutable because it is also borrowed as mutable"
#![forbid(unsafe_code)]
use tilewright::prelude::*;

pub fn run(stream: &Stream) -> Result<(), Error> {
    let mut y = Tensor::<f32, 1>::zeros(stream, [8])?;
    let mut graph = stream.capture(|s| {
        let mut claim = y.view_mut();
        let seen = y.view().len(); //~ right: let seen = claim.view().len();
        claim.fill(s, seen as f32)
    })?;
    graph.launch(stream)
}
