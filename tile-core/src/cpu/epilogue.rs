//! What accumulators meet before they are stored, on the CPU.

use super::{Wgmma, Width};
use crate::element::{Element, bf16, f16};
use crate::epilogue::Source;

/// Elements that accumulators are combined with, rounded to and stored as, one by one.
pub trait AccElement: Element<Value = f32> {}
impl AccElement for f32 {}
impl AccElement for f16 {}
impl AccElement for bf16 {}

/// `f(element, element of the source in the same place)` of 64 rows; `first` is the first one's number in the source.
/// Of the column groups of 8 only those are read whose number is `rank` modulo `SPLIT`; the others count as zero.
///
/// # Safety
/// What is inside the source can be read.
pub(crate) unsafe fn zip<U: AccElement, const N: usize, const SPLIT: usize>(
    s: &Source<U>,
    first: u32,
    rank: u32,
    regs: <Width<N> as Wgmma>::Regs,
    f: impl Fn(f32, f32) -> f32,
) -> <Width<N> as Wgmma>::Regs
where
    Width<N>: Wgmma,
{
    Width::<N>::map(regs, |row, col, x| {
        let row = row + first;
        if row >= s.rows || col >= s.cols || col / 8 % SPLIT as u32 != rank {
            return f(x, 0.0);
        }
        let p = s.ptr.wrapping_add(row as usize * s.row_step + col as usize * s.col_step);
        // SAFETY: inside the source.
        f(x, unsafe { p.read() }.to_value())
    })
}
