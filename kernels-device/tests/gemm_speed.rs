//! The portable product on the CPU backend beside the `gemm` crate: `cargo test --release --test gemm_speed -- --ignored`.

mod common;

use common::Matrix;
use std::time::Instant;
use tilewright::__private::backend;
use tilewright::prelude::*;
use tilewright_kernels::gemm::portable::plain;

/// The best time of each, taken in turns: whatever else the machine does, it does to both.
fn best(mut f: impl FnMut(), mut g: impl FnMut()) -> (f64, f64) {
    let time = |f: &mut dyn FnMut()| {
        let begin = Instant::now();
        f();
        begin.elapsed().as_secs_f64()
    };
    (0..20).fold((f64::INFINITY, f64::INFINITY), |(x, y), _| (x.min(time(&mut f)), y.min(time(&mut g))))
}

/// `C = A B^T` by the library itself, rows shared out among `threads` threads.
fn library(n: usize, a: &[f32], b: &[f32], c: &mut [f32], threads: usize) {
    let rows = n.div_ceil(threads);
    std::thread::scope(|s| {
        for (a, c) in a.chunks(rows * n).zip(c.chunks_mut(rows * n)) {
            s.spawn(move || {
                let n_ = n as isize;
                // SAFETY: the slices hold the matrices that the strides describe.
                unsafe {
                    gemm::gemm(
                        c.len() / n,
                        n,
                        n,
                        c.as_mut_ptr(),
                        1,
                        n_,
                        false,
                        a.as_ptr(),
                        1,
                        n_,
                        b.as_ptr(),
                        n_,
                        1,
                        0.0f32,
                        1.0f32,
                        false,
                        false,
                        false,
                        gemm::Parallelism::None,
                    )
                }
            });
        }
    });
}

#[test]
#[ignore = "a measurement; wants the machine for itself"]
fn at_least_half_the_speed_of_the_library() {
    let n = 1024;
    let (a, b) = (Matrix::<f32>::random(n, n, 0, 0, 1), Matrix::<f32>::random(n, n, 0, 0, 2));
    let mut c = Matrix::<f32>::poisoned(n, n, 0, 0);
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let mut d = vec![0.0; n * n];
    let (ours, theirs) = best(
        || {
            let args = (a.tiles(), b.tiles(), c.tiles_mut().schedule(Grouped::<16>));
            backend::run::<plain<f32, f32, 128, 128, 16, 4, 256>>(args, 64).unwrap();
        },
        || library(n, &a.data[a.offset..][..n * n], &b.data[b.offset..][..n * n], &mut d, threads),
    );
    let flops = 2.0 * (n as f64).powi(3) / 1e9;
    let ratio = theirs / ours;
    println!("{threads} threads: {:.1} GFLOP/s, the library {:.1}, ratio {ratio:.2}", flops / ours, flops / theirs);
    assert!(ratio >= 0.5);
}
