//! The CPU backend: products beside the `gemm` crate called directly with as many threads, norms, and an empty launch.
//!
//! `cargo bench --bench cpu`

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use tilewright::kernels::elementwise::axpy;
use tilewright::ops::gemm::gemm;
use tilewright::ops::rmsnorm::rmsnorm;
use tilewright::prelude::*;

fn values(n: usize, step: f32) -> Vec<f32> {
    (0..n).map(|i| (i as f32 * step).sin()).collect()
}

/// f32, 1024^3: the front door and the crate that its tiles are multiplied with.
fn products(c: &mut Criterion) {
    let n = 1024;
    let (a, b) = (values(n * n, 0.37), values(n * n, 0.71));
    let stream = Device::cpu().stream().expect("the CPU has a stream");
    let tensor = |v: &[f32]| Tensor::<f32, 2>::from_slice(&stream, [n, n], v).expect("memory");
    let (da, db, mut dc) = (tensor(&a), tensor(&b), tensor(&a));
    let mut group = c.benchmark_group("gemm_f32_1024");
    group.sample_size(20);
    group.bench_function("tilewright", |bench| {
        bench.iter(|| gemm(&stream, da.view(), db.view(), dc.view_mut()).expect("a product"));
    });
    let mut out = vec![0.0f32; n * n];
    let (s, threads) = (n as isize, ::gemm::Parallelism::Rayon(0));
    group.bench_function("gemm_crate", |bench| {
        // SAFETY: the vectors hold the matrices that the strides describe.
        bench.iter(|| unsafe {
            let (c, a, b) = (out.as_mut_ptr(), a.as_ptr(), b.as_ptr());
            ::gemm::gemm(n, n, n, c, 1, s, false, a, 1, s, b, s, 1, 0.0, 1.0, false, false, false, threads);
            black_box(&mut out);
        });
    });
    group.finish();
}

fn rows(c: &mut Criterion) {
    let stream = Device::cpu().stream().expect("the CPU has a stream");
    let x = Tensor::<f32, 2>::from_slice(&stream, [512, 4096], &values(512 * 4096, 0.13)).expect("memory");
    let w = Tensor::<f32, 1>::full(&stream, [4096], 1.5).expect("memory");
    let mut y = Tensor::<f32, 2>::zeros(&stream, [512, 4096]).expect("memory");
    c.bench_function("rmsnorm_f32_512x4096", |bench| {
        bench.iter(|| rmsnorm(&stream, x.view(), w.view(), y.view_mut(), 1e-5).expect("a norm"));
    });
    let small = Tensor::<f32, 1>::full(&stream, [64], 1.0).expect("memory");
    let mut out = Tensor::<f32, 1>::zeros(&stream, [64]).expect("memory");
    c.bench_function("launch_one_block", |bench| {
        bench.iter(|| {
            let (x, y) = (small.tiles().expect("tiles"), out.tiles_mut().expect("tiles"));
            axpy::<f32>::launch(&stream, (0.5, x, y)).expect("a launch");
        });
    });
}

criterion_group!(cpu, products, rows);
criterion_main!(cpu);
