//! RMSNorm: `y = x / sqrt(mean(x^2) + eps) * w` of every row; also of `x + r`, which replaces `r`.

use tilewright::prelude::*;

/// The factor that brings the mean square of each row to 1.
#[inline(always)]
fn scale<const M: usize, const N: usize, const THREADS: usize, C: tilewright::layout::Chunks>(
    cta: &mut Cta<THREADS>,
    x: &Tile<f32, M, N, ByRows<THREADS, C>>,
    inverse_width: f32,
    eps: f32,
) -> PerRow<f32, M, THREADS> {
    x.map(|v| v * v).row_sum(cta).map(|sum| rsqrt(sum * inverse_width + eps))
}

/// Rows of at most `N` columns, `M` at a time.
#[kernel(grid = persistent, min_blocks = 4, instances(
    bf16_4096 = <bf16, bf16, 1, 4096, 256>,
    f32_4096 = <f32, f32, 1, 4096, 256>,
    bf16_256 = <bf16, f32, 8, 256, 256>,
))]
pub fn plain<T: Element<Value = f32>, W: Element<Value = f32>, const M: usize, const N: usize, const THREADS: usize>(
    mut cta: Cta<THREADS>,
    x: Tiles<T, M, N>,
    w: Tiles<W, 1, N>,
    y: TilesMut<T, M, N>,
    eps: f32,
) {
    let inverse_width = reciprocal(x.cols() as f32);
    let w = cta.load_row_as(w.tile(0, 0));
    for ((i, j), y) in y {
        let x = cta.load(x.tile(i, j));
        let scale = scale(&mut cta, &x, inverse_width, eps);
        y.store(&mut cta, &x.map_rows(&scale, |x, s| x * s).zip(&w, |x, w| x * w));
    }
}
