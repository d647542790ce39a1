//! The kernels of the examples. rustc compiles this file twice: as a module of each example, and, from `build.rs`, for
//! the GPU. The two builds know the same names: `tilewright`, and `tilewright_kernels` for functions of the shipped
//! kernels (a dependency of the package, and `with_tilewright_kernels()` in its `build.rs`).
#![allow(dead_code, reason = "each example uses a part")]

use tilewright::prelude::*;
use tilewright_kernels::gemm::portable::product;

/// `x / (1 + e^-x)`
#[inline(always)]
fn silu(x: f32) -> f32 {
    x * reciprocal(1.0 + exp2(-core::f32::consts::LOG2_E * x))
}

/// `y = silu(x) g`: a block takes 2048 elements of each.
#[kernel(min_blocks = 6)]
pub fn silu_gate(mut cta: Cta<256>, x: Tiles<f32, 1, 2048>, g: Tiles<f32, 1, 2048>, y: TilesMut<f32, 1, 2048>) {
    for ((i, j), y) in y {
        let x = cta.load(x.tile(i, j));
        let g = cta.load_like(&x, g.tile(i, j));
        y.store(&mut cta, &x.zip(&g, |x, g| silu(x) * g));
    }
}

/// `C = silu(A B^T)`: the portable product with an epilogue. C is handed out in tiles of 64 x 64, eight tile rows at a
/// time, so that blocks running together share what they read.
#[kernel]
pub fn linear_silu(
    mut cta: Cta<128>,
    #[shared] mut stages: Stages<f16, 64, 64, 32, 4>,
    a: Tiles<f16, 64, 32>,
    b: Tiles<f16, 64, 32>,
    c: TilesMut<f16, 64, 64, Grouped<8>>,
) {
    product(&mut cta, &mut stages, a, b, c, silu);
}

/// Row `i` of `y` is row `tokens[i]` of `table`. A token that the table does not have gets row 0, and the host is told.
#[kernel(faults(BAD_TOKEN = "a token is not in the table"))]
pub fn embedding(mut cta: Cta<128>, table: Tiles<f32, 1, 512>, tokens: Tiles<u32, 1, 1>, y: TilesMut<f32, 1, 512>) {
    for ((i, j), y) in y {
        let token = tokens.tile(i, 0).scalar(&mut cta);
        cta.fault_if(token >= table.down(), BAD_TOKEN);
        let row = cta.load(table.tile(if token < table.down() { token } else { 0 }, j));
        y.store(&mut cta, &row);
    }
}
