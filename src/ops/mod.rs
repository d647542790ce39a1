//! Front doors to the shipped kernels: each takes tensors and picks the kernel for the device and the problem.
