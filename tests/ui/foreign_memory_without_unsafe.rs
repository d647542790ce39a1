// wrong: a tensor in foreign memory, in safe code
// rule: soundness 15: foreign memory has a contract
// expect: check E0133 "call to unsafe function"
#![forbid(unsafe_code)]
use tilewright::prelude::*;

pub fn f(stream: &Stream) -> Result<Tensor<f32, 1>, Error> {
    Tensor::from_raw(&stream.device(), 8 as *mut f32, [8]) //~ right: Tensor::zeros(stream, [8])
}
