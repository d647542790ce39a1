//! Element by element.
//!
//! | | |
//! |---|---|
//! | tile | 1 x 2048, one a block at a time |
//! | threads | 256, 8 elements each |
//! | shared memory | none of its own |
//!
//! Disjointness: the output hands each tile to one block.

use tilewright::prelude::*;

/// `out = f(x, y)`, for kernels with a function of their own.
#[inline(always)]
pub fn map2<X: Element, Y: Element, O: Element, S: Schedule, const M: usize, const N: usize, const THREADS: usize>(
    mut cta: Cta<THREADS>,
    x: Tiles<X, M, N>,
    y: Tiles<Y, M, N>,
    out: TilesMut<O, M, N, S>,
    f: impl Fn(X::Value, Y::Value) -> O::Value + Sync,
) {
    for ((i, j), out) in out {
        let x = cta.load(x.tile(i, j));
        let y = cta.load_like(&x, y.tile(i, j));
        out.store(&mut cta, &x.zip(&y, &f));
    }
}

/// `y = a x + y`, in place.
#[kernel(min_blocks = 6, instances(f32 = <f32>, f16 = <f16>, bf16 = <bf16>))]
pub fn axpy<T: Element<Value = f32>>(mut cta: Cta<256>, a: f32, x: Tiles<T, 1, 2048>, y: TilesMut<T, 1, 2048>) {
    for ((i, j), y) in y {
        let sum = cta.load(x.tile(i, j)).zip(&cta.load_mut(&y), |x, y| a * x + y);
        y.store(&mut cta, &sum);
    }
}

/// `out = x + y`.
#[kernel(min_blocks = 6, instances(f32 = <f32>, f16 = <f16>, bf16 = <bf16>))]
pub fn add<T: Element<Value = f32>>(
    cta: Cta<256>,
    x: Tiles<T, 1, 2048>,
    y: Tiles<T, 1, 2048>,
    out: TilesMut<T, 1, 2048>,
) {
    map2(cta, x, y, out, |x, y| x + y)
}

/// `out = x y`.
#[kernel(min_blocks = 6, instances(f32 = <f32>, f16 = <f16>, bf16 = <bf16>))]
pub fn multiply<T: Element<Value = f32>>(
    cta: Cta<256>,
    x: Tiles<T, 1, 2048>,
    y: Tiles<T, 1, 2048>,
    out: TilesMut<T, 1, 2048>,
) {
    map2(cta, x, y, out, |x, y| x * y)
}
