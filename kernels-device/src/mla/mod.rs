//! Multi-head latent attention, decoding: `softmax(scale q K^T) V` where V is the first 512 columns of K.

use tilewright::prelude::*;

pub mod decode;
pub mod plan;
pub mod seesaw;

/// Keys of a block.
pub const BLOCK: u32 = 64;
/// Rows (heads of all query positions) of a tile.
pub const ROWS: u32 = 64;
/// Words of a part in a plan: first request, its first block, last request, the block after its last.
pub const PART_WORDS: u32 = 4;

/// Some blocks of one request: what is worked on at a time.
#[derive(Clone, Copy)]
pub(crate) struct Segment {
    /// The first key of the first block.
    pub first: u32,
    /// The key after the last of the segment, and of the request.
    pub stop: u32,
    pub length: u32,
}

/// What part `part` of a plan has of request `request`: its first if there is none. What the plan says is clamped: it is
/// data. `capacity` is the most keys that count.
#[inline(always)]
pub(crate) fn segment(
    wg: &mut WarpGroup,
    plan: Tiles<'_, u32, 1, 1>,
    part: u32,
    request: u32,
    lengths: Tiles<'_, i32, 1, 1>,
    capacity: u32,
) -> Option<Segment> {
    let last = plan.tile(part, 2).scalar(wg);
    if request > last || request >= lengths.rows() {
        return None;
    }
    let length = lengths.tile(request, 0).scalar(wg);
    let length = if length < 0 { 0 } else { (length as u32).min(capacity) };
    let begin = if request == plan.tile(part, 0).scalar(wg) { plan.tile(part, 1).scalar(wg) } else { 0 };
    let end = if request == last { plan.tile(part, 3).scalar(wg) } else { u32::MAX };
    let key = |block: u32| block.saturating_mul(BLOCK).min(length);
    // a part begins with a whole block
    Some(Segment { first: key(begin) / BLOCK * BLOCK, stop: key(end), length })
}
