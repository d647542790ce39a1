//! RMSNorm: `y = x / sqrt(mean(x^2) + eps) * (w + offset)`, of every row, or of every position over the channels.
//!
//! | kernel | reduced dimension | tile | threads |
//! |---|---|---|---|
//! | [`rows::plain`](fn@rows::plain), [`rows::residual`](fn@rows::residual) | columns, at most 32768 (`f32`: 16384) | [one for each power of two](crate::tiles) | 128-1024 |
//! | [`long::plain`](fn@long::plain) | columns, at most 65536 (`f32`: 32768), all accesses of 16 bytes | 1 x 65536, 1 x 32768 | 1024 |
//! | [`clusters::plain`](fn@clusters::plain) | columns of `f32`, at most 65536, by four blocks of a cluster | 1 x 65536 | 1024 |
//! | [`quantised::by_rows`](fn@quantised::by_rows), [`quantised::by_groups`](fn@quantised::by_groups) | columns, at most 8192, to `e4m3` | 8 x 256 and so on | 128-512 |
//! | [`wide::plain`](fn@wide::plain), [`wide::residual`](fn@wide::residual) | columns, any number | 1 x 8192 or 1 x 4096, in two passes | 512; 256 |
//!
//! Over the channels of each position: [`rms_silu::channels`](mod@crate::rms_silu::channels), without SiLU.
//!
//! Sums are of `f32` squares; one rounding, at the store. In the residual forms the norm is that of `r' = x + r`, which
//! is rounded to the element type, takes the place of `r`, and is what the norm sees. The offset is 0, or 1 for weights
//! that are stored as what they differ from 1 by.
//!
//! **Bytes that must move**: every element read once and written once; in the residual form `x` and `r` read, `r'` and `y`
//! written. The weight comes from the L1 and L2 caches. Share of a device copy of the same bytes, NVIDIA H200, bf16, in
//! rows x columns: 0.97 at 32768 x 4096, 0.98 at 4096 x 7168 and 24960 x 512, 0.95 at 99840 x 128 and 4096 x 32768; with residual 0.95
//! at 32768 x 4096, 0.98 at 4096 x 7168. All of them: benches/results; how they came about: docs/kernels/rmsnorm.md.
//!
//! A row stays in registers between the sum and the scaling, so memory is read once (but by the wide kernels, which read
//! a second time, mostly from the L2 cache). It is held as elements, not as values: 16 bits each where they have 16.
//! Blocks are small, one for each tile, and many: what one waits for, others do not. The weight is read before the sum
//! where registers allow, else piece by piece behind it.
//!
//! Disjointness: outputs hand each tile, part or strip to one block.

pub mod clusters;
pub mod long;
pub mod quantised;
pub mod rows;
pub mod wide;

use tilewright::layout::Chunks;
use tilewright::prelude::*;

/// The factors that bring the mean square of each row to 1.
#[inline(always)]
pub fn factors_of<T: Element<Value = f32>, const M: usize, const N: usize, const THREADS: usize, C: Chunks>(
    cta: &mut Cta<THREADS>,
    x: &Fetched<T, M, N, ByRows<THREADS, C>>,
    inverse_width: f32,
    eps: f32,
) -> PerRow<f32, M, THREADS> {
    x.row_squares(cta).map(|sum| rsqrt(sum * inverse_width + eps))
}

/// An element times its weight and its row's factor. These two first: what needs the weight can not be computed before
/// it is there, and be waiting in a register.
#[inline(always)]
fn scale(x: f32, w: f32, factor: f32, offset: f32) -> f32 {
    x * (factor * (w + offset))
}
