//! The CPU backend: blocks run natively.
//!
//! Shared memory is an arena, poisoned with NaN when a block starts. Roles are threads. Slots are acquire/release
//! counters, one pair a slot, with no lock between them, so that a wait that is missing is a data race, which
//! ThreadSanitizer sees. The 128 threads of a warpgroup are one thread's loops. Blocks start in index order.

mod attention;
mod barrier;
mod cluster;
mod dot;
mod entry;
mod epilogue;
mod groups;
mod math;
mod memory;
mod monitor;
mod protocol;
mod row_pairs;
mod run;
mod scatter;
mod tile;
mod wgmma;

pub use attention::{Attended, AttentionElement};
pub use barrier::Barrier;
pub use dot::{BlockProduct, DotElement, Split};
pub use epilogue::AccElement;
pub use memory::Smem;
pub use monitor::set_patience;
pub use run::{Block, Fault, Faults, Place, declared, run};

pub(crate) use attention::{attend, store_attended};
pub(crate) use barrier::*;
pub(crate) use cluster::cluster_sum;
pub(crate) use dot::{dot, dot_strips, store_block};
pub(crate) use entry::*;
pub(crate) use epilogue::{fetch_column, fetch_columns, fetch_rows, fetch_transposed, zip, zip_packed};
pub(crate) use groups::*;
pub use math::{exp, exp2, fma, inverse, log2, quotient, reciprocal, rsqrt, sigmoid, sqrt, tanh};
#[allow(unused_imports)]
pub(crate) use math::{max_nan, min_nan};
pub(crate) use memory::*;
pub(crate) use row_pairs::*;
pub(crate) use scatter::scatter_words;
pub(crate) use tile::*;
pub use wgmma::*;

use core::marker::PhantomData;

/// Marks tokens and everything that belongs to one role: neither `Send` nor `Sync`.
pub type NotShared = PhantomData<BelongsToItsToken>;
/// Named for the message that the compiler gives when a token would be shared.
pub struct BelongsToItsToken(#[allow(dead_code)] *mut ());
