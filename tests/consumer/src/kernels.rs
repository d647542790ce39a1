//! This package's own kernels. The build script compiles this file for GPUs, cargo compiles it for the CPU.

use tilewright::prelude::*;

/// Every row of `y` becomes the row of `x`, scaled to a sum of squares of 1, plus `shift`.
#[kernel]
pub fn normalise(mut cta: Cta<128>, x: Tiles<f32, 1, 1024>, y: TilesMut<f32, 1, 1024>, shift: f32) {
    for ((i, j), out) in y {
        let row = cta.load(x.tile(i, j));
        let squares = row.map(|v| v * v).row_sum(&mut cta);
        let scaled = row.map_rows(&squares, |v, s| v * rsqrt(s) + shift);
        out.store(&mut cta, &scaled);
    }
}
