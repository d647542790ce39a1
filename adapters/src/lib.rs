//! tilewright's kernels on the memory and streams of other crates, each behind a feature: `cudarc` (0.19), `candle` (0.11;
//! `candle-cuda` for its CUDA devices) and `cust` (0.3.2).
//!
//! Memory is lent, never taken over: what is enqueued comes after its owner's work so far, and before what the owner
//! enqueues after the call ([`tilewright::foreign::scope`]). Nothing is copied; nothing is allocated on the device, except
//! candle's outputs, by candle. For C, and for everything else that has addresses and a `CUstream`, see the crate
//! `tilewright-c`.
#![warn(missing_docs, unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]

#[cfg(feature = "candle")]
pub mod candle;
#[cfg(feature = "cudarc")]
pub mod cudarc;
#[cfg(feature = "cust")]
pub mod cust;

/// The strides of a tensor without gaps.
#[cfg(any(feature = "cudarc", feature = "cust"))]
fn contiguous<const R: usize>(extents: [usize; R]) -> [usize; R] {
    let mut strides = [1usize; R];
    for i in (1..R).rev() {
        strides[i - 1] = strides[i].saturating_mul(extents[i]);
    }
    strides
}
