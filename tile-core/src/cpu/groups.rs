//! Groups of adjacent columns, on the CPU.

use super::tile::{PerLine, Spread};
use crate::element::{Element, Value};
use crate::layout::Chunks;
use crate::tile::{Fold, Greatest};
use crate::view::Window;

/// The greatest value of each group of `G` columns, in place of every one of it.
pub(crate) fn group_max<V: Value, const THREADS: usize, C: Chunks, const M: usize, const N: usize, const G: usize>(
    values: &Spread<V>,
) -> Spread<V> {
    let most = |group: &[V]| group.iter().fold(V::LEAST, |a, &b| Greatest::join(a, b));
    Spread(values.0.chunks(G).flat_map(|group| core::iter::repeat_n(most(group), G)).collect())
}

/// Writes a value for each row.
///
/// # Safety
/// The window is the block's alone.
pub(crate) unsafe fn store_rows_of<T: Element, const THREADS: usize, C: Chunks, const M: usize>(
    w: &Window<T>,
    values: &PerLine<T::Value>,
) {
    for r in 0..if w.cols > 0 { w.rows as usize } else { 0 } {
        // SAFETY: inside the window.
        unsafe { w.ptr.add(r * w.stride as usize).write(T::from_value(values.0[r])) }
    }
}

/// Writes the first value of each group.
///
/// # Safety
/// As above.
pub(crate) unsafe fn store_groups<
    T: Element,
    const THREADS: usize,
    C: Chunks,
    const M: usize,
    const N: usize,
    const G: usize,
>(
    w: &Window<T>,
    values: &Spread<T::Value>,
) {
    for r in 0..w.rows as usize {
        for c in 0..w.cols as usize {
            // SAFETY: inside the window.
            unsafe { w.ptr.add(r * w.stride as usize + c).write(T::from_value(values.0[r * N + c * G])) }
        }
    }
}
