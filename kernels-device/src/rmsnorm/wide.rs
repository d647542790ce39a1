//! Rows of any width, in two passes over memory.

use tilewright::layout::Chunks;
use tilewright::prelude::*;

/// Each row of `x` times its factor, and times the weight.
#[inline(always)]
fn scaled<W: Element<Value = f32>, const M: usize, const N: usize, const THREADS: usize, C: Chunks>(
    cta: &mut Cta<THREADS>,
    x: &Tile<f32, M, N, ByRows<THREADS, C>>,
    factors: &PerRow<f32, M, THREADS>,
    w: TileRef<'_, W, 1, N>,
    offset: f32,
) -> Tile<f32, M, N, ByRows<THREADS, C>> {
    let w = cta.load_row_like(x, w);
    x.map_rows(factors, |x, s| x * s).zip(&w, |x, w| x * (w + offset))
}

/// `x + r` as memory will hold it.
#[inline(always)]
fn rounded_sum<T: Element<Value = f32>, const M: usize, const N: usize, const THREADS: usize, C: Chunks>(
    x: &Tile<f32, M, N, ByRows<THREADS, C>>,
    r: &Tile<f32, M, N, ByRows<THREADS, C>>,
) -> Tile<f32, M, N, ByRows<THREADS, C>> {
    x.zip(r, |x, r| T::from_value(x + r).to_value())
}

/// Rows of any number of columns.
#[kernel(grid = persistent, min_blocks = 2, instances(
    f32 = <f32, f32>,
    f16 = <f16, f16>,
    bf16 = <bf16, bf16>,
    f16_f32 = <f16, f32>,
    bf16_f32 = <bf16, f32>,
))]
pub fn plain<T: Element<Value = f32>, W: Element<Value = f32>>(
    mut cta: Cta<512>,
    x: Tiles<T, 1, 8192>,
    w: Tiles<W, 1, 8192>,
    y: TilesMut<T, 1, 8192, Strips>,
    eps: f32,
    offset: f32,
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
            let normed = scaled(&mut cta, &x, &factors, w.tile(0, j), offset);
            y.store(&mut cta, j, &normed);
        }
    }
}

/// Rows of any number of columns, of `x + r`, which takes the place of `r`.
#[kernel(grid = persistent, min_blocks = 3, instances(
    f32 = <f32, f32>,
    f16 = <f16, f16>,
    bf16 = <bf16, bf16>,
    f16_f32 = <f16, f32>,
    bf16_f32 = <bf16, f32>,
))]
pub fn residual<T: Element<Value = f32>, W: Element<Value = f32>>(
    mut cta: Cta<256>,
    x: Tiles<T, 1, 4096>,
    r: TilesMut<T, 1, 4096, Strips>,
    w: Tiles<W, 1, 4096>,
    y: TilesMut<T, 1, 4096, Strips>,
    eps: f32,
    offset: f32,
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
            let normed = scaled(&mut cta, &x, &factors, w.tile(0, j), offset);
            y.store(&mut cta, j, &normed);
        }
    }
}
