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

/// Nothing at all: the sum as it is, without bias, residual and factors.
pub const SUM: u32 = 4;

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
    /// `x / (1 + 2^(x (linear + cubic x^2)))`; otherwise the larger of `x` and `least`.
    gated: bool,
    linear: f32,
    cubic: f32,
    least: f32,
}

impl Activation {
    /// That of a code: [`RELU`], [`GELU`], [`SILU`], or none.
    #[inline(always)]
    pub fn new(code: u32) -> Self {
        // exp(-u) = 2^(-u log2(e))
        let slope = -core::f32::consts::LOG2_E;
        let gelu = 2.0 * 0.797_884_6 * slope;
        Activation {
            gated: code == GELU || code == SILU,
            linear: if code == GELU { gelu } else { slope },
            cubic: if code == GELU { gelu * 0.044_715 } else { 0.0 },
            least: if code == RELU { 0.0 } else { f32::NEG_INFINITY },
        }
    }
    /// Of one element.
    #[inline(always)]
    pub fn apply(&self, x: f32) -> f32 {
        let gated = x * reciprocal(1.0 + exp2(x * fma(self.cubic * x, x, self.linear)));
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
        |x, b| activation.apply(fma(alpha, x, b)),
    )
    .zip(
        wg,
        residual,
        #[inline(always)]
        |x, r| fma(beta, r, x),
    )
}

/// The epilogue of products with exchanged operands: `activation(alpha P + bias) + beta R`, or with `own` + beta C. Empty
/// views count as zero.
#[derive(Clone, Copy)]
pub struct Fused<'a, T, const N: usize> {
    /// One value for each row of the accumulator.
    pub bias: Tiles<'a, T, 1, 64>,
    /// R.
    pub residual: Tiles<'a, T, N, 64>,
    /// What C holds before takes R's place.
    pub own: bool,
    /// Of the product.
    pub alpha: f32,
    /// Of R.
    pub beta: f32,
    /// A code.
    pub activation: u32,
}

impl<T: MmaElement, const N: usize> Fused<'_, T, N>
where
    Width<N>: Wgmma,
{
    /// Fetches what the sums of tile (`i`, `j`) will meet, before the products.
    #[inline(always)]
    pub fn begin<const CLUSTER: usize>(
        &self,
        wg: &mut WarpGroup,
        (i, j): (u32, u32),
        out: &ColumnsMut<T, N, CLUSTER>,
    ) -> (AccRows, Packed<T, N>) {
        (wg.fetch_rows(self.bias.tile(0, j)), out.fetch(wg, self.residual.tile(i, j), self.own))
    }

    /// Combines it with the sums, and stores.
    #[inline(always)]
    pub fn finish<const CLUSTER: usize>(
        &self,
        wg: &mut WarpGroup,
        (bias, residual): (AccRows, Packed<T, N>),
        acc: Acc<N>,
        out: ColumnsMut<T, N, CLUSTER>,
    ) {
        let (alpha, beta, activation) = (self.alpha, self.beta, Activation::new(self.activation));
        // one store behind both: its code is long
        let acc = if self.activation == SUM {
            acc
        } else {
            acc.map_rows(
                bias,
                #[inline(always)]
                |x, b| activation.apply(fma(alpha, x, b)),
            )
            .zip_packed(
                &residual,
                #[inline(always)]
                |x, r| fma(beta, r, x),
            )
        };
        out.store(wg, acc)
    }
}
