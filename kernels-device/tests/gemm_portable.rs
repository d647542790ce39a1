//! The portable product on the CPU backend, against an f64 reference: sizes, strides and offsets that break others.

mod common;

use common::{Matrix, wrong};
use tilewright::__private::backend;
use tilewright::kernel::Kernel;
use tilewright::prelude::*;
use tilewright_kernels::gemm::portable::{self, plain};

/// Where operands and the output lie: more elements from row to row than columns, and elements before the first.
#[derive(Clone, Copy, Default)]
struct Place {
    extra: usize,
    offset: usize,
}

/// Runs an instance by `workers` blocks.
fn run<T, O, const M: usize, const N: usize, const K: usize, const STAGES: usize, const THREADS: usize>(
    a: &Matrix<T>,
    b: &Matrix<T>,
    c: &mut Matrix<O>,
    workers: u32,
) where
    T: DotElement,
    O: DotElement,
    Split<M, N, THREADS>: BlockProduct,
    for<'a> plain<T, O, M, N, K, STAGES, THREADS>:
        Kernel<Args<'a> = (Tiles<'a, T, M, K>, Tiles<'a, T, N, K>, TilesMut<'a, O, M, N, Grouped<16>>)>,
{
    let args = (a.tiles(), b.tiles(), c.tiles_mut().schedule(Grouped::<16>));
    backend::run::<plain<T, O, M, N, K, STAGES, THREADS>>(args, workers).unwrap();
}

macro_rules! case {
    (<$t:ty, $o:ty, $m:literal, $n:literal, $k:literal, $stages:literal, $threads:literal> $size:expr, $place:expr, $workers:expr) => {{
        let ((m, n, k), p): ((usize, usize, usize), Place) = ($size, $place);
        let a = Matrix::<$t>::random(m, k, p.extra, p.offset, 1);
        let b = Matrix::<$t>::random(n, k, p.extra, p.offset, 2);
        let mut c = Matrix::<$o>::poisoned(m, n, p.extra, p.offset);
        run::<$t, $o, $m, $n, $k, $stages, $threads>(&a, &b, &mut c, $workers);
        assert_eq!(wrong(&a, &b, &c, |x| x, 1.0), 0, "{m} x {n} x {k}");
        assert!(c.guards_are_untouched(), "{m} x {n} x {k} writes outside");
    }};
}

/// The small instances of the three types.
fn small(size: (usize, usize, usize), place: Place) {
    case!(<f32, f32, 64, 64, 16, 4, 128> size, place, 3);
    case!(<bf16, bf16, 64, 64, 32, 4, 128> size, place, 3);
    case!(<f16, f16, 64, 64, 32, 4, 128> size, place, 3);
}

/// The large ones.
fn large(size: (usize, usize, usize), place: Place) {
    case!(<f32, f32, 128, 128, 16, 4, 256> size, place, 3);
    case!(<bf16, bf16, 128, 256, 32, 4, 256> size, place, 3);
    case!(<f16, f16, 128, 256, 32, 4, 256> size, place, 3);
    case!(<bf16, bf16, 128, 128, 64, 3, 128> size, place, 3);
    case!(<f16, f16, 128, 128, 64, 3, 128> size, place, 3);
    case!(<bf16, f32, 128, 128, 64, 3, 128> size, place, 3);
    case!(<f16, f32, 128, 128, 64, 3, 128> size, place, 3);
}

const ODD: Place = Place { extra: 3, offset: 1 };

#[test]
fn every_depth_to_40() {
    for k in 1..=40 {
        small((64, 64, k), Place::default());
        small((64, 64, k), ODD);
    }
}

#[test]
fn depths_that_end_within_a_tile_or_at_its_edge() {
    for k in [32, 64, 96, 100, 128, 129, 160, 250, 256, 257, 600] {
        large((128, 256, k), Place::default());
        small((64, 64, k), ODD);
    }
}

#[test]
fn ragged_heights_and_widths() {
    for m in [1, 7, 8, 15, 17, 63, 65] {
        for n in [1, 8, 24, 40, 72, 104] {
            small((m, n, 40), Place::default());
        }
    }
    for m in [1, 63, 65, 127, 129] {
        for n in [1, 40, 104, 255, 257] {
            large((m, n, 72), Place::default());
        }
    }
}

#[test]
fn odd_strides_and_views_that_begin_one_element_in() {
    for extra in [0, 1, 2, 5, 8] {
        for offset in [0, 1, 2, 3] {
            small((65, 40, 77), Place { extra, offset });
        }
    }
    large((129, 130, 77), ODD);
    large((129, 130, 80), Place { extra: 8, offset: 2 });
}

#[test]
fn many_tiles_by_few_blocks() {
    for workers in [1, 2, 5, 64] {
        case!(<f32, f32, 64, 64, 16, 4, 128> (300, 333, 50), ODD, workers);
        case!(<bf16, bf16, 128, 256, 32, 4, 256> (300, 600, 50), ODD, workers);
    }
}

#[test]
fn no_depth_gives_zeros() {
    let (a, b) = (Matrix::<bf16>::random(70, 0, 8, 0, 1), Matrix::<bf16>::random(70, 0, 8, 0, 2));
    let mut c = Matrix::<bf16>::poisoned(70, 70, 0, 0);
    run::<bf16, bf16, 64, 64, 32, 4, 128>(&a, &b, &mut c, 4);
    assert!((0..70).all(|i| (0..70).all(|j| c.at(i, j) == 0.0)));
}

#[test]
fn nan_and_infinity_stay_where_they_belong() {
    for (row, column, value) in
        [(0, 0, f32::NAN), (64, 39, f32::NAN), (3, 16, f32::INFINITY), (17, 33, f32::NEG_INFINITY)]
    {
        let mut seed = 3;
        let mut a = Matrix::<bf16>::random(65, 40, 0, 0, 1);
        // no zeros in B: infinity times zero is NaN, which is the oracle's affair, not this test's
        let b = Matrix::<bf16>::new(50, 40, 0, 0, |_, _| 0.5 + common::next(&mut seed).abs());
        a.data[a.offset + row * a.stride + column] = bf16::from_f32(value);
        let mut c = Matrix::<bf16>::poisoned(65, 50, 0, 0);
        run::<bf16, bf16, 64, 64, 32, 4, 128>(&a, &b, &mut c, 2);
        assert_eq!(wrong(&a, &b, &c, |x| x, 1.0), 0);
    }
    let a = Matrix::<f16>::new(8, 64, 0, 0, |_, _| 100.0);
    let mut c = Matrix::<f16>::poisoned(8, 8, 0, 0);
    run::<f16, f16, 64, 64, 32, 4, 128>(&a, &a, &mut c, 1);
    assert!((0..64).all(|i| c.at(i / 8, i % 8) == f32::INFINITY), "an f16 output overflows to infinity");
}

#[test]
fn the_same_bits_whoever_computes_them() {
    let (a, b) = (Matrix::<bf16>::random(200, 300, 0, 0, 1), Matrix::<bf16>::random(500, 300, 0, 0, 2));
    let mut first = None;
    for workers in [1, 2, 3, 7, 7, 7] {
        let mut c = Matrix::<bf16>::poisoned(200, 500, 0, 0);
        run::<bf16, bf16, 128, 256, 32, 4, 256>(&a, &b, &mut c, workers);
        assert_eq!(*first.get_or_insert(c.bits()), c.bits());
    }
}

/// A kernel with an epilogue of its own.
#[kernel]
fn clamped(
    cta: Cta<128>,
    #[shared] stages: Stages<bf16, 64, 64, 64, 3>,
    a: Tiles<bf16, 64, 64>,
    b: Tiles<bf16, 64, 64>,
    c: TilesMut<f32, 64, 64>,
    most: f32,
) {
    let (mut cta, mut stages) = (cta, stages);
    portable::product(&mut cta, &mut stages, a, b, c, |x| if x > most { most } else { 2.0 * x });
}

/// A kernel that names each pair of tiles itself.
#[kernel]
fn tile_by_tile(
    cta: Cta<128>,
    #[shared] stages: Stages<bf16, 64, 64, 32, 4>,
    a: Tiles<bf16, 64, 32>,
    b: Tiles<bf16, 64, 32>,
    c: TilesMut<f32, 64, 64>,
) {
    let (mut cta, mut stages) = (cta, stages);
    for ((i, j), out) in c {
        // twice, the second time from the last pair to the first
        let once = cta.accumulate(&mut stages, a.across(), |k| (a.tile(i, k), b.tile(j, k)), BlockAcc::zero());
        let last = a.across() - 1;
        let twice = cta.accumulate(&mut stages, last + 1, |k| (a.tile(i, last - k), b.tile(j, last - k)), once);
        out.store_acc(&mut cta, twice);
    }
}

tilewright::images!(none);

#[test]
fn pairs_of_tiles_in_any_order() {
    let (a, b) = (Matrix::<bf16>::random(100, 150, 1, 1, 1), Matrix::<bf16>::random(90, 150, 1, 1, 2));
    let mut c = Matrix::<f32>::poisoned(100, 90, 1, 1);
    backend::run::<tile_by_tile>((a.tiles(), b.tiles(), c.tiles_mut()), 2).unwrap();
    assert_eq!(wrong(&a, &b, &c, |x| 2.0 * x, 2.0), 0);
}

#[test]
fn an_epilogue_of_ones_own() {
    let (a, b) = (Matrix::<bf16>::random(100, 150, 1, 1, 1), Matrix::<bf16>::random(90, 150, 1, 1, 2));
    let mut c = Matrix::<f32>::poisoned(100, 90, 1, 1);
    backend::run::<clamped>((a.tiles(), b.tiles(), c.tiles_mut(), 1e9), 2).unwrap();
    assert_eq!(wrong(&a, &b, &c, |x| 2.0 * x, 2.0), 0);
    backend::run::<clamped>((a.tiles(), b.tiles(), c.tiles_mut(), -1e9), 2).unwrap();
    assert_eq!(wrong(&a, &b, &c, |_| -1e9, 0.0), 0);
}
