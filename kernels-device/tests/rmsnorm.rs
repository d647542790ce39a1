//! RMSNorm on the CPU backend against f64, over the cases that break norms. Tolerance: the one rounding of the result,
//! and 4e-6 of it for the sum and the root in `f32`.

#[path = "guarded/mod.rs"]
mod common;

use common::{DENSE, Lie, Matrix, least, random, unit};
use tilewright::__private::backend;
use tilewright::prelude::*;
use tilewright_kernels::{rms_silu, rmsnorm};

const EPS: f32 = 1e-6;
const ODD: Lie = Lie { gap: 3, shift: 1 };
const LIES: [Lie; 4] = [DENSE, Lie { gap: 16, shift: 0 }, Lie { gap: 0, shift: 1 }, ODD];
const WIDTHS: [usize; 16] = [1, 3, 96, 100, 128, 192, 511, 576, 1500, 4095, 4096, 7168, 8000, 9000, 32_768, 33_001];

/// What a launch takes, apart from element types: what is added to the weights.
type Run<T, W> = fn(&Matrix<T>, &Matrix<W>, &mut Matrix<T>, f32);
type RunResidual<T, W> = fn(&Matrix<T>, &mut Matrix<T>, &Matrix<W>, &mut Matrix<T>, f32);
type Kernels<T, W> = fn(&Matrix<T>, &Matrix<W>) -> Vec<Run<T, W>>;

/// All kernels that can hold rows of `cols` columns, narrowest first; the wide one last.
macro_rules! words {
    ($plain:ident, $residual:ident, $t:ident, $w:ident, $list:ident) => {
        tilewright_kernels::__light_row_tiles!(words! { @from $list $plain $residual $t $w });
    };
    (@from halves $plain:ident $residual:ident $t:ident $w:ident; halves $list:tt singles $others:tt mixed $mixed:tt) => {
        words!(@define $plain $residual $t $w $list [<32768, 2>, <65536, 1>]);
    };
    (@from singles $plain:ident $residual:ident $t:ident $w:ident; halves $others:tt singles $list:tt mixed $mixed:tt) => {
        words!(@define $plain $residual $t $w $list [<32768, 1>]);
    };
    (@from mixed $plain:ident $residual:ident $t:ident $w:ident; halves $others:tt singles $singles:tt mixed $list:tt) => {
        words!(@define $plain $residual $t $w $list [<32768, 2>, <65536, 1>]);
    };
    (@define $plain:ident $residual:ident $t:ident $w:ident
        [$(<$m:literal, $n:literal, $threads:literal, $blocks:literal>),*] [$(<$long:literal, $b:literal>),*]) => {
        fn $plain(x: &Matrix<$t>, w: &Matrix<$w>) -> Vec<Run<$t, $w>> {
            let cols = x.cols();
            let mut all: Vec<Run<$t, $w>> = Vec::new();
            $(if cols <= $n {
                all.push(|x, w, y, c| {
                    let tiles = x.rows().div_ceil($m) as u32;
                    let args = (x.row_tiles(), w.row_tiles(), y.row_tiles_mut(), EPS, c);
                    backend::run::<rmsnorm::rows::plain<$t, $w, $m, $n, $threads, $blocks>>(args, tiles).unwrap()
                });
            })*
            $(if cols <= $long && x.row_tiles::<1, $long>().is_whole() && w.row_tiles::<1, $long>().is_whole() {
                all.push(|x, w, y, c| {
                    let args = (x.row_tiles(), w.row_tiles(), y.row_tiles_mut(), EPS, c);
                    backend::run::<rmsnorm::long::plain<$t, $w, $long, $b>>(args, x.rows() as u32).unwrap()
                });
            })*
            all.push(|x, w, y, c| {
                let args = (x.tiles(), w.tiles(), y.tiles_mut().schedule(Strips), EPS, c);
                backend::run::<rmsnorm::wide::plain<$t, $w>>(args, 3).unwrap()
            });
            all
        }
        fn $residual(cols: usize) -> Vec<RunResidual<$t, $w>> {
            let mut all: Vec<RunResidual<$t, $w>> = Vec::new();
            $(if cols <= $n {
                all.push(|x, r, w, y, c| {
                    let tiles = x.rows().div_ceil($m) as u32;
                    let args = (x.row_tiles(), r.row_tiles_mut(), w.row_tiles(), y.row_tiles_mut(), EPS, c);
                    backend::run::<rmsnorm::rows::residual<$t, $w, $m, $n, $threads, $blocks>>(args, tiles).unwrap()
                });
            })*
            all.push(|x, r, w, y, c| {
                let (r, y) = (r.tiles_mut().schedule(Strips), y.tiles_mut().schedule(Strips));
                backend::run::<rmsnorm::wide::residual<$t, $w>>((x.tiles(), r, w.tiles(), y, EPS, c), 3).unwrap()
            });
            all
        }
    };
}
words!(f32_f32, f32_f32_residual, f32, f32, singles);
words!(f16_f16, f16_f16_residual, f16, f16, halves);
words!(bf16_bf16, bf16_bf16_residual, bf16, bf16, halves);
words!(f16_f32, f16_f32_residual, f16, f32, mixed);
words!(bf16_f32, bf16_f32_residual, bf16, f32, mixed);

fn weight<W: Element<Value = f32>>(cols: usize, lie: Lie) -> Matrix<W> {
    let data = random(cols, 77);
    Matrix::from(1, 1, cols, lie, |_, c| data[c] + 1.5)
}

/// Panics if an element of `y` is not the norm of `x`.
fn check<T: Element<Value = f32>, W: Element<Value = f32>>(x: &Matrix<T>, w: &Matrix<W>, y: &Matrix<T>, what: &str) {
    for r in 0..x.rows() {
        let mean = (0..x.cols()).map(|c| x.get(r, c) * x.get(r, c)).sum::<f64>() / x.cols() as f64;
        let s = 1.0 / (mean + EPS as f64).sqrt();
        for c in 0..x.cols() {
            let (want, got) = (x.get(r, c) * s * w.get(0, c), y.get(r, c));
            let near = (got - want).abs() <= want.abs() * (unit::<T>() + 4e-6) + least::<T>();
            assert!(near || want.is_nan() && got.is_nan(), "{what}: row {r}, column {c}: {got} for {want}");
        }
    }
    y.assert_guards();
}

/// The first two and the last two: the tightest fit, the next, and the extreme forms.
fn some<K>(mut all: Vec<K>) -> Vec<K> {
    if all.len() > 4 {
        all.drain(2..all.len() - 2);
    }
    all
}

fn plain<T: Element<Value = f32>, W: Element<Value = f32>>(kernels: Kernels<T, W>) {
    for cols in WIDTHS {
        let w = weight::<W>(cols, if cols % 2 == 0 { DENSE } else { ODD });
        for (rows, lie) in [(1, LIES[0]), (3, LIES[1]), (3, LIES[2]), (if cols > 1000 { 7 } else { 64 }, LIES[3])] {
            let data = random(rows * cols, 5);
            let x = Matrix::from(1, rows, cols, lie, |r, c| data[r * cols + c] * 3.0);
            for (k, run) in some(kernels(&x, &w)).into_iter().enumerate() {
                let mut y = Matrix::<T>::new(1, rows, cols, lie);
                run(&x, &w, &mut y, 0.0);
                check(&x, &w, &y, &format!("{rows}x{cols}, {lie:?}, kernel {k}"));
                let mut again = Matrix::<T>::new(1, rows, cols, lie);
                run(&x, &w, &mut again, 0.0);
                let same = (0..rows).all(|r| (0..cols).all(|c| y.get(r, c).to_bits() == again.get(r, c).to_bits()));
                assert!(same, "{rows}x{cols}: differs from one time to the next");
            }
        }
    }
}

fn residual<T: Element<Value = f32>, W: Element<Value = f32>>(kernels: fn(usize) -> Vec<RunResidual<T, W>>) {
    for cols in WIDTHS {
        let w = weight::<W>(cols, DENSE);
        for (rows, lie) in [(1, LIES[0]), (3, LIES[2]), (5, LIES[3])] {
            let (dx, dr) = (random(rows * cols, 5), random(rows * cols, 6));
            let x = Matrix::<T>::from(1, rows, cols, lie, |r, c| dx[r * cols + c]);
            let r0 = Matrix::<T>::from(1, rows, cols, lie, |r, c| dr[r * cols + c] * 9.0);
            let sum = Matrix::<T>::from(1, rows, cols, lie, |r, c| x.get(r, c) + r0.get(r, c));
            for run in some(kernels(cols)) {
                let (mut y, mut r) = (Matrix::<T>::new(1, rows, cols, lie), r0.clone());
                run(&x, &mut r, &w, &mut y, 0.0);
                for i in 0..rows {
                    for c in 0..cols {
                        assert_eq!(r.get(i, c), sum.get(i, c), "residual {i}, {c}");
                    }
                }
                r.assert_guards();
                check(&sum, &w, &y, &format!("residual {rows}x{cols}, {lie:?}"));
            }
        }
    }
}

#[test]
fn f32_rows() {
    plain(f32_f32);
    residual(f32_f32_residual);
}
#[test]
fn f16_rows() {
    plain(f16_f16);
    residual(f16_f16_residual);
}
#[test]
fn bf16_rows() {
    plain(bf16_bf16);
    residual(bf16_bf16_residual);
}
#[test]
fn f16_rows_with_f32_weight() {
    plain(f16_f32);
    residual(f16_f32_residual);
}

#[test]
fn bf16_rows_with_f32_weight() {
    plain(bf16_f32);
    residual(bf16_f32_residual);
}

/// Every kernel that serves the width, on rows made by `f`.
fn special<T: Element<Value = f32>>(
    kernels: Kernels<T, T>,
    rows: usize,
    cols: usize,
    f: impl Fn(usize, usize) -> f64,
) -> Vec<Matrix<T>> {
    let w = weight::<T>(cols, DENSE);
    let x = Matrix::from(1, rows, cols, DENSE, f);
    let run = |run: Run<T, T>| {
        let mut y = Matrix::new(1, rows, cols, DENSE);
        run(&x, &w, &mut y, 0.0);
        check(&x, &w, &y, "special rows");
        y
    };
    some(kernels(&x, &w)).into_iter().map(run).collect()
}

#[test]
fn one_nan_poisons_its_row_alone() {
    for cols in [3, 96, 513] {
        for y in special(bf16_bf16, 20, cols, |r, c| if (r, c) == (5, 2) { f64::NAN } else { 1.0 + c as f64 }) {
            for r in 0..20 {
                assert!((0..cols).all(|c| y.get(r, c).is_nan() == (r == 5)), "row {r}");
            }
        }
    }
}

#[test]
fn squares_that_overflow_f16_do_not() {
    for y in special(f16_f16, 3, 576, |_, _| 6e4) {
        assert!((0..576).all(|c| y.get(1, c).is_finite() && y.get(1, c) > 0.4));
    }
}

#[test]
fn zero_rows_give_zero() {
    for y in special(bf16_bf16, 17, 100, |r, c| if r == 3 { 0.0 } else { c as f64 }) {
        assert!((0..100).all(|c| y.get(3, c) == 0.0));
    }
}

#[test]
fn the_sign_of_zero_is_kept() {
    for y in special(f32_f32, 1, 127, |_, c| if c % 2 == 0 { -0.0 } else { 2.0 }) {
        assert!((0..127).step_by(2).all(|c| y.get(0, c) == 0.0 && y.get(0, c).is_sign_negative()));
    }
}

#[test]
fn subnormals_are_not_flushed() {
    for y in special(f32_f32, 2, 96, |_, c| c as f64 * 1e-40) {
        assert!(y.get(0, 95) != 0.0);
    }
    for y in special(f16_f16, 2, 96, |_, c| c as f64 * 6e-8) {
        assert!(y.get(0, 95) != 0.0);
    }
}

#[test]
fn infinities_are_where_the_formula_has_them() {
    special(f32_f32, 2, 192, |r, c| if (r, c) == (1, 100) { f64::INFINITY } else { 1.0 });
}

#[test]
fn every_position_counts() {
    for cols in [1, 3, 127, 192] {
        special(bf16_bf16, cols, cols, |r, c| if r == c { 1.0 } else { 0.0 });
    }
    special(f32_f32, 513, 513, |r, c| if r == c { 1.0 } else { 0.0 });
}

#[test]
fn weights_can_be_stored_as_differences_from_one() {
    let (x, w) =
        (Matrix::<f32>::from(1, 2, 96, DENSE, |r, c| (r + c) as f64), Matrix::from(1, 1, 96, DENSE, |_, c| c as f64));
    let whole = Matrix::<f32>::from(1, 1, 96, DENSE, |_, c| c as f64 + 1.0);
    for (run, full) in f32_f32(&x, &w).into_iter().zip(f32_f32(&x, &whole)) {
        let (mut y, mut z) = (Matrix::new(1, 2, 96, DENSE), Matrix::new(1, 2, 96, DENSE));
        run(&x, &w, &mut y, 1.0);
        full(&x, &whole, &mut z, 0.0);
        assert_eq!(y.bits(), z.bits());
    }
}

#[test]
fn two_blocks_share_a_row() {
    for (rows, cols, lie) in [(3, 65536, DENSE), (2, 40_001, ODD), (2, 32_768, DENSE), (1, 7, DENSE)] {
        let data = random(rows * cols, 5);
        let x = Matrix::<f32>::from(1, rows, cols, lie, |r, c| data[r * cols + c] * 3.0);
        let w = weight::<f32>(cols, DENSE);
        let mut y = Matrix::<f32>::new(1, rows, cols, lie);
        let args = (x.row_tiles(), w.row_tiles(), y.row_tiles_mut(), EPS, 0.0);
        backend::run::<rmsnorm::clusters::plain<f32, f32>>(args, rows as u32).unwrap();
        check(&x, &w, &y, &format!("clusters {rows}x{cols}"));
    }
}

macro_rules! channels {
    ($t:ty; [$(<$capacity:literal, $n:literal, $threads:literal, $words:literal, $blocks:literal>),*]) => {
        $(channels!(@one $t, $capacity, $n, $threads, $words, $blocks);)*
    };
    (@list halves $t:ty; halves $list:tt singles $others:tt) => { channels!($t; $list) };
    (@list singles $t:ty; halves $others:tt singles $list:tt) => { channels!($t; $list) };
    (@one $t:ty, $capacity:literal, $n:literal, $threads:literal, $words:literal, $blocks:literal) => {
        let all = [(1, 1, 1, DENSE), (2, 3, 40, ODD), (3, 96, 33, DENSE), (1, 256, 64, DENSE), (2, 257, 7, ODD), (1, 1024, 32, DENSE)];
        for (slabs, channels, positions, lie) in all.into_iter().filter(|case| case.1 <= $capacity) {
            let data = random(slabs * channels * positions, 3);
            let x = Matrix::<$t>::from(slabs, channels, positions, lie, |r, c| data[r * positions + c]);
            let w = Matrix::<$t>::from(1, channels, 1, DENSE, |r, _| 1.0 + r as f64 / channels as f64);
            let mut y = Matrix::<$t>::new(slabs, channels, positions, lie);
            let none = Matrix::<$t>::new(1, channels, 0, DENSE);
            let tiles = slabs * positions.div_ceil($n);
            let args = (x.tiles(), w.tiles(), none.tiles(), y.tiles_mut(), EPS, 0, 0);
            type Kernel = rms_silu::channels::fused<$t, $capacity, $n, $threads, $words, $blocks>;
            backend::run::<Kernel>(args, tiles as u32).unwrap();
            for slab in 0..slabs {
                for p in 0..positions {
                    let at = |m: &Matrix<$t>, c: usize| m.get(slab * channels + c, p);
                    let mean = (0..channels).map(|c| at(&x, c).powi(2)).sum::<f64>() / channels as f64;
                    for c in 0..channels {
                        let (want, got) = (at(&x, c) / (mean + EPS as f64).sqrt() * w.get(c, 0), at(&y, c));
                        let near = (got - want).abs() <= want.abs() * (unit::<$t>() + 4e-6) + least::<$t>();
                        assert!(near, "slab {slab}, channel {c}, position {p}: {got} for {want}");
                    }
                }
            }
            y.assert_guards();
        }
    };
}

#[test]
fn channels_first() {
    tilewright_kernels::__rms_silu_channel_tiles!(channels! { @list singles f32 });
    tilewright_kernels::__rms_silu_channel_tiles!(channels! { @list halves f16 });
    tilewright_kernels::__rms_silu_channel_tiles!(channels! { @list halves bf16 });
}

#[test]
fn no_rows_and_no_columns_are_nothing_to_do() {
    for (rows, cols) in [(0, 5), (5, 0)] {
        let (x, w) = (Matrix::<f32>::new(1, rows, cols, DENSE), Matrix::<f32>::new(1, 1, cols, DENSE));
        let mut y = Matrix::<f32>::new(1, rows, cols, Lie { gap: 1, shift: 0 });
        f32_f32(&x, &w)[0](&x, &w, &mut y, 0.0);
        y.assert_guards();
    }
}
