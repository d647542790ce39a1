//! RMSNorm: `y = x / sqrt(mean(x^2) + eps) * w`, of every row, or of every position over the channels.
//!
//! | kernel | reduced dimension | tile | threads | elements a thread |
//! |---|---|---|---|---|
//! | [`rows`](fn@rows), [`rows_residual`](fn@rows_residual) | columns, at most 128, 256, 512, 1024, 2048 or 4096 | `M` x `N` of 4096 elements | 256 | 16 |
//! | [`long_rows`](fn@long_rows), [`long_rows_residual`](fn@long_rows_residual) | columns, at most 7168 or 8192 | 1 x 7168; 1 x 8192 | 448; 512 | 16 |
//! | [`longest_rows`](fn@longest_rows), [`longest_rows_residual`](fn@longest_rows_residual) | columns, at most 16384 | 1 x 16384 | 1024 | 16 |
//! | [`wide`](fn@wide) | columns, any number | 1 x 8192, in two passes | 512 | 16 |
//! | [`wide_residual`](fn@wide_residual) | columns, any number | 1 x 4096, in two passes | 256 | 16 |
//! | [`channels`](fn@channels) | rows of each slab, as many as a tile has | 256 or 1024 x 64 bytes | 256; 512 | 16-64 |
//!
//! Sums are of `f32` squares; one rounding, at the store. In the residual forms the norm is that of `r' = x + r`, which
//! is rounded to the element type, takes the place of `r`, and is what the norm sees. Shared memory: none of their own.
//!
//! A row stays in registers between the sum and the scaling, so memory is read once (but by the wide kernels, which read
//! a second time, mostly from the L2 cache). It is held as elements, not as values: 16 bits each where they have 16, which
//! leaves room for the next tile, whose reads are under way before the sum of the present one is begun. Where values fill
//! the registers (`f32` in the larger blocks and in residual forms, weights of `f32` there), tiles are read in turn, and
//! the other blocks of the SM keep memory busy. A weight of 16 bits is held from the first tile to the last in the plain
//! form; others are read for every tile, from the L1 cache, which the rows bypass.
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

/// As [`row_factors`], of rows that are kept as elements.
#[inline(always)]
fn factors_of<T: Element<Value = f32>, const M: usize, const N: usize, const THREADS: usize, C: Chunks>(
    cta: &mut Cta<THREADS>,
    x: &Fetched<T, M, N, ByRows<THREADS, C>>,
    inverse_width: f32,
    eps: f32,
) -> PerRow<f32, M, THREADS> {
    x.row_sum_of(cta, |x| x * x).map(|sum| rsqrt(sum * inverse_width + eps))
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
    f32_128 = <f32, f32, 32, 128, 256>,
    f32_256 = <f32, f32, 16, 256, 256>,
    f32_512 = <f32, f32, 8, 512, 256>,
    f32_1024 = <f32, f32, 4, 1024, 256>,
    f32_2048 = <f32, f32, 2, 2048, 256>,
    f32_4096 = <f32, f32, 1, 4096, 256>,
    f16_128 = <f16, f16, 32, 128, 256>,
    f16_256 = <f16, f16, 16, 256, 256>,
    f16_512 = <f16, f16, 8, 512, 256>,
    f16_1024 = <f16, f16, 4, 1024, 256>,
    f16_2048 = <f16, f16, 2, 2048, 256>,
    f16_4096 = <f16, f16, 1, 4096, 256>,
    bf16_128 = <bf16, bf16, 32, 128, 256>,
    bf16_256 = <bf16, bf16, 16, 256, 256>,
    bf16_512 = <bf16, bf16, 8, 512, 256>,
    bf16_1024 = <bf16, bf16, 4, 1024, 256>,
    bf16_2048 = <bf16, bf16, 2, 2048, 256>,
    bf16_4096 = <bf16, bf16, 1, 4096, 256>,
    f16_f32_128 = <f16, f32, 32, 128, 256>,
    bf16_f32_128 = <bf16, f32, 32, 128, 256>,
    f16_f32_256 = <f16, f32, 16, 256, 256>,
    bf16_f32_256 = <bf16, f32, 16, 256, 256>,
    f16_f32_512 = <f16, f32, 8, 512, 256>,
    bf16_f32_512 = <bf16, f32, 8, 512, 256>,
    f16_f32_1024 = <f16, f32, 4, 1024, 256>,
    bf16_f32_1024 = <bf16, f32, 4, 1024, 256>,
    f16_f32_2048 = <f16, f32, 2, 2048, 256>,
    bf16_f32_2048 = <bf16, f32, 2, 2048, 256>,
    f16_f32_4096 = <f16, f32, 1, 4096, 256>,
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
    f32_7168 = <f32, f32, 1, 7168, 448>,
    f32_8192 = <f32, f32, 1, 8192, 512>,
    f16_7168 = <f16, f16, 1, 7168, 448>,
    f16_8192 = <f16, f16, 1, 8192, 512>,
    bf16_7168 = <bf16, bf16, 1, 7168, 448>,
    bf16_8192 = <bf16, bf16, 1, 8192, 512>,
    f16_f32_7168 = <f16, f32, 1, 7168, 448>,
    bf16_f32_7168 = <bf16, f32, 1, 7168, 448>,
    f16_f32_8192 = <f16, f32, 1, 8192, 512>,
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

/// As [`rows`](fn@rows), of the largest blocks.
#[kernel(grid = persistent, min_blocks = 1, instances(
    f32_16384 = <f32, f32, 1, 16384, 1024>,
    f16_16384 = <f16, f16, 1, 16384, 1024>,
    bf16_16384 = <bf16, bf16, 1, 16384, 1024>,
    f16_f32_16384 = <f16, f32, 1, 16384, 1024>,
    bf16_f32_16384 = <bf16, f32, 1, 16384, 1024>,
))]
pub fn longest_rows<
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

/// The weight of the columns of a tile: held from the first tile to the last where the registers allow it, else read
/// from the L1 cache for each.
struct Weight<'a, W: Element<Value = f32>, const M: usize, const N: usize, L: Layout<M, N>> {
    from: TileRef<'a, W, 1, N>,
    held: Option<Fetched<W, M, N, L>>,
}
impl<'a, W: Element<Value = f32>, const M: usize, const N: usize, const THREADS: usize, C: Chunks>
    Weight<'a, W, M, N, ByRows<THREADS, C>>
{
    /// Eight registers a thread.
    const HOLD: bool = M * N / THREADS * size_of::<W>() <= 32;

    #[inline(always)]
    fn of(cta: &mut Cta<THREADS>, w: Tiles<'a, W, 1, N>, hold: bool) -> Self {
        let from = w.tile(0, 0);
        Weight { from, held: if Self::HOLD && hold { Some(cta.fetch_row_as(from)) } else { None } }
    }
    /// Each row of `x` times its factor, and times the weight.
    #[inline(always)]
    fn scale<T: Element<Value = f32>>(
        &self,
        cta: &mut Cta<THREADS>,
        x: &Fetched<T, M, N, ByRows<THREADS, C>>,
        factors: &PerRow<f32, M, THREADS>,
    ) -> Fetched<T, M, N, ByRows<THREADS, C>> {
        match &self.held {
            Some(w) => x.combine(w, factors, |x, w, s| x * s * w),
            None => x.combine(&cta.fetch_row_as(self.from), factors, |x, w, s| x * s * w),
        }
    }
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
    let w = Weight::of(&mut cta, w, true);
    if const { size_of::<T>() == 4 && THREADS > 448 } {
        // no registers to spare for the next tile
        for ((i, j), y) in y {
            let x = cta.fetch(x.tile(i, j));
            let factors = factors_of(&mut cta, &x, inverse_width, eps);
            let normed = w.scale(&mut cta, &x, &factors);
            y.put(&mut cta, &normed);
        }
        return;
    }
    let (mut ahead, mut outputs) = (y.plan(), y.into_iter());
    let mut now: Option<Fetched<T, M, N, _>> = None;
    loop {
        // one place for all fetches, the first too: they are long where rows are not aligned
        let next = ahead.next().map(|(i, j)| cta.fetch(x.tile(i, j)));
        if let Some(x) = now
            && let Some((_, y)) = outputs.next()
        {
            let factors = factors_of(&mut cta, &x, inverse_width, eps);
            let normed = w.scale(&mut cta, &x, &factors);
            y.put(&mut cta, &normed);
        }
        if next.is_none() {
            break;
        }
        now = next;
    }
}

/// Rows of at most `N` columns, of `x + r`, which takes the place of `r`.
#[kernel(grid = persistent, min_blocks = 4, instances(
    f32_128 = <f32, f32, 32, 128, 256>,
    f32_256 = <f32, f32, 16, 256, 256>,
    f32_512 = <f32, f32, 8, 512, 256>,
    f32_1024 = <f32, f32, 4, 1024, 256>,
    f32_2048 = <f32, f32, 2, 2048, 256>,
    f32_4096 = <f32, f32, 1, 4096, 256>,
    f16_128 = <f16, f16, 32, 128, 256>,
    f16_256 = <f16, f16, 16, 256, 256>,
    f16_512 = <f16, f16, 8, 512, 256>,
    f16_1024 = <f16, f16, 4, 1024, 256>,
    f16_2048 = <f16, f16, 2, 2048, 256>,
    f16_4096 = <f16, f16, 1, 4096, 256>,
    bf16_128 = <bf16, bf16, 32, 128, 256>,
    bf16_256 = <bf16, bf16, 16, 256, 256>,
    bf16_512 = <bf16, bf16, 8, 512, 256>,
    bf16_1024 = <bf16, bf16, 4, 1024, 256>,
    bf16_2048 = <bf16, bf16, 2, 2048, 256>,
    bf16_4096 = <bf16, bf16, 1, 4096, 256>,
    f16_f32_128 = <f16, f32, 32, 128, 256>,
    bf16_f32_128 = <bf16, f32, 32, 128, 256>,
    f16_f32_256 = <f16, f32, 16, 256, 256>,
    bf16_f32_256 = <bf16, f32, 16, 256, 256>,
    f16_f32_512 = <f16, f32, 8, 512, 256>,
    bf16_f32_512 = <bf16, f32, 8, 512, 256>,
    f16_f32_1024 = <f16, f32, 4, 1024, 256>,
    bf16_f32_1024 = <bf16, f32, 4, 1024, 256>,
    f16_f32_2048 = <f16, f32, 2, 2048, 256>,
    bf16_f32_2048 = <bf16, f32, 2, 2048, 256>,
    f16_f32_4096 = <f16, f32, 1, 4096, 256>,
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
    f32_7168 = <f32, f32, 1, 7168, 448>,
    f32_8192 = <f32, f32, 1, 8192, 512>,
    f16_7168 = <f16, f16, 1, 7168, 448>,
    f16_8192 = <f16, f16, 1, 8192, 512>,
    bf16_7168 = <bf16, bf16, 1, 7168, 448>,
    bf16_8192 = <bf16, bf16, 1, 8192, 512>,
    f16_f32_7168 = <f16, f32, 1, 7168, 448>,
    bf16_f32_7168 = <bf16, f32, 1, 7168, 448>,
    f16_f32_8192 = <f16, f32, 1, 8192, 512>,
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

/// As [`rows_residual`](fn@rows_residual), of the largest blocks.
#[kernel(grid = persistent, min_blocks = 1, instances(
    f32_16384 = <f32, f32, 1, 16384, 1024>,
    f16_16384 = <f16, f16, 1, 16384, 1024>,
    bf16_16384 = <bf16, bf16, 1, 16384, 1024>,
    f16_f32_16384 = <f16, f32, 1, 16384, 1024>,
    bf16_f32_16384 = <bf16, f32, 1, 16384, 1024>,
))]
pub fn longest_rows_residual<
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
    let w = Weight::of(&mut cta, w, false);
    if const { size_of::<T>() == 4 || size_of::<W>() == 4 } {
        // no registers to spare for the next tile
        for (((i, j), y), (_, r)) in y.into_iter().zip(r) {
            let x = cta.load(x.tile(i, j));
            let sum = rounded_sum::<T, M, N, THREADS, _>(&x, &cta.load_mut(&r)).round::<T>();
            r.put(&mut cta, &sum);
            let factors = factors_of(&mut cta, &sum, inverse_width, eps);
            let normed = w.scale(&mut cta, &sum, &factors);
            y.put(&mut cta, &normed);
        }
        return;
    }
    let (mut ahead, mut outputs) = (r.into_iter(), y.into_iter());
    let mut now: Option<(Fetched<T, M, N, _>, Fetched<T, M, N, _>, TileMut<'_, T, M, N>)> = None;
    loop {
        let next = ahead.next().map(|((i, j), r)| (cta.fetch(x.tile(i, j)), cta.fetch_mut(&r), r));
        let more = next.is_some();
        if let Some((x, old, r)) = now
            && let Some((_, y)) = outputs.next()
        {
            let sum = x.widen().zip(&old.widen(), |x, r| x + r).round::<T>();
            r.put(&mut cta, &sum);
            let factors = factors_of(&mut cta, &sum, inverse_width, eps);
            let normed = w.scale(&mut cta, &sum, &factors);
            y.put(&mut cta, &normed);
        }
        if !more {
            break;
        }
        now = next;
    }
}

/// Rows of any number of columns.
#[kernel(grid = persistent, min_blocks = 2, instances(
    f32 = <f32, f32>,
    f16 = <f16, f16>,
    bf16 = <bf16, bf16>,
    f16_f32 = <f16, f32>,
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
    bf16 = <bf16, bf16>,
    f16_f32 = <f16, f32>,
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
    bf16_256 = <bf16, bf16, 256, 32, 256>,
    bf16_1024 = <bf16, bf16, 1024, 32, 512>,
    f16_f32_256 = <f16, f32, 256, 32, 256>,
    bf16_f32_256 = <bf16, f32, 256, 32, 256>,
    f16_f32_1024 = <f16, f32, 1024, 32, 512>,
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
