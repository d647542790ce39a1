//! What accumulators meet before they are stored, on the CPU.

use super::{Pack16, RowValues, Wgmma, Width};
use crate::element::{Element, bf16, f16};
use crate::epilogue::Source;
use crate::view::Window;

/// Elements that accumulators are combined with, rounded to and stored as, one by one.
pub trait AccElement: Element<Value = f32> {}
impl AccElement for f32 {}
impl AccElement for f16 {}
impl AccElement for bf16 {}

/// `f(element, element of the source in the same place)` of 64 rows; `first` is the first one's number in the source.
///
/// # Safety
/// What is inside the source can be read.
pub(crate) unsafe fn zip<U: AccElement, const N: usize>(
    s: &Source<U>,
    first: u32,
    regs: <Width<N> as Wgmma>::Regs,
    f: impl Fn(f32, f32) -> f32,
) -> <Width<N> as Wgmma>::Regs
where
    Width<N>: Wgmma,
{
    Width::<N>::map(regs, |row, col, x| {
        let row = row + first;
        if row >= s.rows || col >= s.cols {
            return f(x, 0.0);
        }
        let p = s.ptr.wrapping_add(row as usize * s.row_step + col as usize * s.col_step);
        // SAFETY: inside the source.
        f(x, unsafe { p.read() }.to_value())
    })
}

/// The elements of a row as an accumulator's columns have them, in every row.
///
/// # Safety
/// What is inside the window can be read.
pub(crate) unsafe fn fetch_columns<T: Pack16, const N: usize>(w: &Window<T>) -> <Width<N> as Wgmma>::Packed
where
    Width<N>: Wgmma,
{
    let cols = if w.rows > 0 { w.cols as usize } else { 0 };
    // SAFETY: inside the window.
    let at = |c: usize| if c < cols { unsafe { w.ptr.add(c).read() }.to_value() } else { 0.0 };
    Width::<N>::packed((0..64 * N).map(|i| at(i % N)).collect())
}

/// The elements of a row as an accumulator's rows have them.
///
/// # Safety
/// As for [`fetch_columns`].
pub(crate) unsafe fn fetch_rows<T: Pack16>(w: &Window<T>) -> RowValues {
    let cols = if w.rows > 0 { w.cols as usize } else { 0 };
    // SAFETY: inside the window.
    core::array::from_fn(|r| if r < cols { unsafe { w.ptr.add(r).read() }.to_value() } else { 0.0 })
}

/// The elements of a column as an accumulator's rows have them.
///
/// # Safety
/// The window is readable.
pub(crate) unsafe fn fetch_column(w: &Window<f32>) -> RowValues {
    let rows = if w.cols > 0 { w.rows as usize } else { 0 };
    // SAFETY: inside the window.
    core::array::from_fn(|r| if r < rows { unsafe { w.ptr.add(r * w.stride as usize).read() } } else { 0.0 })
}

/// The elements of the transposed window as an accumulator has them, of the column groups of 8 whose number is `rank`
/// modulo `SPLIT`; the others are zero.
///
/// # Safety
/// As for [`fetch_columns`].
pub(crate) unsafe fn fetch_transposed<T: Pack16, const N: usize, const SPLIT: usize>(
    w: &Window<T>,
    rank: u32,
) -> <Width<N> as Wgmma>::Packed
where
    Width<N>: Wgmma,
{
    let at = |r: usize, c: usize| {
        if r >= w.cols as usize || c >= w.rows as usize || c / 8 % SPLIT != rank as usize {
            return 0.0;
        }
        // SAFETY: inside the window.
        unsafe { w.ptr.add(c * w.stride as usize + r).read() }.to_value()
    };
    Width::<N>::packed((0..64 * N).map(|i| at(i / N, i % N)).collect())
}

/// `f(element, element of the packed ones in the same place)` of 64 rows.
pub(crate) fn zip_packed<T: Pack16, const N: usize>(
    regs: <Width<N> as Wgmma>::Regs,
    packed: &<Width<N> as Wgmma>::Packed,
    f: impl Fn(f32, f32) -> f32,
) -> <Width<N> as Wgmma>::Regs
where
    Width<N>: Wgmma,
{
    let packed = packed.as_ref();
    Width::<N>::map(regs, |row, col, x| f(x, packed[row as usize * N + col as usize]))
}
