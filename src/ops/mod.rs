//! Front doors to the shipped kernels: each takes tensors, checks them and picks the kernel for the device and the
//! problem. Nothing is allocated and nothing is waited for.

pub mod gemm;
pub mod mla;
pub mod rmsnorm;
