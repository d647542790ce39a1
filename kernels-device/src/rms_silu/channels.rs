//! Over the channels of each position: `x` and `y` are stacks of matrices of channels by positions, positions adjacent.
//! Weight and bias are columns.

use super::{Norm, scaled};
use crate::gated::silu;
use tilewright::prelude::*;

macro_rules! kernels {
    (; halves [$($half:tt)*] singles [$($single:tt)*]) => {
        /// At most `M` channels, `N` positions a block. Without SiLU if `active` is 0.
        #[kernel(grid = one_tile, min_blocks = BLOCKS, instances([<f16>, <bf16>] x [$($half)*], [<f32>] x [$($single)*]))]
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
            active: u32,
        ) {
            let norm = Norm::of(x.rows(), eps, clamped);
            let Some(((i, j), y)) = y.single() else { return };
            let x = cta.fetch_columns(x.tile(i, j));
            let factors = x.column_squares(&mut cta, &mut sums).map(|sum| norm.factor(sum));
            let (w, b) = (cta.load_column_as(w.tile(0, 0)), cta.load_column_as(b.tile(0, 0)));
            let normed = x.combine_columns((&w, &b), &factors, |x, wb, factor| {
                let x = scaled(x, wb, factor);
                if active == 0 { x } else { silu(x) }
            });
            y.stream(&mut cta, &normed);
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
            halves [<96, 64, 128, 256, 7>, <192, 64, 256, 512, 3>, <384, 32, 256, 256, 3>, <1024, 32, 512, 512, 1>]
            singles [<96, 32, 128, 128, 8>, <192, 32, 256, 256, 4>, <384, 16, 256, 128, 4>, <1024, 16, 512, 256, 1>]
        }
    };
}
__rms_silu_channel_tiles!(kernels! {});
