//! Softmax over rows: `y = e^(scale x) / sum e^(scale x)`.
//!
//! | kernel | columns | tile | threads |
//! |---|---|---|---|
//! | [`rows`](fn@rows) | at most 16384 | [one for each width](crate::tiles) | 128-1024 |
//! | [`wide`](fn@wide) | any number | 1 x 4096, in three passes | 512 |
//!
//! Sums are `f32`; the greatest value of the row is subtracted first. One rounding, at the store. A row of minus infinity
//! alone gives NaN. **Bytes that must move**: every element read once and written once; share
//! of a device copy, NVIDIA H200, bf16: 0.96 to 1.00 from 128 to 8192 columns, 0.92 at 8192 x 16384. Exponentials are computed twice,
//! once for the sum and once for the result: that is cheaper than to hold them.
//!
//! Disjointness: outputs hand each tile, or strip, to one block.

use tilewright::prelude::*;

/// `log2(e)` times the scale, for `exp2`.
#[inline(always)]
fn in_twos(scale: f32) -> f32 {
    scale * core::f32::consts::LOG2_E
}

macro_rules! kernels {
    (; halves [$($half:tt)*] singles [$($single:tt)*]) => {
        /// Rows of at most `N` columns, `M` a block. `scale` is positive.
        #[kernel(grid = one_tile, min_blocks = BLOCKS, instances([<f16>, <bf16>] x [$($half)*], [<f32>] x [$($single)*]))]
        pub fn rows<
            T: Element<Value = f32>,
            const M: usize,
            const N: usize,
            const THREADS: usize,
            const BLOCKS: usize,
        >(
            mut cta: Cta<THREADS>,
            x: RowTiles<T, M, N>,
            y: RowTilesMut<T, M, N>,
            scale: f32,
        ) {
            let factor = in_twos(scale);
            let Some((i, y)) = y.single() else { return };
            let x = cta.fetch(x.tile(i));
            let (greatest, sum) = x.row_powers(&mut cta, factor);
            let inverse = sum.map(reciprocal);
            let shares =
                x.map_rows((&greatest, &inverse), |x, (greatest, inverse)| exp2((x - greatest) * factor) * inverse);
            y.stream(&mut cta, &shares);
        }
    };
}
crate::__row_tiles!(kernels! {});

/// Rows of any number of columns.
#[kernel(grid = persistent, min_blocks = 2, instances(f32 = <f32>, f16 = <f16>, bf16 = <bf16>))]
pub fn wide<T: Element<Value = f32>>(
    mut cta: Cta<512>,
    x: Tiles<T, 1, 4096>,
    y: TilesMut<T, 1, 4096, Strips>,
    scale: f32,
) {
    let factor = in_twos(scale);
    for (i, mut y) in y.strips() {
        let mut greatest = PerRow::splat(f32::NEG_INFINITY);
        for j in 0..x.across() {
            let part = cta.load(x.tile(i, j)).row_max(&mut cta);
            // NaN if one is: the comparison is false, and the sum of both is NaN
            greatest = greatest.zip(&part, |a, b| {
                if a > b {
                    a
                } else if b >= a {
                    b
                } else {
                    a + b
                }
            });
        }
        let mut sum = PerRow::splat(0.0);
        for j in 0..x.across() {
            let x = cta.load(x.tile(i, j));
            let part = x.map_rows(&greatest, |x, greatest| exp2((x - greatest) * factor)).row_sum(&mut cta);
            sum = sum.zip(&part, |sum, part| sum + part);
        }
        let inverse = sum.map(reciprocal);
        for j in 0..x.across() {
            let x = cta.load(x.tile(i, j));
            let powers = x.map_rows(&greatest, |x, greatest| exp2((x - greatest) * factor));
            y.store(&mut cta, j, &powers.map_rows(&inverse, |x, inverse| x * inverse));
        }
    }
}
