//! The main loop of MLA decode on Hopper, in FlashMLA's "seesaw" schedule: two warpgroups take alternate blocks of 64
//! keys, each keeps one half of the output's columns, and while one does softmax the other's products run.
//!
//! | | |
//! |---|---|
//! | tile of a block | 64 heads of one request, all 512 columns; 64 keys at a time |
//! | roles | 2 warpgroups, no producer: each has the copy engine fill a slot when it has become free |
//! | shared memory | q 64 KiB, two key blocks of 72 KiB, two probability tiles of 8 KiB, row statistics |
//! | registers | 64 x 256 output (128), 64 x 64 logits (32), packed probabilities (16), rope columns of q (16) |
//!
//! Both halves of the softmax run on one scale: the first warpgroup's block raises the running maximum, the second's
//! raises it further. So the second tells the first by how much, and what the first had computed is scaled by that.
//!
//! Disjointness: `out` hands each tile to one block; its halves are split between the warpgroups, and `lse` goes with the
//! left one.

use tilewright::prelude::*;

/// Below every logit in use, and above every masked one.
const LOW: f32 = -1e30;
/// The logit of a key that does not exist.
const MASKED: f32 = -1e33;

/// out = softmax(scale q K^T) V and lse, for the first `lengths[r]` of the `capacity` rows that `kv` has for request r.
///
/// `q` and `out` have the heads of all requests below each other, a multiple of 64 each; `capacity` is a multiple of 64.
/// `scale` includes log2(e). A request without keys gives 0 and minus infinity.
#[kernel(arch = "sm_90a", grid = persistent, instances(bf16 = <bf16>, f16 = <f16>))]
pub fn decode<T: MmaElement>(
    cta: Cta<256>,
    #[shared] q_ring: Pipeline<SharedTile<T, 64, 512>, 1>,
    #[shared] k0_ring: Pipeline<SharedTile<T, 64, 576>, 1>,
    #[shared] k1_ring: Pipeline<SharedTile<T, 64, 576>, 1>,
    #[shared] p0_ring: Pipeline<SharedTile<T, 64, 64>, 1>,
    #[shared] p1_ring: Pipeline<SharedTile<T, 64, 64>, 1>,
    #[shared] stats0_ring: Pipeline<(SharedRow, SharedRow), 1>,
    #[shared] stats1_ring: Pipeline<(SharedRow, SharedRow), 1>,
    q: TmaTiles<T, 64, 576>,
    kv: TmaTiles<T, 64, 576>,
    lengths: Tiles<u32, 1, 1>,
    head_blocks: u32,
    capacity: u32,
    scale: f32,
    out: TilesMut<T, 64, 512>,
    lse: TilesMut<f32, 64, 1>,
) {
    let blocks = capacity / 64;
    let (left, right) = out.halves::<256>();
    cta.pair(
        (q_ring.to_both(), k0_ring.to_both(), p0_ring, stats0_ring),
        (k1_ring.to_both(), p1_ring, stats1_ring),
        |wg, (q_ring, k_ring, p_out, stats_out), (k1_ring, p_in, stats_in)| {
            for (((tile, _), out), (_, lse)) in left.zip(lse.whole()) {
                let request = tile.checked_div(head_blocks).unwrap_or(0);
                let length = lengths.tile(request, 0).scalar(wg).min(capacity);
                let keys = |block: u32| kv.tile(request * blocks + block, 0);
                let (filler, q_ring) = (&mut q_ring.0, &mut q_ring.1);
                filler.fill(wg).load(wg, q.tile(tile, 0).columns::<0, 512>());
                p_out.fill(wg).load(wg, q.tile(tile, 0).columns::<512, 64>());
                let (filler, k_ring) = (&mut k_ring.0, &mut k_ring.1);
                if length > 0 {
                    filler.fill(wg).load_rows(wg, keys(0), length);
                }
                let mut of_q = (q_ring.next(), p_in.next().read(wg));
                let (mut o, mut max, mut sum) = (Acc::<256>::zero(), AccRows::splat(LOW), AccRows::splat(0.0));
                let mut first = 0;
                while first < length {
                    let mut logits = wg.mma_with(Acc::<64>::zero(), (of_q, k_ring.next()));
                    logits.multiply(|((q, _), k)| (q.rows(), k.columns::<0, 512>().all()));
                    logits.multiply_packed(|((_, rope), k)| (rope, k.columns::<512, 64>().all()));
                    let (s, (q, k)) = logits.wait_with();
                    of_q = q;
                    let s = s.map_at(|_, column, x| if first + column < length { x * scale } else { MASKED });

                    // softmax on the running maximum, which the other warpgroup will raise
                    let raised = max.max(s.row_max(wg));
                    let shrink = max.zip(raised, |old, new| exp2(old - new));
                    let p = s.map_rows(raised, |x, max| exp2(x - max));
                    stats_out.fill(wg).store(wg, &(raised, shrink));
                    sum = sum * shrink + p.row_sum(wg);
                    o = o.map_rows(shrink, |x, s| x * s);
                    let mut products = wg.mma_with(o, (p.pack::<T>(), k));
                    products.multiply_packed(|(p, k)| (p, k.columns::<0, 256>().t()));

                    // the other warpgroup has raised it: what it gets, and what was summed here, is scaled by that
                    let stats = stats_in.next();
                    let shrink = stats.1.read(wg);
                    max = stats.0.read(wg);
                    drop(stats);
                    sum = sum * shrink;
                    p_out.fill(wg).store(wg, &p.map_rows(shrink, |p, s| p * s).pack::<T>());
                    o = products.wait().map_rows(shrink, |x, s| x * s);

                    let mut products = wg.mma_with(o, (p_in.next(), k1_ring.next()));
                    products.multiply(|(p, k)| (p.rows(), k.columns::<0, 256>().t()));
                    first += 128;
                    if first < length {
                        filler.fill(wg).load_rows(wg, keys(first / 64), length - first);
                    }
                    o = products.wait();
                }
                stats_out.fill(wg).store(wg, &(sum, sum));
                let sum = sum + stats_in.next().0.read(wg);
                let share = sum.map(|sum| if sum > 0.0 { reciprocal(sum) } else { 0.0 });
                out.store(wg, o.map_rows(share, |x, share| x * share));
                lse.store_rows(wg, max.zip(sum, |max, sum| (max + log2(sum)) * core::f32::consts::LN_2));
            }
        },
        |wg, (k_ring, p_out, stats_out), (q_ring, k0_ring, p_in, stats_in)| {
            for ((tile, _), out) in right {
                let request = tile.checked_div(head_blocks).unwrap_or(0);
                let length = lengths.tile(request, 0).scalar(wg).min(capacity);
                let keys = |block: u32| kv.tile(request * blocks + block, 0);
                p_out.fill(wg).load(wg, q.tile(tile, 0).columns::<512, 64>());
                let (filler, k_ring) = (&mut k_ring.0, &mut k_ring.1);
                if length > 0 {
                    filler.fill(wg).load_rows(wg, keys(1), length.saturating_sub(64));
                }
                let mut of_q = (q_ring.next(), p_in.next().read(wg));
                let (mut o, mut sum) = (Acc::<256>::zero(), AccRows::splat(0.0));
                let mut first = 64;
                while first < length.saturating_add(64) {
                    let mut logits = wg.mma_with(Acc::<64>::zero(), (of_q, k_ring.next()));
                    logits.multiply(|((q, _), k)| (q.rows(), k.columns::<0, 512>().all()));
                    logits.multiply_packed(|((_, rope), k)| (rope, k.columns::<512, 64>().all()));
                    let (s, (q, k)) = logits.wait_with();
                    of_q = q;
                    let s = s.map_at(|_, column, x| if first + column < length { x * scale } else { MASKED });

                    let stats = stats_in.next();
                    let (max, before) = (stats.0.read(wg), stats.1.read(wg));
                    drop(stats);
                    let raised = max.max(s.row_max(wg));
                    let shrink = max.zip(raised, |old, new| exp2(old - new));
                    let p = s.map_rows(raised, |x, max| exp2(x - max));
                    stats_out.fill(wg).store(wg, &(raised, shrink));
                    sum = sum * before * shrink + p.row_sum(wg);
                    o = o.map_rows(before * shrink, |x, s| x * s);
                    let mut products = wg.mma_with(o, (p.pack::<T>(), k));
                    products.multiply_packed(|(p, k)| (p, k.columns::<256, 256>().t()));
                    p_out.fill(wg).store(wg, &p.pack::<T>());

                    let mut products = products.with((p_in.next(), k0_ring.next()));
                    products.multiply(|(_, (p, k))| (p.rows(), k.columns::<256, 256>().t()));
                    o = products.wait();
                    first += 128;
                    if first < length.saturating_add(64) {
                        filler.fill(wg).load_rows(wg, keys(first / 64), length.saturating_sub(first));
                    }
                }
                stats_out.fill(wg).store(wg, &(sum, sum));
                let sum = sum + stats_in.next().0.read(wg);
                let share = sum.map(|sum| if sum > 0.0 { reciprocal(sum) } else { 0.0 });
                out.store(wg, o.map_rows(share, |x, share| x * share));
            }
        },
    );
}
