// wrong: a view of memory that is lent is kept beyond the call that it is lent for
// rule: soundness 15: foreign memory
// expect: check - "lifetime may not live long enough"
use tilewright::foreign::{Ending, scope};
use tilewright::prelude::*;

pub fn run(stream: &Stream, memory: &mut [f32]) -> Result<(), Error> {
    let (address, len) = (memory.as_mut_ptr(), memory.len());
    let kept = scope(stream, Ending::OnStream, |s| {
        // SAFETY: the slice is borrowed, and not used meanwhile.
        let view = unsafe { s.view_mut::<f32, 1>(address, len, [len], [1]) }?;
        Ok(view) //~ right: Ok(view.len())
    })?;
    drop(kept);
    Ok(())
}
