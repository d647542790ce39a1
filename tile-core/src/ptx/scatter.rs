//! Rows written where a list says, by relaxed stores (PTX ISA, "Memory Consistency Model": such stores may meet).

use core::arch::asm;

use super::sync::tid;
use super::tile::{Piece, Words, each, upto_16};
use crate::element::Element;
use crate::layout::Layout;

/// # Safety
/// 16 bytes there are accessed by relaxed stores alone; aligned.
#[inline(always)]
unsafe fn store_16(to: u64, [x, y, z, w]: [u32; 4]) {
    // SAFETY: the caller's.
    unsafe {
        asm!("st.relaxed.gpu.global.v4.b32 [{0}], {{{1}, {2}, {3}, {4}}};",
            in(reg64) to, in(reg32) x, in(reg32) y, in(reg32) z, in(reg32) w, options(nostack))
    }
}

/// Writes element `k` of a piece.
///
/// # Safety
/// The element is accessed by relaxed stores alone.
#[inline(always)]
unsafe fn store_one<T>(to: u64, words: [u32; 4], k: usize) {
    let to = to + (k * size_of::<T>()) as u64;
    let bits = words[k * size_of::<T>() / 4] >> (k * size_of::<T>() % 4 * 8);
    // SAFETY: the caller's.
    unsafe {
        match size_of::<T>() {
            4 => asm!("st.relaxed.gpu.global.b32 [{0}], {1};", in(reg64) to, in(reg32) bits, options(nostack)),
            2 => asm!("st.relaxed.gpu.global.b16 [{0}], {1};", in(reg64) to, in(reg16) bits as u16, options(nostack)),
            _ => asm!("st.relaxed.gpu.global.b8 [{0}], {1};", in(reg64) to, in(reg16) bits as u16, options(nostack)),
        }
    }
}

/// Writes row `r` of a tile, of which `rows` are inside, to `place(r)`, if it has one.
///
/// # Safety
/// A place has room for `N` elements, which are accessed by relaxed stores alone, all of them of one width: `aligned`
/// says whether all places are multiples of 16 bytes, and is the same for all.
#[inline(always)]
pub(crate) unsafe fn scatter_words<T: Element, L: Layout<M, N>, const M: usize, const N: usize>(
    words: &Words<T>,
    rows: u32,
    aligned: bool,
    place: impl Fn(u32) -> Option<*mut T>,
) {
    const { assert!(L::PER_THREAD == 0 || L::CHUNK * size_of::<T>() == 16, "pieces of 16 bytes") };
    let (row, column) = L::first(tid());
    if row >= rows {
        return;
    }
    let Some(place) = place(row) else { return };
    let in_piece = const { Piece::<T, L, M, N>::ELEMENTS };
    let write = #[inline(always)]
    |q: usize| {
        let column = column + L::step((q * in_piece) as u32).1;
        let to = place.wrapping_add(column as usize) as u64;
        let words = words.0[q];
        // SAFETY: inside the row.
        unsafe {
            if aligned {
                store_16(to, words);
            } else {
                let mut k = 0;
                while k < in_piece {
                    store_one::<T>(to, words, k);
                    k += 1;
                }
            }
        }
    };
    upto_16!(each, write, Piece::<T, L, M, N>::COUNT);
}
