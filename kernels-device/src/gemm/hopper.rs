//! C = f(A B^T) on Hopper: A is M x K, B is N x K, both with adjacent columns; f32 accumulation, one rounding.
//!
//! | | |
//! |---|---|
//! | tile of a cluster | 256 x `BN` (256, or 128 for small problems), depth 64 |
//! | blocks | a cluster of 2: each takes 128 rows; the B tile is loaded once, half by each, for both |
//! | roles | 1 producer, 2 consumer warpgroups of 64 x `BN` |
//! | shared memory | 4 stages of 48 KiB, or 6 of 32; 32 KiB of staging where C is stored by the copy engine |
//! | registers | 168 at entry; producer 40, consumers 232 |
//!
//! Disjointness: `c` hands each tile to one cluster; `roles` gives each consumer of its blocks other 64 rows.
//!
//! A and B need what the copy engine needs: a base and a row stride that are multiples of 16 bytes. So does C for
//! [`staged`](fn@staged); [`direct`](fn@direct) writes any C.

use tilewright::prelude::*;

/// The tiles of one pipeline slot: this block's 128 rows of A, and the `BN` rows of B that the cluster shares.
pub type Stage<T, const BN: usize> = (SharedTile<T, 128, 64>, Multicast<SharedTile<T, BN, 64>, 2>);

/// C = A B^T, for kernels with an epilogue of their own: `finish` gets accumulators of 64 x `BN` sums, where in the grid
/// of tiles of that size each belongs, and the rows to store it to.
#[inline(always)]
pub fn product<T: MmaElement, const BN: usize, const STAGES: usize, S: Schedule, O: Output, R: StoreRows<BN>>(
    cta: Cta<384, 2>,
    ring: Pipeline<Stage<T, BN>, STAGES>,
    a: TmaTiles<T, 128, 64>,
    b: TmaTiles<T, BN, 64>,
    plan: Plan<S>,
    c: O,
    finish: impl Fn(&mut WarpGroup, (u32, u32), Acc<BN>, R) + Sync,
) where
    Width<BN>: Wgmma,
    O::Part<1>: Iterator<Item = ((u32, u32), R)> + Send,
{
    let steps = a.across();
    let rank = cta.rank();
    cta.roles(
        ring,
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
        |wg, ring, c| {
            for ((i, j), out) in c {
                let mut mma = wg.mma(Acc::<BN>::zero());
                for _ in 0..steps {
                    mma.step(ring.next(), |(a, b)| (a.rows_of(wg), b.all()));
                }
                let at = (4 * i + 2 * rank + wg.index(), j);
                finish(wg, at, mma.wait(), out);
            }
        },
    );
}

/// C = A B^T, C stored by the copy engine.
#[kernel(arch = "sm_90a", grid = persistent, instances(bf16_n256 = <bf16, 256, 4>, f16_n256 = <f16, 256, 4>))]
pub fn staged<T: MmaElement, const BN: usize, const STAGES: usize>(
    cta: Cta<384, 2>,
    #[shared] ring: Pipeline<Stage<T, BN>, STAGES>,
    #[shared] staging: Staging<2, 2>,
    a: TmaTiles<T, 128, 64>,
    b: TmaTiles<T, BN, 64>,
    c: TmaTilesMut<T, 256, BN, Grouped<8>>,
) where
    Width<BN>: Wgmma,
{
    product(cta, ring, a, b, c.plan(), c.through(staging), |wg, _, acc, out| out.store(wg, acc))
}

/// C = A B^T, C of any width, stride and alignment.
#[kernel(arch = "sm_90a", grid = persistent, instances(bf16_n256 = <bf16, 256, 4>, f16_n256 = <f16, 256, 4>))]
pub fn direct<T: MmaElement, const BN: usize, const STAGES: usize>(
    cta: Cta<384, 2>,
    #[shared] ring: Pipeline<Stage<T, BN>, STAGES>,
    a: TmaTiles<T, 128, 64>,
    b: TmaTiles<T, BN, 64>,
    c: TilesMut<T, 256, BN, Grouped<8>>,
) where
    Width<BN>: Wgmma,
{
    product(cta, ring, a, b, c.plan(), c, |wg, _, acc, out| out.store(wg, acc))
}
