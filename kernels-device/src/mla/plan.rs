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
/// first key, the last request and the key after its last; `owners` the one part that does a request, or [`NOBODY`].
/// `cuts` gets, for each request that several parts work on, its number, the first of them and the last; `joins`, for each
/// request, where it stands there, or [`NOBODY`]. `summary` gets the number of parts in use, `cut_count` that of cut requests.
///
/// One block: the walk is short, and made once for all layers.
#[kernel]
pub fn plan(
    mut cta: Cta<32>,
    summary: TilesMut<u32, 1, 1>,
    cut_count: TilesMut<u32, 1, 1>,
    parts: TilesMut<u32, 1, 1>,
    owners: TilesMut<u32, 1, 1>,
    joins: TilesMut<u32, 1, 1>,
    cuts: TilesMut<u32, 1, 1>,
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
    let (mut words, mut owners) = (parts.into_iter(), owners.into_iter());
    let (mut joins, mut cuts) = (joins.into_iter(), cuts.into_iter());
    let (mut request, mut done, mut first_part, mut used, mut cut) = (0, 0, 0, 0, 0);
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
            put(&mut cta, &mut joins, if whole { NOBODY } else { cut });
            if !whole {
                // a part ends one cut request at most: there are no more of them than parts
                put(&mut cta, &mut cuts, request);
                put(&mut cta, &mut cuts, first_part);
                put(&mut cta, &mut cuts, part);
                cut += 1;
            }
            (request, done) = (request + 1, 0);
        }
        put(&mut cta, &mut words, if empty { 1 } else { begin_request });
        put(&mut cta, &mut words, if empty { 0 } else { begin * BLOCK });
        put(&mut cta, &mut words, last);
        put(&mut cta, &mut words, end);
        used += !empty as u32;
        part += 1;
    }
    put(&mut cta, &mut summary.into_iter(), used);
    put(&mut cta, &mut cut_count.into_iter(), cut);
}

/// Below every base-2 log of a sum.
const LOW: f32 = -1e30;

/// Joins the pieces of requests that several parts worked on; what one part did alone is left as it is.
///
/// `parts` and `part_lse` (to base 2) are what the decoding kernel left there, two tiles of `height` rows a ticket of its own;
/// `cut_count` and `cuts` are the plan's. A ticket of this kernel is a row of a cut request: `cut * rows + row`, `rows` being
/// those of a request. Eight pieces are on their way at a time; they are joined in their order.
#[kernel(grid = persistent, instances(bf16 = <bf16>, f16 = <f16>))]
pub fn combine<T: Element<Value = f32>>(
    mut cta: Cta<128>,
    out: OwnedTiles<T, 1, 512>,
    parts: Tiles<f32, 1, 512>,
    part_lse: Tiles<f32, 1, 1>,
    cut_count: Tiles<u32, 1, 1>,
    cuts: Tiles<u32, 1, 1>,
    rows: u32,
    height: u32,
) {
    // a height of 0 says nothing
    let block_of = |row: u32| row.checked_div(height).unwrap_or(0);
    let row_blocks = block_of(rows.saturating_add(height).saturating_sub(1));
    // two tiles a ticket
    let count = (block_of(parts.rows()) / 2).checked_div(row_blocks).unwrap_or(0);
    let used = cut_count.element(&mut cta, 0, 0);
    for claim in out.claims() {
        let cut = claim.ticket().checked_div(rows).unwrap_or(0);
        if cut >= used {
            break;
        }
        let row = claim.ticket() - cut * rows;
        // all at once: they lie side by side
        let (request, first) = (cuts.element(&mut cta, cut, 0), cuts.element(&mut cta, cut, 1));
        let end = cuts.element(&mut cta, cut, 2).saturating_add(1).min(count);
        let Some((out, lse)) = claim.tile(request.saturating_mul(rows).saturating_add(row)) else {
            continue;
        };
        // the first piece is in its ticket's second tile; past the last there is nothing
        let at = |part: u32| {
            let block = block_of(row);
            let tile = 2 * (part * row_blocks + block) + (part == first) as u32;
            if part < end { tile * height + row - block * height } else { u32::MAX }
        };
        let mut acc = cta.load(parts.tile(u32::MAX, 0));
        let (mut max, mut sum) = (LOW, 0.0);
        let mut part = first;
        // straight-line: an array of pieces would not stay in registers
        macro_rules! eight {
            ($($piece:ident $log:ident $i:literal),*) => {
                $(
                    let row = at(part + $i);
                    let $log = if part + $i < end { part_lse.element(&mut cta, row, 0) } else { 2.0 * LOW };
                    let $piece = cta.load(parts.tile(row, 0));
                )*
                let raised = max;
                $(let raised = raised.max($log);)*
                let shrink = exp2(max - raised);
                (sum, acc, max) = (sum * shrink, acc.map(|x| x * shrink), raised);
                $(
                    let share = exp2($log - raised);
                    (sum, acc) = (sum + share, acc.zip(&$piece, |x, o| x + o * share));
                )*
            };
        }
        while part < end {
            eight!(a la 0, b lb 1, c lc 2, d ld 3, e le 4, f lf 5, g lg 6, h lh 7);
            part += 8;
        }
        let share = if sum > 0.0 { reciprocal(sum) } else { 0.0 };
        out.store(&mut cta, &acc.map(|x| x * share));
        lse.set(&mut cta, (max + log2(sum)) * core::f32::consts::LN_2);
    }
}
