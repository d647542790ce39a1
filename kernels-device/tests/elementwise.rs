//! Elementwise kernels on the CPU backend: exact, but for the one rounding.

#[path = "guarded/mod.rs"]
mod common;

use common::{DENSE, Lie, Matrix, random};
use tilewright::__private::backend;
use tilewright::prelude::*;
use tilewright_kernels::elementwise;

fn case<T: Element<Value = f32>>(
    rows: usize,
    cols: usize,
    lie: Lie,
    run: impl Fn(&Matrix<T>, &mut Matrix<T>),
    want: impl Fn(f32, f32) -> f32,
) {
    let (dx, dy) = (random(rows * cols, 1), random(rows * cols, 2));
    let x = Matrix::<T>::from(1, rows, cols, lie, |r, c| dx[r * cols + c]);
    let before = Matrix::<T>::from(1, rows, cols, lie, |r, c| dy[r * cols + c]);
    let mut y = before.clone();
    run(&x, &mut y);
    for r in 0..rows {
        for c in 0..cols {
            let want = T::from_value(want(x.get(r, c) as f32, before.get(r, c) as f32)).to_value();
            assert_eq!(y.get(r, c) as f32, want, "{rows}x{cols} {lie:?}: {r}, {c}");
        }
    }
    y.assert_guards();
}

macro_rules! all {
    ($t:ty) => {
        for (rows, cols) in [(1, 1), (1, 2047), (1, 2048), (1, 10_001), (7, 100), (3, 4097)] {
            for lie in [DENSE, Lie { gap: 1, shift: 0 }, Lie { gap: 0, shift: 1 }] {
                case::<$t>(
                    rows,
                    cols,
                    lie,
                    |x, y| backend::run::<elementwise::axpy<$t>>((2.5, x.tiles(), y.tiles_mut()), 3).unwrap(),
                    |x, y| 2.5 * x + y,
                );
                case::<$t>(
                    rows,
                    cols,
                    lie,
                    |x, y| {
                        let other = y.clone();
                        backend::run::<elementwise::add<$t>>((x.tiles(), other.tiles(), y.tiles_mut()), 2).unwrap()
                    },
                    |x, y| x + y,
                );
                case::<$t>(
                    rows,
                    cols,
                    lie,
                    |x, y| {
                        let other = y.clone();
                        backend::run::<elementwise::multiply<$t>>((x.tiles(), other.tiles(), y.tiles_mut()), 2).unwrap()
                    },
                    |x, y| x * y,
                );
            }
        }
    };
}

#[test]
fn elementwise_kernels() {
    all!(f32);
    all!(f16);
    all!(bf16);
}
