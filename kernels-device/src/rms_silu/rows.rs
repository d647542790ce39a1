//! Over rows.

use super::{Norm, Steps, fused as at_once};
use tilewright::prelude::*;

macro_rules! kernels {
    (; halves [$($half:tt)*] singles [$($single:tt)*]) => {
        /// Rows of at most `N` columns, `M` a block.
        #[kernel(grid = one_tile, min_blocks = BLOCKS, instances([<f16>, <bf16>] x [$($half)*], [<f32>] x [$($single)*]))]
        pub fn fused<
            T: Element<Value = f32>,
            const M: usize,
            const N: usize,
            const THREADS: usize,
            const BLOCKS: usize,
        >(
            mut cta: Cta<THREADS>,
            x: RowTiles<T, M, N>,
            w: RowTiles<T, 1, N>,
            b: RowTiles<T, 1, N>,
            y: RowTilesMut<T, M, N>,
            eps: f32,
            clamped: u32,
        ) {
            let norm = Norm::of(x.cols(), eps, clamped);
            let Some((i, y)) = y.single() else { return };
            let x = cta.fetch(x.tile(i));
            let rows = (w.tile(0), b.tile(0));
            // as in LayerNorm
            let active = if const { M > 1 } {
                let w = cta.fetch_row_as::<T, M, N, ByRows<THREADS, T::Chunk>>(rows.0);
                let b = cta.fetch_row_as::<T, M, N, ByRows<THREADS, T::Chunk>>(rows.1);
                let factors = x.row_squares(&mut cta).map(|sum| norm.factor(sum));
                x.combine_two((&w, &b), (&factors, &factors), |x, wb, (s, _)| at_once(x, wb, s))
            } else {
                let factors = x.row_squares(&mut cta).map(|sum| norm.factor(sum));
                x.combine_rows(&mut cta, rows, (&factors, &factors), |x, wb, (s, _)| at_once(x, wb, s))
            };
            y.stream(&mut cta, &active);
        }
    };
}
crate::__row_tiles!(kernels! {});

macro_rules! kernels_step_by_step {
    (; halves [$($half:tt)*] singles [$($single:tt)*]) => {
        /// As [`fused`](fn@fused), rounded after every step. `biased` is 0 if there is no bias.
        #[kernel(grid = one_tile, min_blocks = BLOCKS, instances([<f16>, <bf16>] x [$($half)*], [<f32>] x [$($single)*]))]
        pub fn lossless<
            T: Element<Value = f32>,
            const M: usize,
            const N: usize,
            const THREADS: usize,
            const BLOCKS: usize,
        >(
            mut cta: Cta<THREADS>,
            x: RowTiles<T, M, N>,
            w: RowTiles<T, 1, N>,
            b: RowTiles<T, 1, N>,
            y: RowTilesMut<T, M, N>,
            eps: f32,
            clamped: u32,
            biased: u32,
        ) {
            let (size, root) = (x.cols() as f32, sqrt(x.cols() as f32));
            let Some((i, y)) = y.single() else { return };
            let x = cta.fetch(x.tile(i));
            let w = cta.fetch_row_as::<T, M, N, ByRows<THREADS, T::Chunk>>(w.tile(0));
            let b = cta.fetch_row_as::<T, M, N, ByRows<THREADS, T::Chunk>>(b.tile(0));
            // two programs, so that no element asks which norm it is
            let active = if clamped == 0 {
                let sum = x.row_sum_of(&mut cta, |x| Steps::square::<T>(x, false));
                let factors = sum.map(|sum| Steps::factor::<T>(sum, size, eps, false));
                x.combine_two((&w, &b), (&factors, &factors), |x, wb, factor| {
                    Steps::element::<T>(x, wb, factor, root, false, biased)
                })
            } else {
                let sum = x.row_sum_of(&mut cta, |x| Steps::square::<T>(x, true));
                let factors = sum.map(|sum| Steps::factor::<T>(sum, size, eps, true));
                let inverses = factors.map(inverse);
                x.combine_two((&w, &b), (&factors, &inverses), |x, wb, factor| {
                    Steps::element::<T>(x, wb, factor, root, true, biased)
                })
            };
            y.stream(&mut cta, &active);
        }
    };
}

/// Calls `$then!` with the tiles of the form that rounds after every step, as [`__row_tiles`](crate::__row_tiles) does.
#[doc(hidden)]
#[macro_export]
macro_rules! __lossless_tiles {
    ($then:ident! { $($arguments:tt)* }) => {
        $then! {
            $($arguments)*;
            halves [<16, 128, 128, 10>, <4, 512, 128, 10>, <2, 1024, 128, 10>, <1, 4096, 256, 4>]
            singles [<8, 128, 128, 10>, <2, 512, 128, 10>, <1, 1024, 128, 10>, <1, 4096, 256, 4>]
        }
    };
}
__lossless_tiles!(kernels_step_by_step! {});
