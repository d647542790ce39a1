//! C = A B^T of 8-bit factors that have scales, on Hopper: A is M x K, B is N x K, both `e4m3` with adjacent columns.
//!
//! | | |
//! |---|---|
//! | tile of a cluster | 256 x 128, depth 128 |
//! | blocks | a cluster of 2: each takes 128 rows; the B tile is loaded once, half by each, for both |
//! | roles | 1 producer, 2 consumer warpgroups of 64 x 128 |
//! | shared memory | 6 stages of 32 KiB, or 5 and 32 KiB of staging where C is stored by the copy engine |
//! | registers | 168 at entry; producer 40, consumers 232 |
//!
//! The tensor cores keep about 14 bits of a sum of 8-bit products (DeepSeek-V3's report; DeepGEMM). So they add up 128 of depth
//! only, and the parts are added in `f32` by the threads, with their scales: while one warpgroup does that, the other
//! multiplies.
//!
//! Scales: `a_scales` has a row for each of A's, `b_scales` one for each 128 of B's, and both a column for each 128 of depth. Of
//! fewer rows or columns the last serves for those that are not there, so that one column is a scale for the whole depth.
//!
//! Disjointness: `c` hands each tile to one cluster; `roles` gives each consumer of its blocks other 64 rows.
//!
//! A and B need what the copy engine needs: a base and a row stride that are multiples of 16 bytes. So does C for
//! [`staged`](fn@staged); [`direct`](fn@direct) writes any C.

use tilewright::prelude::*;

/// Rows of B, and depth, that share a scale.
pub const GROUP: usize = 128;

/// The tiles of one pipeline slot: this block's 128 rows of A, and the `BN` rows of B that the cluster shares.
pub type Stage<const BN: usize> = (SharedTile<e4m3, 128, 128>, Multicast<SharedTile<e4m3, BN, 128>, 2>);

/// The last number below `count`, or `i` if that is less.
#[inline(always)]
fn last(i: u32, count: u32) -> u32 {
    if i < count { i } else { count.wrapping_sub(1) }
}

/// C = A B^T, for kernels with an epilogue of their own: `finish` gets accumulators of 64 x `BN` sums (`BN` divides 128), where in the grid of
/// tiles of that size each belongs, and the rows to store it to.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
pub fn product<const BN: usize, const STAGES: usize, S: Schedule, O: Output, R: StoreRows<BN>>(
    cta: Cta<384, 2>,
    ring: Pipeline<Stage<BN>, STAGES>,
    (a, a_scales): (TmaTiles<e4m3, 128, 128>, Tiles<f32, 64, 1>),
    (b, b_scales): (TmaTiles<e4m3, BN, 128>, Tiles<f32, 1, 1>),
    plan: Plan<S>,
    c: O,
    finish: impl Fn(&mut WarpGroup, (u32, u32), Acc<BN>, R) + Sync,
) where
    Width<BN>: Wgmma,
    O::Part<1>: Iterator<Item = ((u32, u32), R)> + Send,
{
    const { assert!(GROUP.is_multiple_of(BN), "the rows of B of a tile have one scale") };
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
                let at = (4 * i + 2 * rank + wg.index(), j);
                let (rows, row) = (a_scales.strip(at.0), last(j / (GROUP / BN) as u32, b_scales.rows()));
                let scales = |wg: &mut WarpGroup, k: u32| {
                    let of_rows = wg.fetch_column(rows.tile(last(k, a_scales.cols())));
                    (of_rows, b_scales.element(wg, row, last(k, b_scales.cols())))
                };
                let mut sum = Acc::<BN>::zero();
                let mut next = scales(wg, 0);
                for k in 0..steps {
                    let (of_rows, scale) = next;
                    let by = of_rows.map(|x| x * scale);
                    let mut part = wg.mma(Acc::<BN>::zero());
                    part.step(ring.next(), |(a, b)| (a.rows_of(wg), b.all()));
                    // on their way while these products run
                    next = scales(wg, k + 1);
                    sum = sum.add_scaled(part.wait(), by);
                }
                finish(wg, at, sum, out);
            }
        },
    );
}

/// C = A B^T, C stored by the copy engine.
#[kernel(arch = "sm_90a", grid = persistent, instances(bf16 = <bf16>, f16 = <f16>))]
#[allow(clippy::too_many_arguments)]
pub fn staged<T: MmaElement>(
    cta: Cta<384, 2>,
    #[shared] ring: Pipeline<Stage<128>, 5>,
    #[shared] staging: Staging<2, 2>,
    a: TmaTiles<e4m3, 128, 128>,
    a_scales: Tiles<f32, 64, 1>,
    b: TmaTiles<e4m3, 128, 128>,
    b_scales: Tiles<f32, 1, 1>,
    c: TmaTilesMut<T, 256, 128, Grouped<8>>,
) {
    let (plan, c) = (c.plan(), c.through(staging));
    product(cta, ring, (a, a_scales), (b, b_scales), plan, c, |wg, _, acc, out| out.store(wg, acc))
}

/// C = A B^T, C of any width, stride and alignment.
#[kernel(arch = "sm_90a", grid = persistent, instances(bf16 = <bf16>, f16 = <f16>, f32 = <f32>))]
#[allow(clippy::too_many_arguments)]
pub fn direct<T: AccElement>(
    cta: Cta<384, 2>,
    #[shared] ring: Pipeline<Stage<128>, 6>,
    a: TmaTiles<e4m3, 128, 128>,
    a_scales: Tiles<f32, 64, 1>,
    b: TmaTiles<e4m3, 128, 128>,
    b_scales: Tiles<f32, 1, 1>,
    c: TilesMut<T, 256, 128, Grouped<8>>,
) {
    let plan = c.plan();
    product(cta, ring, (a, a_scales), (b, b_scales), plan, c, |wg, _, acc, out| out.store(wg, acc))
}
