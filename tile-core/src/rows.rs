//! One `f32` for each row of a warpgroup's accumulator: what row reductions give and row-wise maps take.

use core::marker::PhantomData;

use crate::backend::{self, NotShared, RowValues, Wgmma, Width};
use crate::mma::Acc;
use crate::roles::WarpGroup;

/// One `f32` for each of the 64 rows of an [`Acc`]. Each thread holds the values of the rows that it holds elements of,
/// so a row-wise map moves no data. The values can not be taken out: they differ from lane to lane.
///
/// ```compile_fail,E0277
/// use tilewright_core::prelude::*;
/// fn captured_by_an_element_closure(acc: Acc<64>, rows: AccRows) -> Acc<64> {
///     acc.map(|x| { let _ = rows.max(AccRows::splat(x)); x })
/// }
/// ```
#[derive(Clone, Copy)]
pub struct AccRows {
    pub(crate) values: RowValues,
    _p: NotShared,
}

impl AccRows {
    pub(crate) fn new(values: RowValues) -> Self {
        AccRows { values, _p: PhantomData }
    }
    /// `x` in every row.
    #[inline(always)]
    pub fn splat(x: f32) -> Self {
        Self::new([x; size_of::<RowValues>() / 4])
    }
    /// `f` of every row's value.
    #[inline(always)]
    pub fn map(self, f: impl Fn(f32) -> f32 + Sync) -> Self {
        Self::new(self.values.map(f))
    }
    /// `f(self, other)` row by row.
    #[inline(always)]
    pub fn zip(self, other: AccRows, f: impl Fn(f32, f32) -> f32 + Sync) -> Self {
        Self::new(backend::zip_rows(self.values, other.values, f))
    }
    /// The larger of both.
    #[inline(always)]
    pub fn max(self, other: AccRows) -> Self {
        self.zip(
            other,
            #[inline(always)]
            |a, b| a.max(b),
        )
    }
}
impl core::ops::Add for AccRows {
    type Output = AccRows;
    #[inline(always)]
    fn add(self, other: AccRows) -> AccRows {
        self.zip(
            other,
            #[inline(always)]
            |a, b| a + b,
        )
    }
}
impl core::ops::Mul for AccRows {
    type Output = AccRows;
    #[inline(always)]
    fn mul(self, other: AccRows) -> AccRows {
        self.zip(
            other,
            #[inline(always)]
            |a, b| a * b,
        )
    }
}

impl<const N: usize> Acc<N>
where
    Width<N>: Wgmma,
{
    /// The largest element of every row.
    #[inline(always)]
    pub fn row_max(&self, _wg: &mut WarpGroup) -> AccRows {
        AccRows::new(backend::fold_acc_rows::<N>(
            &self.regs[0],
            #[inline(always)]
            |a, b| a.max(b),
        ))
    }
    /// The sum of every row.
    #[inline(always)]
    pub fn row_sum(&self, _wg: &mut WarpGroup) -> AccRows {
        AccRows::new(backend::fold_acc_rows::<N>(
            &self.regs[0],
            #[inline(always)]
            |a, b| a + b,
        ))
    }
    /// `f(element, value of its row)` of every element.
    #[inline(always)]
    pub fn map_rows(self, rows: AccRows, f: impl Fn(f32, f32) -> f32 + Sync) -> Self {
        let [regs] = self.regs;
        Acc { regs: [Width::<N>::map_rows(regs, rows.values, f)] }
    }
    /// `self + part * by`, `by` having a value for each row; rounded once. How sums of parts that have scales of their own grow.
    ///
    /// ```
    /// use tilewright_core::prelude::*;
    /// /// `sum += scale A B^T` on a slot of 8-bit factors, whose products are exact in f32 for so short a depth.
    /// fn step(wg: &mut WarpGroup, sum: Acc<128>, part: Acc<128>, scales: TileRef<'_, f32, 64, 1>) -> Acc<128> {
    ///     let scales = wg.fetch_column(scales);
    ///     sum.add_scaled(part, scales)
    /// }
    /// ```
    #[inline(always)]
    pub fn add_scaled(self, part: Acc<N>, by: AccRows) -> Self {
        let ([sum], [part]) = (self.regs, part.regs);
        Acc { regs: [Width::<N>::add_scaled(sum, &part, by.values)] }
    }
    /// Every element times its row's value. Where all rows that a warp holds are to be multiplied by one, it leaves them
    /// as they are, which gives the same.
    #[inline(always)]
    pub fn scale_rows(self, _wg: &mut WarpGroup, by: AccRows) -> Self {
        let [regs] = self.regs;
        Acc { regs: [backend::scale_rows::<N>(regs, by.values)] }
    }
}
