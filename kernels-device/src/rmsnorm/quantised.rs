//! Rows that leave as `e4m3`, with the scales that bring them back: `y scale` is the norm. On Hopper, which has instructions for
//! the conversion, and products that take the result.

use super::factors_of;
use tilewright::prelude::*;

/// Columns that share a scale, where a row has several.
pub const GROUP: usize = 128;

/// The least value that counts as the greatest: rows, or groups, of zeros have a scale that is not zero.
const LEAST: f32 = 1e-30;

#[inline(always)]
fn size(x: f32) -> f32 {
    if x < 0.0 { -x } else { x }
}
/// At least [`LEAST`]; NaN stays.
#[inline(always)]
fn counted(most: f32) -> f32 {
    if most < LEAST { LEAST } else { most }
}

macro_rules! kernels {
    (; [$($tile:tt)*] groups [$($grouped:tt)*]) => {
        /// One scale a row: its greatest value becomes the greatest of `e4m3`.
        #[kernel(arch = "sm_90a", grid = one_tile, min_blocks = BLOCKS, instances([<f16>, <bf16>] x [$($tile)*]))]
        pub fn by_rows<
            T: Element<Value = f32>,
            const M: usize,
            const N: usize,
            const THREADS: usize,
            const BLOCKS: usize,
        >(
            mut cta: Cta<THREADS>,
            x: RowTiles<T, M, N>,
            w: RowTiles<T, 1, N>,
            y: RowTilesMut<e4m3, M, N>,
            scales: RowTilesMut<f32, M, 1>,
            eps: f32,
            offset: f32,
        ) {
            let inverse_width = reciprocal(x.cols() as f32);
            let (Some((i, y)), Some((_, scales))) = (y.single(), scales.single()) else { return };
            let x = cta.fetch(x.tile(i));
            let w = cta.fetch_row_as::<T, M, N, ByRows<THREADS, T::Chunk>>(w.tile(0));
            let factors = factors_of(&mut cta, &x, inverse_width, eps);
            let normed = x.widen().map_rows(&factors, |x, s| x * s).zip(&w.widen(), |x, w| x * (w + offset));
            let most = normed.map(size).row_max(&mut cta).map(counted);
            let steps = most.map(|most| e4m3::MAX * reciprocal(most));
            y.stream(&mut cta, &normed.map_rows(&steps, |x, s| x * s).round());
            scales.put_rows::<THREADS, T::Chunk>(&mut cta, &most.map(|most| most * (1.0 / e4m3::MAX)));
        }

        /// One scale for each [`GROUP`] columns, of which a row has at most `K`.
        #[kernel(arch = "sm_90a", grid = one_tile, min_blocks = BLOCKS, instances([<f16>, <bf16>] x [$($grouped)*]))]
        pub fn by_groups<
            T: Element<Value = f32>,
            const M: usize,
            const N: usize,
            const K: usize,
            const THREADS: usize,
            const BLOCKS: usize,
        >(
            mut cta: Cta<THREADS>,
            x: RowTiles<T, M, N>,
            w: RowTiles<T, 1, N>,
            y: RowTilesMut<e4m3, M, N>,
            scales: RowTilesMut<f32, M, K>,
            eps: f32,
            offset: f32,
        ) {
            let inverse_width = reciprocal(x.cols() as f32);
            let (Some((i, y)), Some((_, scales))) = (y.single(), scales.single()) else { return };
            let x = cta.fetch(x.tile(i));
            let w = cta.fetch_row_as::<T, M, N, ByRows<THREADS, T::Chunk>>(w.tile(0));
            let factors = factors_of(&mut cta, &x, inverse_width, eps);
            let normed = x.widen().map_rows(&factors, |x, s| x * s).zip(&w.widen(), |x, w| x * (w + offset));
            let most = normed.map(size).group_max::<GROUP>(&mut cta).map(counted);
            y.stream(&mut cta, &normed.zip(&most, |x, most| x * (e4m3::MAX * reciprocal(most))).round());
            scales.put_groups::<N, GROUP, THREADS, T::Chunk>(&mut cta, &most.map(|most| most * (1.0 / e4m3::MAX)));
        }
    };
}

/// Calls `$then!` with the tiles: `<M, N, THREADS, BLOCKS>`, and with groups `<M, N, K, THREADS, BLOCKS>`.
#[doc(hidden)]
#[macro_export]
macro_rules! __quantised_tiles {
    ($then:ident! { $($arguments:tt)* }) => {
        $then! {
            $($arguments)*;
            [<8, 256, 128, 8>, <2, 1024, 128, 8>, <1, 4096, 256, 4>, <1, 8192, 512, 2>]
            groups [<8, 256, 2, 128, 8>, <2, 1024, 8, 128, 8>, <1, 4096, 32, 256, 4>, <1, 8192, 64, 512, 2>]
        }
    };
}
__quantised_tiles!(kernels! {});
