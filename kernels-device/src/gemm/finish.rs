//! What is left to do after a product in f32: `C = activation(alpha P + bias) + beta R + keep C`.
//!
//! | | |
//! |---|---|
//! | tile | 1 x 2048, one a block at a time |
//! | threads | 256, 8 elements each |
//!
//! Disjointness: the output hands each tile to one block.

use tilewright::prelude::*;

use super::epilogue::Activation;

/// Empty views count as zero; so does what is multiplied by a `keep` of zero.
#[kernel(instances(f32 = <f32>, f16 = <f16>, bf16 = <bf16>))]
#[allow(clippy::too_many_arguments)]
pub fn finish<T: Element<Value = f32>>(
    mut cta: Cta<256>,
    product: Tiles<f32, 1, 2048>,
    bias: Tiles<T, 1, 2048>,
    residual: Tiles<T, 1, 2048>,
    c: TilesMut<T, 1, 2048>,
    alpha: f32,
    beta: f32,
    keep: f32,
    activation: u32,
) {
    let activation = Activation::new(activation);
    for ((i, j), c) in c {
        let old = cta.load_mut(&c);
        let bias = cta.load_like(&old, bias.tile(0, j));
        let x = cta.load_like(&old, product.tile(i, j)).zip(&bias, |x, b| activation.apply(alpha * x + b));
        let residual = cta.load_like(&old, residual.tile(i, j));
        let x = x.zip(&residual, |x, r| x + beta * r);
        let x = x.zip(&old, |x, c| if keep == 0.0 { x } else { x + keep * c });
        c.store(&mut cta, &x);
    }
}
