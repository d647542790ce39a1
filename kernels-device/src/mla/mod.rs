//! Multi-head latent attention, decoding: `softmax(scale q K^T) V` where V is the first 512 columns of K.

use tilewright::prelude::*;

pub mod cache;
pub mod decode;
pub mod plan;
pub mod portable;

/// Keys of a block.
pub const BLOCK: u32 = 64;
/// Rows (heads of all query positions) of a tile.
pub const ROWS: u32 = 64;
/// Words of a part in a plan: first request, its first key, last request, the key after its last.
pub const PART_WORDS: u32 = 4;
/// Words of a cut request in a plan: its number, the first part that works on it, the last.
pub const CUT_WORDS: u32 = 3;

/// Some blocks of one request: what is worked on at a time.
#[derive(Clone, Copy)]
pub(crate) struct Segment {
    /// The first key of the first block.
    pub first: u32,
    /// The key after the last.
    pub stop: u32,
}

/// Keys of a request. Fewer than none are none; `capacity` is the most that count.
#[inline(always)]
pub(crate) fn keys(team: &mut impl Token, lengths: Tiles<'_, i32, 1, 1>, request: u32, capacity: u32) -> u32 {
    let length = lengths.element(team, request, 0);
    if length < 0 { 0 } else { (length as u32).min(capacity) }
}

/// The first request of part `part` of a plan, and the request after its last. What the plan says is data: it may be anything.
#[inline(always)]
pub(crate) fn requests(
    team: &mut impl Token,
    plan: Tiles<'_, u32, 1, 1>,
    part: u32,
    lengths: Tiles<'_, i32, 1, 1>,
) -> (u32, u32) {
    let (first, last) = (plan.element(team, part, 0), plan.element(team, part, 2));
    (first, last.saturating_add(1).min(lengths.rows()))
}

/// What part `part` of a plan does of request `request`, one of its own.
#[inline(always)]
pub(crate) fn segment(
    team: &mut impl Token,
    plan: Tiles<'_, u32, 1, 1>,
    part: u32,
    request: u32,
    lengths: Tiles<'_, i32, 1, 1>,
    capacity: u32,
) -> Segment {
    // all at once: they lie side by side
    let (first, begin) = (plan.element(team, part, 0), plan.element(team, part, 1));
    let (last, end) = (plan.element(team, part, 2), plan.element(team, part, 3));
    // the last request's end is in the plan, so that nothing has to wait for a length when it is the only one
    let stop = if request == last { end.min(capacity) } else { keys(team, lengths, request, capacity) };
    let first = if request == first { begin.min(stop) / BLOCK * BLOCK } else { 0 };
    Segment { first, stop }
}
