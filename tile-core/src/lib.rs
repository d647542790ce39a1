//! The vocabulary that tilewright kernels are written in.
//!
//! A kernel is an ordinary safe function over tiles. This crate gives it its words, twice: compiled for
//! `nvptx64-nvidia-cuda` they become PTX, compiled for the host they run on the CPU backend. What a kernel sees is
//! written once, in the modules at the root of this crate; what differs between the two machines is behind
//! [`backend`], a module of the same functions with two bodies (`ptx` and `cpu`).
//!
//! | module | words |
//! |---|---|
//! | [`element`] | element types of memory, and the types computed in |
//! | [`layout`] | swizzles, matrix descriptors and register fragments as pure functions |
//! | [`schedule`] | which block works on which tile |
//! | [`view`] | global memory cut into tiles: [`Tiles`](view::Tiles), [`TilesMut`](view::TilesMut) |
//! | [`row_tiles`] | matrices cut into tiles of whole rows |
//! | [`tile`] | register tiles: load, map, reduce, store |
//! | [`columns`] | the same for reductions over rows |
//! | [`tma`], [`pages`] | the same behind a tensor map, for the bulk copy engine; pages found through lists |
//! | [`owned`] | outputs shared out by a table on the device |
//! | [`scatter`] | outputs of which any block may write any row, through a list of row numbers |
//! | [`dot`] | block-level products of such tiles |
//! | [`attention`] | block-level attention over latent keys in pages |
//! | [`shared`], [`pipeline`] | tiles in shared memory, and rings of them between a producer and consumers |
//! | [`roles`], [`handover`], [`supply`] | the split of a block into roles, and what they pass to each other |
//! | [`mma`], [`rows`] | warpgroup products, accumulators and their rows |
//! | [`epilogue`] | what accumulators meet before they are stored |
//! | [`cluster`], [`transposed`] | sums over the blocks of a cluster; outputs stored from transposed accumulators |
//! | [`mod@kernel`] | what `#[kernel]` makes of a function |
#![no_std]
#![cfg_attr(
    target_arch = "nvptx64",
    feature(stdarch_nvptx, link_llvm_intrinsics, abi_unadjusted, stmt_expr_attributes)
)]
#![cfg_attr(target_arch = "nvptx64", allow(internal_features))]
// The vocabulary's arithmetic is spelled as the device compiler translates it best; backends share signatures, so that one
// of them may not need every parameter; a pipeline's `next` is not an iterator's.
#![allow(
    clippy::manual_is_multiple_of,
    clippy::implicit_saturating_sub,
    clippy::extra_unused_type_parameters,
    clippy::should_implement_trait
)]
#![warn(missing_docs, unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]

#[cfg(not(target_arch = "nvptx64"))]
extern crate std;

#[doc(hidden)]
pub mod args;
pub mod attention;
#[cfg(not(target_arch = "nvptx64"))]
mod checked;
pub mod cluster;
pub mod columns;
pub mod dot;
mod e4m3;
pub mod element;
pub mod epilogue;
pub mod fault;
pub mod groups;
pub mod handover;
pub mod kernel;
pub mod layout;
pub mod mma;
pub mod output;
pub mod over;
pub mod owned;
pub mod pages;
pub mod pipeline;
pub mod roles;
pub mod row_pairs;
pub mod row_tiles;
pub mod rows;
pub mod scatter;
pub mod schedule;
pub mod shared;
#[cfg(not(target_arch = "nvptx64"))]
mod slices;
mod splits;
pub mod supply;
pub mod tile;
mod tile_load;
mod tile_store;
pub mod tma;
pub mod transposed;
pub mod view;
mod widths;

#[cfg(not(target_arch = "nvptx64"))]
#[path = "cpu/mod.rs"]
pub mod backend;
#[cfg(target_arch = "nvptx64")]
#[path = "ptx/mod.rs"]
pub mod backend;

pub use tilewright_macros::kernel;

/// Everything a kernel file needs: `use tilewright::prelude::*;`.
pub mod prelude {
    pub use crate::attention::{Attended, Attention, LatentKeys};
    pub use crate::backend::{
        AccElement, AttentionElement, BlockProduct, DotElement, MmaElement, SharedFactor, Split, Wgmma, Width,
    };
    pub use crate::backend::{exp, exp2, fma, inverse, log2, quotient, reciprocal, rsqrt, sigmoid, sqrt, tanh};
    pub use crate::cluster::{ClusterSum, ClusterSummer};
    pub use crate::columns::ColumnScratch;
    pub use crate::dot::{BlockAcc, Stages};
    pub use crate::element::{DType, Element, bf16, e4m3, f16};
    pub use crate::handover::{Baton, GroupFill, GroupProducer, ToBoth, Turns};
    pub use crate::kernel;
    #[cfg(not(target_arch = "nvptx64"))]
    pub use crate::kernel::Kernel;
    pub use crate::layout::{ByColumns, ByRows, Layout, Over};
    pub use crate::mma::{Acc, Mma, Packed};
    pub use crate::output::StoreRows;
    pub use crate::over::{Brought, OverRows};
    pub use crate::owned::OwnedTiles;
    pub use crate::pages::TmaPages;
    pub use crate::pipeline::{FillSlot, FullSlot, Pipeline};
    pub use crate::roles::{Cta, Output, Token, WarpGroup};
    pub use crate::row_tiles::{PartMut, RowTiles, RowTilesMut};
    pub use crate::rows::AccRows;
    pub use crate::scatter::ScatterRows;
    pub use crate::schedule::{Grouped, Linear, Plan, Schedule, Strips};
    pub use crate::shared::{Multicast, SharedRow, SharedTile, Staging};
    pub use crate::supply::{Supplier, SupplyEnd};
    pub use crate::tile::{Fetched, PerColumn, PerRow, Tile};
    pub use crate::tma::{TmaTiles, TmaTilesMut};
    pub use crate::transposed::{ColumnsMut, Transposed};
    pub use crate::view::{Strip, StripMut, TileMut, TileRef, Tiles, TilesMut};
}

/// What the code that `#[kernel]` generates, and the host crate, refer to. Not for use by hand.
#[doc(hidden)]
pub mod __private {
    pub use crate::backend;
    pub use crate::kernel::*;
    pub use crate::roles::{Block, BlockScope};
    #[cfg(not(target_arch = "nvptx64"))]
    pub use crate::row_tiles::RawRows;
    pub use crate::shared::Shared;
    #[cfg(not(target_arch = "nvptx64"))]
    pub use crate::tma::TensorMapRequest;
    #[cfg(not(target_arch = "nvptx64"))]
    pub use crate::view::Provenance;
    pub use crate::view::RawView;
}

/// Makes the compiled kernels of this crate known to it. Once, in the crate root of every crate that defines kernels:
///
/// * `tilewright::images!();` takes what the build script (`tilewright_build::Kernels`) compiled;
/// * `tilewright::images!(none);` says that there is nothing: the kernels run on the CPU backend alone.
#[macro_export]
macro_rules! images {
    () => {
        #[doc(hidden)]
        #[cfg(not(target_arch = "nvptx64"))]
        pub static __TILEWRIGHT_IMAGES: &[$crate::__private::Image] =
            include!(concat!(env!("OUT_DIR"), "/tilewright_images.rs"));
    };
    (none) => {
        #[doc(hidden)]
        #[cfg(not(target_arch = "nvptx64"))]
        pub static __TILEWRIGHT_IMAGES: &[$crate::__private::Image] = &[];
    };
}
