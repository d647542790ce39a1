//! The common epilogues of products, chosen when a product is launched: one kernel for all of them.

use tilewright::prelude::*;

/// No activation.
pub const IDENTITY: u32 = 0;
/// `max(x, 0)`.
pub const RELU: u32 = 1;
/// `x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))`.
pub const GELU: u32 = 2;
/// `x / (1 + exp(-x))`.
pub const SILU: u32 = 3;

/// The larger of `x` and zero; NaN stays.
#[inline(always)]
pub fn relu(x: f32) -> f32 {
    if x < 0.0 { 0.0 } else { x }
}

/// GELU by its approximation with tanh.
#[inline(always)]
pub fn gelu(x: f32) -> f32 {
    let u = 0.797_884_6 * (x + 0.044_715 * x * x * x);
    // 1 + tanh(u) = 2 / (1 + exp(-2u)), which keeps the small values of the left branch
    x * reciprocal(1.0 + exp2(u * (-2.0 * core::f32::consts::LOG2_E)))
}

/// `x / (1 + exp(-x))`.
#[inline(always)]
pub fn silu(x: f32) -> f32 {
    x * reciprocal(1.0 + exp2(x * -core::f32::consts::LOG2_E))
}

/// The activations as one expression without branches: accumulators are too many registers to choose between.
#[derive(Clone, Copy)]
pub struct Activation {
    /// `x / (1 + exp(-x (linear + cubic x^2)))`; otherwise the larger of `x` and `least`.
    gated: bool,
    linear: f32,
    cubic: f32,
    least: f32,
}

impl Activation {
    /// That of a code: [`RELU`], [`GELU`], [`SILU`], or none.
    #[inline(always)]
    pub fn new(code: u32) -> Self {
        let slope = 2.0 * 0.797_884_6;
        Activation {
            gated: code == GELU || code == SILU,
            linear: if code == GELU { slope } else { 1.0 },
            cubic: if code == GELU { slope * 0.044_715 } else { 0.0 },
            least: if code == RELU { 0.0 } else { f32::NEG_INFINITY },
        }
    }
    /// Of one element.
    #[inline(always)]
    pub fn apply(&self, x: f32) -> f32 {
        let u = x * (self.linear + self.cubic * x * x);
        let gated = x * reciprocal(1.0 + exp2(u * -core::f32::consts::LOG2_E));
        let bounded = if x < self.least { self.least } else { x };
        if self.gated { gated } else { bounded }
    }
}

/// `activation(alpha acc + bias) + beta residual`: the bias is that of the accumulator's columns.
#[inline(always)]
pub fn fuse<T: AccElement, const R: usize, const N: usize, const H: usize>(
    wg: &mut WarpGroup,
    acc: Acc<N, H>,
    bias: TileRef<T, 1, N>,
    residual: TileRef<T, R, N>,
    alpha: f32,
    beta: f32,
    activation: u32,
) -> Acc<N, H>
where
    Width<N>: Wgmma,
{
    let activation = Activation::new(activation);
    acc.zip_columns(
        wg,
        bias,
        #[inline(always)]
        |x, b| activation.apply(alpha * x + b),
    )
    .zip(
        wg,
        residual,
        #[inline(always)]
        |x, r| x + beta * r,
    )
}

/// The same on a transposed accumulator: the bias is that of its rows.
#[inline(always)]
pub fn fuse_transposed<T: AccElement, const R: usize, const N: usize>(
    wg: &mut WarpGroup,
    acc: Acc<N>,
    bias: TileRef<T, 1, R>,
    residual: TileRef<T, N, R>,
    alpha: f32,
    beta: f32,
    activation: u32,
) -> Acc<N>
where
    Width<N>: Wgmma,
{
    let activation = Activation::new(activation);
    acc.zip_rows(
        wg,
        bias,
        #[inline(always)]
        |x, b| activation.apply(alpha * x + b),
    )
    .zip_transposed(
        wg,
        residual,
        #[inline(always)]
        |x, r| x + beta * r,
    )
}

/// Stores `activation(alpha acc + bias) + beta residual + keep old` of a transposed accumulator.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
pub fn finish_columns<T: AccElement, const N: usize, const CLUSTER: usize>(
    wg: &mut WarpGroup,
    acc: Acc<N>,
    out: ColumnsMut<T, N, CLUSTER>,
    bias: TileRef<T, 1, 64>,
    residual: TileRef<T, N, 64>,
    alpha: f32,
    beta: f32,
    keep: f32,
    activation: u32,
) where
    Width<N>: Wgmma,
{
    let acc = fuse_transposed(wg, acc, bias, residual, alpha, beta, activation);
    let acc = out.zip_if(
        keep != 0.0,
        wg,
        acc,
        #[inline(always)]
        |x, c| x + keep * c,
    );
    out.store(wg, acc)
}
