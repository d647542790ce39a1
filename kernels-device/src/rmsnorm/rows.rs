//! Rows that a block holds in its registers.

use super::{factors_of, scale};
use crate::tiles::registers_for;
use tilewright::prelude::*;

macro_rules! kernels {
    (; halves [$($half:tt)*] singles [$($single:tt)*] mixed [$($mixed:tt)*]) => {
        /// Rows of at most `N` columns, `M` a block.
        #[kernel(grid = one_tile, min_blocks = BLOCKS, instances(
            [<f16, f16>, <bf16, bf16>] x [$($half)*],
            [<f16, f32>, <bf16, f32>] x [$($mixed)*],
            [<f32, f32>] x [$($single)*],
        ))]
        pub fn plain<
            T: Element<Value = f32>,
            W: Element<Value = f32>,
            const M: usize,
            const N: usize,
            const THREADS: usize,
            const BLOCKS: usize,
        >(
            mut cta: Cta<THREADS>,
            x: RowTiles<T, M, N>,
            w: RowTiles<W, 1, N>,
            y: RowTilesMut<T, M, N>,
            eps: f32,
            offset: f32,
        ) {
            let inverse_width = reciprocal(x.cols() as f32);
            let Some((i, y)) = y.single() else { return };
            let x = cta.fetch(x.tile(i));
            let normed = if const { registers_for(THREADS, BLOCKS, M * N / THREADS * (size_of::<T>() + size_of::<W>())) } {
                let w = cta.fetch_row_as::<W, M, N, ByRows<THREADS, T::Chunk>>(w.tile(0));
                let factors = factors_of(&mut cta, &x, inverse_width, eps);
                x.combine(&w, &factors, |x, w, s| scale(x, w, s, offset))
            } else {
                let factors = factors_of(&mut cta, &x, inverse_width, eps);
                x.combine_row(&mut cta, w.tile(0), &factors, |x, w, s| scale(x, w, s, offset))
            };
            y.stream(&mut cta, &normed);
        }

        /// As [`plain`](fn@plain), of `x + r`, which takes the place of `r`.
        #[kernel(grid = one_tile, min_blocks = BLOCKS, instances(
            [<f16, f16>, <bf16, bf16>] x [$($half)*],
            [<f16, f32>, <bf16, f32>] x [$($mixed)*],
            [<f32, f32>] x [$($single)*],
        ))]
        pub fn residual<
            T: Element<Value = f32>,
            W: Element<Value = f32>,
            const M: usize,
            const N: usize,
            const THREADS: usize,
            const BLOCKS: usize,
        >(
            mut cta: Cta<THREADS>,
            x: RowTiles<T, M, N>,
            r: RowTilesMut<T, M, N>,
            w: RowTiles<W, 1, N>,
            y: RowTilesMut<T, M, N>,
            eps: f32,
            offset: f32,
        ) {
            let inverse_width = reciprocal(x.cols() as f32);
            let (Some((i, y)), Some((_, r))) = (y.single(), r.single()) else { return };
            let (x, old) = (cta.fetch(x.tile(i)), cta.fetch_mut(&r));
            let normed = if const {
                registers_for(THREADS, BLOCKS, M * N / THREADS * (2 * size_of::<T>() + size_of::<W>()))
            } {
                let w = cta.fetch_row_as::<W, M, N, ByRows<THREADS, T::Chunk>>(w.tile(0));
                let sum = x.widen().zip(&old.widen(), |x, r| x + r).round::<T>();
                r.stream(&mut cta, &sum);
                let factors = factors_of(&mut cta, &sum, inverse_width, eps);
                sum.combine(&w, &factors, |x, w, s| scale(x, w, s, offset))
            } else {
                let sum = x.widen().zip(&old.widen(), |x, r| x + r).round::<T>();
                r.stream(&mut cta, &sum);
                let factors = factors_of(&mut cta, &sum, inverse_width, eps);
                sum.combine_row(&mut cta, w.tile(0), &factors, |x, w, s| scale(x, w, s, offset))
            };
            y.stream(&mut cta, &normed);
        }
    };
}
crate::__light_row_tiles!(kernels! {});
