//! MLA decode over a paged cache on Hopper: FlashMLA's "seesaw" schedule, in which two warpgroups take alternate blocks of
//! 64 keys, each keeps one half of the output's columns, and while one does softmax the other's products run.
//!
//! | | |
//! |---|---|
//! | tile of a block | 64 rows (heads of all query positions) of one request, all 512 columns; 64 keys at a time |
//! | roles | 2 warpgroups that compute, and a warp that has the copy engine fill slots as they become free |
//! | shared memory | q 64 KiB, two key blocks of 72 KiB in two parts each, two probability tiles of 8 KiB, row statistics |
//! | registers | 64 x 256 output (128), 64 x 64 logits (32), packed probabilities (16), rope columns of q (16) |
//!
//! Both halves of the softmax run on one scale: the first warpgroup's block raises the running maximum, the second's
//! raises it further. So the second tells the first by how much, and what the first had computed is scaled by that.
//!
//! A key block lies in two slots, columns 0..256 (the left half of V) and 256..576. Each becomes free by itself: of the
//! first warpgroup's block nobody else reads the left, of the second's nobody else the right.
//!
//! Disjointness: `out` is shared out by the plan's table of owners, `parts` by tickets; halves are split between the
//! warpgroups, and the statistics go with the left one.

use tilewright::prelude::*;

use super::{BLOCK, ROWS, Segment, keys, requests, segment};

/// Below every logit in use, and above every masked one.
const LOW: f32 = -1e30;
/// The logit of a key that does not exist.
const MASKED: f32 = -1e33;

/// How much larger (as a logarithm to base 2) than the maximum in use a logit may be.
const SLACK: f32 = 8.0;

/// The maximum to use after `old`, `new` being the largest logit of a block. It need not be the maximum: any number near it
/// keeps exponentials and sums in range (these up to 2^8 times the number of keys, and all keep their precision). So it
/// rises only where it must, and what was summed is seldom multiplied: the idea is FlashAttention-4's.
#[inline(always)]
fn raise(old: f32, new: f32) -> f32 {
    if new > old + SLACK { new } else { old }
}

/// Which keys rows of a tile may see.
#[derive(Clone, Copy)]
struct Mask {
    /// The tile's first row.
    first: u32,
    /// Rows of one query position.
    heads: u32,
    /// Query positions.
    queries: u32,
    /// Keys of the request, and of the segment.
    length: u32,
    stop: u32,
}

impl Mask {
    /// Keys that row `row` of the tile sees.
    #[inline(always)]
    fn limit(&self, row: u32) -> u32 {
        let at = self.first + row;
        let query = (at >= self.heads) as u32 + (at >= 2 * self.heads) as u32 + (at >= 3 * self.heads) as u32;
        (self.length + query + 1).saturating_sub(self.queries).min(self.stop)
    }
    /// Keys that all rows see.
    #[inline(always)]
    fn all(&self) -> u32 {
        (self.length + 1).saturating_sub(self.queries).min(self.stop)
    }
    /// Scaled logits of the block of keys that begins at `first`.
    #[inline(always)]
    fn scale<const N: usize>(&self, s: Acc<N>, first: u32, scale: f32) -> Acc<N>
    where
        Width<N>: Wgmma,
    {
        if first + BLOCK <= self.all() {
            s.map(|x| x * scale)
        } else {
            s.map_at(|row, column, x| if first + column < self.limit(row) { x * scale } else { MASKED })
        }
    }
}

/// `softmax(scale q K^T) V` of the segments that `plan` gives each ticket.
///
/// `q` and `q_rope` have `rows` rows a request: `queries` positions of `heads` each. They may be columns of one tensor, and so
/// may `kv` and `k_rope`: then keys are packed. `table` has a row of page numbers for each request,
/// `lengths` its number of keys. A ticket is a part of the plan and 64 rows: `part * row blocks + row block`. Requests that
/// one part does alone go to `out`, with the natural logarithm of each row's sum of exponentials; pieces of the others to
/// `parts`, with the logarithm to base 2, two tiles a ticket: the first for a piece that does not begin with the request's
/// first block, the second for one that does.
/// `row_blocks` is the number of 64-row blocks of a request, `capacity` the most keys that count, and `scale` includes
/// log2(e). A request without keys gives 0 and minus infinity.
#[kernel(
    arch = "sm_90a",
    grid = persistent,
    faults(BAD_PAGE = "the page table names a page that does not exist"),
    instances(bf16 = <bf16, 1>, f16 = <f16, 1>, bf16_two = <bf16, 2>, f16_two = <f16, 2>)
)]
pub fn paged<T: MmaElement, const K: usize>(
    cta: Cta<384, K>,
    #[shared] q_ring: Pipeline<SharedTile<T, 64, 512>, 1>,
    #[shared] k0_left: Pipeline<Multicast<SharedTile<T, 64, 256>, K>, 1>,
    #[shared] k0_right: Pipeline<Multicast<SharedTile<T, 64, 320>, K>, 1>,
    #[shared] k1_left: Pipeline<Multicast<SharedTile<T, 64, 256>, K>, 1>,
    #[shared] k1_right: Pipeline<Multicast<SharedTile<T, 64, 320>, K>, 1>,
    #[shared] p0_ring: Pipeline<SharedTile<T, 64, 64>, 1>,
    #[shared] p1_ring: Pipeline<SharedTile<T, 64, 64>, 1>,
    #[shared] stats0_ring: Pipeline<(SharedRow, SharedRow), 1>,
    #[shared] stats1_ring: Pipeline<(SharedRow, SharedRow), 1>,
    parts: OwnedTiles<f32, 64, 512>,
    out: OwnedTiles<T, 64, 512>,
    q: TmaTiles<T, 64, 512>,
    q_rope: TmaTiles<T, 64, 64>,
    kv: TmaPages<T, 64, 512>,
    k_rope: TmaPages<T, 64, 64>,
    table: Tiles<i32, 1, 1>,
    lengths: Tiles<i32, 1, 1>,
    plan: Tiles<u32, 1, 1>,
    row_blocks: u32,
    capacity: u32,
    heads: u32,
    queries: u32,
    scale: f32,
) {
    let rows = out.rows();
    let tickets = parts.tickets();
    let (mut left, mut right) = out.halves::<256>();
    let (mut parts_left, mut parts_right) = parts.halves::<256>();
    cta.pair_supplied(
        (q_ring.to_both(), k0_left.to_first(), k0_right.to_both(), k1_left.to_both(), k1_right.to_second()),
        (p0_ring, stats0_ring),
        (p1_ring, stats1_ring),
        |warp, (q_ring, k0_left, k0_right, k1_left, k1_right)| {
            for ticket in tickets {
                let part = ticket.checked_div(row_blocks).unwrap_or(0);
                let row_block = ticket - part * row_blocks;
                let (mut request, end) = requests(warp, plan, part, lengths);
                while request < end {
                    let Segment { mut first, stop } = segment(warp, plan, part, request, lengths, capacity);
                    let pages = table.list(request);
                    q_ring.fill(warp).load(warp, q.rows_from(request * rows + row_block * ROWS));
                    while first < stop {
                        let (keys, left) = (kv.gather(warp, pages, first), stop - first);
                        let lack = keys.lack(warp, left.min(2 * BLOCK));
                        warp.fault_if(lack, BAD_PAGE);
                        // in the order in which slots become free
                        k0_left.fill(warp).gather_rows(warp, keys.columns::<0, 256>(), left);
                        k0_right.fill(warp).gather_rows(
                            warp,
                            keys.columns::<256, 256>().beside::<_, _, 320>(&k_rope),
                            left,
                        );
                        let (next, after) = (keys.after_64(warp), left.saturating_sub(BLOCK));
                        k1_right.fill(warp).gather_rows(
                            warp,
                            next.columns::<256, 256>().beside::<_, _, 320>(&k_rope),
                            after,
                        );
                        k1_left.fill(warp).gather_rows(warp, next.columns::<0, 256>(), after);
                        first += 2 * BLOCK;
                    }
                    request += 1;
                }
            }
        },
        |wg, (q_ring, k0_left, k0_right, k1_left, ()), (p_out, stats_out), (p_in, stats_in)| {
            for ticket in tickets {
                let part = ticket.checked_div(row_blocks).unwrap_or(0);
                let row_block = ticket - part * row_blocks;
                let (mut request, end) = requests(wg, plan, part, lengths);
                let rope = |request: u32| q_rope.rows_from(request * rows + row_block * ROWS);
                if request < end {
                    p_out.fill(wg).load(wg, rope(request));
                }
                while request < end {
                    let Segment { mut first, stop } = segment(wg, plan, part, request, lengths, capacity);
                    let whole = first == 0;
                    let (mut o, mut max, mut sum) = (Acc::<256>::zero(), AccRows::splat(LOW), AccRows::splat(0.0));
                    let length = keys(wg, lengths, request, capacity);
                    let mask = Mask { first: row_block * ROWS, heads, queries, length, stop };
                    let mut of_q = (q_ring.next(), p_in.next().read(wg));
                    while first < stop {
                        let mut logits = wg.mma_with(Acc::<64>::zero(), (of_q, k0_left.next()));
                        logits.multiply(|((q, _), k)| (q.columns::<0, 256>().rows(), k.all()));
                        let mut logits = logits.with(k0_right.next());
                        logits
                            .multiply(|(((q, _), _), k)| (q.columns::<256, 256>().rows(), k.columns::<0, 256>().all()));
                        logits.multiply_packed(|(((_, rope), _), k)| (rope, k.columns::<256, 64>().all()));
                        let (s, (q, k)) = logits.wait_split(|((q, left), right)| ((q, left), right));
                        of_q = q;
                        let s = mask.scale(s, first, scale);
                        first += 2 * BLOCK;

                        // softmax on the running maximum, which the other warpgroup will raise
                        let raised = max.zip(s.row_max(wg), raise);
                        let shrink = max.zip(raised, |old, new| exp2(old - new));
                        stats_out.fill(wg).store(wg, &(raised, shrink));
                        let p = s.map_rows(raised, |x, max| exp2(x - max));
                        let packed = p.pack::<T>();
                        p_out.fill(wg).store(wg, &packed);
                        o = o.scale_rows(wg, shrink);
                        let mut products = wg.mma_with(o, (packed, k));
                        products.multiply_packed(|(p, k)| (p, k.t()));
                        // while the products run: nobody waits for it
                        sum = sum * shrink + p.row_sum(wg);
                        o = products.wait();

                        // the other warpgroup has raised it: what was summed here is scaled by that
                        let stats = stats_in.next();
                        let shrink = stats.1.read(wg);
                        max = stats.0.read(wg);
                        drop(stats);
                        sum = sum * shrink;
                        o = o.scale_rows(wg, shrink);
                        let mut products = wg.mma_with(o, (p_in.next(), k1_left.next()));
                        products.multiply(|(p, k)| (p.rows(), k.t()));
                        o = products.wait();
                    }

                    // before this segment's results are stored: the next one's q
                    drop(of_q);
                    if request + 1 < end {
                        p_out.fill(wg).load(wg, rope(request + 1));
                    }
                    stats_out.fill(wg).store(wg, &(sum, sum));
                    let sum = sum + stats_in.next().0.read(wg);
                    let share = sum.map(|sum| if sum > 0.0 { reciprocal(sum) } else { 0.0 });
                    let o = o.map_rows(share, |x, share| x * share);
                    let log = max.zip(sum, |max, sum| max + log2(sum));
                    if let Some((out, lse)) = left.claim_with_rows(ticket, request * row_blocks + row_block) {
                        out.store(wg, o);
                        lse.store_rows(wg, log.map(|x| x * core::f32::consts::LN_2));
                    } else if let Some((part, lse)) = parts_left.claim_with_rows(ticket, 2 * ticket + whole as u32) {
                        part.first_rows(rows.saturating_sub(row_block * ROWS)).store(wg, o);
                        lse.store_rows(wg, log);
                    }
                    request += 1;
                }
            }
        },
        |wg, (q_ring, (), k0_right, k1_left, k1_right), (p_out, stats_out), (p_in, stats_in)| {
            for ticket in tickets {
                let part = ticket.checked_div(row_blocks).unwrap_or(0);
                let row_block = ticket - part * row_blocks;
                let (mut request, end) = requests(wg, plan, part, lengths);
                let rope = |request: u32| q_rope.rows_from(request * rows + row_block * ROWS);
                if request < end {
                    p_out.fill(wg).load(wg, rope(request));
                }
                while request < end {
                    let Segment { first, stop } = segment(wg, plan, part, request, lengths, capacity);
                    let whole = first == 0;
                    let (mut o, mut sum) = (Acc::<256>::zero(), AccRows::splat(0.0));
                    let mut first = first + BLOCK;
                    let length = keys(wg, lengths, request, capacity);
                    let mask = Mask { first: row_block * ROWS, heads, queries, length, stop };
                    let mut of_q = (q_ring.next(), p_in.next().read(wg));
                    while first < stop + BLOCK {
                        let mut logits = wg.mma_with(Acc::<64>::zero(), (of_q, k1_right.next()));
                        logits.multiply(|((q, _), k)| (q.columns::<256, 256>().rows(), k.columns::<0, 256>().all()));
                        logits.multiply_packed(|((_, rope), k)| (rope, k.columns::<256, 64>().all()));
                        let mut logits = logits.with(k1_left.next());
                        logits.multiply(|(((q, _), _), k)| (q.columns::<0, 256>().rows(), k.all()));
                        let (s, (q, k)) = logits.wait_split(|((q, right), left)| ((q, right), left));
                        of_q = q;

                        // the other's probabilities, on its maximum: their product runs while this softmax is computed
                        let stats = stats_in.next();
                        let (max, before) = (stats.0.read(wg), stats.1.read(wg));
                        drop(stats);
                        o = o.scale_rows(wg, before);
                        let mut products = wg.mma_with(o, (p_in.next(), k0_right.next()));
                        products.multiply(|(p, k)| (p.rows(), k.columns::<0, 256>().t()));
                        let s = mask.scale(s, first, scale);
                        first += 2 * BLOCK;
                        let raised = max.zip(s.row_max(wg), raise);
                        let shrink = max.zip(raised, |old, new| exp2(old - new));
                        stats_out.fill(wg).store(wg, &(raised, shrink));
                        let p = s.map_rows(raised, |x, max| exp2(x - max));
                        let packed = p.pack::<T>();
                        p_out.fill(wg).store(wg, &packed);
                        o = products.wait();

                        o = o.scale_rows(wg, shrink);
                        let mut products = wg.mma_with(o, (packed, k));
                        products.multiply_packed(|(p, k)| (p, k.columns::<0, 256>().t()));
                        sum = sum * before * shrink + p.row_sum(wg);
                        o = products.wait();
                    }

                    drop(of_q);
                    if request + 1 < end {
                        p_out.fill(wg).load(wg, rope(request + 1));
                    }
                    stats_out.fill(wg).store(wg, &(sum, sum));
                    let sum = sum + stats_in.next().0.read(wg);
                    let share = sum.map(|sum| if sum > 0.0 { reciprocal(sum) } else { 0.0 });
                    let o = o.map_rows(share, |x, share| x * share);
                    if let Some(out) = right.claim(ticket, request * row_blocks + row_block) {
                        out.store(wg, o);
                    } else if let Some(part) = parts_right.claim(ticket, 2 * ticket + whole as u32) {
                        part.first_rows(rows.saturating_sub(row_block * ROWS)).store(wg, o);
                    }
                    request += 1;
                }
            }
        },
    );
}
