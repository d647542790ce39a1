//! The front doors of products on the CPU: sizes, offsets and strides that break others, epilogues, and typed errors.

use tilewright::ops::gemm::{Activation, Config, Epilogue, Factor, gemm, gemm_f32, gemm_fused, gemm_with};
use tilewright::prelude::*;

fn random<T: Element<Value = f32>>(n: usize, mut seed: u64) -> Vec<T> {
    (0..n)
        .map(|_| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            T::from_value((seed >> 40) as f32 / (1u64 << 23) as f32 - 1.0)
        })
        .collect()
}

fn rounding(dtype: DType) -> f64 {
    match dtype {
        DType::BF16 => 1.0 / 256.0,
        DType::F16 => 1.0 / 2048.0,
        _ => 1e-7,
    }
}

/// Operands and output are views one row and column into larger matrices; what surrounds the output is NaN and stays it.
fn case<T: Factor>(m: usize, n: usize, k: usize) -> Result<(), Error> {
    let stream = Device::cpu().stream()?;
    let (a, b) = (random::<T>((m + 1) * (k + 3), 1), random::<T>((n + 1) * (k + 3), 2));
    let (bias, r) = (random::<T>(n, 3), random::<T>(m * n, 4));
    let da = Tensor::from_slice(&stream, [m + 1, k + 3], &a)?;
    let db = Tensor::from_slice(&stream, [n + 1, k + 3], &b)?;
    let dbias = Tensor::from_slice(&stream, [n], &bias)?;
    let dr = Tensor::from_slice(&stream, [m, n], &r)?;
    let (va, vb) = (da.view().rows(1..m + 1)?.cols(1..k + 1)?, db.view().rows(1..n + 1)?.cols(1..k + 1)?);
    let sum = |i: usize, j: usize| -> f64 {
        let at = |v: &[T], r: usize, x: usize| f64::from(v[(r + 1) * (k + 3) + 1 + x].to_value());
        (0..k).map(|x| at(&a, i, x) * at(&b, j, x)).sum()
    };
    let silu = |x: f64| x / (1.0 + (-x).exp());
    let epilogue = Epilogue {
        alpha: 0.5,
        bias: Some(dbias.view()),
        activation: Activation::Silu,
        residual: Some((2.0, dr.view())),
        keep: 0.0,
    };
    for fused in [false, true] {
        let mut c = Tensor::<T, 2>::full(&stream, [m + 2, n + 2], T::from_value(f32::NAN))?;
        let vc = c.view_mut().rows(1..m + 1)?.cols(1..n + 1)?;
        if fused {
            gemm_fused(&stream, va, vb, vc, &epilogue)?;
        } else {
            gemm(&stream, va, vb, vc)?;
        }
        let c = c.to_vec(&stream)?;
        for i in 0..m + 2 {
            for j in 0..n + 2 {
                let got = f64::from(c[i * (n + 2) + j].to_value());
                if i == 0 || j == 0 || i > m || j > n {
                    assert!(got.is_nan(), "{m}x{n}x{k} writes outside");
                    continue;
                }
                let (i, j) = (i - 1, j - 1);
                let want = if fused {
                    let (bias, r) = (f64::from(bias[j].to_value()), f64::from(r[i * n + j].to_value()));
                    silu(0.5 * sum(i, j) + bias) + 2.0 * r
                } else {
                    sum(i, j)
                };
                let allowed = want.abs() * rounding(T::DTYPE) + 1e-5 * (1.0 + (k as f64).sqrt());
                assert!((got - want).abs() <= allowed, "{} {m}x{n}x{k} [{i}, {j}]: {got}, not {want}", T::DTYPE);
            }
        }
    }
    let mut c = Tensor::<f32, 2>::full(&stream, [m, n], f32::NAN)?;
    gemm_f32(&stream, va, vb, c.view_mut())?;
    for (e, got) in c.to_vec(&stream)?.into_iter().enumerate() {
        let want = sum(e / n, e % n);
        assert!((f64::from(got) - want).abs() <= 1e-5 * (1.0 + (k as f64).sqrt()), "f32 {m}x{n}x{k}");
    }
    Ok(())
}

#[test]
fn sizes_that_break_others() -> Result<(), Error> {
    for m in [1, 7, 8, 15, 17, 63, 65] {
        case::<bf16>(m, 40, 72)?;
    }
    for n in [8, 24, 40, 72, 104] {
        case::<f16>(5, n, 33)?;
    }
    for k in 0..=40 {
        case::<bf16>(64, 64, k)?;
    }
    case::<f32>(17, 23, 65)
}

#[test]
fn what_was_there_is_kept_or_not_read() -> Result<(), Error> {
    let stream = Device::cpu().stream()?;
    let a = Tensor::<f32, 2>::full(&stream, [3, 4], 1.0)?;
    let b = Tensor::<f32, 2>::full(&stream, [5, 4], 2.0)?;
    let mut c = Tensor::<f32, 2>::full(&stream, [3, 5], 10.0)?;
    let twice = Epilogue { keep: 2.0, ..Default::default() };
    gemm_fused(&stream, a.view(), b.view(), c.view_mut(), &twice)?;
    assert_eq!(c.to_vec(&stream)?, [28.0; 15]);
    c.fill(&stream, f32::NAN)?;
    gemm_fused(&stream, a.view(), b.view(), c.view_mut(), &Epilogue::default())?;
    assert_eq!(c.to_vec(&stream)?, [8.0; 15]);
    Ok(())
}

#[test]
fn what_does_not_fit_is_named() -> Result<(), Error> {
    let stream = Device::cpu().stream()?;
    let a = Tensor::<bf16, 2>::zeros(&stream, [3, 4])?;
    let b = Tensor::<bf16, 2>::zeros(&stream, [5, 4])?;
    let mut c = Tensor::<bf16, 2>::zeros(&stream, [3, 5])?;
    let bias = Tensor::<bf16, 1>::zeros(&stream, [4])?;
    let wrong = Epilogue { bias: Some(bias.view()), ..Default::default() };
    let e = gemm_fused(&stream, a.view(), b.view(), c.view_mut(), &wrong).unwrap_err();
    assert!(matches!(e, Error::Shape { arg: "bias", .. }), "{e}");
    let wrong = Epilogue { residual: Some((1.0, a.view())), ..Default::default() };
    let e = gemm_fused(&stream, a.view(), b.view(), c.view_mut(), &wrong).unwrap_err();
    assert!(matches!(e, Error::Shape { arg: "residual", .. }), "{e}");
    let e = gemm(&stream, a.view(), a.view(), c.view_mut()).unwrap_err();
    assert!(matches!(e, Error::Shape { arg: "c", .. }), "{e}");
    let decode = Config::all().find(|c| matches!(c, Config::Decode(_))).unwrap();
    let x = Tensor::<bf16, 2>::zeros(&stream, [3, 8])?;
    let e = gemm_with(decode, &stream, x.view(), x.view().rows(0..2)?, c.view_mut().cols(0..2)?).unwrap_err();
    assert!(matches!(e, Error::NoImageFor { .. }), "{e}");
    Ok(())
}
