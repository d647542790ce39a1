//! A CUDA driver without a GPU, for tests.
//!
//! The library that this crate makes has the driver's functions, over host memory. Loaded under the driver's name (a
//! test starts itself again with `LD_LIBRARY_PATH`: see `tilewright_fake_cuda`) it is what `tilewright-host` finds. It is an
//! adversary within the driver's contract:
//!
//! * Work given to a stream runs as late as it may: when somebody waits for it. So a missing wait gives a wrong result,
//!   or a use of freed memory, every time. With a seed it runs at random moments instead.
//! * Fresh memory is filled with 0xA5, freed memory with 0xDB and never handed out again; each copy, fill and launch is
//!   checked to stay within memory that lives by then.
//! * Every call is counted, and can be made to fail: one by name and number, the n-th of all, or all from the n-th on.
//! * Handles are looked up, not followed: a dead or foreign one is found.
//!
//! What breaks the contract is written down as a *violation*; what was made and not given back can be counted. Both by
//! `tilewright_fake_cuda::Fake`, the test's connection to the library that its process has loaded.
#![allow(clippy::missing_safety_doc)] // the driver's own functions: their contract is the driver's

mod api;
mod control;
mod memory;
mod queue;
mod world;
