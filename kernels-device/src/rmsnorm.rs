//! RMSNorm: `y = x / sqrt(mean(x^2) + eps) * w`, of every row, or of every position over the channels.
//!
//! | kernel | reduced dimension | tile | threads | elements a thread |
//! |---|---|---|---|---|
//! | [`rows`](fn@rows), [`rows_residual`](fn@rows_residual) | columns, as many as a tile has | `M` x `N` of 4096 elements | 256 | 16 |
//! | [`long_rows`](fn@long_rows), [`long_rows_residual`](fn@long_rows_residual) | columns, at most 8192 | 1 x 8192 | 512 | 16 |
//! | [`wide`](fn@wide) | columns, any number | 1 x 8192, in two passes | 512 | 16 |
//! | [`wide_residual`](fn@wide_residual) | columns, any number | 1 x 4096, in two passes | 256 | 16 |
//! | [`channels`](fn@channels) | rows of each slab, as many as a tile has | 256 or 1024 x 64 bytes | 256; 512 | 16-64 |
//!
//! Sums are of `f32` squares; one rounding, at the store. In the residual forms the norm is that of `r' = x + r`, which
//! is rounded to the element type, takes the place of `r`, and is what the norm sees. Shared memory: none of their own.
//!
//! A row stays in registers between the sum and the scaling, so memory is read once (but by the wide kernels, which read
//! a second time, mostly from the L2 cache). Enough blocks share an SM that the next rows are on their way while one is
//! summed: 4 blocks, each with 8 KiB of 16-bit elements. The weight is read again for every tile: it stays in the L1
//! cache, which the rows bypass, while in registers it would cost blocks.
//!
//! Disjointness: outputs hand each tile, or strip, to one block.

use tilewright::layout::Chunks;
use tilewright::prelude::*;

/// The factors that bring the mean square of each row to 1, for kernels with a form of their own.
#[inline(always)]
pub fn row_factors<const M: usize, const N: usize, const THREADS: usize, C: Chunks>(
    cta: &mut Cta<THREADS>,
    x: &Tile<f32, M, N, ByRows<THREADS, C>>,
    inverse_width: f32,
    eps: f32,
) -> PerRow<f32, M, THREADS> {
    x.map(|x| x * x).row_sum(cta).map(|sum| rsqrt(sum * inverse_width + eps))
}

/// Each row of `x` times its factor, and times the weight.
#[inline(always)]
fn scaled<W: Element<Value = f32>, const M: usize, const N: usize, const THREADS: usize, C: Chunks>(
    cta: &mut Cta<THREADS>,
    x: &Tile<f32, M, N, ByRows<THREADS, C>>,
    factors: &PerRow<f32, M, THREADS>,
    w: TileRef<'_, W, 1, N>,
) -> Tile<f32, M, N, ByRows<THREADS, C>> {
    let w = cta.load_row_like(x, w);
    x.map_rows(factors, |x, s| x * s).zip(&w, |x, w| x * w)
}

/// `x + r` as memory will hold it.
#[inline(always)]
fn rounded_sum<T: Element<Value = f32>, const M: usize, const N: usize, const THREADS: usize, C: Chunks>(
    x: &Tile<f32, M, N, ByRows<THREADS, C>>,
    r: &Tile<f32, M, N, ByRows<THREADS, C>>,
) -> Tile<f32, M, N, ByRows<THREADS, C>> {
    x.zip(r, |x, r| T::from_value(x + r).to_value())
}

/// Rows of at most `N` columns, `M` at a time.
#[kernel(grid = persistent, min_blocks = 4, instances(
    f32_256 = <f32, f32, 16, 256, 256>,
    f32_1024 = <f32, f32, 4, 1024, 256>,
    f32_2048 = <f32, f32, 2, 2048, 256>,
    f32_4096 = <f32, f32, 1, 4096, 256>,
    f16_256 = <f16, f16, 16, 256, 256>,
    f16_1024 = <f16, f16, 4, 1024, 256>,
    f16_2048 = <f16, f16, 2, 2048, 256>,
    f16_4096 = <f16, f16, 1, 4096, 256>,
    f16_f32_256 = <f16, f32, 16, 256, 256>,
    f16_f32_1024 = <f16, f32, 4, 1024, 256>,
    f16_f32_2048 = <f16, f32, 2, 2048, 256>,
    f16_f32_4096 = <f16, f32, 1, 4096, 256>,
    bf16_256 = <bf16, bf16, 16, 256, 256>,
    bf16_1024 = <bf16, bf16, 4, 1024, 256>,
    bf16_2048 = <bf16, bf16, 2, 2048, 256>,
    bf16_4096 = <bf16, bf16, 1, 4096, 256>,
    bf16_f32_256 = <bf16, f32, 16, 256, 256>,
    bf16_f32_1024 = <bf16, f32, 4, 1024, 256>,
    bf16_f32_2048 = <bf16, f32, 2, 2048, 256>,
    bf16_f32_4096 = <bf16, f32, 1, 4096, 256>,
))]
pub fn rows<T: Element<Value = f32>, W: Element<Value = f32>, const M: usize, const N: usize, const THREADS: usize>(
    cta: Cta<THREADS>,
    x: Tiles<T, M, N>,
    w: Tiles<W, 1, N>,
    y: TilesMut<T, M, N>,
    eps: f32,
) {
    norm(cta, x, w, y, eps)
}

/// As [`rows`](fn@rows), of larger blocks.
#[kernel(grid = persistent, min_blocks = 2, instances(
    f32_8192 = <f32, f32, 1, 8192, 512>,
    f16_8192 = <f16, f16, 1, 8192, 512>,
    f16_f32_8192 = <f16, f32, 1, 8192, 512>,
    bf16_8192 = <bf16, bf16, 1, 8192, 512>,
    bf16_f32_8192 = <bf16, f32, 1, 8192, 512>,
))]
pub fn long_rows<
    T: Element<Value = f32>,
    W: Element<Value = f32>,
    const M: usize,
    const N: usize,
    const THREADS: usize,
>(
    cta: Cta<THREADS>,
    x: Tiles<T, M, N>,
    w: Tiles<W, 1, N>,
    y: TilesMut<T, M, N>,
    eps: f32,
) {
    norm(cta, x, w, y, eps)
}

#[inline(always)]
fn norm<T: Element<Value = f32>, W: Element<Value = f32>, const M: usize, const N: usize, const THREADS: usize>(
    mut cta: Cta<THREADS>,
    x: Tiles<T, M, N>,
    w: Tiles<W, 1, N>,
    y: TilesMut<T, M, N>,
    eps: f32,
) {
    let inverse_width = reciprocal(x.cols() as f32);
    for ((i, j), y) in y {
        let x = cta.load(x.tile(i, j));
        let factors = row_factors(&mut cta, &x, inverse_width, eps);
        let normed = scaled(&mut cta, &x, &factors, w.tile(0, j));
        y.store(&mut cta, &normed);
    }
}

/// Rows of at most `N` columns, of `x + r`, which takes the place of `r`.
#[kernel(grid = persistent, min_blocks = 4, instances(
    f32_256 = <f32, f32, 16, 256, 256>,
    f32_1024 = <f32, f32, 4, 1024, 256>,
    f32_2048 = <f32, f32, 2, 2048, 256>,
    f32_4096 = <f32, f32, 1, 4096, 256>,
    f16_256 = <f16, f16, 16, 256, 256>,
    f16_1024 = <f16, f16, 4, 1024, 256>,
    f16_2048 = <f16, f16, 2, 2048, 256>,
    f16_4096 = <f16, f16, 1, 4096, 256>,
    f16_f32_256 = <f16, f32, 16, 256, 256>,
    f16_f32_1024 = <f16, f32, 4, 1024, 256>,
    f16_f32_2048 = <f16, f32, 2, 2048, 256>,
    f16_f32_4096 = <f16, f32, 1, 4096, 256>,
    bf16_256 = <bf16, bf16, 16, 256, 256>,
    bf16_1024 = <bf16, bf16, 4, 1024, 256>,
    bf16_2048 = <bf16, bf16, 2, 2048, 256>,
    bf16_4096 = <bf16, bf16, 1, 4096, 256>,
    bf16_f32_256 = <bf16, f32, 16, 256, 256>,
    bf16_f32_1024 = <bf16, f32, 4, 1024, 256>,
    bf16_f32_2048 = <bf16, f32, 2, 2048, 256>,
    bf16_f32_4096 = <bf16, f32, 1, 4096, 256>,
))]
pub fn rows_residual<
    T: Element<Value = f32>,
    W: Element<Value = f32>,
    const M: usize,
    const N: usize,
    const THREADS: usize,
>(
    cta: Cta<THREADS>,
    x: Tiles<T, M, N>,
    r: TilesMut<T, M, N>,
    w: Tiles<W, 1, N>,
    y: TilesMut<T, M, N>,
    eps: f32,
) {
    norm_residual(cta, x, r, w, y, eps)
}

/// As [`rows_residual`](fn@rows_residual), of larger blocks.
#[kernel(grid = persistent, min_blocks = 2, instances(
    f32_8192 = <f32, f32, 1, 8192, 512>,
    f16_8192 = <f16, f16, 1, 8192, 512>,
    f16_f32_8192 = <f16, f32, 1, 8192, 512>,
    bf16_8192 = <bf16, bf16, 1, 8192, 512>,
    bf16_f32_8192 = <bf16, f32, 1, 8192, 512>,
))]
pub fn long_rows_residual<
    T: Element<Value = f32>,
    W: Element<Value = f32>,
    const M: usize,
    const N: usize,
    const THREADS: usize,
>(
    cta: Cta<THREADS>,
    x: Tiles<T, M, N>,
    r: TilesMut<T, M, N>,
    w: Tiles<W, 1, N>,
    y: TilesMut<T, M, N>,
    eps: f32,
) {
    norm_residual(cta, x, r, w, y, eps)
}

#[inline(always)]
fn norm_residual<
    T: Element<Value = f32>,
    W: Element<Value = f32>,
    const M: usize,
    const N: usize,
    const THREADS: usize,
>(
    mut cta: Cta<THREADS>,
    x: Tiles<T, M, N>,
    r: TilesMut<T, M, N>,
    w: Tiles<W, 1, N>,
    y: TilesMut<T, M, N>,
    eps: f32,
) {
    let inverse_width = reciprocal(x.cols() as f32);
    for (((i, j), y), (_, r)) in y.into_iter().zip(r) {
        let x = cta.load(x.tile(i, j));
        let old = cta.load_mut(&r);
        let sum = rounded_sum::<T, M, N, THREADS, _>(&x, &old);
        r.store(&mut cta, &sum);
        let factors = row_factors(&mut cta, &sum, inverse_width, eps);
        let normed = scaled(&mut cta, &sum, &factors, w.tile(0, j));
        y.store(&mut cta, &normed);
    }
}

/// Rows of any number of columns.
#[kernel(grid = persistent, min_blocks = 2, instances(
    f32 = <f32, f32>,
    f16 = <f16, f16>,
    f16_f32 = <f16, f32>,
    bf16 = <bf16, bf16>,
    bf16_f32 = <bf16, f32>,
))]
pub fn wide<T: Element<Value = f32>, W: Element<Value = f32>>(
    mut cta: Cta<512>,
    x: Tiles<T, 1, 8192>,
    w: Tiles<W, 1, 8192>,
    y: TilesMut<T, 1, 8192, Strips>,
    eps: f32,
) {
    let inverse_width = reciprocal(x.cols() as f32);
    for (i, mut y) in y.strips() {
        let mut sum = PerRow::splat(0.0);
        for j in 0..x.across() {
            let part = cta.load(x.tile(i, j)).map(|x| x * x).row_sum(&mut cta);
            sum = sum.zip(&part, |sum, part| sum + part);
        }
        let factors = sum.map(|sum| rsqrt(sum * inverse_width + eps));
        for j in 0..x.across() {
            let x = cta.load(x.tile(i, j));
            let normed = scaled(&mut cta, &x, &factors, w.tile(0, j));
            y.store(&mut cta, j, &normed);
        }
    }
}

/// Rows of any number of columns, of `x + r`, which takes the place of `r`.
#[kernel(grid = persistent, min_blocks = 3, instances(
    f32 = <f32, f32>,
    f16 = <f16, f16>,
    f16_f32 = <f16, f32>,
    bf16 = <bf16, bf16>,
    bf16_f32 = <bf16, f32>,
))]
pub fn wide_residual<T: Element<Value = f32>, W: Element<Value = f32>>(
    mut cta: Cta<256>,
    x: Tiles<T, 1, 4096>,
    r: TilesMut<T, 1, 4096, Strips>,
    w: Tiles<W, 1, 4096>,
    y: TilesMut<T, 1, 4096, Strips>,
    eps: f32,
) {
    let inverse_width = reciprocal(x.cols() as f32);
    for ((i, mut y), (_, mut r)) in y.strips().zip(r.strips()) {
        let mut sum = PerRow::splat(0.0);
        for j in 0..x.across() {
            let x = cta.load(x.tile(i, j));
            let new = rounded_sum::<T, 1, 4096, 256, _>(&x, &r.load(&mut cta, j));
            r.store(&mut cta, j, &new);
            let part = new.map(|x| x * x).row_sum(&mut cta);
            sum = sum.zip(&part, |sum, part| sum + part);
        }
        let factors = sum.map(|sum| rsqrt(sum * inverse_width + eps));
        for j in 0..x.across() {
            let x = r.load(&mut cta, j);
            let normed = scaled(&mut cta, &x, &factors, w.tile(0, j));
            y.store(&mut cta, j, &normed);
        }
    }
}

/// Channels first: `x` and `y` are stacks of matrices of channels by positions, and each position is normed over its
/// channels, of which there are at most `M`. The weight is a column.
#[kernel(grid = persistent, min_blocks = 1, instances(
    f32_256 = <f32, f32, 256, 16, 256>,
    f32_1024 = <f32, f32, 1024, 16, 512>,
    f16_256 = <f16, f16, 256, 32, 256>,
    f16_1024 = <f16, f16, 1024, 32, 512>,
    f16_f32_256 = <f16, f32, 256, 32, 256>,
    f16_f32_1024 = <f16, f32, 1024, 32, 512>,
    bf16_256 = <bf16, bf16, 256, 32, 256>,
    bf16_1024 = <bf16, bf16, 1024, 32, 512>,
    bf16_f32_256 = <bf16, f32, 256, 32, 256>,
    bf16_f32_1024 = <bf16, f32, 1024, 32, 512>,
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
