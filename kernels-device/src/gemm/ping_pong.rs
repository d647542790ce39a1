//! C = f(A B^T) on Hopper, in ping-pong: as `hopper`, but each of the two consumer warpgroups works on a tile of its own,
//! and stores it while the other multiplies.
//!
//! | | |
//! |---|---|
//! | tile of a cluster | 256 x 128, depth 64 |
//! | blocks | cluster of 2: each takes 128 rows; the B tile is loaded once, half by each, for both |
//! | roles | 1 producer, 2 consumer warpgroups of 128 x 128, a tile each, in turns |
//! | shared memory | 6 stages of 32 KiB; 32 KiB of staging where C is stored by the copy engine |
//! | registers | 168 at entry; producer 40, consumers 232 |
//!
//! Disjointness: `c` hands each tile to one cluster; `ping_pong` gives every second one to each warpgroup, and of it the
//! rows of its block. The ring has one consuming end, which the warpgroups pass to each other.
//!
//! A and B need what the copy engine needs: a base and a row stride that are multiples of 16 bytes. So does C for
//! [`staged`](fn@staged); [`direct`](fn@direct) writes any C.
//!
//! A kernel with an epilogue of one's own is the product, something to fetch before it, and a closure for each element on its
//! way to the store:
//!
//! ```
//! use tilewright::prelude::*;
//! use tilewright_kernels::gemm::epilogue::silu;
//! use tilewright_kernels::gemm::ping_pong::{Stage, product_with};
//!
//! /// C = silu(A B^T + bias)
//! #[kernel(arch = "sm_90a", grid = persistent)]
//! #[allow(clippy::too_many_arguments)]
//! pub fn linear_silu(
//!     cta: Cta<384, 2>,
//!     #[shared] ring: Pipeline<Stage<bf16, 128>, 6>,
//!     #[shared] staging: Staging<2, 2>,
//!     #[shared] turns: Turns,
//!     a: TmaTiles<bf16, 128, 64>,
//!     b: TmaTiles<bf16, 128, 64>,
//!     c: TmaTilesMut<bf16, 256, 128, Grouped<8>>,
//!     bias: Tiles<bf16, 1, 128>,
//! ) {
//!     product_with(
//!         cta,
//!         ring,
//!         turns,
//!         a,
//!         b,
//!         c.plan(),
//!         c.through(staging),
//!         |wg, (_, j), out| (out, wg.fetch_columns(bias.tile(0, j))),
//!         |wg, _, acc, (out, bias)| out.store_zipped(wg, acc, &bias, |x, b| silu(x + b)),
//!     )
//! }
//!
//! tilewright::images!(none); // or what a build script compiled for the GPU
//! fn main() {}
//! ```

use tilewright::prelude::*;

use super::epilogue::{Activation, fuse};

/// The tiles of one pipeline slot: this block's 128 rows of A, and the `BN` rows of B that the cluster shares.
pub type Stage<T, const BN: usize> = (SharedTile<T, 128, 64>, Multicast<SharedTile<T, BN, 64>, 2>);

/// C = A B^T, for kernels with an epilogue of their own: `finish` gets accumulators of 128 x `BN` sums, where in the
/// grid of tiles of that size each belongs, and the rows to store it to.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
pub fn product<T: MmaElement, const BN: usize, const STAGES: usize, S: Schedule, O: Output, R: StoreRows<BN, 2>>(
    cta: Cta<384, 2>,
    ring: Pipeline<Stage<T, BN>, STAGES>,
    turns: Turns,
    a: TmaTiles<T, 128, 64>,
    b: TmaTiles<T, BN, 64>,
    plan: Plan<S>,
    c: O,
    finish: impl Fn(&mut WarpGroup, (u32, u32), Acc<BN, 2>, R) + Sync,
) where
    Width<BN>: Wgmma,
    O::Part<2>: Iterator<Item = ((u32, u32), R)> + Send,
{
    product_with(
        cta,
        ring,
        turns,
        a,
        b,
        plan,
        c,
        #[inline(always)]
        |_, _, out| out,
        finish,
    )
}

/// As [`product`], with something to do before the products, which is waited for behind them: `begin` gets the place and the
/// rows that `finish` would, and `finish` what it makes of them.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
pub fn product_with<T: MmaElement, const BN: usize, const STAGES: usize, S: Schedule, O: Output, R, Q>(
    cta: Cta<384, 2>,
    ring: Pipeline<Stage<T, BN>, STAGES>,
    turns: Turns,
    a: TmaTiles<T, 128, 64>,
    b: TmaTiles<T, BN, 64>,
    plan: Plan<S>,
    c: O,
    begin: impl Fn(&mut WarpGroup, (u32, u32), R) -> Q + Sync,
    finish: impl Fn(&mut WarpGroup, (u32, u32), Acc<BN, 2>, Q) + Sync,
) where
    Width<BN>: Wgmma,
    O::Part<2>: Iterator<Item = ((u32, u32), R)> + Send,
{
    let steps = a.across();
    let rank = cta.rank();
    cta.ping_pong(
        ring,
        turns,
        c,
        #[inline(always)]
        |ring| {
            for (i, j) in plan {
                for k in 0..steps {
                    ring.fill().load((a.tile(2 * i + rank, k), b.tile(j, k)));
                }
            }
        },
        #[inline(always)]
        |wg, baton, c| {
            for ((i, j), out) in c {
                let at = (2 * i + rank, j);
                let out = begin(wg, at, out);
                let mut mma = wg.mma(Acc::<BN, 2>::zero());
                let mut ring = baton.take(wg);
                for _ in 0..steps {
                    mma.step(ring.next(), |(a, b)| (a.rows(), b.all()));
                }
                baton.give(wg, ring);
                finish(wg, at, mma.wait(), out);
            }
        },
    );
}

/// C = A B^T, C stored by the copy engine.
#[kernel(arch = "sm_90a", grid = persistent, instances(bf16 = <bf16>, f16 = <f16>))]
pub fn staged<T: MmaElement>(
    cta: Cta<384, 2>,
    #[shared] ring: Pipeline<Stage<T, 128>, 6>,
    #[shared] staging: Staging<2, 2>,
    #[shared] turns: Turns,
    a: TmaTiles<T, 128, 64>,
    b: TmaTiles<T, 128, 64>,
    c: TmaTilesMut<T, 256, 128, Grouped<8>>,
) {
    product(cta, ring, turns, a, b, c.plan(), c.through(staging), |wg, _, acc, out| out.store(wg, acc))
}

/// C = A B^T, C of any width, stride and alignment.
#[kernel(arch = "sm_90a", grid = persistent, instances(
    bf16 = <bf16, bf16>, f16 = <f16, f16>, bf16_f32 = <bf16, f32>, f16_f32 = <f16, f32>,
))]
pub fn direct<T: MmaElement, O: AccElement>(
    cta: Cta<384, 2>,
    #[shared] ring: Pipeline<Stage<T, 128>, 6>,
    #[shared] turns: Turns,
    a: TmaTiles<T, 128, 64>,
    b: TmaTiles<T, 128, 64>,
    c: TilesMut<O, 256, 128, Grouped<8>>,
) {
    product(cta, ring, turns, a, b, c.plan(), c, |wg, _, acc, out| out.store(wg, acc))
}

/// C = activation(alpha A B^T + bias), C stored by the copy engine. An empty bias counts as zero.
#[kernel(arch = "sm_90a", grid = persistent, instances(bf16 = <bf16>, f16 = <f16>))]
#[allow(clippy::too_many_arguments)]
pub fn fused_staged<T: MmaElement>(
    cta: Cta<384, 2>,
    #[shared] ring: Pipeline<Stage<T, 128>, 6>,
    #[shared] staging: Staging<2, 2>,
    #[shared] turns: Turns,
    a: TmaTiles<T, 128, 64>,
    b: TmaTiles<T, 128, 64>,
    c: TmaTilesMut<T, 256, 128, Grouped<8>>,
    bias: Tiles<T, 1, 128>,
    alpha: f32,
    activation: u32,
) {
    let activation = Activation::new(activation);
    product_with(
        cta,
        ring,
        turns,
        a,
        b,
        c.plan(),
        c.through(staging),
        |wg, (_, j), out| (out, wg.fetch_columns(bias.tile(0, j))),
        |wg, _, acc, (out, bias)| out.store_zipped(wg, acc, &bias, |x, b| activation.apply(fma(alpha, x, b))),
    )
}

/// C = activation(alpha A B^T + bias) + beta R, or with `own` + beta C. R comes and C goes by the copy engine, through the
/// same buffers. An empty bias counts as zero.
#[kernel(arch = "sm_90a", grid = persistent, instances(bf16 = <bf16>, f16 = <f16>))]
#[allow(clippy::too_many_arguments)]
pub fn fused_over<T: MmaElement>(
    cta: Cta<384, 2>,
    #[shared] ring: Pipeline<Stage<T, 128>, 5>,
    #[shared] staging: Staging<2, 4>,
    #[shared] turns: Turns,
    a: TmaTiles<T, 128, 64>,
    b: TmaTiles<T, 128, 64>,
    c: TmaTilesMut<T, 256, 128, Grouped<8>>,
    bias: Tiles<T, 1, 128>,
    residual: TmaTiles<T, 64, 128>,
    own: u32,
    alpha: f32,
    beta: f32,
    activation: u32,
) {
    let activation = Activation::new(activation);
    product_with(
        cta,
        ring,
        turns,
        a,
        b,
        c.plan(),
        c.over(residual, own != 0, staging),
        |wg, (_, j), out| (out.bring(wg), wg.fetch_columns(bias.tile(0, j))),
        |wg, _, acc, (out, bias)| {
            out.store_zipped(wg, acc, &bias, |x, b, r| fma(beta, r, activation.apply(fma(alpha, x, b))))
        },
    )
}

/// C = activation(alpha A B^T + bias) + beta R + keep C, C of any width, stride and alignment. What is multiplied
/// by a `keep` of zero is not read.
#[kernel(arch = "sm_90a", grid = persistent, instances(bf16 = <bf16>, f16 = <f16>))]
#[allow(clippy::too_many_arguments)]
pub fn fused_direct<T: MmaElement>(
    cta: Cta<384, 2>,
    #[shared] ring: Pipeline<Stage<T, 128>, 6>,
    #[shared] turns: Turns,
    a: TmaTiles<T, 128, 64>,
    b: TmaTiles<T, 128, 64>,
    c: TilesMut<T, 256, 128, Grouped<8>>,
    bias: Tiles<T, 1, 128>,
    residual: Tiles<T, 128, 128>,
    alpha: f32,
    beta: f32,
    keep: f32,
    activation: u32,
) {
    product(cta, ring, turns, a, b, c.plan(), c, |wg, (i, j), acc, out| {
        let acc = fuse(wg, acc, bias.tile(0, j), residual.tile(i, j), alpha, beta, activation);
        let acc = out.zip_if(keep != 0.0, wg, acc, |x, c| x + keep * c);
        out.store(wg, acc)
    })
}
