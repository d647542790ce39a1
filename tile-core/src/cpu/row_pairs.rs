//! Reductions of rows to two values, on the CPU: one after the other.

use super::Smem;
use super::math::exp2;
use super::tile::{PerLine, Words, fold_columns, fold_words};
use crate::element::Element;
use crate::layout::{ByColumns, Chunks};
use crate::tile::{Greatest, Sum};

/// The mean of each row, and the sum of the squares of the differences from it.
///
/// # Safety
/// None here; on the device, by the whole block.
pub(crate) unsafe fn fold_moments<
    T: Element<Value = f32>,
    const THREADS: usize,
    C: Chunks,
    const M: usize,
    const N: usize,
>(
    scratch: &mut Smem,
    words: &Words<T>,
    _zero: bool,
    cols: u32,
) -> (PerLine<f32>, PerLine<f32>) {
    let none = PerLine::splat(0u32, M);
    // SAFETY: the caller's.
    let sum = unsafe { fold_words::<Sum, T, u32, f32, THREADS, C, M, N>(scratch, words, &none, false, cols, |x, _| x) };
    let mean = sum.map(|sum| sum / cols as f32);
    // SAFETY: the caller's.
    let spread = unsafe {
        fold_words::<Sum, T, f32, f32, THREADS, C, M, N>(scratch, words, &mean, false, cols, |x, mean| {
            (x - mean) * (x - mean)
        })
    };
    (mean, spread)
}

/// The greatest value of each row, and the sum of the powers of two of the differences from it, times `factor`.
///
/// # Safety
/// None here; on the device, by the whole block.
pub(crate) unsafe fn fold_powers<
    T: Element<Value = f32>,
    const THREADS: usize,
    C: Chunks,
    const M: usize,
    const N: usize,
>(
    scratch: &mut Smem,
    words: &Words<T>,
    cols: u32,
    factor: f32,
) -> (PerLine<f32>, PerLine<f32>) {
    let none = PerLine::splat(0u32, M);
    // SAFETY: the caller's.
    let greatest =
        unsafe { fold_words::<Greatest, T, u32, f32, THREADS, C, M, N>(scratch, words, &none, false, cols, |x, _| x) };
    // SAFETY: the caller's.
    let sum = unsafe {
        fold_words::<Sum, T, f32, f32, THREADS, C, M, N>(scratch, words, &greatest, false, cols, |x, greatest| {
            exp2((x - greatest) * factor)
        })
    };
    (greatest, sum)
}

/// The sum of the squares of each row.
///
/// # Safety
/// None here; on the device, by the whole block.
pub(crate) unsafe fn fold_squares<
    T: Element<Value = f32>,
    const THREADS: usize,
    C: Chunks,
    const M: usize,
    const N: usize,
>(
    scratch: &mut Smem,
    words: &Words<T>,
) -> PerLine<f32> {
    let none = PerLine::splat(0u32, M);
    // SAFETY: the caller's.
    unsafe { fold_words::<Sum, T, u32, f32, THREADS, C, M, N>(scratch, words, &none, true, N as u32, |x, _| x * x) }
}

/// The sum of the squares of each column.
///
/// # Safety
/// As above.
pub(crate) unsafe fn fold_column_squares<
    T: Element<Value = f32>,
    const THREADS: usize,
    C: Chunks,
    const M: usize,
    const N: usize,
>(
    mut scratch: Smem,
    words: &Words<T>,
    rows: u32,
) -> PerLine<f32> {
    let squares = words.spread().map::<f32, ByColumns<THREADS, C>, M, N>(|x| x * x);
    // SAFETY: the caller's.
    unsafe { fold_columns::<Sum, f32, THREADS, C, M, N>(&mut scratch, &squares, rows) }
}
