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
//! **Bytes that must move**: every element read once and written once. Share of a device copy, NVIDIA H200, bf16: fused rows 0.90
//! to 0.98 from 128 to 8192 columns, 0.79 at 8192 x 16384; lossless 0.18 to 0.53 (f32: 0.78 to 0.88), for exact divisions;
//! channels 0.84 at 1 x 96 x 1597440 and 0.64 at 1 x 384 x 24960.
//!
//! Disjointness: the output hands each tile to one block.

pub mod channels;
pub mod rows;

use tilewright::prelude::*;

use crate::gated::silu;

/// What a row's, or a position's, elements are multiplied by, as a function of the sum of their squares without a branch:
/// `last min(1 / sqrt(sum first + eps), most)`.
#[derive(Clone, Copy)]
struct Norm {
    first: f32,
    eps: f32,
    most: f32,
    last: f32,
}

impl Norm {
    #[inline(always)]
    fn of(size: u32, eps: f32, clamped: u32) -> Self {
        let size = size as f32;
        if clamped == 0 {
            Norm { first: reciprocal(size), eps, most: f32::INFINITY, last: 1.0 }
        } else {
            Norm { first: 1.0, eps: 0.0, most: reciprocal(eps), last: sqrt(size) }
        }
    }
    #[inline(always)]
    fn factor(self, sum: f32) -> f32 {
        let factor = rsqrt(fma(sum, self.first, self.eps));
        // a comparison that is false of NaN, which so is kept
        self.last * if factor > self.most { self.most } else { factor }
    }
}

/// The norm alone.
#[inline(always)]
fn scaled(x: f32, (w, b): (f32, f32), factor: f32) -> f32 {
    fma(x, factor * w, b)
}

/// All at once.
#[inline(always)]
fn fused(x: f32, wb: (f32, f32), factor: f32) -> f32 {
    silu(scaled(x, wb, factor))
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
    /// `x / y` as it is rounded to `T`. The quotients of elements of 16 bits need not be exact in the last bit of `f32` wherever
    /// they lie.
    #[inline(always)]
    fn divided<T: Element<Value = f32>>(x: f32, y: f32, inverse: f32) -> f32 {
        if size_of::<T>() == 2 { quotient(x, y, inverse) } else { x / y }
    }
    /// What is summed of an element.
    #[inline(always)]
    fn square<T: Element<Value = f32>>(x: f32, clamped: bool) -> f32 {
        if clamped { x * x } else { Self::round::<T>(x * x) }
    }
    /// The steps from the sum to the value that elements are multiplied, or divided, by.
    #[inline(always)]
    fn factor<T: Element<Value = f32>>(sum: f32, size: f32, eps: f32, clamped: bool) -> f32 {
        if clamped {
            let norm = Self::round::<T>(sqrt(sum));
            Self::round::<T>(if norm < eps { eps } else { norm })
        } else {
            let mean = Self::round::<T>(sum / size);
            Self::round::<T>(1.0 / sqrt(Self::round::<T>(mean + eps)))
        }
    }
    /// The steps from an element on.
    #[inline(always)]
    fn element<T: Element<Value = f32>>(
        x: f32,
        (w, b): (f32, f32),
        (factor, inverse): (f32, f32),
        root: f32,
        clamped: bool,
        biased: u32,
    ) -> f32 {
        let x = if clamped {
            Self::round::<T>(Self::round::<T>(Self::divided::<T>(x, factor, inverse)) * root)
        } else {
            Self::round::<T>(x * factor)
        };
        let x = Self::round::<T>(x * w);
        let x = if biased == 0 { x } else { Self::round::<T>(x + b) };
        Self::silu::<T>(x)
    }
    /// The last step. For `bf16` a product with a reciprocal does: of every one of its 65,536 elements the result, rounded, is
    /// the same (as `gpu --check` looks at); for `f16` it is not of all.
    #[inline(always)]
    fn silu<T: Element<Value = f32>>(x: f32) -> f32 {
        let denominator = 1.0 + exp(-x);
        match T::DTYPE {
            DType::BF16 => x * reciprocal(denominator),
            DType::F16 => quotient(x, denominator, inverse(denominator)),
            _ => x / denominator,
        }
    }
}
