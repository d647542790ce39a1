//! The loop of a block-level product over two rows of tiles, where nothing is left to decide within it.
//!
//! What [`super::dot::dot`] asks of every pair of tiles anew is asked once here: all rows are inside, 16 bytes at a time are
//! aligned, and one tile lies beside the other. The step is written out for each stage of the ring (in most shapes), so that places
//! in shared memory are constants of the instructions; a thread holds a pointer for each row that it copies, and moves them
//! once in a round of the ring. What is left of a step beside its products, loads and copies is a comparison, the barrier
//! and the branch.
//!
//! Copies are dealt out between the products, behind the loads of the fragments that come next: the assembler keeps what
//! reads shared memory in its order with what writes there.

use core::arch::asm;

use super::cp_async::{commit_copies, in_chunks};
use super::dot::{DotElement, await_stage, load};
use super::mma_sync::{BlockProduct, Split};
use super::smem::Smem;
use super::sync::tid;
use crate::layout::operand_offset;
use crate::view::Window;

/// Whether [`strips_loop`] takes two rows of tiles, of `m` and `n` rows.
#[inline(always)]
pub(super) fn plain<T>(a: &Window<T>, b: &Window<T>, m: u32, n: u32) -> bool {
    // so that 64 rows are less than 2^32 bytes
    let near = |w: &Window<T>| w.stride < const { (u32::MAX as usize / 64 / size_of::<T>()) as u64 };
    (a.rows == m)
        & (b.rows == n)
        & (a.cols == b.cols)
        & (a.cols <= i32::MAX as u32)
        & near(a)
        & near(b)
        & in_chunks(a)
        & in_chunks(b)
}

/// The most copies of a thread for a pair of tiles.
const MOST: usize = 16;

/// `$do!(i)` for each possible copy, straight-line.
macro_rules! each_copy {
    ($do:ident) => {
        each_copy!(@ $do; 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15)
    };
    (@ $do:ident; $($i:literal)*) => {
        $(if const { $i < Self::COPIES } {
            $do!($i);
        })*
    };
}

/// A thread's share of the copies: of each tile one chunk of 16 bytes in every `ROWS`th row, A's first.
struct Feed<const M: usize, const N: usize, const ROW: usize, const THREADS: usize> {
    /// Where the chunks lie: in every `EACH`th of its rows; those between are `down` below.
    from: [u64; MOST],
    /// Bytes to the next of its rows, in A and in B.
    down: (u32, u32),
    /// Elements from the chunk to the end of the rows; not more than zero where it lies outside.
    left: i32,
    /// The chunk's place in a stage.
    place: usize,
}

impl<const M: usize, const N: usize, const ROW: usize, const THREADS: usize> Feed<M, N, ROW, THREADS> {
    /// Rows that the block copies at once.
    const ROWS: usize = {
        let rows = THREADS / (ROW / 16);
        assert!(M % rows == 0 && N % rows == 0, "the threads of a block share an operand tile evenly");
        assert!(rows <= 64 && rows % 8 == 0 && (M + N) / rows <= MOST);
        rows
    };
    const IN_A: usize = M / Self::ROWS;
    const COPIES: usize = (M + N) / Self::ROWS;
    /// A pointer for every row, every other or every fourth: as registers allow.
    const EACH: usize = match Self::COPIES {
        0..=4 => 1,
        5..=12 if Self::IN_A % 2 == 0 => 2,
        _ if Self::IN_A % 4 == 0 => 4,
        _ => 1,
    };

    /// Whether the step is written out for each stage. Not if that makes a long loop of a small block: several of those share
    /// an SM, are at different places in it, and want its instruction cache for each.
    const fn unrolled(stages: usize) -> bool {
        let products = M * N * ROW / 2 * stages / (THREADS / 32) / (16 * 8 * 16);
        THREADS > 128 || products <= 128
    }

    #[inline(always)]
    fn of<T>(a: &Window<T>, b: &Window<T>) -> Self {
        let (chunks, in_chunk) = const { (ROW as u32 / 16, 16 / size_of::<T>() as u32) };
        // The window is aligned: nothing is added. But for the compiler the thread is another one for each tile of the output,
        // and what is computed from it is not kept in registers from one to the next.
        let thread = tid() + a.ptr as u32 % 16;
        let (row, chunk) = (thread / chunks, thread % chunks);
        let column = chunk * in_chunk;
        let first =
            |w: &Window<T>| w.ptr as u64 + (row as u64 * w.stride + column as u64) * const { size_of::<T>() as u64 };
        let down = |w: &Window<T>| w.stride as u32 * const { (Self::ROWS * size_of::<T>()) as u32 };
        let (first, down) = ((first(a), first(b)), (down(a), down(b)));
        let (mut from, mut next) = ([0; MOST], first.0);
        macro_rules! set {
            ($i:literal) => {
                from[$i] = next;
                // one after the other: multiples of `down` would be kept in registers from one tile of the output to the next
                next = if const { $i + 1 == Self::IN_A } {
                    first.1
                } else {
                    sum(next, if const { $i < Self::IN_A } { down.0 } else { down.1 } as u64)
                };
            };
        }
        each_copy!(set);
        let place = operand_offset(ROW, row as usize, chunk as usize * 16);
        Feed { from, down, left: a.cols as i32 - column as i32, place }
    }

    /// Starts part `part` of `parts` of the thread's copies to a stage, of the tiles `S` further on.
    ///
    /// # Safety
    /// The stage is the block's to write; the rows are the windows'.
    #[inline(always)]
    unsafe fn bring<T, const S: usize>(&self, stage: Smem, part: usize, parts: usize) {
        let to = stage.add(self.place);
        let (first, end) = (Self::COPIES * part / parts, Self::COPIES * (part + 1) / parts);
        macro_rules! copy {
            ($i:literal) => {
                if $i >= first && $i < end {
                    let down = if const { $i < Self::IN_A } { self.down.0 } else { self.down.1 };
                    let (row, on) = const { ($i / Self::EACH * Self::EACH, ($i % Self::EACH) as u64) };
                    let from = if on == 0 { self.from[row] } else { sum(self.from[row], down as u64 * on) };
                    // SAFETY: the caller's. B's tile follows on A's.
                    unsafe { copy_16::<T, S, ROW>(to.add($i * Self::ROWS * ROW), from, self.left) };
                }
            };
        }
        each_copy!(copy);
    }

    /// To the tiles `tiles` further on.
    #[inline(always)]
    fn advance<T>(&mut self, tiles: usize) {
        macro_rules! step {
            ($i:literal) => {
                if const { $i % Self::EACH == 0 } {
                    self.from[$i] = sum(self.from[$i], (tiles * ROW) as u64);
                }
            };
        }
        each_copy!(step);
        self.left -= (tiles * const { ROW / size_of::<T>() }) as i32;
    }
}

/// A sum of which the compiler does not know that it is one: it would keep differences of pointers in registers, too.
#[inline(always)]
fn sum(a: u64, b: u64) -> u64 {
    let r: u64;
    // SAFETY: arithmetic on registers.
    unsafe { asm!("add.s64 {0}, {1}, {2};", out(reg64) r, in(reg64) a, in(reg64) b, options(pure, nomem, nostack)) }
    r
}

/// Starts copying 16 bytes from the row `from`, of the tile `S` further on, past L1, if they lie inside; and puts zeros
/// there otherwise.
///
/// # Safety
/// Both addresses are 16-byte aligned; `to` is the caller's; if more than `S` tiles are `left`, the bytes may be read.
#[inline(always)]
unsafe fn copy_16<T, const S: usize, const ROW: usize>(to: Smem, from: u64, left: i32) {
    // SAFETY: the caller's.
    unsafe {
        asm!("{{ .reg .pred p; .reg .b32 s; setp.gt.s32 p, {2}, {4}; selp.b32 s, 16, 0, p;
             cp.async.cg.shared.global [{0}], [{1}+{3}], 16, s; }}",
            in(reg32) to.0, in(reg64) from, in(reg32) left, const S * ROW, const S * ROW / size_of::<T>(), options(nostack))
    }
}

/// `regs += A B^T` over the first `steps` tiles of two rows of tiles.
///
/// # Safety
/// As for [`super::dot::dot_strips`]; the windows are [`plain`], and have no more than `steps` tiles.
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
    const { assert!(STAGES <= 6, "a ring of at most six stages") };
    // The copies are dealt out in parts, one to each 16 of depth; where steps are written out, the first right after the
    // barrier of the step before.
    let unrolled = const { Feed::<M, N, ROW, THREADS>::unrolled(STAGES) };
    let early = unrolled as usize;
    let (stage, parts) = const { ((M + N) * ROW, K / 16 - 1 + Feed::<M, N, ROW, THREADS>::unrolled(STAGES) as usize) };
    let mut feed = Feed::<M, N, ROW, THREADS>::of(a, b);
    // SAFETY: stages are filled once all have read them (the barrier of the step before), and read once filled. Past the
    // last tile nothing is left to read: zeros are put there.
    unsafe {
        let mut s = 0;
        while s < STAGES - 1 {
            feed.bring::<T, 0>(ring.add(s * stage), 0, 1);
            feed.advance::<T>(1);
            commit_copies();
            s += 1;
        }
        await_stage::<STAGES>();
        let lanes = Split::<M, N, THREADS>::lanes(ROW);
        let mut now = load::<Split<M, N, THREADS>, M, K>(ring, lanes, 0);
        if early > 0 {
            feed.bring::<T, 0>(ring.add((STAGES - 1) * stage), 0, parts);
        }
        let mut k = 0;
        // A step that reads the stage `$read`, and fills the one that the step before read.
        macro_rules! step {
            ($tile:literal, $read:expr, $write:expr, $after:expr, $advance:block, $next_tile:expr) => {{
                let (read, write) = ($read, $write);
                let next = load::<Split<M, N, THREADS>, M, K>(read, lanes, 1);
                feed.bring::<T, $tile>(write, early, parts);
                multiply(regs, &now);
                now = next;
                if const { K == 64 } {
                    let next = load::<Split<M, N, THREADS>, M, K>(read, lanes, 2);
                    feed.bring::<T, $tile>(write, early + 1, parts);
                    multiply(regs, &now);
                    let last = load::<Split<M, N, THREADS>, M, K>(read, lanes, 3);
                    feed.bring::<T, $tile>(write, early + 2, parts);
                    multiply(regs, &next);
                    now = last;
                }
                commit_copies();
                await_stage::<STAGES>();
                $advance
                // After the last step these are zeros, and not used.
                let next = load::<Split<M, N, THREADS>, M, K>($after, lanes, 0);
                if early > 0 {
                    feed.bring::<T, { $next_tile }>(read, 0, parts);
                }
                multiply(regs, &now);
                now = next;
                k += 1;
                if k >= steps {
                    break;
                }
            }};
        }
        // A step for each stage.
        macro_rules! steps {
            ($($s:literal)*) => {
                $(if const { $s < STAGES } {
                    let write = ring.add(const { ($s + STAGES - 1) % STAGES } * stage);
                    let after = ring.add(const { ($s + 1) % STAGES } * stage);
                    step!($s, ring.add($s * stage), write, after, {}, $s + 1);
                })*
            };
        }
        if unrolled {
            loop {
                steps!(0 1 2 3 4 5);
                feed.advance::<T>(STAGES);
            }
        } else {
            let (mut read, mut write) = (ring, ring.add((STAGES - 1) * stage));
            let end = ring.add((STAGES - 1) * stage);
            loop {
                let after = if read.0 == end.0 { ring } else { read.add(stage) };
                step!(0, read, write, after, { feed.advance::<T>(1) }, 0);
                (write, read) = (read, after);
            }
        }
    }
    // What began behind the last barrier is in no group yet, and is to be waited for, too.
    commit_copies();
}
