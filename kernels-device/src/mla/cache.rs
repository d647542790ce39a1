//! New keys into a paged cache, and lists of pages as tables: what comes before a decoding step.
//!
//! | kernel | tile | threads | bytes that must move |
//! |---|---|---|---|
//! | [`concat_and_cache`](fn@concat_and_cache) | 16 tokens x 576 | 128 | every key read and written once: 2304 a token, and its slot |
//! | [`lists`](fn@lists) | a request | 32 | its page numbers read and written once |
//!
//! Disjointness: rows of the cache are written by relaxed stores, whichever block comes upon them; outputs of `lists` hand
//! each row to one block.

use tilewright::prelude::*;

/// Tokens of a tile of [`concat_and_cache`](fn@concat_and_cache).
pub const TOKENS: u32 = 16;

/// The two parts of each token's key go to row `slots[token]` of the cache. A negative slot leaves its token out. The two
/// views of the cache may be columns of one tensor, or two tensors.
#[kernel(
    grid = persistent,
    faults(BAD_SLOT = "the slot mapping names a row that the cache does not have"),
    instances(bf16 = <bf16>, f16 = <f16>)
)]
pub fn concat_and_cache<T: Element<Value = f32>>(
    mut cta: Cta<128>,
    latent_cache: ScatterRows<T, 512>,
    rope_cache: ScatterRows<T, 64>,
    latent: Tiles<T, 16, 512>,
    rope: Tiles<T, 16, 64>,
    slots: Tiles<i64, 1, 1>,
) {
    for ticket in latent_cache.tickets() {
        let (latent, rope) = (cta.fetch(latent.tile(ticket, 0)), cta.fetch(rope.tile(ticket, 0)));
        latent_cache.put(&mut cta, slots, ticket * TOKENS, &latent, BAD_SLOT);
        rope_cache.put(&mut cta, slots, ticket * TOKENS, &rope, BAD_SLOT);
    }
}

/// How many pages a request's list names, if it lies in the `all` that there are.
#[inline(always)]
fn listed(begin: i32, end: i32, all: u32) -> Option<u32> {
    if 0 <= begin && begin <= end && end as u32 <= all { Some((end - begin) as u32) } else { None }
}

/// Whether a last page can hold `last` keys.
#[inline(always)]
fn filled(last: i32, page_rows: u32) -> bool {
    0 < last && last as u32 <= page_rows
}

/// Page lists in compressed rows as a table of one row for each request, and the number of keys of each.
///
/// Request `r` has the pages `indices[indptr[r]..indptr[r + 1]]`, of `page_rows` rows each, the last of which holds
/// `last_page_len[r]` keys. A request whose list does not lie in `indices`, is longer than the table is wide, or whose last
/// page holds no keys or more than a page, is reported, and has no keys.
#[kernel(
    grid = persistent,
    faults(
        BAD_LIST = "kv_indptr does not name a part of kv_indices that fits the table",
        BAD_LAST = "a last page holds no keys, or more than a page does",
    )
)]
pub fn lists(
    mut cta: Cta<32>,
    lengths: TilesMut<i32, 1, 1>,
    table: TilesMut<i32, 1, 128, Strips>,
    indptr: Tiles<i32, 1, 1>,
    indices: Tiles<i32, 1, 128>,
    last_page_len: Tiles<i32, 1, 1>,
    page_rows: u32,
) {
    for ((r, _), length) in lengths {
        let (begin, end) = (indptr.element(&mut cta, r, 0), indptr.element(&mut cta, r + 1, 0));
        let last = last_page_len.element(&mut cta, r, 0);
        let pages = listed(begin, end, indices.cols());
        cta.fault_if(pages.is_none_or(|n| n > table.cols()), BAD_LIST);
        let pages = pages.filter(|&n| n <= table.cols()).unwrap_or(0);
        cta.fault_if(pages > 0 && !filled(last, page_rows), BAD_LAST);
        // of a cache with more keys than an i32 counts there is no address
        let keys = (pages.saturating_sub(1)).saturating_mul(page_rows).saturating_add(last as u32).min(i32::MAX as u32);
        length.set(&mut cta, if pages > 0 && filled(last, page_rows) { keys as i32 } else { 0 });
    }
    for (r, mut table) in table.strips() {
        let (begin, end) = (indptr.element(&mut cta, r, 0), indptr.element(&mut cta, r + 1, 0));
        let count = listed(begin, end, indices.cols()).unwrap_or(0);
        let list = indices.strip(0).part(begin as u32, count);
        let mut j = 0;
        while j < list.across() {
            let pages = cta.load(list.tile(j));
            table.store(&mut cta, j, &pages);
            j += 1;
        }
    }
}
