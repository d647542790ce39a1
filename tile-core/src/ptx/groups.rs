//! Groups of adjacent columns, on the device.

use super::access::bits;
use super::fold::join_across;
use super::sync::tid;
use super::tile::{PerLine, Spread};
use crate::element::{Element, Value};
use crate::layout::{ByRows, Chunks, Layout};
use crate::row_pairs::below;
use crate::tile::{Fold, Greatest};
use crate::view::Window;

/// The greatest value of each group of `G` columns, in place of every one of it.
#[inline(always)]
pub(crate) fn group_max<V: Value, const THREADS: usize, C: Chunks, const M: usize, const N: usize, const G: usize>(
    values: &Spread<V>,
) -> Spread<V> {
    let lanes = const { G / C::LEN };
    let mut most = [V::LEAST; 16];
    let mut piece = #[inline(always)]
    |q: usize| {
        let mut s = values.0[q * C::LEN];
        let mut each = #[inline(always)]
        |k: usize| {
            if k > 0 {
                s = Greatest::join(s, values.0[q * C::LEN + k]);
            }
        };
        below!(each, C::LEN);
        if lanes > 16 {
            s = join_across::<Greatest, V>(s, 16);
        }
        if lanes > 8 {
            s = join_across::<Greatest, V>(s, 8);
        }
        if lanes > 4 {
            s = join_across::<Greatest, V>(s, 4);
        }
        if lanes > 2 {
            s = join_across::<Greatest, V>(s, 2);
        }
        if lanes > 1 {
            s = join_across::<Greatest, V>(s, 1);
        }
        most[q] = s;
    };
    below!(piece, <ByRows<THREADS, C> as Layout<M, N>>::PER_THREAD / C::LEN);
    Spread::<V>::of::<ByRows<THREADS, C>, M, N>(
        #[inline(always)]
        |i| most[i / C::LEN],
    )
}

/// # Safety
/// If inside, the element is the thread's to write.
#[inline(always)]
unsafe fn store_one<T: Element>(w: &Window<T>, row: u32, col: u32, value: T::Value) {
    if row < w.rows && col < w.cols {
        let to = w.ptr.wrapping_add((row as u64 * w.stride) as usize).wrapping_add(col as usize);
        // SAFETY: the caller's; the low bytes are the element's.
        unsafe {
            match size_of::<T>() {
                4 => to.cast::<u32>().write(bits::<T>(value)),
                2 => to.cast::<u16>().write(bits::<T>(value) as u16),
                _ => to.cast::<u8>().write(bits::<T>(value) as u8),
            }
        }
    }
}

/// Writes a value for each row.
///
/// # Safety
/// The window is the block's alone.
#[inline(always)]
pub(crate) unsafe fn store_rows_of<T: Element, const THREADS: usize, C: Chunks, const M: usize>(
    w: &Window<T>,
    values: &PerLine<T::Value>,
) {
    let threads = const { ByRows::<THREADS, C>::threads_of_row(M) as u32 };
    let t = tid();
    if t % threads == 0 {
        // SAFETY: the first thread of a row writes it.
        unsafe { store_one(w, t / threads, 0, values.0[0]) }
    }
}

/// Writes the first value of each group.
///
/// # Safety
/// As above.
#[inline(always)]
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
    let (row, col) = <ByRows<THREADS, C> as Layout<M, N>>::first(tid());
    if col % G as u32 != 0 {
        return;
    }
    let piece = #[inline(always)]
    |q: usize| {
        let across = <ByRows<THREADS, C> as Layout<M, N>>::step((q * C::LEN) as u32).1;
        // SAFETY: the first thread of a group writes it.
        unsafe { store_one(w, row, (col + across) / G as u32, values.0[q * C::LEN]) }
    };
    below!(piece, <ByRows<THREADS, C> as Layout<M, N>>::PER_THREAD / C::LEN);
}
