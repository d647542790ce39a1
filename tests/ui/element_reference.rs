// wrong: a tensor of references
// rule: soundness 1: elements are sealed
// expect: check E0277 "`&'static f32` is not an element type of tensors"
#![forbid(unsafe_code)]
use tilewright::prelude::*;
pub fn f(_: Tensor<&'static f32, 1>) {} //~ right: pub fn f(_: Tensor<f32, 1>) {}
