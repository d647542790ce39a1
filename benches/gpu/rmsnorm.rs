//! RMSNorm: checked against f64, timed beside a device copy of the same bytes.

// `!(error <= allowed)` is true of NaN, which is what is meant
#![allow(clippy::neg_cmp_op_on_partial_ord)]

use std::cell::RefCell;

use tilewright::ops::quantised::{Quantised, rmsnorm_e4m3};
use tilewright::ops::rmsnorm::{Normed, rmsnorm, rmsnorm_residual};
use tilewright::prelude::*;

use crate::Options;
use crate::gemm::normal;
use crate::report::{Report, Row};
use crate::timing::{Candidate, candidate, measure, sets};

const EPS: f32 = 1e-5;

/// Widths around every boundary of the kernels, aligned and not.
pub fn check(stream: &Stream, o: &Options) -> Result<bool, Error> {
    let all = [
        1, 3, 8, 96, 100, 127, 192, 255, 256, 257, 513, 576, 1024, 2048, 4095, 4096, 7168, 8192, 9000, 16_384, 20_000,
        32_768, 40_000, 65_536,
    ];
    // a few for the sanitizers, which are slow
    let (widths, heights) = if o.quick { (&[127, 4096, 40_000][..], &[3][..]) } else { (&all[..], &[1, 3, 700][..]) };
    let mut right = true;
    for &n in widths {
        for &m in heights {
            right &= case::<f32, f32>(stream, m, n)?;
            right &= case::<bf16, bf16>(stream, m, n)?;
            right &= case::<bf16, f32>(stream, m, n)?;
            right &= case::<f16, f16>(stream, m, n)?;
        }
    }
    for n in [96, 200, 1024, 4096, 7168] {
        for groups in [false, true] {
            right &= quantised::<bf16>(stream, 130, n, groups)?;
            right &= quantised::<f16>(stream, 130, n, groups)?;
        }
    }
    println!("rmsnorm: {} widths, every element against f64: {}", widths.len(), if right { "right" } else { "WRONG" });
    Ok(right)
}

fn case<T: Normed<W>, W: Element<Value = f32>>(stream: &Stream, m: usize, n: usize) -> Result<bool, Error> {
    let (x, r, w) = (normal::<T>(m * n, 1), normal::<T>(m * n, 2), normal::<W>(n, 3));
    let dx = Tensor::from_slice(stream, [m, n], &x)?;
    let mut dr = Tensor::from_slice(stream, [m, n], &r)?;
    let dw = Tensor::from_slice(stream, [n], &w)?;
    let nan = T::from_value(f32::NAN);
    // the plain form writes into the middle of a wider matrix, which begins at an odd element
    let mut plain = Tensor::<T, 2>::full(stream, [m, n + 2], nan)?;
    let mut summed = Tensor::<T, 2>::full(stream, [m, n], nan)?;
    rmsnorm(stream, dx.view(), dw.view(), plain.view_mut().cols(1..n + 1)?, EPS)?;
    rmsnorm_residual(stream, dx.view(), dr.view_mut(), dw.view(), summed.view_mut(), EPS)?;
    let (plain, summed, sum) = (plain.to_vec(stream)?, summed.to_vec(stream)?, dr.to_vec(stream)?);
    let value = |v: T| f64::from(v.to_value());
    let unit = [2f64.powi(-23), 2f64.powi(-11), 2f64.powi(-8)][match T::DTYPE {
        DType::F32 => 0,
        DType::F16 => 1,
        _ => 2,
    }];
    let mut outside = 0;
    for i in 0..m {
        let row = |v: &[T]| v[i * n..][..n].iter().map(|&x| value(x)).collect::<Vec<_>>();
        let exact: Vec<T> = (0..n).map(|j| T::from_value(x[i * n + j].to_value() + r[i * n + j].to_value())).collect();
        outside += (0..n).filter(|&j| sum[i * n + j].to_value().to_bits() != exact[j].to_value().to_bits()).count();
        let got: Vec<f64> = plain[i * (n + 2) + 1..][..n].iter().map(|&v| value(v)).collect();
        outside += wrong(&row(&x), &w, &got, unit);
        outside += wrong(&exact.iter().map(|&v| value(v)).collect::<Vec<_>>(), &w, &row(&summed), unit);
        outside +=
            usize::from(!plain[i * (n + 2)].to_value().is_nan() || !plain[(i + 1) * (n + 2) - 1].to_value().is_nan());
    }
    if outside > 0 {
        println!("rmsnorm {} {m}x{n}: {outside} elements outside", T::DTYPE);
    }
    Ok(outside == 0)
}

/// Rows of `e4m3`, brought back by their scales: within half a step of f64.
fn quantised<T: Quantised>(s: &Stream, m: usize, n: usize, groups: bool) -> Result<bool, Error> {
    let (x, w) = (normal::<T>(m * n, 1), normal::<T>(n, 3));
    let (dx, dw) = (Tensor::from_slice(s, [m, n], &x)?, Tensor::from_slice(s, [n], &w)?);
    let k = if groups { n.div_ceil(128) } else { 1 };
    let mut y = Tensor::<e4m3, 2>::full(s, [m, n], e4m3::from_f32(f32::NAN))?;
    let mut scales = Tensor::<f32, 2>::full(s, [m, k], f32::NAN)?;
    rmsnorm_e4m3(s, dx.view(), dw.view(), y.view_mut(), scales.view_mut(), EPS)?;
    let (y, scales) = (y.to_vec(s)?, scales.to_vec(s)?);
    let value = |v: T| f64::from(v.to_value());
    let mut outside = 0;
    for r in 0..m {
        let row = &x[r * n..][..n];
        let mean = row.iter().map(|&v| value(v).powi(2)).sum::<f64>() / n as f64;
        let factor = 1.0 / (mean + f64::from(EPS)).sqrt();
        for c in 0..n {
            let (want, scale) =
                (value(row[c]) * factor * value(w[c]), f64::from(scales[r * k + if groups { c / 128 } else { 0 }]));
            let got = f64::from(y[r * n + c].to_f32()) * scale;
            outside += usize::from(!((got - want).abs() <= want.abs() * (1.0 / 16.0 + 1e-5) + scale * 1e-3));
        }
    }
    if outside > 0 {
        println!("rmsnorm e4m3 {} {m}x{n} groups {groups}: {outside} elements outside", T::DTYPE);
    }
    Ok(outside == 0)
}

/// Elements that are further from f64 than one rounding and a few of f32's.
fn wrong<W: Element<Value = f32>>(x: &[f64], w: &[W], got: &[f64], unit: f64) -> usize {
    let mean = x.iter().map(|v| v * v).sum::<f64>() / x.len() as f64;
    let scale = 1.0 / (mean + f64::from(EPS)).sqrt();
    let outside = |((x, w), got): ((&f64, &W), &f64)| {
        let want = x * scale * f64::from(w.to_value());
        !((got - want).abs() <= want.abs() * (unit + 2e-6) + 1e-7)
    };
    x.iter().zip(w).zip(got).filter(|&t| outside(t)).count()
}

pub fn time(stream: &Stream, o: &Options, report: &mut Report) -> Result<(), Error> {
    time_shape::<bf16>(stream, o, report, 32768, 4096)?;
    if o.quick {
        return Ok(());
    }
    for (m, n) in [
        (16384, 4096),
        (4096, 7168),
        (128, 7168),
        (99840, 128),
        (99840, 192),
        (24960, 512),
        (32768, 2560),
        (4096, 32768),
    ] {
        time_shape::<bf16>(stream, o, report, m, n)?;
    }
    time_shape::<f16>(stream, o, report, 32768, 4096)?;
    time_shape::<f32>(stream, o, report, 32768, 4096)?;
    time_shape::<f32>(stream, o, report, 1024, 65536)
}

fn time_shape<T: Normed<T>>(
    stream: &Stream,
    o: &Options,
    report: &mut Report,
    m: usize,
    n: usize,
) -> Result<(), Error> {
    let bytes = 2 * m * n * size_of::<T>();
    let count = sets(bytes);
    let w = Tensor::from_slice(stream, [n], &normal::<T>(n, 9))?;
    let mut buffers = Vec::new();
    for set in 0..count as u64 {
        let x = Tensor::from_slice(stream, [m, n], &normal::<T>(m * n, set))?;
        let r = Tensor::<T, 2>::from_slice(stream, [m, n], &normal::<T>(m * n, set + 100))?;
        buffers.push((x, RefCell::new(r), RefCell::new(Tensor::<T, 2>::zeros(stream, [m, n])?)));
    }
    let mut all: Vec<Candidate> = Vec::new();
    all.push(candidate(stream, "plain", count, |s, set| {
        let (x, _, y) = &buffers[set];
        rmsnorm(s, x.view(), w.view(), y.borrow_mut().view_mut(), EPS)
    })?);
    all.push(candidate(stream, "residual", count, |s, set| {
        let (x, r, y) = &buffers[set];
        rmsnorm_residual(s, x.view(), r.borrow_mut().view_mut(), w.view(), y.borrow_mut().view_mut(), EPS)
    })?);
    all.push(candidate(stream, "copy", count, |s, set| {
        let (x, _, y) = &buffers[set];
        y.borrow_mut().copy_from(s, x.view())
    })?);
    measure(stream, &mut all, if o.quick { 5 } else { 9 }, 10.0)?;
    let micros = |i: usize| all[i].micros();
    let shape = format!("{m}x{n}");
    for (op, i, passes) in [("rmsnorm", 0, 1.0), ("rmsnorm_residual", 1, 2.0)] {
        // the residual form reads and writes twice as much as a copy does
        let (ours_us, peer_us) = (micros(i), passes * micros(2));
        let rate = format!("{:.0} GB/s", passes * bytes as f64 / ours_us * 1e-3);
        report.add(Row { op, dtype: T::DTYPE, shape: shape.clone(), ours_us, peer: "copy", peer_us, rate });
    }
    Ok(())
}
