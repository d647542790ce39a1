//! Multi-head latent attention, decoding: `softmax(scale q K^T) V` where V is the first 512 columns of K.

use tilewright::prelude::*;

pub mod decode;
pub mod plan;
pub mod seesaw;

/// Keys of a block.
pub const BLOCK: u32 = 64;
/// Rows (heads of all query positions) of a tile.
pub const ROWS: u32 = 64;
/// Words of a part in a plan: first request, its first key, last request, the key after its last.
pub const PART_WORDS: u32 = 4;

/// Some blocks of one request: what is worked on at a time.
#[derive(Clone, Copy)]
pub(crate) struct Segment {
    pub request: u32,
    /// The first key of the first block.
    pub first: u32,
    /// The key after the last.
    pub stop: u32,
}

/// Keys of a request. Fewer than none are none; `capacity` is the most that count.
#[inline(always)]
pub(crate) fn keys(wg: &mut WarpGroup, lengths: Tiles<'_, i32, 1, 1>, request: u32, capacity: u32) -> u32 {
    let length = lengths.tile(request, 0).scalar(wg);
    if length < 0 { 0 } else { (length as u32).min(capacity) }
}

/// What part `part` of a plan does after request `after`, or first of all. What the plan says is data: it may be anything.
#[inline(always)]
pub(crate) fn segment(
    wg: &mut WarpGroup,
    plan: Tiles<'_, u32, 1, 1>,
    part: u32,
    after: Option<u32>,
    lengths: Tiles<'_, i32, 1, 1>,
    capacity: u32,
) -> Option<Segment> {
    // all at once: they lie side by side
    let (first, begin) = (plan.tile(part, 0).scalar(wg), plan.tile(part, 1).scalar(wg));
    let (last, end) = (plan.tile(part, 2).scalar(wg), plan.tile(part, 3).scalar(wg));
    let (request, begin) = match after {
        None => (first, begin / BLOCK * BLOCK),
        Some(request) => (request.saturating_add(1), 0),
    };
    if request > last || request >= lengths.rows() {
        return None;
    }
    // the last request's end is in the plan, so that nothing has to wait for a length when it is the only one
    let stop = if request == last { end.min(capacity) } else { keys(wg, lengths, request, capacity) };
    Some(Segment { request, first: begin.min(stop / BLOCK * BLOCK), stop })
}
