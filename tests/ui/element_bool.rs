// wrong: a tensor of bool: not every bit pattern is valid
// rule: soundness 1: elements are sealed
// expect: check E0277 "`bool` is not an element type of tensors"
#![forbid(unsafe_code)]
use tilewright::prelude::*;
pub fn f(_: Tensor<bool, 1>) {} //~ right: pub fn f(_: Tensor<u8, 1>) {}
