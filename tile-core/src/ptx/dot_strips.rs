//! The loop of a block-level product over two rows of tiles, where nothing is left to decide within it.
//!
//! What [`super::dot::dot`] asks of every pair of tiles anew is asked once here: rows are all inside, 16 bytes at a time
//! are aligned, and one tile lies beside the other. A step then costs each thread its copies with one instruction more
//! XX
//! dealt out between the products: a fragment is loaded before the copies that stand behind it in program order, for the
//! assembler keeps reads of shared memory behind the copies that it can not tell apart from them.

use core::arch::asm;

use super::cp_async::{commit_copies, in_chunks};
use super::dot::{DotElement, await_stage, load};
use super::mma_sync::{BlockProduct, Split};
use super::smem::Smem;
use super::sync::tid;
use crate::layout::operand_offset;
use crate::view::Window;

/// Whether the loop of this file takes two rows of tiles of `m` and `n` rows.
#[inline(always)]
pub(super) fn plain<T>(a: &Window<T>, b: &Window<T>, m: u32, n: u32) -> bool {
    let near = |w: &Window<T>| w.stride < const { (u32::MAX as usize / 64 / size_of::<T>()) as u64 };
    (a.rows == m) & (b.rows == n) & (a.cols == b.cols) & (a.cols <= i32::MAX as u32) & near(a) & near(b) & in_chunks(a) & in_chunks(b)
}

/// A thread's share of the copies: of each tile one chunk of 16 bytes in every `ROWS`th row.
struct Feed<const M: usize, const N: usize, const ROW: usize, const THREADS: usize> {
    a: Rows,
    b: Rows,
    /// Elements from the chunk to the end of the rows; not more than zero where it lies outside.
    left: i32,
    /// The chunk's place in a stage.
    place: usize,
}

/// Where a thread reads next. Pointers move from row to row: one register pair for all rows of a tile.
struct Rows {
    from: u64,
    /// Bytes to the next of its rows.
    down: u32,
    /// From its last row to its first of the next tile.
    back: u64,
}

impl Rows {
    #[inline(always)]
    fn of<T>(w: &Window<T>, row: u32, column: u32, rows: u32, copies: u32, width: u32) -> Self {
        let size = size_of::<T>() as u64;
        let down = w.stride as u32 * (rows * size as u32);
        Rows {
            from: w.ptr as u64 + (row as u64 * w.stride + column as u64) * size,
            down,
            back: (width as u64).wrapping_sub(down as u64 * (copies - 1) as u64),
        }
    }
}

impl<const M: usize, const N: usize, const ROW: usize, const THREADS: usize> Feed<M, N, ROW, THREADS> {
    /// Rows that the block copies at once.
    const ROWS: usize = {
        let rows = THREADS / (ROW / 16);
        assert!(M % rows == 0 && N % rows == 0, "the threads of a block share an operand tile evenly");
        assert!(rows <= 64 && rows % 8 == 0);
        rows
    };
    const IN_A: usize = M / Self::ROWS;
    const COPIES: usize = (M + N) / Self::ROWS;

    #[inline(always)]
    fn of<T>(a: &Window<T>, b: &Window<T>) -> Self {
        let (chunks, in_chunk) = const { (ROW as u32 / 16, 16 / size_of::<T>() as u32) };
        let (row, chunk) = (tid() / chunks, tid() % chunks);
        let column = chunk * in_chunk;
        let (in_a, in_b) = const { (Self::IN_A as u32, (Self::COPIES - Self::IN_A) as u32) };
        Feed {
            a: Rows::of(a, row, column, Self::ROWS as u32, in_a, ROW as u32),
            b: Rows::of(b, row, column, Self::ROWS as u32, in_b, ROW as u32),
            left: a.cols as i32 - column as i32,
            place: operand_offset(ROW, row as usize, chunk as usize * 16),
        }
    }

    /// Starts part `part` of `parts` of the thread's copies to a stage. After the last part it stands at the next tiles.
    ///
    /// # Safety
    /// The stage is the block's to write; the rows are the windows'.
    #[inline(always)]
    unsafe fn bring<T>(&mut self, stage: Smem, part: usize, parts: usize) {
        let to = stage.add(self.place);
        let mut i = Self::COPIES * part / parts;
        while i < Self::COPIES * (part + 1) / parts {
            let rows = if i < Self::IN_A { &mut self.a } else { &mut self.b };
            let last = i + 1 == Self::IN_A || i + 1 == Self::COPIES;
            let by = if last { rows.back } else { rows.down as u64 };
            // SAFETY: the caller's. B's tile follows on A's.
            rows.from = unsafe { copy_16(to.add(i * Self::ROWS * ROW), rows.from, self.left, by) };
            i += 1;
        }
        if part + 1 == parts {
            self.left -= const { (ROW / size_of::<T>()) as i32 };
        }
    }
}

/// Starts copying 16 bytes, past L1, if `left > 0`, and puts zeros there otherwise. Gives `from + by`: added here, since
/// of sums that it knows the compiler would keep all in registers.
///
/// # Safety
/// Both addresses are 16-byte aligned; `to` is the caller's; if `left > 0`, `from` may be read.
#[inline(always)]
unsafe fn copy_16(to: Smem, from: u64, left: i32, by: u64) -> u64 {
    let next: u64;
    // SAFETY: the caller's.
    unsafe {
        asm!("{{ .reg .pred p; .reg .b32 s; setp.gt.s32 p, {2}, 0; selp.b32 s, 16, 0, p;
             cp.async.cg.shared.global.L2::128B [{0}], [{1}], 16, s; add.s64 {3}, {1}, {4}; }}",
            in(reg32) to.0, in(reg64) from, in(reg32) left, lateout(reg64) next, in(reg64) by, options(nostack))
    }
    next
}

/// `regs += A B^T` over the first `steps` tiles of two rows of tiles.
///
/// # Safety
/// As for [`super::dot::dot`]; the windows are [`plain`].
#[inline(always)]
pub(super) unsafe fn strips_loop<
    T: DotElement,
    const M: usize,
    const N: usize,
    const K: usize,
    const STAGES: usize,
    const ROW: usize,
    const THREADS: usize,
>(
    regs: &mut <Split<M, N, THREADS> as BlockProduct>::Regs,
    ring: Smem,
    steps: u32,
    a: &Window<T>,
    b: &Window<T>,
    multiply: impl Fn(&mut <Split<M, N, THREADS> as BlockProduct>::Regs, &<Split<M, N, THREADS> as BlockProduct>::Fragments),
) where
    Split<M, N, THREADS>: BlockProduct,
{
    let stage = const { (M + N) * ROW };
    let mut feed = Feed::<M, N, ROW, THREADS>::of(a, b);
    // SAFETY: stages are filled once all have read them (the barrier of the step before), and read once filled. Past the
    // last step nothing is left to read: zeros are put there.
    unsafe {
        let mut s = 0;
        while s < STAGES - 1 {
            feed.bring::<T>(ring.add(s * stage), 0, 1);
            commit_copies();
            s += 1;
        }
        await_stage::<STAGES>();
        let lanes = Split::<M, N, THREADS>::lanes(ROW);
        let (mut read, mut write) = (ring, ring.add((STAGES - 1) * stage));
        let end = ring.add(STAGES * stage);
        let mut now = load::<Split<M, N, THREADS>, M, K>(ring, lanes, 0);
        let mut k = 0;
        while k < steps {
            let next = load::<Split<M, N, THREADS>, M, K>(read, lanes, 1);
            if const { K == 64 } {
                feed.bring::<T>(write, 0, 3);
                multiply(regs, &now);
                let third = load::<Split<M, N, THREADS>, M, K>(read, lanes, 2);
                feed.bring::<T>(write, 1, 3);
                multiply(regs, &next);
                now = load::<Split<M, N, THREADS>, M, K>(read, lanes, 3);
                feed.bring::<T>(write, 2, 3);
                multiply(regs, &third);
            } else {
                feed.bring::<T>(write, 0, 1);
                multiply(regs, &now);
                now = next;
            }
            commit_copies();
            await_stage::<STAGES>();
            write = read;
            read = read.add(stage);
            if read.0 == end.0 {
                read = ring;
            }
            // After the last step these are zeros, and not used.
            let next = load::<Split<M, N, THREADS>, M, K>(read, lanes, 0);
            multiply(regs, &now);
            now = next;
            k += 1;
        }
    }
}
