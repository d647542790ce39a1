//! Over rows.

use super::{Steps, factor, fused as at_once};
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
            let size = x.cols() as f32;
            let Some((i, y)) = y.single() else { return };
            let x = cta.fetch(x.tile(i));
            let factors = x.row_sum_of(&mut cta, |x| x * x).map(|sum| factor(sum, size, eps, clamped));
            let rows = (w.tile(0), b.tile(0));
            let active = x.combine_rows(&mut cta, rows, (&factors, &factors), |x, wb, (s, _)| at_once(x, wb, s));
            y.stream(&mut cta, &active);
        }
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
            let sum = x.row_sum_of(&mut cta, |x| Steps::square::<T>(x, clamped));
            let factors = sum.map(|sum| Steps::factor::<T>(sum, size, eps, clamped));
            let rows = (w.tile(0), b.tile(0));
            let active = x.combine_rows(&mut cta, rows, (&factors, &factors), |x, wb, (s, _)| {
                Steps::element::<T>(x, wb, s, root, clamped, biased)
            });
            y.stream(&mut cta, &active);
        }
    };
}

/// Calls `$then!` with the tiles of both numerics, as [`__row_tiles`](crate::__row_tiles) does.
#[doc(hidden)]
#[macro_export]
macro_rules! __rms_silu_tiles {
    ($then:ident! { $($arguments:tt)* }) => {
        $then! {
            $($arguments)*;
            halves [<8, 128, 128, 14>, <4, 512, 128, 10>, <2, 1024, 128, 10>, <1, 4096, 256, 4>]
            singles [<8, 128, 128, 10>, <2, 512, 128, 10>, <1, 1024, 128, 10>, <1, 4096, 256, 4>]
        }
    };
}
__rms_silu_tiles!(kernels! {});
