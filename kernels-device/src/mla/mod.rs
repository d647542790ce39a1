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
    pub request: u32,
    /// Blocks `begin..end`.
    pub begin: u32,
    pub end: u32,
    /// Keys of the request.
    pub length: u32,
}

/// The segments of one part of a plan, in order. What the plan says is clamped: it is data.
#[derive(Clone, Copy)]
pub(crate) struct Walk<'a> {
    lengths: Tiles<'a, i32, 1, 1>,
    next: u32,
    begin: u32,
    last: u32,
    end: u32,
    /// Keys that a request can have at most.
    capacity: u32,
}

impl<'a> Walk<'a> {
    #[inline(always)]
    pub fn new(wg: &mut WarpGroup, plan: Tiles<'a, u32, 1, 1>, part: u32, lengths: Tiles<'a, i32, 1, 1>, capacity: u32) -> Self {
        Walk {
            lengths,
            next: plan.tile(part, 0).scalar(wg),
            begin: plan.tile(part, 1).scalar(wg),
            last: plan.tile(part, 2).scalar(wg),
            end: plan.tile(part, 3).scalar(wg),
            capacity,
        }
    }
    #[inline(always)]
    pub fn next(&mut self, wg: &mut WarpGroup) -> Option<Segment> {
        let request = self.next;
        if request > self.last || request >= self.lengths.rows() {
            return None;
        }
        let length = self.lengths.tile(request, 0).scalar(wg);
        let length = if length < 0 { 0 } else { (length as u32).min(self.capacity) };
        let blocks = length.div_ceil(BLOCK);
        let segment = Segment {
            request,
            begin: self.begin,
            end: if request == self.last && self.end < blocks { self.end } else { blocks },
            length,
        };
        self.next = request + 1;
        self.begin = 0;
        Some(segment)
    }
}
