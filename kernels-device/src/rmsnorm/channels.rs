//! Positions over their channels.

use tilewright::prelude::*;

/// Channels first: `x` and `y` are stacks of matrices of channels by positions, and each position is normed over its
/// channels, of which there are at most `M`. The weight is a column.
#[kernel(grid = persistent, min_blocks = 1, instances(
    f32_256 = <f32, f32, 256, 16, 256>,
    f32_1024 = <f32, f32, 1024, 16, 512>,
    f16_256 = <f16, f16, 256, 32, 256>,
    f16_1024 = <f16, f16, 1024, 32, 512>,
    bf16_256 = <bf16, bf16, 256, 32, 256>,
    bf16_1024 = <bf16, bf16, 1024, 32, 512>,
))]
pub fn channels<
    T: Element<Value = f32>,
    W: Element<Value = f32>,
    const M: usize,
    const N: usize,
    const THREADS: usize,
>(
    mut cta: Cta<THREADS>,
    x: Tiles<T, M, N>,
    w: Tiles<W, M, 1>,
    y: TilesMut<T, M, N>,
    eps: f32,
) {
    let inverse_height = reciprocal(x.rows() as f32);
    for ((i, j), y) in y {
        let x = cta.load_columns(x.tile(i, j));
        let factors = x.map(|x| x * x).column_sum(&mut cta).map(|sum| rsqrt(sum * inverse_height + eps));
        let w = cta.load_column_like(&x, w.tile(0, 0));
        let normed = x.map_columns(&factors, |x, s| x * s).zip(&w, |x, w| x * w);
        y.store(&mut cta, &normed);
    }
}
