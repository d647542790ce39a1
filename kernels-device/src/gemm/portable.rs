//! C = f(A B^T) on any GPU from sm_80 up: A is M x K, B is N x K, both with adjacent columns, of any size, row stride and
//! alignment; f32 accumulation, one rounding.
//!
//! | instance | tile, depth | threads, a warp's part | shared memory | registers (sm_80) |
//! |---|---|---|---|---|
//! | `bf16`, `f16` | 128 x 128, 64 | 128, 64 x 64 | 3 stages of 32 KiB | 245 |
//! | `bf16_f32`, `f16_f32`: f32 output | 128 x 128, 64 | 128, 64 x 64 | 3 stages of 32 KiB | 245 |
//! | `bf16_wide`, `f16_wide` | 128 x 256, 32 | 256, 64 x 64 | 4 stages of 24 KiB | 246 |
//! | `f32` | 128 x 128, 16 | 256, 64 x 32 | 4 stages of 16 KiB | 191 |
//! | `small_bf16`, `small_f16` | 64 x 64, 32 | 128, 32 x 32 | 4 stages of 8 KiB | 147 |
//! | `small_f32` | 64 x 64, 16 | 128, 32 x 32 | 4 stages of 8 KiB | 146 |
//!
//! Disjointness: `c` hands each tile to one block.

use tilewright::prelude::*;

/// C = f(A B^T) on the running block's tiles of `c`: for kernels with an epilogue of their own.
#[inline(always)]
pub fn product<
    T: DotElement,
    O: DotElement,
    S: Schedule,
    const M: usize,
    const N: usize,
    const K: usize,
    const STAGES: usize,
    const THREADS: usize,
>(
    cta: &mut Cta<THREADS>,
    stages: &mut Stages<T, M, N, K, STAGES>,
    a: Tiles<T, M, K>,
    b: Tiles<T, N, K>,
    c: TilesMut<O, M, N, S>,
    f: impl Fn(f32) -> f32 + Sync,
) where
    Split<M, N, THREADS>: BlockProduct,
{
    for ((i, j), out) in c {
        let acc = cta.accumulate_strips(stages, a.strip(i), b.strip(j), BlockAcc::zero());
        out.store_acc(cta, acc.map(&f));
    }
}

/// C = A B^T.
#[kernel(arch = "sm_80", instances(
    bf16 = <bf16, bf16, 128, 128, 64, 3, 128>, f16 = <f16, f16, 128, 128, 64, 3, 128>,
    bf16_f32 = <bf16, f32, 128, 128, 64, 3, 128>, f16_f32 = <f16, f32, 128, 128, 64, 3, 128>,
    bf16_wide = <bf16, bf16, 128, 256, 32, 4, 256>, f16_wide = <f16, f16, 128, 256, 32, 4, 256>,
    f32 = <f32, f32, 128, 128, 16, 4, 256>,
    small_bf16 = <bf16, bf16, 64, 64, 32, 4, 128>, small_f16 = <f16, f16, 64, 64, 32, 4, 128>,
    small_f32 = <f32, f32, 64, 64, 16, 4, 128>,
))]
pub fn plain<
    T: DotElement,
    O: DotElement,
    const M: usize,
    const N: usize,
    const K: usize,
    const STAGES: usize,
    const THREADS: usize,
>(
    cta: Cta<THREADS>,
    #[shared] stages: Stages<T, M, N, K, STAGES>,
    a: Tiles<T, M, K>,
    b: Tiles<T, N, K>,
    c: TilesMut<O, M, N, Grouped<16>>,
) where
    Split<M, N, THREADS>: BlockProduct,
{
    let (mut cta, mut stages) = (cta, stages);
    product(&mut cta, &mut stages, a, b, c, |x| x);
}
