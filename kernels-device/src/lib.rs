//! The kernels of tilewright: safe Rust, no `cfg`, compiled unchanged for the GPU and for the CPU.
#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod elementwise;
pub mod gemm;
pub mod mla;
pub mod rmsnorm;
pub mod tiles;

tilewright::images!();
