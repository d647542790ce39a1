//! Compiles the kernels of the examples.
fn main() {}
