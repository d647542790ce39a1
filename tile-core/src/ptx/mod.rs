//! The device backend: what the vocabulary does on an NVIDIA GPU.
//!
//! Behind every SAFETY line of this module stand two facts. Tokens (`Cta`, `WarpGroup`) exist once per holder and
//! everything that kernel code can see is uniform over its token, so `.aligned` operations are reached by all who must.
//! And convergent operations are LLVM intrinsics (`sync`), never `asm!`, which LLVM would feel free to duplicate.

mod access;
mod attention;
mod barrier;
mod cluster;
mod columns;
mod combine;
mod cp_async;
mod dot;
mod dot_store;
mod dot_strips;
pub mod element;
mod entry;
mod epilogue;
mod fold;
mod groups;
mod math;
pub(crate) mod mma_sync;
mod over;
mod row_pairs;
mod scatter;
mod smem;
mod store;
mod sync;
mod tile;
mod tma;
mod wgmma;

pub use attention::{Attended, AttentionElement};
pub use barrier::Barrier;
pub use dot::DotElement;
pub use element::Pack16;
pub use entry::{__asm, BelongsToItsToken, Faults, NotShared, Place, finish, shared_at};
pub use epilogue::AccElement;
pub use math::{exp, exp2, fma, inverse, log2, quotient, reciprocal, rsqrt, sigmoid, sqrt, tanh};
#[allow(unused_imports)]
pub(crate) use math::{max_nan, min_nan};
pub use mma_sync::{BlockProduct, Split};
pub use smem::Smem;
pub(crate) use smem::here;
pub use wgmma::{MmaElement, SharedFactor, Wgmma, Width};

pub(crate) use attention::{attend, store_attended};
pub(crate) use barrier::*;
pub(crate) use cluster::cluster_sum;
pub(crate) use columns::*;
pub(crate) use combine::*;
pub(crate) use dot::{dot, dot_strips};
pub(crate) use dot_store::store_block;
pub(crate) use entry::*;
pub(crate) use epilogue::{
    fetch_column, fetch_columns, fetch_rows, fetch_transposed, packed_values, zip, zip_8, zip_packed,
};
pub(crate) use fold::*;
pub(crate) use groups::*;
pub(crate) use over::*;
pub(crate) use row_pairs::*;
pub(crate) use scatter::scatter_words;
pub(crate) use store::*;
pub(crate) use sync::*;
pub(crate) use tile::*;
pub(crate) use tma::*;
pub(crate) use wgmma::*;
