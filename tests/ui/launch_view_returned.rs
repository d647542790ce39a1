// wrong: a function returns tiles of its own tensor
// rule: contracts, launch boundary: a view that outlives its tensor
// expect: check E0515 "cannot return value referencing local variable `t`"
#![forbid(unsafe_code)]
use tilewright::prelude::*;

pub fn tiles<'a>(stream: &Stream) -> Result<TensorView<'a, f32, 2>, Error> { //~ right: pub fn tiles(stream: &Stream) -> Result<Tensor<f32, 2>, Error> {
    let t = Tensor::<f32, 2>::zeros(stream, [64, 64])?;
    Ok(t.view()) //~ right: Ok(t)
}
