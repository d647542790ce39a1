//! Products with epilogues on the CPU backend, against an f64 reference: bias, activation, residual, and what C held.

// `!(error <= allowed)` is true of NaN, which is what is meant
#![allow(clippy::neg_cmp_op_on_partial_ord)]

mod common;

use common::Matrix;
use tilewright::__private::backend;
use tilewright::element::Element;
use tilewright::prelude::*;
use tilewright_kernels::gemm::{decode, epilogue, ping_pong};

const ALPHA: f32 = 0.5;
const BETA: f32 = -1.5;

struct Case<T> {
    a: Matrix<T>,
    b: Matrix<T>,
    bias: Matrix<T>,
    residual: Matrix<T>,
    before: Matrix<T>,
}

impl<T: Element<Value = f32>> Case<T> {
    fn new(m: usize, n: usize, k: usize) -> Self {
        Case {
            a: Matrix::random(m, k, 3, 1, 1),
            b: Matrix::random(n, k, 5, 2, 2),
            bias: Matrix::random(1, n, 0, 3, 3),
            residual: Matrix::random(m, n, 7, 5, 4),
            before: Matrix::random(m, n, 1, 1, 5),
        }
    }
    /// How many elements of `c` are wrong. Where a kernel has them not, bias and residual count as zero.
    fn wrong(&self, c: &Matrix<T>, activation: u32, keep: f32, plain: bool, no_residual: bool) -> usize {
        let f = |x: f64| match activation {
            epilogue::RELU => x.max(0.0),
            epilogue::GELU => 0.5 * x * (1.0 + (0.797_884_560_8 * (x + 0.044_715 * x * x * x)).tanh()),
            epilogue::SILU => x / (1.0 + (-x).exp()),
            _ => x,
        };
        let mut wrong = 0;
        for i in 0..c.rows {
            for j in 0..c.cols {
                let sum: f64 = (0..self.a.cols).map(|x| self.a.at(i, x) as f64 * self.b.at(j, x) as f64).sum();
                let (bias, r) = if plain { (0.0, 0.0) } else { (self.bias.at(0, j), BETA * self.residual.at(i, j)) };
                let r = if no_residual { 0.0 } else { r };
                let mut want = f(ALPHA as f64 * sum + bias as f64) + r as f64;
                if keep != 0.0 {
                    want += keep as f64 * self.before.at(i, j) as f64;
                }
                let allowed = want.abs() * Matrix::<T>::rounding() + 2e-6 * (self.a.cols as f64).sqrt() + 1e-5;
                // true of NaN
                wrong += !((c.at(i, j) as f64 - want).abs() <= allowed) as usize;
            }
        }
        wrong
    }
}

fn all<T: MmaElement>(m: usize, n: usize, k: usize, clusters: u32)
where
    for<'a> ping_pong::fused_staged<T>: Kernel<
        Args<'a> = (
            TmaTiles<'a, T, 128, 64>,
            TmaTiles<'a, T, 128, 64>,
            TmaTilesMut<'a, T, 256, 128, Grouped<8>>,
            Tiles<'a, T, 1, 128>,
            f32,
            u32,
        ),
    >,
    for<'a> ping_pong::fused_over<T>: Kernel<
        Args<'a> = (
            TmaTiles<'a, T, 128, 64>,
            TmaTiles<'a, T, 128, 64>,
            TmaTilesMut<'a, T, 256, 128, Grouped<8>>,
            Tiles<'a, T, 1, 128>,
            TmaTiles<'a, T, 64, 128>,
            u32,
            f32,
            f32,
            u32,
        ),
    >,
    for<'a> ping_pong::fused_direct<T>: Kernel<
        Args<'a> = (
            TmaTiles<'a, T, 128, 64>,
            TmaTiles<'a, T, 128, 64>,
            TilesMut<'a, T, 256, 128, Grouped<8>>,
            Tiles<'a, T, 1, 128>,
            Tiles<'a, T, 128, 128>,
            f32,
            f32,
            f32,
            u32,
        ),
    >,
    for<'a> decode::persistent<T, 64, 16, 128, 10, 2, 1, 256>: Kernel<
        Args<'a> = (
            TmaTiles<'a, T, 16, 128>,
            TmaTiles<'a, T, 64, 128>,
            TilesMut<'a, T, 16, 64, Linear>,
            Tiles<'a, T, 1, 64>,
            Tiles<'a, T, 16, 64>,
            u32,
            f32,
            f32,
            u32,
        ),
    >,
    for<'a> decode::per_tile<T, 64, 64, 64, 6, 4, 1, 256>: Kernel<
        Args<'a> = (
            TmaTiles<'a, T, 64, 64>,
            TmaTiles<'a, T, 64, 64>,
            TilesMut<'a, T, 64, 64, Linear>,
            Tiles<'a, T, 1, 64>,
            Tiles<'a, T, 64, 64>,
            u32,
            f32,
            f32,
            u32,
        ),
    >,
{
    let case = Case::<T>::new(m, n, k);
    let (nothing, no_bias) = (Matrix::<T>::random(0, n, 0, 0, 1), Matrix::<T>::random(0, n, 0, 0, 1));
    for activation in [epilogue::IDENTITY, epilogue::RELU, epilogue::GELU, epilogue::SILU] {
        for plain in [false, true] {
            let (bias, residual, beta) =
                if plain { (&no_bias, &nothing, 0.0) } else { (&case.bias, &case.residual, BETA) };
            let what = format!("{m}x{n}x{k}, activation {activation}, plain {plain}");
            // C is NaN before where it is not kept
            let mut c = Matrix::<T>::poisoned(m, n, 1, 1);
            let args =
                (case.a.tma(), case.b.tma(), c.tma_mut().schedule(Grouped::<8>), bias.tiles(), ALPHA, activation);
            backend::run::<ping_pong::fused_staged<T>>(args, clusters).unwrap();
            assert_eq!(case.wrong(&c, activation, 0.0, plain, true), 0, "staged {what}");
            for keep in [0.0, 2.0] {
                macro_rules! direct {
                    ($kernel:ty, $c:ident => $make:expr, $residual:expr, $first:expr, $($rest:expr),*) => {{
                        let mut $c =
                            if keep == 0.0 { Matrix::<T>::poisoned(m, n, 1, 1) } else { case.before.clone() };
                        let args = (case.a.tma(), case.b.tma(), $make, bias.tiles(), $residual, $first, $($rest),*);
                        backend::run::<$kernel>(args, clusters).unwrap();
                        // those of one factor have what C held before in the residual's place
                        let instead = keep != 0.0 && !stringify!($kernel).contains("direct");
                        assert_eq!(case.wrong(&$c, activation, keep, plain, instead), 0, "{} {what}", stringify!($kernel));
                        assert!($c.guards_are_untouched(), "{what} writes outside");
                    }};
                }
                let (own, factor) = ((keep != 0.0) as u32, if keep == 0.0 { beta } else { keep });
                direct!(ping_pong::fused_direct<T>, c => c.tiles_mut().schedule(Grouped::<8>), residual.tiles(), ALPHA, beta, keep, activation);
                direct!(ping_pong::fused_over<T>, c => c.tma_mut().schedule(Grouped::<8>), residual.tma(), own, ALPHA, factor, activation);
                direct!(decode::persistent<T, 64, 16, 128, 10, 2, 1, 256>, c => c.tiles_mut(), residual.tiles(), own, ALPHA, factor, activation);
                direct!(decode::per_tile<T, 64, 64, 64, 6, 4, 1, 256>, c => c.tiles_mut(), residual.tiles(), own, ALPHA, factor, activation);
            }
        }
    }
}

#[test]
fn whole_tiles() {
    all::<bf16>(128, 128, 64, 1);
}

#[test]
fn ragged_tiles() {
    for (m, n, k) in [(1, 1, 1), (7, 24, 40), (17, 104, 72), (65, 129, 65)] {
        all::<bf16>(m, n, k, 1);
        all::<f16>(m, n, k, 2);
    }
}
