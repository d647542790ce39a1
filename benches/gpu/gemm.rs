//! Matrix products: checked against f64, timed beside cuBLAS.

use std::cell::RefCell;

use tilewright::ops::gemm::{Factor, Path, gemm_by};
use tilewright::prelude::*;

use crate::Options;
use crate::common::check::Reference;
use crate::cublas::Cublas;
use crate::report::{Report, Row};
use crate::timing::{Candidate, candidate, measure, sets};

/// Normal values, by the sum of twelve uniform ones.
pub fn normal<T: Element<Value = f32>>(n: usize, seed: u64) -> Vec<T> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..n)
        .map(|_| {
            let mut sum = -6.0f32;
            for _ in 0..3 {
                state ^= state >> 12;
                state ^= state << 25;
                state ^= state >> 27;
                let bits = state.wrapping_mul(0x2545_f491_4f6c_dd1d);
                for part in 0..4 {
                    sum += (bits >> (16 * part) & 0xffff) as f32 / 65_536.0;
                }
            }
            T::from_value(sum)
        })
        .collect()
}

/// Shapes with every kind of edge, on every path that takes them.
pub fn check(stream: &Stream, o: &Options) -> Result<bool, Error> {
    let all = [
        (1, 1, 1),
        (64, 64, 1),
        (64, 64, 7),
        (64, 64, 40),
        (1, 24, 576),
        (7, 8, 64),
        (8, 40, 72),
        (15, 72, 128),
        (17, 104, 136),
        (63, 257, 65),
        (65, 40, 1000),
        (129, 256, 264),
        (300, 520, 200),
        (1000, 777, 1096),
        (1000, 776, 1099),
        // large tiles, with whole tiles among them; the last ones where square tiles share out better than wide ones
        (1537, 2304, 200),
        (2100, 1300, 320),
        (1800, 1700, 1099),
        (18_000, 100, 136),
    ];
    // a few for the sanitizers, which are slow
    let shapes = if o.quick { &[all[12], all[13], all[15]] } else { &all[..] };
    let mut right = true;
    for &(m, n, k) in shapes {
        right &= case::<bf16>(stream, m, n, k, Path::Portable)?;
        right &= case::<f16>(stream, m, n, k, Path::Portable)?;
        right &= case::<f32>(stream, m, n, k, Path::Portable)?;
        if k % 8 == 0 && stream.device().compute_capability() == Some((9, 0)) {
            right &= case::<bf16>(stream, m, n, k, Path::Hopper)?;
            right &= case::<f16>(stream, m, n, k, Path::Hopper)?;
        }
    }
    println!("gemm: {} shapes, every element against f64: {}", shapes.len(), if right { "right" } else { "WRONG" });
    Ok(right)
}

fn case<T: Factor>(stream: &Stream, m: usize, n: usize, k: usize, path: Path) -> Result<bool, Error> {
    let (a, b) = (normal::<T>(m * k, 1), normal::<T>(n * k, 2));
    let da = Tensor::from_slice(stream, [m, k], &a)?;
    let db = Tensor::from_slice(stream, [n, k], &b)?;
    // one row and one element more on each side, which must stay as they are
    let mut dc = Tensor::<T, 2>::full(stream, [m + 2, n], T::from_value(f32::NAN))?;
    gemm_by(path, stream, da.view(), db.view(), dc.view_mut().rows(1..m + 1)?)?;
    let all = dc.to_vec(stream)?;
    let mut again = true;
    for _ in 0..3 {
        gemm_by(path, stream, da.view(), db.view(), dc.view_mut().rows(1..m + 1)?)?;
        let bits = |v: &[T]| v.iter().map(|x| x.to_value().to_bits()).collect::<Vec<_>>();
        again &= bits(&dc.to_vec(stream)?) == bits(&all);
    }
    let widen = |v: &[T]| v.iter().map(|x| f64::from(x.to_value())).collect::<Vec<_>>();
    let c: Vec<f32> = all[n..n * (m + 1)].iter().map(|x| x.to_value()).collect();
    let guards = all[..n].iter().chain(&all[n * (m + 1)..]).all(|x| x.to_value().is_nan());
    let worst = Reference::product(&widen(&a), &widen(&b), m, n, k).check(&c, T::DTYPE, k);
    let right = worst.outside == 0 && guards && again;
    if !right {
        println!("gemm {} {m}x{n}x{k} {path}: {worst}; guards {guards}; repeatable {again}", T::DTYPE);
    }
    Ok(right)
}

/// The shapes of the project's aim, beside cuBLAS and beside each other.
pub fn time(stream: &Stream, o: &Options, report: &mut Report) -> Result<(), Error> {
    let mut shapes = vec![(4096, 4096, 4096), (8192, 8192, 8192)];
    if !o.quick {
        shapes.extend([(4096, 7168, 2048), (4096, 4096, 7168), (4096, 7168, 16384), (1024, 1024, 1024)]);
    }
    let cublas = Cublas::load(stream).inspect_err(|e| println!("cuBLAS is not here: {e}")).ok();
    for (m, n, k) in shapes {
        time_shape::<bf16>(stream, o, cublas.as_ref(), report, m, n, k)?;
    }
    time_shape::<f16>(stream, o, cublas.as_ref(), report, 4096, 4096, 4096)
}

fn time_shape<T: Factor>(
    stream: &Stream,
    o: &Options,
    cublas: Option<&Cublas>,
    report: &mut Report,
    m: usize,
    n: usize,
    k: usize,
) -> Result<(), Error> {
    let count = sets((m * k + n * k + m * n) * size_of::<T>());
    let mut buffers = Vec::new();
    for set in 0..count as u64 {
        let a = Tensor::from_slice(stream, [m, k], &normal::<T>(m * k, 2 * set + 1))?;
        let b = Tensor::from_slice(stream, [n, k], &normal::<T>(n * k, 2 * set + 2))?;
        buffers.push((a, b, RefCell::new(Tensor::<T, 2>::zeros(stream, [m, n])?)));
    }
    let ours = |path| {
        let buffers = &buffers;
        move |s: &Stream, set: usize| {
            let (a, b, c) = &buffers[set];
            gemm_by(path, s, a.view(), b.view(), c.borrow_mut().view_mut())
        }
    };
    let mut all: Vec<Candidate> = Vec::new();
    if stream.device().compute_capability() == Some((9, 0)) {
        all.push(candidate(stream, "hopper", count, ours(Path::Hopper))?);
    }
    all.push(candidate(stream, "portable", count, ours(Path::Portable))?);
    if let Some(cublas) = cublas {
        let call = |s: &Stream, set: usize| {
            let (a, b, c) = &buffers[set];
            cublas.gemm(s, a, b, &mut c.borrow_mut()).map_err(|log| Error::Driver {
                call: "cublasGemmEx",
                code: 0,
                name: "cuBLAS".into(),
                log,
            })
        };
        all.push(candidate(stream, "cublas", count, call)?);
    }
    measure(stream, &mut all, if o.quick { 5 } else { 9 }, 20.0)?;
    let micros = |name: &str| all.iter().find(|c| c.name == name).map(Candidate::micros);
    let shape = format!("{m}x{n}x{k}");
    let rate = |us: f64| format!("{:.0} TFLOP/s", 2e-6 * (m * n * k) as f64 / us);
    for (op, path) in [("gemm_hopper", "hopper"), ("gemm_portable", "portable")] {
        for peer in ["cublas", "hopper"] {
            let (Some(ours_us), Some(peer_us)) = (micros(path), micros(peer)) else { continue };
            if path != peer {
                let (shape, rate) = (shape.clone(), rate(ours_us));
                report.add(Row { op, dtype: T::DTYPE, shape, ours_us, peer, peer_us, rate });
            }
        }
    }
    Ok(())
}
