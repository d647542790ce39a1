//! RMSNorm, then SiLU: `y = silu(norm(x))`, over rows or over the channels of each position.
//!
//! | kernel | reduced dimension | tile | threads |
//! |---|---|---|---|
//! | [`rows::fused`](fn@rows::fused), [`rows::lossless`](fn@rows::lossless) | columns, at most 128, 512, 1024 or 4096 | 8 x 128 and so on | 128; 256 |
//! | [`channels::fused`](fn@channels::fused) | channels, at most 96, 192, 384 or 1024 | that many x 128 bytes of positions | 256; 512 |
//!
//! Two norms, by the argument `clamped`:
//! * 0: `x / sqrt(mean(x^2) + eps) * w + b`;
//! * 1: `x / max(|x|_2, eps) * sqrt(C) * w + b`, as the autoencoder of Wan norms (`eps` is 1e-12 there).
//!
//! The bias may be left out: a view without columns reads as zero. Two numerics:
//! * `fused`: all in `f32`, one rounding;
//! * `lossless`: rounded to the element type after every step of the sequence of tensor operations, in its order, by exact
//!   division and square root, so that results are the bits of that sequence. The sequences are written out at
//!   [`Steps`]. (Sums of squares are `f32`, in this crate's order.)
//!
//! **Bytes that must move**: every element read once and written once. Share of a device copy, NVIDIA H200, bf16: fused rows 0.68
//! at 99840 x 128 and 0.75 at 24960 x 512; lossless 0.37; channels 0.43 at 1 x 96 x 1597440 and 0.37 at 1 x 384 x 24960 (each
//! thread then summed over all warps; since then one thread does for each column).
//!
//! Disjointness: the output hands each tile to one block.

pub mod channels;
pub mod rows;

use tilewright::prelude::*;

use crate::gated::silu;

/// What a row's, or a position's, elements are multiplied by.
#[inline(always)]
fn factor(sum: f32, size: f32, eps: f32, clamped: u32) -> f32 {
    if clamped == 0 {
        rsqrt(sum * reciprocal(size) + eps)
    } else {
        let norm = sqrt(sum);
        sqrt(size) * reciprocal(if norm < eps { eps } else { norm })
    }
}

/// All at once.
#[inline(always)]
fn fused(x: f32, (w, b): (f32, f32), factor: f32) -> f32 {
    silu(x * (factor * w) + b)
}

/// Step by step, every result rounded to `T`:
/// * `clamped = 0`: `x x`, its mean, `+ eps`, `rsqrt`, `x *` that, `* w`, `+ b` if there is one, `silu`;
/// * `clamped = 1`: the norm, `max(norm, eps)`, `x /` that, `* sqrt(C)`, `* w`, `+ b` if there is one, `silu`.
pub struct Steps;

impl Steps {
    #[inline(always)]
    fn round<T: Element<Value = f32>>(x: f32) -> f32 {
        T::from_value(x).to_value()
    }
    /// What is summed of an element.
    #[inline(always)]
    fn square<T: Element<Value = f32>>(x: f32, clamped: u32) -> f32 {
        if clamped == 0 { Self::round::<T>(x * x) } else { x * x }
    }
    /// The steps from the sum to the value that elements are multiplied, or divided, by.
    #[inline(always)]
    fn factor<T: Element<Value = f32>>(sum: f32, size: f32, eps: f32, clamped: u32) -> f32 {
        if clamped == 0 {
            let mean = Self::round::<T>(sum / size);
            Self::round::<T>(1.0 / sqrt(Self::round::<T>(mean + eps)))
        } else {
            let norm = Self::round::<T>(sqrt(sum));
            Self::round::<T>(if norm < eps { eps } else { norm })
        }
    }
    /// The steps from an element on.
    #[inline(always)]
    fn element<T: Element<Value = f32>>(
        x: f32,
        (w, b): (f32, f32),
        factor: f32,
        root: f32,
        clamped: u32,
        biased: u32,
    ) -> f32 {
        let x = if clamped == 0 {
            Self::round::<T>(x * factor)
        } else {
            Self::round::<T>(Self::round::<T>(x / factor) * root)
        };
        let x = Self::round::<T>(x * w);
        let x = if biased == 0 { x } else { Self::round::<T>(x + b) };
        x / (1.0 + exp(-x))
    }
}
