//! Rows that fill the registers of a block, and whose every access is of 16 bytes. The others take the wide kernels.

use super::{factors_of, scale};
use tilewright::prelude::*;

/// Rows of at most `N` columns, one a block. If `x`, `w` or `y` can not be accessed 16 bytes at a time, nothing is written.
#[kernel(grid = one_tile, min_blocks = BLOCKS, instances(
    [<f16, f16>, <bf16, bf16>, <f16, f32>, <bf16, f32>] x [<32768, 2>, <65536, 1>],
    [<f32, f32>] x [<32768, 1>],
))]
pub fn plain<T: Element<Value = f32>, W: Element<Value = f32>, const N: usize, const BLOCKS: usize>(
    mut cta: Cta<1024>,
    x: RowTiles<T, 1, N>,
    w: RowTiles<W, 1, N>,
    y: RowTilesMut<T, 1, N>,
    eps: f32,
    offset: f32,
) {
    let inverse_width = reciprocal(x.cols() as f32);
    let Some((i, y)) = y.single_whole() else { return };
    let (Some(x), Some(w)) = (x.whole_tile(i), w.whole_tile(0)) else { return };
    let x = cta.fetch(x);
    let factors = factors_of(&mut cta, &x, inverse_width, eps);
    y.stream_row(&mut cta, &x, w, &factors, |x, w, s| scale(x, w, s, offset));
}
