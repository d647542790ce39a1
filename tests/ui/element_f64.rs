// wrong: a tensor of f64
// rule: soundness 1: elements are sealed
// expect: check E0277 "`f64` is not an element type of tensors"
#![forbid(unsafe_code)]
use tilewright::prelude::*;
pub fn f(_: Tensor<f64, 1>) {} //~ right: pub fn f(_: Tensor<f32, 1>) {}
