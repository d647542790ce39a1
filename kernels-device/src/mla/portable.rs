//! MLA decode over a paged cache on any GPU from sm_80 up: the contract of [`decode`](super::decode), of any stride and
//! alignment.
//!
//! | | |
//! |---|---|
//! | tile of a block | 32 rows (heads of all query positions) of one request, all 512 columns; 16 keys at a time |
//! | threads, a warp's part | 128; 16 x 8 of the logits, 32 x 128 of the output |
//! | shared memory | q 36 KiB, two times 16 keys of 18 KiB, probabilities and statistics 3 KiB |
//!
//! The plan is that of the other kernel; tickets stand for 32 rows here, so that the tiles of a part are half as high.
//!
//! Disjointness: `out` is shared out by the plan's table of owners, `parts` by tickets.

use tilewright::prelude::*;

use super::{Segment, keys, requests, segment};

/// Rows (heads of all query positions) of a tile.
pub const ROWS: u32 = 32;

/// As [`decode::paged`](fn@super::decode::paged), where a ticket is a part of the plan and 32 rows, `row_blocks` of which a
/// request has. `q`, `q_rope` are stacks of each request's rows; `kv`, `k_rope` stacks of pages.
#[kernel(
    arch = "sm_80",
    grid = persistent,
    min_blocks = 2,
    faults(BAD_PAGE = "the page table names a page that does not exist"),
    instances(bf16 = <bf16>, f16 = <f16>)
)]
pub fn paged<T: AttentionElement>(
    mut cta: Cta<128>,
    #[shared] memory: Attention<T>,
    parts: OwnedTiles<f32, 32, 512>,
    out: OwnedTiles<T, 32, 512>,
    q: Tiles<T, 32, 512>,
    q_rope: Tiles<T, 32, 64>,
    kv: Tiles<T, 1, 512>,
    k_rope: Tiles<T, 1, 64>,
    table: Tiles<i32, 1, 1>,
    lengths: Tiles<i32, 1, 1>,
    plan: Tiles<u32, 1, 1>,
    row_blocks: u32,
    capacity: u32,
    heads: u32,
    queries: u32,
    scale: f32,
) {
    let (mut memory, mut parts, mut out) = (memory, parts, out);
    for ticket in parts.tickets() {
        let part = ticket.checked_div(row_blocks).unwrap_or(0);
        let row_block = ticket - part * row_blocks;
        let (mut request, end) = requests(&mut cta, plan, part, lengths);
        while request < end {
            let Segment { first, stop } = segment(&mut cta, plan, part, request, lengths, capacity);
            let length = keys(&mut cta, lengths, request, capacity);
            let pages = LatentKeys::new(kv, k_rope, table.list(request));
            cta.fault_if(pages.lack(first, stop), BAD_PAGE);
            let limit = |row: u32| {
                let at = row_block * ROWS + row;
                let query = (at >= heads) as u32 + (at >= 2 * heads) as u32 + (at >= 3 * heads) as u32;
                (length + query + 1).saturating_sub(queries).min(stop)
            };
            let tile = request * row_blocks + row_block;
            let rows = (q.tile(tile, 0), q_rope.tile(tile, 0));
            let attended = cta.attend(&mut memory, rows, pages, (first, stop), limit, scale);
            let whole = (first == 0) as u32;
            if let Some(to) = out.claim(&mut cta, ticket, tile) {
                attended.store(&mut cta, to, |log| log * core::f32::consts::LN_2);
            } else if let Some(to) = parts.claim(&mut cta, ticket, 2 * ticket + whole) {
                attended.store(&mut cta, to, |log| log);
            }
            request += 1;
        }
    }
}
