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
                    let stored = stmatrix_offset(pointer, group) as usize ^ 0;
                    let row_base = stored;
                    let (r, c) = accumulator_at(thread, (group * 4 + q) * 2);
                    let want = tile_offset(64, r as usize, c as usize * 2);
                    assert_eq!(row_base + (lane % 4 * 4) as usize, want, "group {group} thread {thread} matrix {q}");
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
}
