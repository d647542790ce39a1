//! MLA decode over a paged cache on Hopper: FlashMLA's "seesaw" schedule, in which two warpgroups take alternate blocks of
//! 64 keys, each keeps one half of the output's columns, and while one does softmax the other's products run.
//!
//! | | |
//! |---|---|
//! | tile of a block | 64 rows (heads of all query positions) of one request, all 512 columns; 64 keys at a time |
//! | roles | 2 warpgroups, no producer: each has the copy engine fill a slot when it has become free |
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

use super::{BLOCK, ROWS, Segment, keys, segment};

/// Below every logit in use, and above every masked one.
const LOW: f32 = -1e30;
/// The logit of a key that does not exist.
const MASKED: f32 = -1e33;

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
/// `q` has `rows` rows a request: `queries` positions of `heads` each. `table` has a row of page numbers for each request,
/// `lengths` its number of keys. A ticket is a part of the plan and 64 rows: `part * row blocks + row block`. Requests that
/// one part does alone go to `out`, with the natural logarithm of each row's sum of exponentials; pieces of the others to
/// `parts`, with the logarithm to base 2, two tiles a ticket: the first for a piece that does not begin with the request's
/// first block, the second for one that does.
/// `scale` includes log2(e). A request without keys gives 0 and minus infinity.
#[kernel(arch = "sm_90a", grid = persistent, instances(bf16 = <bf16>, f16 = <f16>))]
pub fn paged<T: MmaElement>(
    cta: Cta<256>,
    #[shared] q_ring: Pipeline<SharedTile<T, 64, 512>, 1>,
    #[shared] k0_left: Pipeline<BySlab<SharedTile<T, 64, 256>>, 1>,
    #[shared] k0_right: Pipeline<BySlab<SharedTile<T, 64, 320>>, 1>,
    #[shared] k1_left: Pipeline<BySlab<SharedTile<T, 64, 256>>, 1>,
    #[shared] k1_right: Pipeline<BySlab<SharedTile<T, 64, 320>>, 1>,
    #[shared] p0_ring: Pipeline<SharedTile<T, 64, 64>, 1>,
    #[shared] p1_ring: Pipeline<SharedTile<T, 64, 64>, 1>,
    #[shared] stats0_ring: Pipeline<(SharedRow, SharedRow), 1>,
    #[shared] stats1_ring: Pipeline<(SharedRow, SharedRow), 1>,
    parts: OwnedTiles<f32, 64, 512>,
    out: OwnedTiles<T, 64, 512>,
    q: TmaTiles<T, 64, 576>,
    kv: TmaPages<T, 64, 576>,
    table: Tiles<i32, 1, 1>,
    lengths: Tiles<i32, 1, 1>,
    plan: Tiles<u32, 1, 1>,
    heads: u32,
    queries: u32,
    scale: f32,
) {
    let rows = heads * queries;
    let row_blocks = rows.div_ceil(ROWS);
    let capacity = table.cols().saturating_mul(kv.page_rows()).min(i32::MAX as u32);
    let tickets = parts.tickets();
    let (mut left, mut right) = out.halves::<256>();
    let (mut parts_left, mut parts_right) = parts.halves::<256>();
    cta.pair(
        (q_ring.to_both(), k0_left.to_self(), k1_left.to_both(), p0_ring, stats0_ring),
        (k0_right.to_both(), k1_right.to_self(), p1_ring, stats1_ring),
        |wg, (q_ring, k0_left, k1_left, p_out, stats_out), (k0_right, (), p_in, stats_in)| {
            let (q_fill, q_ring) = (&mut q_ring.0, &mut q_ring.1);
            let (k0_fill, k0_left) = (&mut k0_left.0, &mut k0_left.1);
            let (k1_fill, k1_left) = (&mut k1_left.0, &mut k1_left.1);
            for ticket in tickets {
                let part = ticket.checked_div(row_blocks).unwrap_or(0);
                let row_block = ticket - part * row_blocks;
                let mut done: Option<Segment> = None;
                loop {
                    let (mut o, mut max, mut sum) = (Acc::<256>::zero(), AccRows::splat(LOW), AccRows::splat(0.0));
                    if let Some(Segment { request, mut first, stop }) = done {
                        let pages = table.strip(request);
                        let length = keys(wg, lengths, request, capacity);
                        let mask = Mask { first: row_block * ROWS, heads, queries, length, stop };
                        let mut of_q = (q_ring.next(), p_in.next().read(wg));
                        while first < stop {
                            let mut logits =
                                wg.mma_with(Acc::<64>::zero(), ((of_q, k0_left.landing()), k0_right.landing()));
                            logits.multiply_landing(|(((q, _), k), _)| {
                                (q.columns::<0, 256>().rows(), k.columns::<0, 256>())
                            });
                            logits.multiply_landing(|(((q, _), _), k)| {
                                (q.columns::<256, 256>().rows(), k.columns::<0, 256>())
                            });
                            let mut logits = logits.landed();
                            logits.multiply_packed(|(((_, rope), _), k)| (rope, k.columns::<256, 64>().all()));
                            let next = first + 2 * BLOCK;
                            if next < stop {
                                kv.gather(pages, next).prefetch::<64>(wg);
                            }
                            let (s, (q, k)) = logits.wait_split(|((q, left), right)| ((q, left), right));
                            of_q = q;
                            let s = mask.scale(s, first, scale);
                            first = next;

                            // softmax on the running maximum, which the other warpgroup will raise
                            let raised = max.max(s.row_max(wg));
                            let shrink = max.zip(raised, |old, new| exp2(old - new));
                            let p = s.map_rows(raised, |x, max| exp2(x - max));
                            let packed = p.pack::<T>();
                            stats_out.fill(wg).store(wg, &(raised, shrink));
                            p_out.fill(wg).store(wg, &packed);
                            sum = sum * shrink + p.row_sum(wg);
                            o = o.map_rows(shrink, |x, s| x * s);
                            let mut products = wg.mma_with(o, (packed, k));
                            products.multiply_packed(|(p, k)| (p, k.t()));
                            o = products.wait();
                            if first < stop {
                                k0_fill.fill(wg).gather_rows(
                                    wg,
                                    kv.gather(pages, first).columns::<0, 256>(),
                                    stop - first,
                                );
                            }

                            // the other warpgroup has raised it: what was summed here is scaled by that
                            let stats = stats_in.next();
                            let shrink = stats.1.read(wg);
                            max = stats.0.read(wg);
                            drop(stats);
                            sum = sum * shrink;
                            o = o.map_rows(shrink, |x, s| x * s);
                            let mut products = wg.mma_with(o, (p_in.next(), k1_left.next()));
                            products.multiply(|(p, k)| (p.rows(), k.t()));
                            o = products.wait();
                            if first < stop {
                                let second = first + BLOCK;
                                let left = stop.saturating_sub(second);
                                k1_fill.fill(wg).gather_rows(wg, kv.gather(pages, second).columns::<0, 256>(), left);
                            }
                        }
                    }

                    // the next segment's slots are filled before this one's results are stored
                    let next = segment(wg, plan, part, done.map(|s| s.request), lengths, capacity);
                    if let Some(Segment { request, first, stop }) = next {
                        let (pages, second) = (table.strip(request), first + BLOCK);
                        let tile = q.rows_from(request * rows + row_block * ROWS);
                        q_fill.fill(wg).load(wg, tile.columns::<0, 512>());
                        p_out.fill(wg).load(wg, tile.columns::<512, 64>());
                        if first < stop {
                            k0_fill.fill(wg).gather_rows(wg, kv.gather(pages, first).columns::<0, 256>(), stop - first);
                            let left = stop.saturating_sub(second);
                            k1_fill.fill(wg).gather_rows(wg, kv.gather(pages, second).columns::<0, 256>(), left);
                        }
                    }
                    if let Some(Segment { request, first, .. }) = done {
                        stats_out.fill(wg).store(wg, &(sum, sum));
                        let sum = sum + stats_in.next().0.read(wg);
                        let share = sum.map(|sum| if sum > 0.0 { reciprocal(sum) } else { 0.0 });
                        let o = o.map_rows(share, |x, share| x * share);
                        let log = max.zip(sum, |max, sum| max + log2(sum));
                        if let Some((out, lse)) = left.claim_with_rows(ticket, request * row_blocks + row_block) {
                            out.store(wg, o);
                            lse.store_rows(wg, log.map(|x| x * core::f32::consts::LN_2));
                        } else if let Some((part, lse)) =
                            parts_left.claim_with_rows(ticket, 2 * ticket + (first == 0) as u32)
                        {
                            part.store(wg, o);
                            lse.store_rows(wg, log);
                        }
                    }
                    if next.is_none() {
                        break;
                    }
                    done = next;
                }
            }
        },
        |wg, (k0_right, k1_right, p_out, stats_out), (q_ring, (), k1_left, p_in, stats_in)| {
            let (k0_fill, k0_right) = (&mut k0_right.0, &mut k0_right.1);
            let (k1_fill, k1_right) = (&mut k1_right.0, &mut k1_right.1);
            for ticket in tickets {
                let part = ticket.checked_div(row_blocks).unwrap_or(0);
                let row_block = ticket - part * row_blocks;
                let mut done: Option<Segment> = None;
                loop {
                    let (mut o, mut sum) = (Acc::<256>::zero(), AccRows::splat(0.0));
                    if let Some(Segment { request, first, stop }) = done {
                        let pages = table.strip(request);
                        let length = keys(wg, lengths, request, capacity);
                        let mask = Mask { first: row_block * ROWS, heads, queries, length, stop };
                        let mut first = first + BLOCK;
                        let mut of_q = (q_ring.next(), p_in.next().read(wg));
                        while first < stop + BLOCK {
                            let mut logits =
                                wg.mma_with(Acc::<64>::zero(), ((of_q, k1_left.landing()), k1_right.landing()));
                            logits.multiply_landing(|(((q, _), k), _)| {
                                (q.columns::<0, 256>().rows(), k.columns::<0, 256>())
                            });
                            logits.multiply_landing(|(((q, _), _), k)| {
                                (q.columns::<256, 256>().rows(), k.columns::<0, 256>())
                            });
                            let mut logits = logits.landed();
                            logits.multiply_packed(|(((_, rope), _), k)| (rope, k.columns::<256, 64>().all()));
                            let next = first + 2 * BLOCK;
                            if next < stop {
                                kv.gather(pages, next).prefetch::<64>(wg);
                            }

                            // the other's probabilities, on its maximum: behind the logits, and while their softmax is computed
                            let stats = stats_in.next();
                            let (max, before) = (stats.0.read(wg), stats.1.read(wg));
                            drop(stats);
                            o = o.map_rows(before, |x, s| x * s);
                            let products = wg.mma_with(o, (p_in.next(), k0_right.next()));
                            let (s, (q, k), products) = logits.wait_behind(
                                products,
                                |(p, k)| (p.rows(), k.columns::<0, 256>().t()),
                                |((q, left), right)| ((q, right), left),
                            );
                            of_q = q;
                            let s = mask.scale(s, first, scale);
                            first = next;
                            let raised = max.max(s.row_max(wg));
                            let shrink = max.zip(raised, |old, new| exp2(old - new));
                            let p = s.map_rows(raised, |x, max| exp2(x - max));
                            let packed = p.pack::<T>();
                            stats_out.fill(wg).store(wg, &(raised, shrink));
                            p_out.fill(wg).store(wg, &packed);
                            sum = sum * before * shrink + p.row_sum(wg);
                            o = products.wait();
                            if first < stop + BLOCK {
                                let block = first - BLOCK;
                                k0_fill.fill(wg).gather_rows(
                                    wg,
                                    kv.gather(pages, block).columns::<256, 320>(),
                                    stop - block,
                                );
                            }

                            o = o.map_rows(shrink, |x, s| x * s);
                            let mut products = wg.mma_with(o, (packed, k));
                            products.multiply_packed(|(p, k)| (p, k.columns::<0, 256>().t()));
                            o = products.wait();
                            if first < stop + BLOCK {
                                let left = stop.saturating_sub(first);
                                k1_fill.fill(wg).gather_rows(wg, kv.gather(pages, first).columns::<256, 320>(), left);
                            }
                        }
                    }

                    let next = segment(wg, plan, part, done.map(|s| s.request), lengths, capacity);
                    if let Some(Segment { request, first, stop }) = next {
                        let (pages, second) = (table.strip(request), first + BLOCK);
                        p_out.fill(wg).load(wg, q.rows_from(request * rows + row_block * ROWS).columns::<512, 64>());
                        if first < stop {
                            k0_fill.fill(wg).gather_rows(
                                wg,
                                kv.gather(pages, first).columns::<256, 320>(),
                                stop - first,
                            );
                            let left = stop.saturating_sub(second);
                            k1_fill.fill(wg).gather_rows(wg, kv.gather(pages, second).columns::<256, 320>(), left);
                        }
                    }
                    if let Some(Segment { request, first, .. }) = done {
                        stats_out.fill(wg).store(wg, &(sum, sum));
                        let sum = sum + stats_in.next().0.read(wg);
                        let share = sum.map(|sum| if sum > 0.0 { reciprocal(sum) } else { 0.0 });
                        let o = o.map_rows(share, |x, share| x * share);
                        if let Some(out) = right.claim(ticket, request * row_blocks + row_block) {
                            out.store(wg, o);
                        } else if let Some(part) = parts_right.claim(ticket, 2 * ticket + (first == 0) as u32) {
                            part.store(wg, o);
                        }
                    }
                    if next.is_none() {
                        break;
                    }
                    done = next;
                }
            }
        },
    );
}
