//! Which part of the device works on which keys, and how split results are joined: small kernels around the decoding one.
//!
//! A plan balances blocks of 64 keys over parts. It is made on the device from the lengths that lie there, once a step, and
//! serves all layers; nothing of it passes through the host, so that a captured step stays right as lengths grow.

use tilewright::prelude::*;

use super::BLOCK;

/// What a request costs a part beside its blocks, in blocks: its q, its statistics, its output.
pub const REQUEST_COST: u32 = 5;
/// The owner of a request's output if several parts work on it: no ticket is that large.
pub const NOBODY: u32 = u32::MAX;

/// Keys that count of `length`.
#[inline(always)]
fn keys(length: i32, capacity: u32) -> u32 {
    if length < 0 { 0 } else { (length as u32).min(capacity) }
}

/// Writes the next word of a table.
#[inline(always)]
fn put<'a>(cta: &mut Cta<'_, 32>, table: &mut impl Iterator<Item = ((u32, u32), TileMut<'a, u32, 1, 1>)>, word: u32) {
    if let Some((_, to)) = table.next() {
        to.set(cta, word);
    }
}

/// Shares out the blocks of all requests among as many parts as `parts` has rows.
///
/// Requests follow each other, and a part takes blocks until it has its share; so a request is cut where a part is full.
/// Cuts are at even blocks, as the warpgroups work on blocks in pairs. `parts` gets the first request of each part, its
/// first key, the last request and the key after its last; `owners` the one part that does a request, or [`NOBODY`];
/// `ranges` the first and the last part that work on it. `summary` gets the number of parts in use.
///
/// One block: the walk is short, and made once for all layers.
#[kernel]
pub fn plan(
    mut cta: Cta<32>,
    summary: TilesMut<u32, 1, 1>,
    parts: TilesMut<u32, 1, 1>,
    owners: TilesMut<u32, 1, 1>,
    ranges: TilesMut<u32, 1, 1>,
    lengths: Tiles<i32, 1, 1>,
    capacity: u32,
) {
    let (requests, count) = (lengths.rows(), parts.rows());
    let mut total = 0u32;
    let mut r = 0;
    while r < requests {
        total = total.saturating_add(keys(lengths.element(&mut cta, r, 0), capacity).div_ceil(BLOCK) + REQUEST_COST);
        r += 1;
    }
    // a cut costs a request's price once more; a part that is cut takes that much more than its share of the total, and one
    // that ends before a request that it has no room for takes that much less
    let share = total.div_ceil(count.max(1)).saturating_add(REQUEST_COST);
    let (mut words, mut owners, mut ranges) = (parts.into_iter(), owners.into_iter(), ranges.into_iter());
    let (mut request, mut done, mut first_part, mut used) = (0, 0, 0, 0);
    let mut part = 0;
    while part < count {
        let mut left = if part + 1 == count { u32::MAX } else { share };
        // an empty part's last request comes before its first
        let (begin_request, begin, mut last, mut end) = (request, done, 0, 0);
        let mut empty = true;
        while request < requests {
            let keys = keys(lengths.element(&mut cta, request, 0), capacity);
            let rest = keys.div_ceil(BLOCK) - done;
            // rounded up, so that the last part is not left with what others could not take
            let room = left.saturating_sub(REQUEST_COST).saturating_add(1) & !1;
            if rest > room || left < REQUEST_COST {
                if room > 0 {
                    if done == 0 {
                        first_part = part;
                    }
                    done += room;
                    (last, end, empty) = (request, done * BLOCK, false);
                }
                break;
            }
            left = left.saturating_sub(rest + REQUEST_COST);
            (last, end, empty) = (request, keys, false);
            let whole = done == 0;
            put(&mut cta, &mut owners, if whole { part } else { NOBODY });
            put(&mut cta, &mut ranges, if whole { part } else { first_part });
            put(&mut cta, &mut ranges, part);
            (request, done) = (request + 1, 0);
        }
        put(&mut cta, &mut words, if empty { 1 } else { begin_request });
        put(&mut cta, &mut words, if empty { 0 } else { begin * BLOCK });
        put(&mut cta, &mut words, last);
        put(&mut cta, &mut words, end);
        used += !empty as u32;
        part += 1;
    }
    for (_, summary) in summary {
        summary.set(&mut cta, used);
    }
}

/// Below every base-2 log of a sum.
const LOW: f32 = -1e30;

/// Joins the pieces of requests that several parts worked on; what one part did alone is left as it is.
///
/// `parts` and `part_lse` (to base 2) are what the decoding kernel left there, two tiles of `height` rows (a multiple of 4) a
/// ticket; `ranges` is the plan's. `rows` is the number of rows of a request. Four pieces are on their way at a time; they are joined in their order.
#[kernel(grid = persistent, instances(bf16 = <bf16>, f16 = <f16>))]
pub fn combine<T: Element<Value = f32>>(
    mut cta: Cta<256>,
    out: TilesMut<T, 4, 512>,
    lse: TilesMut<f32, 4, 512>,
    parts: Tiles<f32, 4, 512>,
    part_lse: Tiles<f32, 4, 1>,
    ranges: Tiles<u32, 1, 1>,
    rows: u32,
    height: u32,
) {
    let blocks_of = |rows: u32| rows.checked_div(height).unwrap_or(0);
    let (row_blocks, down) = (blocks_of(rows.saturating_add(height).saturating_sub(1)), rows.div_ceil(4));
    let count = (blocks_of(parts.rows()) / 2).checked_div(row_blocks).unwrap_or(0);
    for (((i, _), out), (_, lse)) in out.into_iter().zip(lse) {
        let request = i.checked_div(down).unwrap_or(0);
        let row = (i - request * down) * 4;
        let (first, last) = (ranges.element(&mut cta, request, 0), ranges.element(&mut cta, request, 1));
        if first >= last {
            continue;
        }
        let end = last.saturating_add(1).min(count);
        // the first piece is in its ticket's second tile; past the last there is nothing
        let at = |part: u32| {
            let block = blocks_of(row);
            let tile = 2 * (part * row_blocks + block) + (part == first) as u32;
            if part < end { (tile * height + row - block * height) / 4 } else { u32::MAX }
        };
        let mut acc = cta.load(parts.tile(u32::MAX, 0));
        let (mut max, mut sum) = (acc.map(|_| LOW), acc.map(|_| 0.0));
        let mut part = first;
        while part < end {
            let (a, b, c, d) = (at(part), at(part + 1), at(part + 2), at(part + 3));
            let (oa, ob) = (cta.load(parts.tile(a, 0)), cta.load(parts.tile(b, 0)));
            let (oc, od) = (cta.load(parts.tile(c, 0)), cta.load(parts.tile(d, 0)));
            let la = cta.load_column_like(&acc, part_lse.tile(a, 0));
            let lb =
                cta.load_column_like(&acc, part_lse.tile(b, 0)).map(|x| if part + 1 < end { x } else { 2.0 * LOW });
            let lc =
                cta.load_column_like(&acc, part_lse.tile(c, 0)).map(|x| if part + 2 < end { x } else { 2.0 * LOW });
            let ld =
                cta.load_column_like(&acc, part_lse.tile(d, 0)).map(|x| if part + 3 < end { x } else { 2.0 * LOW });
            let greater = |x: f32, y: f32| x.max(y);
            let raised = max.zip(&la, greater).zip(&lb, greater).zip(&lc.zip(&ld, greater), greater);
            let shrink = max.zip(&raised, |old, new| exp2(old - new));
            let share = |log: f32, max: f32| exp2(log - max);
            let (wa, wb) = (la.zip(&raised, share), lb.zip(&raised, share));
            let (wc, wd) = (lc.zip(&raised, share), ld.zip(&raised, share));
            let (add, times) = (|x: f32, y: f32| x + y, |x: f32, y: f32| x * y);
            acc = acc.zip(&shrink, times).zip(&oa.zip(&wa, times), add).zip(&ob.zip(&wb, times), add);
            acc = acc.zip(&oc.zip(&wc, times), add).zip(&od.zip(&wd, times), add);
            sum = sum.zip(&shrink, times).zip(&wa, add).zip(&wb, add).zip(&wc, add).zip(&wd, add);
            max = raised;
            part += 4;
        }
        let joined = acc.zip(&sum, |o, s| if s > 0.0 { o * reciprocal(s) } else { 0.0 });
        out.store(&mut cta, &joined);
        let log = max.zip(&sum, |m, s| (m + log2(s)) * core::f32::consts::LN_2);
        lse.store(&mut cta, &log);
    }
}
