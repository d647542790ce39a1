//! LayerNorm, softmax, gated activations, RMSNorm with SiLU: checked against f64, timed beside a device copy of as many bytes.

use std::cell::RefCell;

use tilewright::ops::gated::{Gated, gelu_mul, silu_mul};
use tilewright::ops::layernorm::{Centred, layernorm};
use tilewright::ops::rms_silu::{Activated, Norm, Numerics, RmsSilu, rms_silu, rms_silu_channels, rmsnorm_channels};
use tilewright::ops::softmax::{Weighed, softmax};
use tilewright::prelude::*;

use crate::Options;
use crate::gemm::normal;
use crate::report::{Report, Row};
use crate::timing::{Candidate, candidate, measure, sets};

const NORM: Norm = Norm::Clamped { least: 1e-12 };

fn silu(x: f64) -> f64 {
    x / (1.0 + (-x).exp())
}

/// Widths around the boundaries of the kernels, aligned and not.
pub fn check(stream: &Stream, o: &Options) -> Result<bool, Error> {
    let all = [
        1, 3, 64, 96, 100, 127, 128, 192, 256, 384, 513, 768, 1024, 1536, 2049, 3072, 4096, 5120, 7168, 16_384, 20_001,
    ];
    let (widths, rows) = if o.quick { (&[127, 4096][..], 3) } else { (&all[..], 67) };
    let mut right = true;
    for &n in widths {
        right &= case::<f32>(stream, rows, n)?;
        right &= case::<f16>(stream, rows, n)?;
        right &= case::<bf16>(stream, rows, n)?;
    }
    println!("rows: {} widths, every element against f64: {}", widths.len(), if right { "right" } else { "WRONG" });
    Ok(right)
}

fn case<T: Centred + Weighed + Gated + Activated>(s: &Stream, m: usize, n: usize) -> Result<bool, Error> {
    let (x, u) = (normal::<T>(m * n, 1), normal::<T>(m * n, 2));
    let (w, b) = (normal::<T>(n, 3), normal::<T>(n, 4));
    let (dx, du) = (Tensor::from_slice(s, [m, n], &x)?, Tensor::from_slice(s, [m, n], &u)?);
    let (dw, db) = (Tensor::from_slice(s, [n], &w)?, Tensor::from_slice(s, [n], &b)?);
    let value = |v: T| f64::from(v.to_value());
    let unit = [2f64.powi(-23), 2f64.powi(-11), 2f64.powi(-8)][match T::DTYPE {
        DType::F32 => 0,
        DType::F16 => 1,
        _ => 2,
    }];
    let mut right = true;
    // each writes into the middle of a wider matrix, which begins at an odd element
    let mut run = |what: &str,
                   launch: &dyn Fn(TensorViewMut<'_, T, 2>) -> Result<(), Error>,
                   want: &dyn Fn(&[f64], usize) -> Vec<f64>|
     -> Result<(), Error> {
        let mut y = Tensor::<T, 2>::full(s, [m, n + 2], T::from_value(f32::NAN))?;
        launch(y.view_mut().cols(1..n + 1)?)?;
        let y = y.to_vec(s)?;
        let mut outside = 0;
        for i in 0..m {
            let row: Vec<f64> = x[i * n..][..n].iter().map(|&x| value(x)).collect();
            let got = &y[i * (n + 2)..][..n + 2];
            outside += usize::from(!value(got[0]).is_nan() || !value(got[n + 1]).is_nan());
            for (&got, want) in got[1..].iter().zip(want(&row, i)) {
                let near = (value(got) - want).abs() <= want.abs() * (unit + 1e-5) + 1e-5;
                outside += usize::from(!near);
            }
        }
        if outside > 0 {
            println!("{what} {} {m}x{n}: {outside} elements outside", T::DTYPE);
            right = false;
        }
        Ok(())
    };
    run("layernorm", &|y| layernorm(s, dx.view(), Some(dw.view()), Some(db.view()), y, 1e-5), &|x, _| {
        let mean = x.iter().sum::<f64>() / n as f64;
        let var = x.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n as f64;
        (0..n).map(|c| (x[c] - mean) / (var + 1e-5).sqrt() * value(w[c]) + value(b[c])).collect()
    })?;
    run("softmax", &|y| softmax(s, dx.view(), y, 1.0), &|x, _| {
        let most = x.iter().fold(f64::NEG_INFINITY, |a, &b| a.max(b));
        let sum: f64 = x.iter().map(|x| (x - most).exp()).sum();
        x.iter().map(|x| (x - most).exp() / sum).collect()
    })?;
    run("silu_mul", &|y| silu_mul(s, dx.view(), du.view(), y), &|x, i| {
        (0..n).map(|c| silu(x[c]) * value(u[i * n + c])).collect()
    })?;
    run("gelu_mul", &|y| gelu_mul(s, dx.view(), du.view(), y), &|x, i| {
        let gelu = |x: f64| 0.5 * x * (1.0 + (0.7978845608028654 * (x + 0.044715 * x.powi(3))).tanh());
        (0..n).map(|c| gelu(x[c]) * value(u[i * n + c])).collect()
    })?;
    let normed = |x: &[f64]| -> Vec<f64> {
        let factor = (n as f64).sqrt() / x.iter().map(|v| v * v).sum::<f64>().sqrt().max(1e-12);
        (0..n).map(|c| silu(x[c] * factor * value(w[c]) + value(b[c]))).collect()
    };
    if n <= 16_384 {
        let how = RmsSilu { norm: NORM, numerics: Numerics::Fused };
        run("rms_silu", &|y| rms_silu(s, dx.view(), dw.view(), Some(db.view()), y, how), &|x, _| normed(x))?;
    }
    if n <= 1024 {
        // the same numbers, channels first
        let columns: Vec<T> = (0..m * n).map(|i| x[i % m * n + i / m]).collect();
        let dx = Tensor::from_slice(s, [1, n, m], &columns)?;
        let mut y = Tensor::<T, 3>::full(s, [1, n, m], T::from_value(f32::NAN))?;
        rms_silu_channels(s, dx.view(), dw.view(), Some(db.view()), y.view_mut(), NORM)?;
        let y = y.to_vec(s)?;
        for i in 0..m {
            let row: Vec<f64> = x[i * n..][..n].iter().map(|&x| value(x)).collect();
            for (c, want) in normed(&row).into_iter().enumerate() {
                right &= (value(y[c * m + i]) - want).abs() <= want.abs() * (unit + 1e-5) + 1e-5;
            }
        }
    }
    Ok(right)
}

/// Rows x columns that are timed: the widths of the contract, and hidden sizes.
const SHAPES: [[usize; 2]; 17] = [
    [16384, 4096],
    [4096, 7168],
    [24960, 512],
    [99840, 128],
    [399360, 64],
    [399360, 128],
    [99840, 192],
    [99840, 256],
    [99840, 384],
    [99840, 512],
    [65536, 768],
    [65536, 1024],
    [32768, 1536],
    [32768, 2048],
    [32768, 3072],
    [16384, 8192],
    [8192, 16384],
];

pub fn time(stream: &Stream, o: &Options, report: &mut Report) -> Result<(), Error> {
    for shape in SHAPES.into_iter().take(if o.quick { 1 } else { SHAPES.len() }) {
        rows::<bf16>(stream, o, report, shape)?;
    }
    if !o.quick {
        rows::<f16>(stream, o, report, [16384, 4096])?;
        rows::<f32>(stream, o, report, [16384, 4096])?;
        rows::<f32>(stream, o, report, [24960, 512])?;
    }
    for (c, p) in [(96, 4 * 480 * 832), (384, 120 * 208)].into_iter().take(if o.quick { 1 } else { 2 }) {
        let bytes = 4 * c * p;
        let w = Tensor::from_slice(stream, [c], &normal::<bf16>(c, 9))?;
        let silu = |s: &Stream, x: TensorView<'_, bf16, 2>, y: TensorViewMut<'_, bf16, 2>| {
            rms_silu_channels(s, x.reshape([1, c, p])?, w.view(), None, y.reshape([1, c, p])?, NORM)
        };
        let norm = |s: &Stream, x: TensorView<'_, bf16, 2>, y: TensorViewMut<'_, bf16, 2>| {
            rmsnorm_channels(s, x.reshape([1, c, p])?, w.view(), None, y.reshape([1, c, p])?, NORM)
        };
        let all: [(&'static str, Op<bf16>); 2] = [("channels_rms_silu", &silu), ("channels_rmsnorm", &norm)];
        time_all::<bf16>(stream, o, report, [c, p], bytes, &all)?;
    }
    Ok(())
}

/// What is timed, of a matrix to another.
type Op<'a, T> = &'a dyn Fn(&Stream, TensorView<'_, T, 2>, TensorViewMut<'_, T, 2>) -> Result<(), Error>;

fn rows<T>(stream: &Stream, o: &Options, report: &mut Report, [m, n]: [usize; 2]) -> Result<(), Error>
where
    T: Centred + Weighed + Activated,
{
    let (bytes, w) = (2 * m * n * size_of::<T>(), Tensor::from_slice(stream, [n], &normal::<T>(n, 9))?);
    let by = |numerics| RmsSilu { norm: NORM, numerics };
    let layernorm = |s: &Stream, x: TensorView<'_, T, 2>, y: TensorViewMut<'_, T, 2>| {
        layernorm(s, x, Some(w.view()), Some(w.view()), y, 1e-5)
    };
    let softmax = |s: &Stream, x: TensorView<'_, T, 2>, y: TensorViewMut<'_, T, 2>| softmax(s, x, y, 1.0);
    let fused = |s: &Stream, x: TensorView<'_, T, 2>, y: TensorViewMut<'_, T, 2>| {
        rms_silu(s, x, w.view(), None, y, by(Numerics::Fused))
    };
    let lossless = |s: &Stream, x: TensorView<'_, T, 2>, y: TensorViewMut<'_, T, 2>| {
        rms_silu(s, x, w.view(), None, y, by(Numerics::Lossless))
    };
    let all: [(&'static str, Op<T>); 4] =
        [("layernorm", &layernorm), ("softmax", &softmax), ("rms_silu", &fused), ("rms_silu_lossless", &lossless)];
    time_all::<T>(stream, o, report, [m, n], bytes, &all[..if n > 4096 { 3 } else { 4 }])
}

/// As many values as wanted: few are drawn, and repeated.
fn repeated<T: Element<Value = f32>>(n: usize, seed: u64) -> Vec<T> {
    let few = normal::<T>(n.min(1 << 22), seed);
    few.iter().copied().cycle().take(n).collect()
}

fn time_all<T: Element<Value = f32>>(
    stream: &Stream,
    o: &Options,
    report: &mut Report,
    [m, n]: [usize; 2],
    bytes: usize,
    ops: &[(&'static str, Op<T>)],
) -> Result<(), Error> {
    let mut buffers = Vec::new();
    for set in 0..sets(bytes) as u64 {
        let x = Tensor::from_slice(stream, [m, n], &repeated::<T>(m * n, set))?;
        buffers.push((x, RefCell::new(Tensor::<T, 2>::zeros(stream, [m, n])?)));
    }
    let mut all: Vec<Candidate> = Vec::new();
    for (name, launch) in ops {
        all.push(candidate(stream, name, buffers.len(), |s, set| {
            let (x, y) = &buffers[set];
            launch(s, x.view(), y.borrow_mut().view_mut())
        })?);
    }
    all.push(candidate(stream, "copy", buffers.len(), |s, set| {
        let (x, y) = &buffers[set];
        y.borrow_mut().copy_from(s, x.view())
    })?);
    measure(stream, &mut all, if o.quick { 5 } else { 9 }, 10.0)?;
    let peer_us = all[ops.len()].micros();
    for (i, (op, _)) in ops.iter().enumerate() {
        let ours_us = all[i].micros();
        let rate = format!("{:.0} GB/s", bytes as f64 / ours_us * 1e-3);
        report.add(Row { op, dtype: T::DTYPE, shape: format!("{m}x{n}"), ours_us, peer: "copy", peer_us, rate });
    }
    Ok(())
}
