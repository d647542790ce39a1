//! Matrix products: checked against f64, timed beside cuBLAS.

use std::cell::RefCell;

use tilewright::ops::gemm::{Activation, Config, Epilogue, Factor, Path, gemm_by, gemm_fused, gemm_with};
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

/// Shapes with every kind of edge, in every configuration that takes them.
pub fn check(stream: &Stream, o: &Options) -> Result<bool, Error> {
    let mut all = vec![
        (1, 1, 1),
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
        (16, 4096, 512),
        (64, 9000, 264),
    ];
    all.extend((1..=40).map(|k| (64, 64, k)));
    // a few for the sanitizers, which are slow
    let shapes = if o.quick { &all[5..6] } else { &all[..] };
    let mut right = true;
    let mut cases = 0;
    for &(m, n, k) in shapes {
        if o.config.as_deref() != Some("fused") {
            right &= case::<bf16>(stream, o, [m, n, k], &mut cases)?;
            right &= case::<f16>(stream, o, [m, n, k], &mut cases)?;
            right &= case::<f32>(stream, o, [m, n, k], &mut cases)?;
        }
        if o.config.as_deref().is_none_or(|name| name == "fused") {
            right &= fused::<bf16>(stream, m, n, k, &mut cases)?;
            right &= fused::<f16>(stream, m, n, k, &mut cases)?;
            right &= fused::<f32>(stream, m, n, k, &mut cases)?;
        }
    }
    let verdict = if right { "right" } else { "WRONG" };
    println!("gemm: {} shapes, {cases} cases, every element against f64: {verdict}", shapes.len());
    Ok(right)
}

fn widen<T: Element<Value = f32>>(v: &[T]) -> Vec<f64> {
    v.iter().map(|x| f64::from(x.to_value())).collect()
}

/// Whether a configuration takes a product.
pub fn takes<T: Factor>(stream: &Stream, config: Config, k: usize) -> bool {
    let hopper = stream.device().compute_capability() == Some((9, 0));
    let halves = T::DTYPE != DType::F32;
    match config {
        Config::PortableWide => halves,
        _ => config.path() == Path::Portable || hopper && halves && k.is_multiple_of(8),
    }
}

/// Runs `launch` four times on an output with a row more on each side, and compares it with f64.
fn compare<T: Factor>(
    stream: &Stream,
    [m, n, k]: [usize; 3],
    what: &str,
    reference: &Reference,
    mut launch: impl FnMut(TensorViewMut<'_, T, 2>) -> Result<(), Error>,
) -> Result<bool, Error> {
    let mut first: Vec<f32> = Vec::new();
    let (mut again, mut guards) = (true, true);
    // dense, twice; and in rows that end at a multiple of 16 bytes, as the copy engine wants them, with columns to spare
    for width in [n, n, n.next_multiple_of(8) + 8] {
        // one row more on each side, and all columns to spare, must stay as they are
        let mut dc = Tensor::<T, 2>::full(stream, [m + 2, width], T::from_value(f32::NAN))?;
        launch(dc.view_mut().rows(1..m + 1)?.cols(0..n)?)?;
        let all: Vec<f32> = dc.to_vec(stream)?.iter().map(|x| x.to_value()).collect();
        let inside = |e: usize| (1..=m).contains(&(e / width)) && e % width < n;
        guards &= all.iter().enumerate().all(|(e, x)| inside(e) || x.is_nan());
        let c: Vec<f32> = (0..m * n).map(|e| all[(e / n + 1) * width + e % n]).collect();
        if first.is_empty() {
            first = c;
        } else {
            again &= c.iter().zip(&first).all(|(x, y)| x.to_bits() == y.to_bits());
        }
    }
    let c = first;
    let worst = reference.check(&c, T::DTYPE, k);
    let right = worst.outside == 0 && guards && again;
    if !right {
        println!("gemm {} {m}x{n}x{k} {what}: {worst}; guards {guards}; repeatable {again}", T::DTYPE);
    }
    Ok(right)
}

fn case<T: Factor>(stream: &Stream, o: &Options, [m, n, k]: [usize; 3], cases: &mut usize) -> Result<bool, Error> {
    let (a, b) = (normal::<T>(m * k, 1), normal::<T>(n * k, 2));
    let da = Tensor::from_slice(stream, [m, k], &a)?;
    let db = Tensor::from_slice(stream, [n, k], &b)?;
    let reference = Reference::product(&widen(&a), &widen(&b), m, n, k);
    let mut right = true;
    let wanted = |c: &Config| o.config.as_ref().is_none_or(|names| names.split(',').any(|name| name == c.to_string()));
    for config in Config::all().filter(|c| wanted(c) && takes::<T>(stream, *c, k)) {
        *cases += 1;
        right &= compare::<T>(stream, [m, n, k], &config.to_string(), &reference, |c| {
            gemm_with(config, stream, da.view(), db.view(), c)
        })?;
    }
    Ok(right)
}

/// `silu(0.5 A B^T + bias) + 1.5 R`, in C that is read too where `keep` is not zero.
fn fused<T: Factor>(stream: &Stream, m: usize, n: usize, k: usize, cases: &mut usize) -> Result<bool, Error> {
    let (a, b) = (normal::<T>(m * k, 1), normal::<T>(n * k, 2));
    let (bias, residual) = (normal::<T>(n, 3), normal::<T>(m * n, 4));
    let da = Tensor::from_slice(stream, [m, k], &a)?;
    let db = Tensor::from_slice(stream, [n, k], &b)?;
    let dbias = Tensor::from_slice(stream, [n], &bias)?;
    let dr = Tensor::from_slice(stream, [m, n], &residual)?;
    let (wide_bias, wide_r) = (widen(&bias), widen(&residual));
    let plain = Reference::product(&widen(&a), &widen(&b), m, n, k);
    let mut right = true;
    for (activation, f) in [
        (Activation::Identity, (|x| x) as fn(f64) -> f64),
        (Activation::Relu, |x| x.max(0.0)),
        (Activation::Silu, |x| x / (1.0 + (-x).exp())),
        (Activation::Gelu, |x| 0.5 * x * (1.0 + (0.797_884_560_8 * (x + 0.044_715 * x * x * x)).tanh())),
    ] {
        *cases += 1;
        let reference = plain.map_at(|i, x| {
            let (y, r) = (0.5 * x + wide_bias[i % n], 1.5 * wide_r[i]);
            (f(y) + r, 4.0 * (y.abs() + r.abs()))
        });
        let e =
            Epilogue { alpha: 0.5, bias: Some(dbias.view()), activation, residual: Some((1.5, dr.view())), keep: 0.0 };
        let what = format!("fused {activation:?}");
        right &=
            compare::<T>(stream, [m, n, k], &what, &reference, |c| gemm_fused(stream, da.view(), db.view(), c, &e))?;
    }
    // C = A B^T + 2 C, C being R
    *cases += 1;
    let reference = plain.map_at(|i, x| (x + 2.0 * wide_r[i], 4.0 * wide_r[i].abs()));
    right &= compare::<T>(stream, [m, n, k], "kept", &reference, |mut c| {
        c.copy_from_slice(stream, &residual)?;
        let e = Epilogue { keep: 2.0, ..Default::default() };
        gemm_fused(stream, da.view(), db.view(), c, &e)
    })?;
    Ok(right)
}

/// Weights of a decode step: rows of B, depth.
pub const WEIGHTS: [(usize, usize); 7] =
    [(4096, 4096), (7168, 2048), (2112, 7168), (32768, 512), (24576, 1536), (18432, 7168), (7168, 18432)];

/// The shapes of the project's aim, beside cuBLAS and beside each other.
pub fn time(stream: &Stream, o: &Options, report: &mut Report) -> Result<(), Error> {
    let mut shapes = vec![(4096, 4096, 4096), (8192, 8192, 8192)];
    if !o.quick {
        shapes.extend([(4096, 7168, 2048), (4096, 4096, 7168), (4096, 7168, 16384), (4096, 2112, 7168)]);
        shapes.extend([(1024, 1024, 1024), (2048, 2048, 2048), (256, 4096, 4096)]);
        shapes.extend(WEIGHTS.iter().flat_map(|&(n, k)| [1, 8, 16, 32, 64, 128].map(|m| (m, n, k))));
    }
    let cublas = Cublas::load(stream).inspect_err(|e| println!("cuBLAS is not here: {e}")).ok();
    for (m, n, k) in shapes {
        time_shape::<bf16>(stream, o, cublas.as_ref(), report, m, n, k)?;
    }
    time_shape::<f16>(stream, o, cublas.as_ref(), report, 4096, 4096, 4096)
}

/// Operands and outputs, enough of them that none stays in the L2 cache.
pub type Buffers<T> = (Tensor<T, 2>, Tensor<T, 2>, RefCell<Tensor<T, 2>>);

/// Random ones for a shape. Large matrices repeat some millions of values.
pub fn buffers<T: Factor>(stream: &Stream, [m, n, k]: [usize; 3]) -> Result<Vec<Buffers<T>>, Error> {
    let some = normal::<T>((1 << 21) + 7, 5);
    let cycle = |n: usize, at: usize| (0..n).map(|i| some[(i + at) % some.len()]).collect::<Vec<_>>();
    (0..sets((m * k + n * k + m * n) * size_of::<T>()))
        .map(|set| {
            let a = Tensor::from_slice(stream, [m, k], &cycle(m * k, 1000 * set + 17))?;
            let b = Tensor::from_slice(stream, [n, k], &cycle(n * k, 2000 * set + 1_000_003))?;
            Ok((a, b, RefCell::new(Tensor::<T, 2>::zeros(stream, [m, n])?)))
        })
        .collect()
}

/// cuBLAS on such buffers.
pub fn by_cublas<'a, T: Factor>(
    stream: &Stream,
    cublas: &'a Cublas,
    buffers: &'a [Buffers<T>],
) -> Result<Candidate, Error> {
    candidate(stream, "cublas", buffers.len(), |s: &Stream, set: usize| {
        let (a, b, c) = &buffers[set];
        cublas.gemm(s, a, b, &mut c.borrow_mut()).map_err(|log| Error::Driver {
            call: "cublasGemmEx",
            code: 0,
            name: "cuBLAS".into(),
            log,
        })
    })
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
    let buffers = buffers::<T>(stream, [m, n, k])?;
    let count = buffers.len();
    let ours = |path| {
        let buffers = &buffers;
        move |s: &Stream, set: usize| {
            let (a, b, c) = &buffers[set];
            gemm_by(path, s, a.view(), b.view(), c.borrow_mut().view_mut())
        }
    };
    let hopper = stream.device().compute_capability() == Some((9, 0));
    let mut all: Vec<Candidate> = Vec::new();
    if hopper {
        all.push(candidate(stream, "hopper", count, ours(Path::Hopper))?);
    }
    if m >= 1024 || !hopper {
        all.push(candidate(stream, "portable", count, ours(Path::Portable))?);
    }
    let bias = Tensor::from_slice(stream, [n], &normal::<T>(n, 7))?;
    let residual = Tensor::from_slice(stream, [m, n], &normal::<T>(m * n, 8))?;
    let fused = |with: bool| {
        let (buffers, bias, residual) = (&buffers, &bias, &residual);
        move |s: &Stream, set: usize| {
            let (a, b, c) = &buffers[set];
            let e = if with {
                Epilogue { residual: Some((1.0, residual.view())), ..Default::default() }
            } else {
                Epilogue { bias: Some(bias.view()), activation: Activation::Silu, ..Default::default() }
            };
            gemm_fused(s, a.view(), b.view(), c.borrow_mut().view_mut(), &e)
        }
    };
    if hopper {
        all.push(candidate(stream, "bias_silu", count, fused(false))?);
        all.push(candidate(stream, "residual", count, fused(true))?);
    }
    if let Some(cublas) = cublas {
        all.push(by_cublas(stream, cublas, &buffers)?);
    }
    let ms = if m < 1024 { 5.0 } else { 20.0 };
    measure(stream, &mut all, if o.quick { 5 } else { 9 }, ms)?;
    let micros = |name: &str| all.iter().find(|c| c.name == name).map(Candidate::micros);
    let shape = format!("{m}x{n}x{k}");
    let rate = |us: f64| {
        if m < 256 {
            format!("{:.0} GB/s", 2e-3 * (m * n + n * k + m * k) as f64 / us)
        } else {
            format!("{:.0} TFLOP/s", 2e-6 * (m * n * k) as f64 / us)
        }
    };
    let ops = [
        ("gemm_hopper", "hopper"),
        ("gemm_portable", "portable"),
        ("gemm_bias_silu", "bias_silu"),
        ("gemm_residual", "residual"),
    ];
    for (op, path) in ops {
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
