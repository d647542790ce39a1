//! Reductions of rows to two values at once, for which the block meets once.
//!
//! A mean and the squares of the differences from it, or a greatest value and the powers of the differences from it: done
//! as they are written down, the second needs the first of the whole row, and the block meets twice. Here each warp does
//! both for what it holds, and the parts are joined (Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm
//! for computing sample variances"; Milakov and Gimelshein, "Online normalizer calculation for softmax").

use crate::backend;
use crate::element::Element;
use crate::layout::{ByRows, Chunks};
use crate::roles::Cta;
use crate::tile::{Fetched, PerRow};

impl<T: Element<Value = f32>, const M: usize, const N: usize, const THREADS: usize, C: Chunks>
    Fetched<T, M, N, ByRows<THREADS, C>>
{
    /// The sum of the squares of each row's values.
    #[inline(always)]
    pub fn row_squares<const CLUSTER: usize>(&self, cta: &mut Cta<THREADS, CLUSTER>) -> PerRow<f32, M, THREADS> {
        if !self.zero {
            return self.row_sum_of(
                cta,
                #[inline(always)]
                |x| x * x,
            );
        }
        // SAFETY: the whole block is here: its token is borrowed exclusively. What is outside is zero.
        PerRow { values: unsafe { backend::fold_squares::<T, THREADS, C, M, N>(&mut cta.scratch, &self.words) } }
    }

    /// The mean of each row, and the sum of the squares of its values' differences from it. A large mean costs the second
    /// no precision.
    #[inline(always)]
    pub fn row_moments(&self, cta: &mut Cta<THREADS>) -> (PerRow<f32, M, THREADS>, PerRow<f32, M, THREADS>) {
        // SAFETY: the whole block is here: its token is borrowed exclusively.
        let (mean, spread) = unsafe {
            backend::fold_moments::<T, THREADS, C, M, N>(&mut cta.scratch, &self.words, self.zero, self.cols)
        };
        (PerRow { values: mean }, PerRow { values: spread })
    }

    /// The greatest value of each row, and the sum of `2^(factor (x - greatest))` over the row. `factor` is positive. Both are
    /// NaN if a value is; of a row of minus infinity alone, the sum is.
    #[inline(always)]
    pub fn row_powers(
        &self,
        cta: &mut Cta<THREADS>,
        factor: f32,
    ) -> (PerRow<f32, M, THREADS>, PerRow<f32, M, THREADS>) {
        // SAFETY: as above.
        let (greatest, sum) =
            unsafe { backend::fold_powers::<T, THREADS, C, M, N>(&mut cta.scratch, &self.words, self.cols, factor) };
        (PerRow { values: greatest }, PerRow { values: sum })
    }
}

#[cfg(target_arch = "nvptx64")]
/// Calls `f(i)` for each `i` below `$n`, which is a constant and 32 at most.
macro_rules! below {
    ($f:ident, $n:expr; $($i:literal)*) => { $(if const { $i < $n } { $f($i) })* };
    ($f:ident, $n:expr) => {
        below!($f, $n; 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31)
    };
}
#[cfg(target_arch = "nvptx64")]
pub(crate) use below;

/// How many of the elements that `lanes` adjacent threads hold, from thread `first` of the row on, are inside a row of
/// `cols`: `count` chunks of `chunk` elements in each of them, `threads` chunks apart.
#[cfg_attr(not(target_arch = "nvptx64"), allow(dead_code, reason = "the CPU has no warps"))]
#[inline(always)]
pub(crate) fn inside(first: u32, lanes: u32, threads: u32, chunk: u32, count: u32, cols: u32) -> u32 {
    let (mut sum, mut at, mut k) = (0, first * chunk, 0);
    while k < count {
        let left = if cols > at { cols - at } else { 0 };
        sum += if left < lanes * chunk { left } else { lanes * chunk };
        at += threads * chunk;
        k += 1;
    }
    sum
}

#[cfg(all(test, not(target_arch = "nvptx64")))]
mod tests {
    use super::*;
    use crate::layout::{Chunk, Layout};

    #[test]
    fn elements_of_a_warp_that_are_inside_are_counted() {
        fn case<const THREADS: usize, const M: usize, const N: usize>(cols: u32) {
            type Rows<const THREADS: usize> = ByRows<THREADS, Chunk<8>>;
            let threads = Rows::<THREADS>::threads_of_row(M);
            let lanes = threads.min(32);
            let per = <Rows<THREADS> as Layout<M, N>>::PER_THREAD;
            for group in 0..threads / lanes {
                let first = group * lanes;
                let found = (first..first + lanes)
                    .flat_map(|t| (0..per).map(move |i| <Rows<THREADS> as Layout<M, N>>::at(t as u32, i as u32)))
                    .filter(|&(_, c)| c < cols)
                    .count();
                let counted = inside(first as u32, lanes as u32, threads as u32, 8, per as u32 / 8, cols);
                assert_eq!(counted as usize, found);
            }
        }
        for cols in 1..=128 {
            case::<128, 8, 128>(cols);
        }
        for cols in [1, 7, 8, 255, 256, 257, 1000, 1025, 2047, 2048] {
            case::<128, 1, 2048>(cols);
            case::<128, 2, 2048>(cols);
        }
    }
}
