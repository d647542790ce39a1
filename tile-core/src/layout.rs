//! Layouts as pure functions, shared by both backends and tested exhaustively.
//!
//! A device address computed here is the address that the CPU backend uses too, so that a CPU run says something about
//! the device. Sources: PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions" (swizzles,
//! matrix descriptor, register fragments) and "Matrix store instruction: stmatrix".

use crate::tma::SPAN;

/// The 128-byte swizzle on byte offsets from a 1024-byte boundary: bits 4-6 are XORed with bits 7-9.
#[inline(always)]
pub const fn swizzle_128b(offset: usize) -> usize {
    offset ^ (offset >> 7 & 7) << 4
}

/// Byte offset of row `r`, byte `b` of the row, in a shared tile of `rows` rows: slabs of 128-byte rows side by side,
/// each swizzled.
#[inline(always)]
pub const fn tile_offset(rows: usize, r: usize, b: usize) -> usize {
    b / SPAN * rows * SPAN + swizzle_128b(r * SPAN + b % SPAN)
}

/// The matrix descriptor of a K-major operand with 128-byte swizzle at a shared address: stride 1024 between groups of
/// 8 rows, leading dimension unused, swizzle mode 1.
#[inline(always)]
pub const fn k_major_descriptor(address: u32) -> u64 {
    ((address & 0x3_ffff) >> 4) as u64 | 1 << 16 | (1024 >> 4) << 32 | 1 << 62
}

/// The matrix descriptor of an MN-major operand with 128-byte swizzle at a shared address: rows of the tile are the depth
/// of the product, its columns lie in slabs of 64. `slab` is the distance in bytes from one slab to the next (the leading
/// dimension); stride 1024 between groups of 8 rows. A step of 16 in depth is 2048 bytes further.
#[inline(always)]
pub const fn mn_major_descriptor(address: u32, slab: u32) -> u64 {
    ((address & 0x3_ffff) >> 4) as u64 | ((slab >> 4) as u64) << 16 | (1024 >> 4) << 32 | 1 << 62
}

/// Row and depth, within a 64 x 16 left operand of 16-bit elements held in registers, of the lower half of register `i`
/// (0-3) of `thread` (0-127). The upper half is the next in depth.
#[inline(always)]
pub const fn fragment_at(thread: u32, i: u32) -> (u32, u32) {
    let (warp, lane) = (thread / 32, thread % 32);
    (warp * 16 + lane / 4 + i % 2 * 8, lane % 4 * 2 + i / 2 * 8)
}

/// Row and column, within a warpgroup's 64 x N accumulator, of register `i` of `thread` (0-127). Registers 2p and 2p+1
/// are neighbours in a row.
#[inline(always)]
pub const fn accumulator_at(thread: u32, i: u32) -> (u32, u32) {
    let (warp, lane) = (thread / 32, thread % 32);
    let (pair, odd) = (i / 2, i % 2);
    (warp * 16 + lane / 4 + pair % 2 * 8, pair / 2 * 8 + lane % 4 * 2 + odd)
}

/// Byte offset in a warpgroup's 64-row, 128-byte-swizzled store tile at which `thread` points `stmatrix.x4`, for the
/// 16 columns (of 2 bytes) that begin at column `16 * group`.
#[inline(always)]
pub const fn stmatrix_offset(thread: u32, group: u32) -> u32 {
    let (warp, lane) = (thread / 32, thread % 32);
    let row = warp * 16 + lane % 8 + lane / 8 % 2 * 8;
    let column = group * 16 + lane / 16 * 8;
    swizzle_128b((row * SPAN as u32 + column * 2) as usize) as u32
}

/// The 64-byte swizzle on byte offsets from a 512-byte boundary: bits 4-5 are XORed with bits 7-8.
#[inline(always)]
pub const fn swizzle_64b(offset: usize) -> usize {
    offset ^ (offset >> 7 & 3) << 4
}

/// Byte offset of row `r`, byte `b` of the row, in a block's operand tile: rows of 64 or 128 bytes, one after the other,
/// with the swizzle of their width. Eight rows' chunks of one column lie in different banks, and 16 rows further the
/// swizzle is the same: an offset moves there by a constant.
#[inline(always)]
pub const fn operand_offset(row_bytes: usize, r: usize, b: usize) -> usize {
    let offset = r * row_bytes + b;
    if row_bytes == 64 { swizzle_64b(offset) } else { swizzle_128b(offset) }
}

/// Row and 16-byte chunk at which `lane` points `ldmatrix.x4`, for a left operand of 16 rows x 16 two-byte columns.
#[inline(always)]
pub const fn ldmatrix_a(lane: u32) -> (u32, u32) {
    (lane % 16, lane / 16)
}

/// The same for a right operand of 16 rows (two products' columns) x 16 two-byte columns: registers 0 and 1 belong to
/// the first eight rows, 2 and 3 to the others.
#[inline(always)]
pub const fn ldmatrix_b(lane: u32) -> (u32, u32) {
    (lane % 8 + lane / 16 * 8, lane / 8 % 2)
}

/// Row and column, within a 16 x 8 product of `mma.sync`, of register `i` of `lane`.
#[inline(always)]
pub const fn mma_d(lane: u32, i: u32) -> (u32, u32) {
    (lane / 4 + i / 2 * 8, lane % 4 * 2 + i % 2)
}

mod sealed {
    pub trait Sealed {}
}

/// How many adjacent elements a thread holds in one piece.
pub struct Chunk<const LEN: usize>;
/// Sealed: every [`Chunk`].
pub trait Chunks: sealed::Sealed + 'static {
    /// How many.
    #[doc(hidden)]
    const LEN: usize;
}
impl<const LEN: usize> sealed::Sealed for Chunk<LEN> {}
impl<const LEN: usize> Chunks for Chunk<LEN> {
    const LEN: usize = LEN;
}

/// The most elements of a register tile that one thread can hold.
pub const MOST_PER_THREAD: usize = 64;

/// How the elements of an `M` x `N` register tile are spread over the threads of a block: a bijection between
/// (thread, register) and (row, column), in which runs of [`CHUNK`](Self::CHUNK) registers are adjacent columns. Sealed.
pub trait Layout<const M: usize, const N: usize>: sealed::Sealed + 'static {
    /// Threads of the block.
    #[doc(hidden)]
    const THREADS: usize;
    /// Elements of a thread.
    #[doc(hidden)]
    const PER_THREAD: usize;
    /// Adjacent ones.
    #[doc(hidden)]
    const CHUNK: usize;
    /// Distinguishes layouts of one shape.
    #[doc(hidden)]
    const ID: usize;
    /// A block has a short piece of each of many rows, and its neighbours what lies beside it.
    #[doc(hidden)]
    const NARROW: bool;
    /// Row and column of register 0 of thread `t`. The column is a multiple of `CHUNK`.
    #[doc(hidden)]
    fn first(t: u32) -> (u32, u32);
    /// How far register `i` is from register 0, in rows and columns: the same in every thread.
    #[doc(hidden)]
    fn step(i: u32) -> (u32, u32);
    /// Row and column of register `i` of thread `t`.
    #[doc(hidden)]
    #[inline(always)]
    fn at(t: u32, i: u32) -> (u32, u32) {
        let ((row, column), (down, across)) = (Self::first(t), Self::step(i));
        (row + down, column + across)
    }
}

/// A layout for blocks of `THREADS` threads. Sealed.
#[diagnostic::on_unimplemented(
    message = "a tile that is spread over another number of threads than this block has",
    note = "a tile belongs to blocks of the size of the one that loaded it"
)]
pub trait Over<const THREADS: usize>: sealed::Sealed {}

/// Every row belongs to `THREADS / M` adjacent threads; neighbours hold neighbouring chunks, so that they read and
/// write memory together. Made for reductions along rows.
pub struct ByRows<const THREADS: usize, C>(core::marker::PhantomData<C>);

impl<const THREADS: usize, C: Chunks> sealed::Sealed for ByRows<THREADS, C> {}
impl<const THREADS: usize, C: Chunks> Over<THREADS> for ByRows<THREADS, C> {}
impl<const THREADS: usize, C: Chunks> ByRows<THREADS, C> {
    /// Threads of one row.
    pub(crate) const fn threads_of_row(m: usize) -> usize {
        assert!(m > 0 && THREADS % m == 0, "a block's threads are shared out evenly among the rows of a tile");
        let r = THREADS / m;
        assert!(r % 32 == 0 || 32 % r == 0, "a row of a tile belongs to whole warps, or several rows share one evenly");
        r
    }
}
impl<const THREADS: usize, C: Chunks, const M: usize, const N: usize> Layout<M, N> for ByRows<THREADS, C> {
    const THREADS: usize = THREADS;
    const PER_THREAD: usize = {
        assert!(
            N % (Self::threads_of_row(M) * C::LEN) == 0,
            "a tile's width is a multiple of what the threads of a row hold at once: 16 bytes each"
        );
        assert!(M * N / THREADS <= MOST_PER_THREAD, "a thread holds at most 64 elements of a tile");
        M * N / THREADS
    };
    const CHUNK: usize = C::LEN;
    const ID: usize = C::LEN;
    const NARROW: bool = false;
    #[inline(always)]
    fn first(t: u32) -> (u32, u32) {
        if M == 1 {
            return (0, t * C::LEN as u32);
        }
        let r = const { Self::threads_of_row(M) as u32 };
        (t / r, t % r * C::LEN as u32)
    }
    #[inline(always)]
    fn step(i: u32) -> (u32, u32) {
        let (r, c) = (const { Self::threads_of_row(M) as u32 }, const { C::LEN as u32 });
        (0, i / c * (r * c) + i % c)
    }
}

/// Threads run along the columns first: `N / CHUNK` of them hold a row's chunks, and the next as many the next row.
/// Made for reductions over rows, where the reduced dimension is the strided one.
pub struct ByColumns<const THREADS: usize, C>(core::marker::PhantomData<C>);

impl<const THREADS: usize, C: Chunks> sealed::Sealed for ByColumns<THREADS, C> {}
impl<const THREADS: usize, C: Chunks> Over<THREADS> for ByColumns<THREADS, C> {}
impl<const THREADS: usize, C: Chunks, const M: usize, const N: usize> Layout<M, N> for ByColumns<THREADS, C> {
    const THREADS: usize = THREADS;
    const PER_THREAD: usize = {
        assert!(
            N % C::LEN == 0 && 32 % (N / C::LEN) == 0,
            "the chunks of a row, 16 bytes each, are shared out evenly within a warp"
        );
        assert!(M % (THREADS / (N / C::LEN)) == 0, "a tile's rows are shared out evenly among the block's threads");
        assert!(M * N / THREADS <= MOST_PER_THREAD, "a thread holds at most 64 elements of a tile");
        M * N / THREADS
    };
    const CHUNK: usize = C::LEN;
    const ID: usize = C::LEN | 1 << 8;
    const NARROW: bool = true;
    #[inline(always)]
    fn first(t: u32) -> (u32, u32) {
        let across = const { (N / C::LEN) as u32 };
        (t / across, t % across * C::LEN as u32)
    }
    #[inline(always)]
    fn step(i: u32) -> (u32, u32) {
        let (across, c) = (const { (N / C::LEN) as u32 }, const { C::LEN as u32 });
        (i / c * (THREADS as u32 / across), i % c)
    }
}

#[cfg(all(test, not(target_arch = "nvptx64")))]
mod tests {
    use super::*;
    use std::{vec, vec::Vec};

    #[test]
    fn the_swizzle_is_injective_and_keeps_rows_and_16_byte_chunks_together() {
        for rows in [8, 64, 128, 256] {
            let mut seen = vec![false; rows * SPAN * 2];
            for r in 0..rows {
                for b in 0..2 * SPAN {
                    let at = tile_offset(rows, r, b);
                    assert!(!core::mem::replace(&mut seen[at], true));
                    assert_eq!(at % (rows * SPAN) / SPAN, r);
                    assert_eq!(at % 16, b % 16);
                }
            }
            assert!(seen.iter().all(|&s| s));
        }
    }

    #[test]
    fn eight_rows_of_one_column_lie_in_eight_different_chunks() {
        for chunk in 0..8 {
            let mut banks: Vec<_> = (0..8).map(|r| tile_offset(64, r, chunk * 16) % SPAN / 16).collect();
            banks.sort();
            assert_eq!(banks, (0..8).collect::<Vec<_>>());
        }
    }

    #[test]
    fn accumulator_fragments_cover_the_tile_once() {
        for n in [8u32, 64, 256] {
            let mut seen = vec![0; (64 * n) as usize];
            for t in 0..128 {
                for i in 0..n / 2 {
                    let (r, c) = accumulator_at(t, i);
                    seen[(r * n + c) as usize] += 1;
                }
            }
            assert!(seen.iter().all(|&s| s == 1));
        }
        // the table of the PTX ISA (figure of the D fragment): thread 5 of warp 1, registers 0..6
        let at: Vec<_> = (0..6).map(|i| accumulator_at(37, i)).collect();
        assert_eq!(at, [(17, 2), (17, 3), (25, 2), (25, 3), (17, 10), (17, 11)]);
    }

    /// stmatrix.x4: lane q*8+i points at row i of matrix q; register q of lane l holds row l/4, columns 2(l%4), +1 of
    /// matrix q. Registers q = pair 4g.. of the accumulator must land where `accumulator_at` says.
    #[test]
    fn stmatrix_puts_accumulators_where_their_coordinates_say() {
        for group in 0..4u32 {
            for thread in 0..128u32 {
                let (warp, lane) = (thread / 32, thread % 32);
                for q in 0..4u32 {
                    let pointer = warp * 32 + q * 8 + lane / 4;
                    let stored = stmatrix_offset(pointer, group) as usize;
                    let row_base = stored;
                    let (r, c) = accumulator_at(thread, (group * 4 + q) * 2);
                    let want = tile_offset(64, r as usize, c as usize * 2);
                    assert_eq!(row_base + (lane % 4 * 4) as usize, want, "group {group} thread {thread} matrix {q}");
                }
            }
        }
    }

    /// Registers 8s + 2i and 8s + 2i + 1 of an accumulator, packed, are register i of step s of a left operand.
    #[test]
    fn an_accumulator_is_a_left_operand_without_moving() {
        for thread in 0..128 {
            for step in 0..16 {
                for i in 0..4 {
                    let (row, depth) = fragment_at(thread, i);
                    let low = accumulator_at(thread, 8 * step + 2 * i);
                    let high = accumulator_at(thread, 8 * step + 2 * i + 1);
                    assert_eq!(low, (row, 16 * step + depth));
                    assert_eq!(high, (row, 16 * step + depth + 1));
                }
            }
        }
        // the table of the PTX ISA (figure of the A fragment for 16-bit types): thread 37
        let at: Vec<_> = (0..4).map(|i| fragment_at(37, i)).collect();
        assert_eq!(at, [(17, 2), (25, 2), (17, 10), (25, 10)]);
    }

    #[test]
    fn left_fragments_cover_the_operand_once() {
        let mut seen = vec![0; 64 * 16];
        for t in 0..128 {
            for i in 0..4 {
                let (r, k) = fragment_at(t, i);
                seen[(r * 16 + k) as usize] += 1;
                seen[(r * 16 + k + 1) as usize] += 1;
            }
        }
        assert!(seen.iter().all(|&s| s == 1));
    }

    /// What the tensor cores make of a descriptor, after the ISA's canonical layouts: the byte of element (mn, k), in units
    /// from the start address, before the swizzle acts on the sum.
    fn canonical(descriptor: u64, mn_major: bool, mn: usize, k: usize) -> usize {
        let field = |bit: u32| ((descriptor >> bit & 0x3fff) << 4) as usize;
        let (start, leading, stride) = (field(0), field(16), field(32));
        let plain = if mn_major {
            start + mn / 64 * leading + k / 8 * stride + k % 8 * SPAN + mn % 64 * 2
        } else {
            start + mn / 8 * stride + mn % 8 * SPAN + k * 2
        };
        swizzle_128b(plain)
    }

    #[test]
    fn descriptors_find_every_element_of_a_tile() {
        // K-major: tile rows are the operand's width, columns the depth, 64 to a slab, 16 to a step
        for rows in [64usize, 128, 256] {
            for slab in 0..9 {
                let first = k_major_descriptor((slab * rows * SPAN) as u32);
                for step in 0..4 {
                    for (r, k) in (0..rows).flat_map(|r| (0..16).map(move |k| (r, k))) {
                        let want = tile_offset(rows, r, (slab * 64 + step * 16 + k) * 2);
                        // the address field has 18 bits: compare modulo that
                        assert_eq!(canonical(first + 2 * step as u64, false, r, k), want % (1 << 18));
                    }
                }
            }
        }
        // MN-major: tile columns are the operand's width (V: 256 of them from column 0 or 256), rows the depth
        for rows in [64usize, 128] {
            for from in [0usize, 256] {
                let address = from / 64 * rows * SPAN;
                for step in 0..rows / 16 {
                    let d = mn_major_descriptor((address + step * 2048) as u32, (rows * SPAN) as u32);
                    assert_eq!(d, mn_major_descriptor(address as u32, (rows * SPAN) as u32) + 128 * step as u64);
                    for (n, k) in (0..256).flat_map(|n| (0..16).map(move |k| (n, k))) {
                        let want = tile_offset(rows, step * 16 + k, (from + n) * 2);
                        assert_eq!(canonical(d, true, n, k), want);
                    }
                }
            }
        }
    }

    #[test]
    fn descriptor_fields_lie_where_the_isa_puts_them() {
        let d = k_major_descriptor(0x1_2400);
        assert_eq!(d & 0x3fff, 0x1240);
        assert_eq!(d >> 16 & 0x3fff, 1);
        assert_eq!(d >> 32 & 0x3fff, 64);
        assert_eq!(d >> 62, 1);
        // one k-step of 16 two-byte elements is 32 bytes: 2 units
        assert_eq!(k_major_descriptor(0x1_2420) - d, 2);
    }

    #[test]
    fn operand_tiles_are_swizzled_injectively_and_without_bank_conflicts() {
        for row_bytes in [64, 128] {
            let mut seen = vec![false; 256 * row_bytes];
            for r in 0..256 {
                for b in 0..row_bytes {
                    let at = operand_offset(row_bytes, r, b);
                    assert!(!core::mem::replace(&mut seen[at], true));
                    assert_eq!(at % 16, b % 16);
                    assert_eq!(operand_offset(row_bytes, r + 16, b), at + 16 * row_bytes);
                    // a later chunk of the same row is an XOR away
                    assert_eq!(operand_offset(row_bytes, r, b % 16) ^ (b / 16 * 16), at);
                }
            }
            assert!(seen.iter().all(|&s| s));
            for r in (0..64).step_by(8) {
                for chunk in 0..row_bytes / 16 {
                    let mut banks: Vec<_> =
                        (r..r + 8).map(|r| operand_offset(row_bytes, r, chunk * 16) % 128 / 16).collect();
                    banks.sort();
                    assert_eq!(banks, (0..8).collect::<Vec<_>>());
                }
            }
        }
    }

    /// ldmatrix.x4: lane 8q+i points at row i of matrix q; register q of a lane holds row lane/4, columns 2(lane%4), +1
    /// of matrix q. The PTX ISA's table for m16n8k16, with g = lane/4, c = lane%4: A's registers are (g, 2c),
    /// (g+8, 2c), (g, 2c+8), (g+8, 2c+8); B's are (k 2c, n g), (k 2c+8, n g).
    #[test]
    fn ldmatrix_gives_the_fragments_of_the_isa() {
        for lane in 0..32 {
            let (g, c) = (lane / 4, lane % 4);
            let a = [(g, 2 * c), (g + 8, 2 * c), (g, 2 * c + 8), (g + 8, 2 * c + 8)];
            let b = [(g, 2 * c), (g, 2 * c + 8), (g + 8, 2 * c), (g + 8, 2 * c + 8)];
            for q in 0..4u32 {
                let (row, chunk) = ldmatrix_a(q * 8 + g);
                assert_eq!((row, chunk * 8 + 2 * c), a[q as usize], "A, lane {lane}, register {q}");
                let (row, chunk) = ldmatrix_b(q * 8 + g);
                assert_eq!((row, chunk * 8 + 2 * c), b[q as usize], "B, lane {lane}, register {q}");
            }
        }
    }

    #[test]
    fn products_cover_their_tile_as_the_isa_says() {
        let mut seen = [0; 128];
        for lane in 0..32 {
            let (g, c) = (lane / 4, lane % 4);
            let d = [(g, 2 * c), (g, 2 * c + 1), (g + 8, 2 * c), (g + 8, 2 * c + 1)];
            for i in 0..4 {
                assert_eq!(mma_d(lane, i), d[i as usize]);
                let (r, c) = mma_d(lane, i);
                seen[(r * 8 + c) as usize] += 1;
            }
        }
        assert!(seen.iter().all(|&s| s == 1));
    }

    fn spread_is_a_bijection<const M: usize, const N: usize, L: Layout<M, N>>() {
        let mut seen = std::vec![0u32; M * N];
        for t in 0..L::THREADS as u32 {
            for i in 0..L::PER_THREAD as u32 {
                let (row, column) = L::at(t, i);
                seen[row as usize * N + column as usize] += 1;
                let (row0, column0) = L::at(t, i / L::CHUNK as u32 * L::CHUNK as u32);
                assert_eq!((row, column), (row0, column0 + i % L::CHUNK as u32), "a chunk is adjacent");
            }
        }
        assert!(seen.iter().all(|&n| n == 1));
    }

    #[test]
    fn register_tiles_are_spread_by_bijections() {
        spread_is_a_bijection::<1, 4096, ByRows<256, Chunk<8>>>();
        spread_is_a_bijection::<1, 8192, ByRows<512, Chunk<4>>>();
        spread_is_a_bijection::<8, 256, ByRows<256, Chunk<8>>>();
        spread_is_a_bijection::<64, 64, ByRows<256, Chunk<4>>>();
        spread_is_a_bijection::<2, 1536, ByRows<192, Chunk<16>>>();
        spread_is_a_bijection::<256, 32, ByColumns<256, Chunk<8>>>();
        spread_is_a_bijection::<128, 64, ByColumns<256, Chunk<4>>>();
    }
}
