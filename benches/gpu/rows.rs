//! LayerNorm, softmax, gated activations, RMSNorm with SiLU: checked against f64, timed beside a device copy of as many bytes.

use std::cell::RefCell;

use tilewright::ops::gated::{Gated, gelu_mul, silu_mul};
use tilewright::ops::layernorm::{Centred, layernorm};
use tilewright::ops::rms_silu::{Activated, Norm, Numerics, RmsSilu, rms_silu, rms_silu_channels};
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
    let all = [1, 3, 96, 100, 127, 192, 513, 1024, 2049, 4096, 7168, 16_384, 20_001];
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
    if n <= 4096 {
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

pub fn time(stream: &Stream, o: &Options, report: &mut Report) -> Result<(), Error> {
    let shapes = [(16384, 4096), (4096, 7168), (24960, 512), (99840, 128)];
    for (m, n) in shapes.into_iter().take(if o.quick { 1 } else { 4 }) {
        rows::<bf16>(stream, o, report, m, n)?;
    }
    for (c, p) in [(96, 4 * 480 * 832), (384, 120 * 208)].into_iter().take(if o.quick { 1 } else { 2 }) {
        let bytes = 4 * c * p;
        let w = Tensor::from_slice(stream, [c], &normal::<bf16>(c, 9))?;
        time_one::<bf16>(stream, o, report, "channels_rms_silu", [c, p], bytes, |s, x, y| {
            let (x, y) = (x.reshape([1, c, p])?, y.reshape([1, c, p])?);
            rms_silu_channels(s, x, w.view(), None, y, NORM)
        })?;
    }
    Ok(())
}

fn rows<T>(stream: &Stream, o: &Options, report: &mut Report, m: usize, n: usize) -> Result<(), Error>
where
    T: Centred + Weighed + Activated,
{
    let (bytes, w) = (2 * m * n * size_of::<T>(), Tensor::from_slice(stream, [n], &normal::<T>(n, 9))?);
    time_one::<T>(stream, o, report, "layernorm", [m, n], bytes, |s, x, y| {
        layernorm(s, x, Some(w.view()), Some(w.view()), y, 1e-5)
    })?;
    time_one::<T>(stream, o, report, "softmax", [m, n], bytes, |s, x, y| softmax(s, x, y, 1.0))?;
    if n > 4096 {
        return Ok(());
    }
    let how = RmsSilu { norm: NORM, numerics: Numerics::Fused };
    time_one::<T>(stream, o, report, "rms_silu", [m, n], bytes, |s, x, y| rms_silu(s, x, w.view(), None, y, how))
}

fn time_one<T: Element<Value = f32>>(
    stream: &Stream,
    o: &Options,
    report: &mut Report,
    op: &'static str,
    [m, n]: [usize; 2],
    bytes: usize,
    launch: impl Fn(&Stream, TensorView<'_, T, 2>, TensorViewMut<'_, T, 2>) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut buffers = Vec::new();
    for set in 0..sets(bytes) as u64 {
        let x = Tensor::from_slice(stream, [m, n], &normal::<T>(m * n, set))?;
        buffers.push((x, RefCell::new(Tensor::<T, 2>::zeros(stream, [m, n])?)));
    }
    let mut all: Vec<Candidate> = vec![
        candidate(stream, op, buffers.len(), |s, set| {
            let (x, y) = &buffers[set];
            launch(s, x.view(), y.borrow_mut().view_mut())
        })?,
        candidate(stream, "copy", buffers.len(), |s, set| {
            let (x, y) = &buffers[set];
            y.borrow_mut().copy_from(s, x.view())
        })?,
    ];
    measure(stream, &mut all, if o.quick { 5 } else { 9 }, 10.0)?;
    let (ours_us, peer_us) = (all[0].micros(), all[1].micros());
    let rate = format!("{:.0} GB/s", bytes as f64 / ours_us * 1e-3);
    report.add(Row { op, dtype: T::DTYPE, shape: format!("{m}x{n}"), ours_us, peer: "copy", peer_us, rate });
    Ok(())
}
