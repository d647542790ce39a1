//! Schedules: in which order the tiles of a grid are worked on, and by which block.
//!
//! Block `b` of `n` owns the tickets `b, b + n, b + 2n, ...`; a [`Schedule`] maps tickets to tiles. Because the map is a
//! bijection, and because the schedule travels as a launch argument (equal in all blocks), no two blocks ever receive
//! the same tile.

/// A map from tickets onto the tiles of a grid.
///
/// # Safety
/// For every `rows`, `cols` with `rows * cols < 2^32`, `at` must be a bijection from `0..rows * cols` onto
/// `(0..rows) x (0..cols)`. Each implementation here is tested exhaustively on small grids.
pub unsafe trait Schedule: Copy + Send + Sync + core::fmt::Debug + 'static {
    /// Distinguishes schedules in a kernel's signature.
    const ID: u64;
    /// Whole rows of tiles are handed out, as strips, instead of tiles.
    const STRIPS: bool = false;
    /// The tile `(i, j)` of a ticket.
    fn at(&self, ticket: u32, rows: u32, cols: u32) -> (u32, u32);
}

/// Row by row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Linear;

// SAFETY: division with remainder.
unsafe impl Schedule for Linear {
    const ID: u64 = 1;
    #[inline(always)]
    fn at(&self, ticket: u32, _rows: u32, cols: u32) -> (u32, u32) {
        // Rows that are a tile wide need no division, which would stand between a row and the loads of the next.
        if cols == 1 {
            return (ticket, 0);
        }
        // checked_div: an ordinary division would keep a call to the panic handler in the PTX
        let i = ticket.checked_div(cols).unwrap_or(0);
        (i, ticket - i * cols)
    }
}

/// Whole rows of tiles, one after the other: for kernels that take an output by
/// [`strips`](crate::view::TilesMut::strips). Like every schedule it is the launch's choice: were it the kernel's, one
/// block could take tiles and another the strip they lie in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Strips;

// SAFETY: as `Linear`, over a grid of one column.
unsafe impl Schedule for Strips {
    const ID: u64 = 3;
    const STRIPS: bool = true;
    #[inline(always)]
    fn at(&self, ticket: u32, _rows: u32, cols: u32) -> (u32, u32) {
        Linear.at(ticket, 0, cols)
    }
}

/// Column by column within groups of `G` tile rows, so that concurrent blocks share operand tiles in L2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Grouped<const G: u32>;

// SAFETY: the tickets are cut into groups of min(G, rows left) x cols; within a group of g rows, (t % g, t / g) is a
// bijection.
unsafe impl<const G: u32> Schedule for Grouped<G> {
    const ID: u64 = {
        assert!(G > 0, "a group has at least one row of tiles");
        2 | (G as u64) << 8
    };
    #[inline(always)]
    fn at(&self, ticket: u32, rows: u32, cols: u32) -> (u32, u32) {
        const { assert!(G > 0, "a group has at least one row of tiles") };
        // `G * cols` may exceed 32 bits only when it exceeds `rows * cols` too: there is one group then.
        let span = G.saturating_mul(cols);
        let group = ticket.checked_div(span).unwrap_or(0);
        let r = ticket - group * span;
        let left = rows - group * G;
        let g = if left < G { left } else { G };
        let j = r.checked_div(g).unwrap_or(0);
        (group * G + (r - j * g), j)
    }
}

/// The tiles of one block (or cluster), in order. Freely copied: coordinates give no right to write.
#[derive(Clone, Copy, Debug)]
pub struct Plan<S> {
    pub(crate) schedule: S,
    pub(crate) rows: u32,
    pub(crate) cols: u32,
    pub(crate) ticket: u32,
    pub(crate) step: u32,
}

impl<S: Schedule> Plan<S> {
    /// The plan of worker `index` of `workers` over a grid of `rows` x `cols` tiles.
    #[inline(always)]
    pub(crate) fn new(schedule: S, rows: u32, cols: u32, index: u32, workers: u32) -> Self {
        Plan { schedule, rows, cols, ticket: index, step: workers }
    }
    /// Of every `turns` tiles of the worker, number `turn`.
    #[inline(always)]
    pub(crate) fn turn(self, turn: u32, turns: u32) -> Self {
        let ticket = self.ticket.saturating_add(turn.saturating_mul(self.step));
        Plan { ticket, step: self.step.saturating_mul(turns), ..self }
    }
}

impl<S: Schedule> Iterator for Plan<S> {
    type Item = (u32, u32);
    #[inline(always)]
    fn next(&mut self) -> Option<(u32, u32)> {
        // The launcher refuses grids of 2^32 tiles or more.
        if self.ticket >= self.rows * self.cols {
            return None;
        }
        let at = self.schedule.at(self.ticket, self.rows, self.cols);
        self.ticket = self.ticket.saturating_add(self.step);
        Some(at)
    }
}

#[cfg(all(test, not(target_arch = "nvptx64")))]
mod tests {
    use super::*;
    use std::vec;

    fn exhaustive(s: impl Schedule, rows: u32, cols: u32) {
        for workers in [1, 2, 3, 7, 132] {
            let mut seen = vec![0u32; (rows * cols) as usize];
            for w in 0..workers {
                let plan = Plan::new(s, rows, cols, w, workers);
                for (i, j) in plan {
                    assert!(i < rows && j < cols);
                    seen[(i * cols + j) as usize] += 1;
                }
                // in turns: the same tiles, alternately
                let (mut first, mut second) = (plan.turn(0, 2), plan.turn(1, 2));
                for (n, at) in plan.enumerate() {
                    assert_eq!(Some(at), if n % 2 == 0 { first.next() } else { second.next() });
                }
                assert!(first.next().is_none() && second.next().is_none());
            }
            assert!(seen.iter().all(|&n| n == 1), "{s:?} {rows}x{cols} over {workers}");
        }
    }

    #[test]
    fn every_schedule_is_a_bijection() {
        for rows in 0..40 {
            for cols in 0..20 {
                exhaustive(Linear, rows, cols);
                exhaustive(Grouped::<1>, rows, cols);
                exhaustive(Grouped::<4>, rows, cols);
                exhaustive(Grouped::<8>, rows, cols);
                exhaustive(Grouped::<16>, rows, cols);
            }
        }
    }

    #[test]
    fn the_last_tickets_of_a_huge_grid_do_not_wrap() {
        let (rows, cols) = (3, 1_400_000_000);
        assert_eq!(Linear.at(rows * cols - 1, rows, cols), (2, cols - 1));
        assert_eq!(Grouped::<16>.at(rows * cols - 1, rows, cols), (2, cols - 1));
        let mut plan = Plan::new(Linear, rows, cols, rows * cols - 1, u32::MAX);
        assert!(plan.next().is_some() && plan.next().is_none());
    }
}
