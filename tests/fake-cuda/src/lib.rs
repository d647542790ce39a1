//! Tests on a CUDA driver without a GPU: [`Sandbox`] runs a test in a process that finds the fake driver (the crate
//! `tilewright-fake-driver`, on which a test's package must depend too, so that it is built) or none, or one that lacks
//! functions; [`Fake`] asks the driver of this process what it was called for.
//!
//! The driver is a crate of its own because nothing may link with it: crates that link with `libcuda` would find its
//! functions in the test's program, and the program's own copy of the driver behind them.

mod kernel;
mod sandbox;

pub use kernel::{Access, KernelBody};
pub use sandbox::{Fake, Live, Sandbox, child, in_child};
