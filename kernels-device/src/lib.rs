//! The kernels of tilewright: safe Rust, no `cfg`, compiled unchanged for the GPU and for the CPU.
#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod elementwise;
pub mod gated;
pub mod gemm;
pub mod layernorm;
pub mod mla;
pub mod rms_silu;
pub mod rmsnorm;
pub mod rope;
pub mod softmax;
pub mod tiles;

tilewright::images!();
