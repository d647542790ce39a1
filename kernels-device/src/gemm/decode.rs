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

/// The tiles of one pipeline slot.
pub type Stage<T, const ROWS: usize, const TOKENS: usize, const DEPTH: usize> =
    (SharedTile<T, ROWS, DEPTH>, SharedTile<T, TOKENS, DEPTH>);

/// C = f(A B^T), for kernels with an epilogue of their own.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
pub fn product<
    T: MmaElement,
    O: StoreElement,
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
    f: impl Fn(f32) -> f32 + Sync,
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
            for (_, out) in c {
                let mut mma = wg.mma(Acc::<TOKENS>::zero());
                for _ in from..to {
                    mma.step(ring.next(), |(b, a)| (b.rows_of(wg), a.all()));
                }
                let sum = cluster.sum(wg, mma.wait());
                out.store(wg, sum.map(&f));
            }
        },
    );
}

/// C = A B^T, as many blocks as run at once.
#[kernel(arch = "sm_90a", grid = persistent, instances(
    r64_t16_s1 = <bf16, 64, 16, 64, 20, 1, 1, 256>,
    r64_t16_s2 = <bf16, 64, 16, 64, 20, 2, 1, 256>,
    r64_t16_s4 = <bf16, 64, 16, 64, 20, 4, 1, 256>,
    r128_t16_s1 = <bf16, 128, 16, 64, 11, 1, 2, 384>,
    r128_t16_s2 = <bf16, 128, 16, 64, 11, 2, 2, 384>,
    r128_t16_s4 = <bf16, 128, 16, 64, 11, 4, 2, 384>,
    r64_t64_s2 = <bf16, 64, 64, 64, 12, 2, 1, 256>,
    r64_t64_s4 = <bf16, 64, 64, 64, 12, 4, 1, 256>,
    r128_t64_s1 = <bf16, 128, 64, 64, 8, 1, 2, 384>,
    r128_t64_s2 = <bf16, 128, 64, 64, 8, 2, 2, 384>,
    r128_t64_s4 = <bf16, 128, 64, 64, 8, 4, 2, 384>,
    r128_t128_s1 = <bf16, 128, 128, 64, 6, 1, 2, 384>,
    r128_t128_s2 = <bf16, 128, 128, 64, 5, 2, 2, 384>,
    r128_t128_s4 = <bf16, 128, 128, 64, 5, 4, 2, 384>,
))]
#[allow(clippy::too_many_arguments)]
pub fn persistent<
    T: MmaElement + StoreElement,
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
    product(cta, ring, sum, a, b, c, |x| x)
}

/// C = A B^T, a cluster for each tile: several blocks an SM, of which one starts while another ends.
#[kernel(arch = "sm_90a", min_blocks = 2, instances(
    r64_t16_s1 = <bf16, 64, 16, 64, 10, 1, 1, 256>,
    r64_t16_s2 = <bf16, 64, 16, 64, 10, 2, 1, 256>,
    r64_t16_s4 = <bf16, 64, 16, 64, 10, 4, 1, 256>,
    r64_t16_s8 = <bf16, 64, 16, 64, 10, 8, 1, 256>,
    r64_t64_s1 = <bf16, 64, 64, 64, 7, 1, 1, 256>,
    r64_t64_s2 = <bf16, 64, 64, 64, 6, 2, 1, 256>,
    r64_t64_s4 = <bf16, 64, 64, 64, 6, 4, 1, 256>,
    r64_t128_s1 = <bf16, 64, 128, 64, 4, 1, 1, 256>,
    r64_t128_s2 = <bf16, 64, 128, 64, 4, 2, 1, 256>,
))]
#[allow(clippy::too_many_arguments)]
pub fn per_tile<
    T: MmaElement + StoreElement,
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
    product(cta, ring, sum, a, b, c, |x| x)
}
