//! C = f(A B^T) on Hopper with exchanged operands, as [`decode`](super::decode), by clusters of `CLUSTER` blocks that have
//! the tokens in common: each has other weight rows and the whole depth, and the tokens are loaded once, a part by each
//! block, for all. They read less from L2 than `decode` does, and have nothing to join.
//!
//! | | |
//! |---|---|
//! | tile of a cluster | `TOKENS` x `WIDE` of C; each block `ROWS` = `WIDE / CLUSTER` weight rows, `DEPTH` a step |
//! | roles | 1 producer, `ROWS / 64` consumers of 64 weight rows each |
//! | shared memory | `STAGES` of `(ROWS + TOKENS) * DEPTH` elements |
//!
//! Disjointness: `c` hands each tile to one cluster; `transposed` gives each consumer of its blocks other 64 columns.
//!
//! A and B need what the copy engine needs: a base and a row stride that are multiples of 16 bytes. C may be any.

use tilewright::prelude::*;

use super::epilogue::Fused;

/// The tiles of one pipeline slot.
pub type Stage<T, const ROWS: usize, const TOKENS: usize, const DEPTH: usize, const CLUSTER: usize> =
    (SharedTile<T, ROWS, DEPTH>, Multicast<SharedTile<T, TOKENS, DEPTH>, CLUSTER>);

#[inline(always)]
fn product<
    T: MmaElement,
    const ROWS: usize,
    const WIDE: usize,
    const TOKENS: usize,
    const DEPTH: usize,
    const STAGES: usize,
    const CLUSTER: usize,
    const THREADS: usize,
>(
    cta: Cta<THREADS, CLUSTER>,
    ring: Pipeline<Stage<T, ROWS, TOKENS, DEPTH, CLUSTER>, STAGES>,
    a: TmaTiles<T, TOKENS, DEPTH>,
    b: TmaTiles<T, ROWS, DEPTH>,
    c: TilesMut<T, TOKENS, WIDE, Linear>,
    e: Fused<T, TOKENS>,
) where
    Width<TOKENS>: Wgmma,
{
    const { assert!(ROWS * CLUSTER == WIDE, "the blocks of a cluster share a tile by its columns") };
    let (rank, steps, blocks) = (cta.rank(), a.across(), CLUSTER as u32);
    let warpgroups = ROWS as u32 / 64;
    // what the sums meet is fetched before the products where it fits beside them
    let early = const { TOKENS < 128 || THREADS == 384 && TOKENS == 128 };
    let plan = c.plan();
    cta.roles(
        ring,
        c.transposed::<1>(),
        #[inline(always)]
        |ring| {
            for (i, j) in plan {
                for k in 0..steps {
                    ring.fill().load((b.tile(j * blocks + rank, k), a.tile(i, k)));
                }
            }
        },
        #[inline(always)]
        |wg, ring, c| {
            for ((i, j), out) in c {
                let at = (i, (j * blocks + rank) * warpgroups + wg.index());
                let fetched = early.then(
                    #[inline(always)]
                    || e.begin(wg, at, &out),
                );
                let mut mma = wg.mma(Acc::<TOKENS>::zero());
                for _ in 0..steps {
                    mma.step(ring.next(), |(b, a)| (b.rows_of(wg), a.all()));
                }
                let acc = mma.wait();
                let fetched = match fetched {
                    Some(fetched) => fetched,
                    None => e.begin(wg, at, &out),
                };
                e.finish(wg, fetched, acc, out);
            }
        },
    );
}

/// C = activation(alpha A B^T + bias) + beta R, or with `own` + beta C, as many blocks as run at once. See
/// [`decode::persistent`](fn@super::decode::persistent).
#[kernel(arch = "sm_90a", grid = persistent, instances(
    bf16_r64_t128_k2 = <bf16, 64, 128, 128, 64, 8, 2, 256>,
    bf16_r64_t128_k4 = <bf16, 64, 256, 128, 128, 4, 4, 256>,
    bf16_r128_t128_k2 = <bf16, 128, 256, 128, 64, 6, 2, 384>,
    bf16_r192_t128_k2 = <bf16, 192, 384, 128, 64, 5, 2, 512>,
    bf16_r64_t64_k2 = <bf16, 64, 128, 64, 128, 6, 2, 256>,
    bf16_r128_t64_k2 = <bf16, 128, 256, 64, 128, 4, 2, 384>,
    bf16_r128_t256_k2 = <bf16, 128, 256, 256, 64, 4, 2, 384>,
))]
#[allow(clippy::too_many_arguments)]
pub fn persistent<
    T: MmaElement,
    const ROWS: usize,
    const WIDE: usize,
    const TOKENS: usize,
    const DEPTH: usize,
    const STAGES: usize,
    const CLUSTER: usize,
    const THREADS: usize,
>(
    cta: Cta<THREADS, CLUSTER>,
    #[shared] ring: Pipeline<Stage<T, ROWS, TOKENS, DEPTH, CLUSTER>, STAGES>,
    a: TmaTiles<T, TOKENS, DEPTH>,
    b: TmaTiles<T, ROWS, DEPTH>,
    c: TilesMut<T, TOKENS, WIDE, Linear>,
    bias: Tiles<T, 1, 64>,
    residual: Tiles<T, TOKENS, 64>,
    own: u32,
    alpha: f32,
    beta: f32,
    activation: u32,
) where
    Width<TOKENS>: Wgmma,
{
    product(cta, ring, a, b, c, Fused { bias, residual, own: own != 0, alpha, beta, activation })
}

/// As [`persistent`](fn@persistent), a cluster for each tile, two blocks an SM.
#[kernel(arch = "sm_90a", min_blocks = 2, instances(
    bf16_r64_t128_k2 = <bf16, 64, 128, 128, 64, 4, 2, 256>,
    bf16_r64_t128_k4 = <bf16, 64, 256, 128, 128, 2, 4, 256>,
    bf16_r64_t64_k2 = <bf16, 64, 128, 64, 128, 3, 2, 256>,
))]
#[allow(clippy::too_many_arguments)]
pub fn per_tile<
    T: MmaElement,
    const ROWS: usize,
    const WIDE: usize,
    const TOKENS: usize,
    const DEPTH: usize,
    const STAGES: usize,
    const CLUSTER: usize,
    const THREADS: usize,
>(
    cta: Cta<THREADS, CLUSTER>,
    #[shared] ring: Pipeline<Stage<T, ROWS, TOKENS, DEPTH, CLUSTER>, STAGES>,
    a: TmaTiles<T, TOKENS, DEPTH>,
    b: TmaTiles<T, ROWS, DEPTH>,
    c: TilesMut<T, TOKENS, WIDE, Linear>,
    bias: Tiles<T, 1, 64>,
    residual: Tiles<T, TOKENS, 64>,
    own: u32,
    alpha: f32,
    beta: f32,
    activation: u32,
) where
    Width<TOKENS>: Wgmma,
{
    product(cta, ring, a, b, c, Fused { bias, residual, own: own != 0, alpha, beta, activation })
}
