//! The ping-pong product on the CPU backend, against an f64 reference: two consumers that pass the ring to each other, a
//! tile of 128 rows for each, a cluster of two with multicast.

use tilewright::__private::{Provenance, RawView, backend};
use tilewright::element::{Element, bf16};
use tilewright::prelude::*;
use tilewright::tma::TensorMap;
use tilewright_kernels::gemm::ping_pong;

fn random<T: Element<Value = f32>>(n: usize, mut seed: u64) -> Vec<T> {
    (0..n)
        .map(|_| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            T::from_value(((seed >> 40) as f32 / (1u64 << 23) as f32) - 1.0)
        })
        .collect()
}

fn case<T: Element<Value = f32> + MmaElement>(m: usize, n: usize, k: usize, clusters: u32)
where
    ping_pong::plain<T>: for<'a> Kernel<
        Args<'a> = (TmaTiles<'a, T, 128, 64>, TmaTiles<'a, T, 128, 64>, TmaTilesMut<'a, T, 256, 128, Grouped<8>>),
    >,
{
    let (a, b) = (random::<T>(m * k, 1), random::<T>(n * k, 2));
    let mut c = vec![T::from_value(f32::NAN); m * n];
    let raw = |r: usize, c: usize| RawView::matrix(r as u32, c as u32, c as u64);
    let map = TensorMap([0; 16]);
    // SAFETY: the vectors hold the matrices and outlive the launch.
    let args = unsafe {
        (
            TmaTiles::from_raw(a.as_ptr(), raw(m, k), map, Provenance::UNTRACKED_CPU),
            TmaTiles::from_raw(b.as_ptr(), raw(n, k), map, Provenance::UNTRACKED_CPU),
            TmaTilesMut::from_raw(c.as_mut_ptr(), raw(m, n), map, Provenance::UNTRACKED_CPU).schedule(Grouped::<8>),
        )
    };
    backend::run::<ping_pong::plain<T>>(args, clusters).unwrap();
    let unit = if T::DTYPE == DType::BF16 { 1.0 / 256.0 } else { 1.0 / 2048.0 };
    let mut bad = 0;
    for i in 0..m {
        for j in 0..n {
            let want: f64 =
                (0..k).map(|x| a[i * k + x].to_value() as f64 * b[j * k + x].to_value() as f64).sum();
            let got = c[i * n + j].to_value() as f64;
            bad += !((got - want).abs() <= want.abs() * unit + (k as f64).sqrt() * 1e-5) as usize;
        }
    }
    assert_eq!(bad, 0, "{m}x{n}x{k} over {clusters} clusters");
}

#[test]
fn whole_tiles() {
    case::<bf16>(256, 128, 64, 1);
    case::<bf16>(512, 256, 640, 1);
    case::<bf16>(256, 640, 128, 2);
}

#[test]
fn ragged_tiles() {
    for (m, n, k) in [(1, 1, 1), (65, 40, 72), (129, 257, 65), (300, 300, 1), (17, 513, 257)] {
        case::<bf16>(m, n, k, 2);
        case::<bf16>(m, n, k, 1);
    }
}
