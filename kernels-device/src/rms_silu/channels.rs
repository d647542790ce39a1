//! Over the channels of each position: `x` and `y` are stacks of matrices of channels by positions, positions adjacent.
//! Weight and bias are columns.

use super::{factor, fused as at_once};
use tilewright::prelude::*;

macro_rules! kernels {
    (; halves [$($half:tt)*] singles [$($single:tt)*]) => {
        /// At most `M` channels, `N` positions a block.
        #[kernel(min_blocks = BLOCKS, instances([<f16>, <bf16>] x [$($half)*], [<f32>] x [$($single)*]))]
        pub fn fused<
            T: Element<Value = f32>,
            const M: usize,
            const N: usize,
            const THREADS: usize,
            const WORDS: usize,
            const BLOCKS: usize,
        >(
            mut cta: Cta<THREADS>,
            #[shared] mut sums: ColumnScratch<WORDS>,
            x: Tiles<T, M, N>,
            w: Tiles<T, M, 1>,
            b: Tiles<T, M, 1>,
            y: TilesMut<T, M, N>,
            eps: f32,
            clamped: u32,
        ) {
            let size = x.rows() as f32;
            for ((i, j), y) in y {
                let x = cta.fetch_columns(x.tile(i, j));
                let sum = x.column_sum_of(&mut cta, &mut sums, |x| x * x);
                let factors = sum.map(|sum| factor(sum, size, eps, clamped));
                let columns = (w.tile(0, 0), b.tile(0, 0));
                let active = x.combine_columns(&mut cta, columns, &factors, at_once);
                y.stream(&mut cta, &active);
            }
        }
    };
}

/// Calls `$then!` with the tiles: `<M, N, THREADS, WORDS, BLOCKS>`, `WORDS` being `N` for each warp.
#[doc(hidden)]
#[macro_export]
macro_rules! __rms_silu_channel_tiles {
    ($then:ident! { $($arguments:tt)* }) => {
        $then! {
            $($arguments)*;
            halves [<96, 64, 256, 512, 3>, <192, 64, 256, 512, 2>, <384, 64, 512, 1024, 1>, <1024, 32, 512, 512, 1>]
            singles [<96, 32, 256, 256, 3>, <192, 32, 256, 256, 3>, <384, 32, 512, 512, 1>, <1024, 16, 512, 256, 1>]
        }
    };
}
__rms_silu_channel_tiles!(kernels! {});
