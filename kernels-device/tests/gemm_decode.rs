//! The products of a decode step on the CPU backend, against an f64 reference: operands exchanged, the depth shared by a
//! cluster.

mod common;

use common::{Matrix, wrong};
use tilewright::__private::backend;
use tilewright::kernel::Kernel;
use tilewright::prelude::*;
use tilewright_kernels::gemm::decode::{per_tile, persistent};
use tilewright_kernels::gemm::epilogue;

/// Runs an instance by `clusters` clusters.
fn run<K, T, const ROWS: usize, const TOKENS: usize, const DEPTH: usize>(
    a: &Matrix<T>,
    b: &Matrix<T>,
    c: &mut Matrix<T>,
    clusters: u32,
) where
    T: MmaElement + AccElement,
    K: for<'a> Kernel<
        Args<'a> = (
            TmaTiles<'a, T, TOKENS, DEPTH>,
            TmaTiles<'a, T, ROWS, DEPTH>,
            TilesMut<'a, T, TOKENS, ROWS, Linear>,
            Tiles<'a, T, 1, 64>,
            Tiles<'a, T, TOKENS, 64>,
            u32,
            f32,
            f32,
            u32,
        ),
    >,
{
    // with this activation nothing else counts
    let nothing = Matrix::<T>::random(0, c.cols, 0, 0, 1);
    let args =
        (a.tma(), b.tma(), c.tiles_mut(), nothing.tiles(), nothing.tiles(), 0, f32::NAN, f32::NAN, epilogue::SUM);
    backend::run::<K>(args, clusters).unwrap();
}

macro_rules! case {
    ($kernel:ident<$t:ty, $rows:literal, $tokens:literal, $depth:literal, $($rest:literal),*> $size:expr, $clusters:expr) => {{
        let (m, n, k) = $size;
        let a = Matrix::<$t>::random(m, k, 3, 1, 1);
        let b = Matrix::<$t>::random(n, k, 5, 2, 2);
        let mut c = Matrix::<$t>::poisoned(m, n, 1, 1);
        run::<$kernel<$t, $rows, $tokens, $depth, $($rest),*>, $t, $rows, $tokens, $depth>(&a, &b, &mut c, $clusters);
        assert_eq!(wrong(&a, &b, &c, |x| x, 1.0), 0, "{m} x {n} x {k}");
        assert!(c.guards_are_untouched(), "{m} x {n} x {k} writes outside");
        let first = c.bits();
        run::<$kernel<$t, $rows, $tokens, $depth, $($rest),*>, $t, $rows, $tokens, $depth>(&a, &b, &mut c, $clusters);
        assert!(c.bits() == first, "{m} x {n} x {k} does not repeat");
    }};
}

macro_rules! all {
    ($size:expr, $clusters:expr) => {
        case!(persistent < bf16, 64, 16, 128, 10, 2, 1, 256 > $size, $clusters);
        case!(persistent < bf16, 128, 16, 64, 11, 1, 2, 384 > $size, $clusters);
        case!(persistent < bf16, 128, 64, 64, 8, 2, 2, 384 > $size, $clusters);
        case!(per_tile < bf16, 64, 64, 64, 6, 4, 1, 256 > $size, $clusters);
        case!(persistent < bf16, 192, 64, 64, 6, 1, 3, 512 > $size, $clusters);
        case!(persistent < bf16, 128, 128, 64, 5, 3, 2, 384 > $size, $clusters);
        case!(persistent < f16, 128, 128, 64, 5, 6, 2, 384 > $size, $clusters);
        case!(per_tile < bf16, 64, 16, 64, 10, 1, 1, 256 > $size, $clusters);
    };
}

#[test]
fn whole_tiles() {
    all!((16, 128, 512), 1);
    all!((128, 256, 1024), 2);
}

#[test]
fn ragged_tiles() {
    for m in [1, 7, 8, 15, 17, 63, 65] {
        all!((m, 104, 136), 1);
    }
    for n in [1, 8, 24, 40, 72, 129, 200] {
        all!((5, n, 72), 2);
    }
}

#[test]
fn every_depth() {
    // fewer steps than blocks of a cluster: some have none
    for k in (1..=40).chain([63, 64, 65, 127, 128, 129, 300, 511]) {
        case!(persistent < bf16, 64, 16, 128, 10, 2, 1, 256 > (3, 64, k), 1);
        case!(per_tile < bf16, 64, 64, 64, 6, 4, 1, 256 > (9, 64, k), 1);
    }
}

#[test]
fn clusters_work_through_many_tiles() {
    case!(persistent < bf16, 64, 16, 128, 10, 2, 1, 256 > (16, 700, 200), 1);
    case!(persistent < bf16, 128, 16, 64, 11, 1, 2, 384 > (33, 700, 330), 2);
}
