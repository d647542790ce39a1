//! Rows that the four blocks of a cluster hold in their registers.

use super::scale;
use tilewright::prelude::*;

/// Rows of at most 65536 columns, one for four blocks.
#[kernel(arch = "sm_90a", grid = one_tile, instances(f32 = <f32, f32>))]
pub fn plain<T: Element<Value = f32>, W: Element<Value = f32>>(
    mut cta: Cta<1024, 4>,
    x: RowTiles<T, 1, 65536>,
    w: RowTiles<W, 1, 65536>,
    y: RowTilesMut<T, 1, 65536>,
    eps: f32,
    offset: f32,
) {
    let inverse_width = reciprocal(x.cols() as f32);
    let Some((i, y)) = y.single() else { return };
    let x = cta.fetch(x.part::<16384, 1024, 4>(&cta, i));
    let sum = x.row_squares(&mut cta).cluster_sum(&mut cta);
    let factors = sum.map(|sum| rsqrt(sum * inverse_width + eps));
    let w = w.part(&cta, 0);
    let normed = x.combine_row(&mut cta, w, &factors, |x, w, s| scale(x, w, s, offset));
    y.part(&cta).stream(&mut cta, &normed);
}
