//! The Hopper products on the CPU backend, against an f64 reference: roles as threads, slots as counters, a cluster of
//! two with multicast.

// `!(error <= allowed)` is true of NaN, which is what is meant
#![allow(clippy::neg_cmp_op_on_partial_ord)]

use tilewright::__private::{RawView, backend};
use tilewright::element::{Element, bf16, f16};
use tilewright::prelude::*;
use tilewright_kernels::gemm::{hopper, ping_pong};

fn random<T: Element<Value = f32>>(n: usize, mut seed: u64) -> Vec<T> {
    (0..n)
        .map(|_| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            T::from_value(((seed >> 40) as f32 / (1u64 << 23) as f32) - 1.0)
        })
        .collect()
}

/// Runs `launch` on random operands and compares every element with f64. `launch` fills C, which is NaN before.
fn case<T: Element<Value = f32>>(m: usize, n: usize, k: usize, launch: impl FnOnce(&[T], &[T], &mut [T])) {
    let (a, b) = (random::<T>(m * k, 1), random::<T>(n * k, 2));
    let mut c = vec![T::from_value(f32::NAN); m * n];
    launch(&a, &b, &mut c);
    let unit = if T::DTYPE == DType::BF16 { 1.0 / 256.0 } else { 1.0 / 2048.0 };
    let mut bad = 0;
    for i in 0..m {
        for j in 0..n {
            let want: f64 = (0..k).map(|x| a[i * k + x].to_value() as f64 * b[j * k + x].to_value() as f64).sum();
            let got = c[i * n + j].to_value() as f64;
            bad += !((got - want).abs() <= want.abs() * unit + (k as f64).sqrt() * 1e-5) as usize;
        }
    }
    assert_eq!(bad, 0, "{m}x{n}x{k}");
}

fn raw(rows: usize, cols: usize) -> RawView {
    RawView::matrix(rows as u32, cols as u32, cols as u64)
}

macro_rules! launch {
    ($kernel:ty, $t:ty, $out:ident, $m:expr, $n:expr, $k:expr, $clusters:expr) => {{
        let (m, n, k) = ($m, $n, $k);
        case::<$t>(m, n, k, |a, b, c| {
            let args = (
                TmaTiles::in_slice(a, raw(m, k)).unwrap(),
                TmaTiles::in_slice(b, raw(n, k)).unwrap(),
                $out::in_slice(c, raw(m, n)).unwrap().schedule(Grouped::<8>),
            );
            backend::run::<$kernel>(args, $clusters).unwrap();
        });
    }};
}

macro_rules! all {
    ($t:ty, $m:expr, $n:expr, $k:expr, $clusters:expr) => {
        launch!(hopper::staged<$t, 256, 4>, $t, TmaTilesMut, $m, $n, $k, $clusters);
        launch!(hopper::direct<$t, 256, 4>, $t, TilesMut, $m, $n, $k, $clusters);
        launch!(ping_pong::staged<$t>, $t, TmaTilesMut, $m, $n, $k, $clusters);
        launch!(ping_pong::direct<$t, $t>, $t, TilesMut, $m, $n, $k, $clusters);
    };
}

#[test]
fn whole_tiles() {
    all!(bf16, 256, 256, 64, 1);
    all!(bf16, 512, 256, 640, 2);
    all!(f16, 256, 512, 128, 3);
}

#[test]
fn ragged_tiles() {
    for (m, n, k) in [(1, 1, 1), (65, 40, 72), (129, 257, 65), (300, 300, 1), (17, 513, 257)] {
        all!(bf16, m, n, k, 2);
        all!(f16, m, n, k, 1);
    }
}
