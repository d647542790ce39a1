//! Rows written where a list says, by relaxed atomic stores: blocks run side by side, and may write one row.

use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, Ordering};

use super::tile::Words;
use crate::element::Element;
use crate::layout::Layout;

/// Writes row `r` of a tile, of which `rows` are inside, to `place(r)`, if it has one.
///
/// # Safety
/// A place has room for `N` elements, which are accessed by relaxed stores of an element alone.
pub(crate) unsafe fn scatter_words<T: Element, L: Layout<M, N>, const M: usize, const N: usize>(
    words: &Words<T>,
    rows: u32,
    _: bool,
    place: impl Fn(u32) -> Option<*mut T>,
) {
    const { assert!(L::PER_THREAD == 0 || L::CHUNK * size_of::<T>() == 16, "pieces of 16 bytes") };
    for r in 0..rows as usize {
        let Some(to) = place(r as u32) else { continue };
        for c in 0..N {
            let element = T::from_value(words.0[r * N + c]);
            let bytes = bytemuck::bytes_of(&element);
            let to = to.wrapping_add(c);
            // SAFETY: inside the row; aligned for an element, and atomics are no more than elements of their size.
            unsafe {
                match *bytes {
                    [a] => (*to.cast::<AtomicU8>()).store(a, Ordering::Relaxed),
                    [a, b] => (*to.cast::<AtomicU16>()).store(u16::from_ne_bytes([a, b]), Ordering::Relaxed),
                    [a, b, c, d] => {
                        (*to.cast::<AtomicU32>()).store(u32::from_ne_bytes([a, b, c, d]), Ordering::Relaxed)
                    }
                    _ => {}
                }
            }
        }
    }
}
