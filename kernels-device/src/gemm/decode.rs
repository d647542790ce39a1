//! C = f(A B^T) on Hopper for few rows of A (the tokens of a decode step) and many of B (the weights), where reading B is
//! all the time there is. A is M x K, B is N x K, both with adjacent columns; f32 accumulation, one rounding.
//!
//! The operands are exchanged: `ROWS` weight rows are the tensor cores' M, `TOKENS` tokens their N, so that no product is
//! padded to 64 tokens. The `SPLIT` blocks of a cluster take a part of the depth each, and add their parts up through
//! distributed shared memory: no workspace, no second kernel, and a fixed order.
//!
//! | | |
//! |---|---|
//! | tile of a cluster | `TOKENS` x `ROWS` of C; each block `1 / SPLIT` of the depth, `DEPTH` a step |
//! | roles | 1 producer, `WARPGROUPS` consumers of 64 weight rows each |
//! | shared memory | `STAGES` of `(ROWS + TOKENS) * DEPTH` elements: what is in flight; and the others' parts |
//!
//! Disjointness: `c` hands each tile to one cluster; `transposed` gives each consumer other 64 columns, and each block of
//! the cluster other rows of them.
//!
//! A and B need what the copy engine needs: a base and a row stride that are multiples of 16 bytes. C may be any.

use tilewright::prelude::*;

use super::epilogue::Fused;

/// The tiles of one pipeline slot.
pub type Stage<T, const ROWS: usize, const TOKENS: usize, const DEPTH: usize> =
    (SharedTile<T, ROWS, DEPTH>, SharedTile<T, TOKENS, DEPTH>);

/// C = A B^T, for kernels with an epilogue of their own. `begin` gets where in the grid of tiles of `TOKENS` x 64 a
/// warpgroup's columns belong, before the products; `finish` what it made of that, transposed accumulators of 64 x `TOKENS`
/// sums, and the columns to store them to.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
pub fn product<
    Q,
    T: MmaElement,
    O: AccElement,
    S: Schedule,
    const ROWS: usize,
    const TOKENS: usize,
    const DEPTH: usize,
    const STAGES: usize,
    const SPLIT: usize,
    const WARPGROUPS: usize,
    const THREADS: usize,
>(
    cta: Cta<THREADS, SPLIT>,
    ring: Pipeline<Stage<T, ROWS, TOKENS, DEPTH>, STAGES>,
    sum: ClusterSum<TOKENS, WARPGROUPS, SPLIT>,
    a: TmaTiles<T, TOKENS, DEPTH>,
    b: TmaTiles<T, ROWS, DEPTH>,
    c: TilesMut<O, TOKENS, ROWS, S>,
    begin: impl Fn(&mut WarpGroup, (u32, u32), &ColumnsMut<O, TOKENS, SPLIT>) -> Q + Sync,
    finish: impl Fn(&mut WarpGroup, Q, Acc<TOKENS>, ColumnsMut<O, TOKENS, SPLIT>) + Sync,
) where
    Width<TOKENS>: Wgmma,
{
    let (rank, split, steps) = (cta.rank(), SPLIT as u32, a.across());
    let (from, to) = (steps * rank / split, steps * (rank + 1) / split);
    let plan = c.plan();
    cta.roles(
        (ring, sum),
        c.transposed::<SPLIT>(),
        #[inline(always)]
        |(ring, ())| {
            for (i, j) in plan {
                for k in from..to {
                    ring.fill().load((b.tile(j, k), a.tile(i, k)));
                }
            }
        },
        #[inline(always)]
        |wg, (ring, cluster), c| {
            for ((i, j), out) in c {
                let begun = begin(wg, (i, j * WARPGROUPS as u32 + wg.index()), &out);
                let mut mma = wg.mma(Acc::<TOKENS>::zero());
                for _ in from..to {
                    mma.step(ring.next(), |(b, a)| (b.rows_of(wg), a.all()));
                }
                let sum = cluster.sum(wg, mma.wait());
                finish(wg, begun, sum, out);
            }
        },
    );
}

/// C = activation(alpha A B^T + bias) + beta R, or with `own` + beta C, as many blocks as run at once. Empty views count as
/// zero; the activation `SUM` leaves the sums as they are, whatever the rest.
#[kernel(arch = "sm_90a", grid = persistent, instances(
    bf16_r64_t16_s2 = <bf16, 64, 16, 128, 10, 2, 1, 256>,
    f16_r64_t16_s2 = <f16, 64, 16, 128, 10, 2, 1, 256>,
    bf16_r128_t16_s1 = <bf16, 128, 16, 64, 11, 1, 2, 384>,
    f16_r128_t16_s1 = <f16, 128, 16, 64, 11, 1, 2, 384>,
    bf16_r192_t16_s1 = <bf16, 192, 16, 64, 8, 1, 3, 512>,
    f16_r192_t16_s1 = <f16, 192, 16, 64, 8, 1, 3, 512>,
    bf16_r256_t16_s1 = <bf16, 256, 16, 64, 6, 1, 4, 640>,
    f16_r256_t16_s1 = <f16, 256, 16, 64, 6, 1, 4, 640>,
    bf16_r128_t32_s1 = <bf16, 128, 32, 64, 10, 1, 2, 384>,
    f16_r128_t32_s1 = <f16, 128, 32, 64, 10, 1, 2, 384>,
    bf16_r192_t32_s1 = <bf16, 192, 32, 64, 7, 1, 3, 512>,
    f16_r192_t32_s1 = <f16, 192, 32, 64, 7, 1, 3, 512>,
    bf16_r256_t32_s1 = <bf16, 256, 32, 64, 6, 1, 4, 640>,
    f16_r256_t32_s1 = <f16, 256, 32, 64, 6, 1, 4, 640>,
    bf16_r128_t64_s1 = <bf16, 128, 64, 64, 8, 1, 2, 384>,
    f16_r128_t64_s1 = <f16, 128, 64, 64, 8, 1, 2, 384>,
    bf16_r128_t64_s2 = <bf16, 128, 64, 64, 8, 2, 2, 384>,
    f16_r128_t64_s2 = <f16, 128, 64, 64, 8, 2, 2, 384>,
    bf16_r192_t64_s1 = <bf16, 192, 64, 64, 6, 1, 3, 512>,
    f16_r192_t64_s1 = <f16, 192, 64, 64, 6, 1, 3, 512>,
    bf16_r128_t128_s1 = <bf16, 128, 128, 64, 6, 1, 2, 384>,
    f16_r128_t128_s1 = <f16, 128, 128, 64, 6, 1, 2, 384>,
    bf16_r128_t128_s2 = <bf16, 128, 128, 64, 5, 2, 2, 384>,
    f16_r128_t128_s2 = <f16, 128, 128, 64, 5, 2, 2, 384>,
    bf16_r128_t128_s3 = <bf16, 128, 128, 64, 5, 3, 2, 384>,
    f16_r128_t128_s3 = <f16, 128, 128, 64, 5, 3, 2, 384>,
    bf16_r128_t128_s6 = <bf16, 128, 128, 64, 5, 6, 2, 384>,
    f16_r128_t128_s6 = <f16, 128, 128, 64, 5, 6, 2, 384>,
    bf16_r192_t128_s1 = <bf16, 192, 128, 64, 5, 1, 3, 512>,
    f16_r192_t128_s1 = <f16, 192, 128, 64, 5, 1, 3, 512>,
))]
#[allow(clippy::too_many_arguments)]
pub fn persistent<
    T: MmaElement,
    const ROWS: usize,
    const TOKENS: usize,
    const DEPTH: usize,
    const STAGES: usize,
    const SPLIT: usize,
    const WARPGROUPS: usize,
    const THREADS: usize,
>(
    cta: Cta<THREADS, SPLIT>,
    #[shared] ring: Pipeline<Stage<T, ROWS, TOKENS, DEPTH>, STAGES>,
    #[shared] sum: ClusterSum<TOKENS, WARPGROUPS, SPLIT>,
    a: TmaTiles<T, TOKENS, DEPTH>,
    b: TmaTiles<T, ROWS, DEPTH>,
    c: TilesMut<T, TOKENS, ROWS, Linear>,
    bias: Tiles<T, 1, 64>,
    residual: Tiles<T, TOKENS, 64>,
    own: u32,
    alpha: f32,
    beta: f32,
    activation: u32,
) where
    Width<TOKENS>: Wgmma,
{
    let e = Fused { bias, residual, own: own != 0, alpha, beta, activation };
    product(
        cta,
        ring,
        sum,
        a,
        b,
        c,
        |wg, at, out| e.begin(wg, at, out),
        |wg, begun, acc, out| e.finish(wg, begun, acc, out),
    )
}

/// C = A B^T alone, as many blocks as run at once: tiles that leave no registers for an epilogue.
#[kernel(arch = "sm_90a", grid = persistent, instances(
    bf16_r256_t64_s1 = <bf16, 256, 64, 64, 5, 1, 4, 640>,
    f16_r256_t64_s1 = <f16, 256, 64, 64, 5, 1, 4, 640>,
))]
pub fn plain<
    T: MmaElement,
    const ROWS: usize,
    const TOKENS: usize,
    const DEPTH: usize,
    const STAGES: usize,
    const SPLIT: usize,
    const WARPGROUPS: usize,
    const THREADS: usize,
>(
    cta: Cta<THREADS, SPLIT>,
    #[shared] ring: Pipeline<Stage<T, ROWS, TOKENS, DEPTH>, STAGES>,
    #[shared] sum: ClusterSum<TOKENS, WARPGROUPS, SPLIT>,
    a: TmaTiles<T, TOKENS, DEPTH>,
    b: TmaTiles<T, ROWS, DEPTH>,
    c: TilesMut<T, TOKENS, ROWS, Linear>,
) where
    Width<TOKENS>: Wgmma,
{
    product(cta, ring, sum, a, b, c, |_, _, _| (), |wg, _, acc, out| out.store(wg, acc))
}

/// As [`persistent`](fn@persistent), a cluster for each tile: several blocks an SM, of which one starts while another ends.
#[kernel(arch = "sm_90a", min_blocks = 2, instances(
    bf16_r64_t16_s1 = <bf16, 64, 16, 64, 10, 1, 1, 256>,
    f16_r64_t16_s1 = <f16, 64, 16, 64, 10, 1, 1, 256>,
    bf16_r64_t16_s2 = <bf16, 64, 16, 128, 5, 2, 1, 256>,
    f16_r64_t16_s2 = <f16, 64, 16, 128, 5, 2, 1, 256>,
    bf16_r64_t32_s1 = <bf16, 64, 32, 64, 8, 1, 1, 256>,
    f16_r64_t32_s1 = <f16, 64, 32, 64, 8, 1, 1, 256>,
    bf16_r64_t32_s2 = <bf16, 64, 32, 128, 4, 2, 1, 256>,
    f16_r64_t32_s2 = <f16, 64, 32, 128, 4, 2, 1, 256>,
    bf16_r64_t64_s1 = <bf16, 64, 64, 64, 7, 1, 1, 256>,
    f16_r64_t64_s1 = <f16, 64, 64, 64, 7, 1, 1, 256>,
    bf16_r64_t64_s2 = <bf16, 64, 64, 64, 6, 2, 1, 256>,
    f16_r64_t64_s2 = <f16, 64, 64, 64, 6, 2, 1, 256>,
    bf16_r64_t64_s4 = <bf16, 64, 64, 64, 6, 4, 1, 256>,
    f16_r64_t64_s4 = <f16, 64, 64, 64, 6, 4, 1, 256>,
))]
#[allow(clippy::too_many_arguments)]
pub fn per_tile<
    T: MmaElement,
    const ROWS: usize,
    const TOKENS: usize,
    const DEPTH: usize,
    const STAGES: usize,
    const SPLIT: usize,
    const WARPGROUPS: usize,
    const THREADS: usize,
>(
    cta: Cta<THREADS, SPLIT>,
    #[shared] ring: Pipeline<Stage<T, ROWS, TOKENS, DEPTH>, STAGES>,
    #[shared] sum: ClusterSum<TOKENS, WARPGROUPS, SPLIT>,
    a: TmaTiles<T, TOKENS, DEPTH>,
    b: TmaTiles<T, ROWS, DEPTH>,
    c: TilesMut<T, TOKENS, ROWS, Linear>,
    bias: Tiles<T, 1, 64>,
    residual: Tiles<T, TOKENS, 64>,
    own: u32,
    alpha: f32,
    beta: f32,
    activation: u32,
) where
    Width<TOKENS>: Wgmma,
{
    let e = Fused { bias, residual, own: own != 0, alpha, beta, activation };
    product(
        cta,
        ring,
        sum,
        a,
        b,
        c,
        |wg, at, out| e.begin(wg, at, out),
        |wg, begun, acc, out| e.finish(wg, begun, acc, out),
    )
}
