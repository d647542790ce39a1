// wrong: memory of somebody else's is lent by safe code
// rule: soundness 15: foreign memory
// expect: check E0133 "call to unsafe function"
use tilewright::foreign::{Ending, scope};
use tilewright::prelude::*;

pub fn run(stream: &Stream, memory: &[f32]) -> Result<usize, Error> {
    scope(stream, Ending::OnStream, |s| {
        let view = s.view::<f32, 1>(memory.as_ptr(), memory.len(), [memory.len()], [1])?; //~ right: let view = unsafe { s.view::<f32, 1>(memory.as_ptr(), memory.len(), [memory.len()], [1]) }?;
        Ok(view.len())
    })
}
