//! RMSNorm to `e4m3` on the CPU against f64: what comes back is within half a step of the norm, and what surrounds the
//! outputs stays.

use tilewright::ops::quantised::{Quantised, rmsnorm_e4m3};
use tilewright::prelude::*;

const EPS: f32 = 1e-5;

fn noise(n: usize, mut seed: u64) -> Vec<f32> {
    (0..n)
        .map(|_| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 40) as f32 / (1u64 << 23) as f32 - 1.0
        })
        .collect()
}

fn case<T: Quantised>(m: usize, n: usize, groups: bool, f: impl Fn(usize, usize) -> f32) {
    let s = Device::cpu().stream().unwrap();
    let x: Vec<T> = (0..m * n).map(|i| T::from_value(f(i / n, i % n))).collect();
    let w: Vec<T> = noise(n, 9).iter().map(|&v| T::from_value(v + 1.5)).collect();
    let (dx, dw) = (Tensor::from_slice(&s, [m, n], &x).unwrap(), Tensor::from_slice(&s, [n], &w).unwrap());
    let k = if groups { n.div_ceil(128) } else { 1 };
    let guard = e4m3::from_bits(0x55);
    let mut y = Tensor::<e4m3, 2>::full(&s, [m, n + 3], guard).unwrap();
    let mut scales = Tensor::<f32, 2>::full(&s, [m, k + 1], -7.0).unwrap();
    let out = y.view_mut().cols(1..n + 1).unwrap();
    rmsnorm_e4m3(&s, dx.view(), dw.view(), out, scales.view_mut().cols(0..k).unwrap(), EPS).unwrap();
    let (y, scales) = (y.to_vec(&s).unwrap(), scales.to_vec(&s).unwrap());
    let value = |v: T| f64::from(v.to_value());
    for r in 0..m {
        let row = &x[r * n..][..n];
        let mean = row.iter().map(|&v| value(v) * value(v)).sum::<f64>() / n as f64;
        let want: Vec<f64> =
            row.iter().zip(&w).map(|(&v, &w)| value(v) / (mean + f64::from(EPS)).sqrt() * value(w)).collect();
        let got = &y[r * (n + 3)..][..n + 3];
        assert!([got[0], got[n + 1], got[n + 2]].iter().all(|g| g.to_bits() == guard.to_bits()), "written outside");
        assert_eq!(scales[r * (k + 1) + k], -7.0, "written outside");
        for (g, part) in want.chunks(if groups { 128 } else { n }).enumerate() {
            let scale = f64::from(scales[r * (k + 1) + g]);
            let most = part.iter().fold(0f64, |a, b| if b.is_nan() { *b } else { a.max(b.abs()) });
            assert!(
                (scale * 448.0 - most).abs() <= most * 1e-5 + 1e-29 || most.is_nan() && scale.is_nan(),
                "{scale} {most}"
            );
            for (c, want) in part.iter().enumerate() {
                let got = f64::from(got[1 + g * 128 + c].to_f32()) * scale;
                // half of the last of three bits, or of the least number
                let near = (got - want).abs() <= want.abs() * (1.0 / 16.0 + 1e-5) + scale * 2f64.powi(-10) * 1.001;
                assert!(
                    near || want.is_nan() && got.is_nan(),
                    "{m}x{n} row {r} group {g} column {c}: {got} for {want}"
                );
            }
        }
    }
}

fn cases<T: Quantised>() {
    for groups in [false, true] {
        for n in [1, 3, 96, 128, 200, 256, 513, 1024, 2048, 4096, 7168] {
            let data = noise(11 * n, 4);
            case::<T>(11, n, groups, |r, c| data[r * n + c] * 3.0);
        }
        case::<T>(3, 300, groups, |r, _| if r == 1 { 0.0 } else { -0.0 });
        case::<T>(2, 256, groups, |_, c| if c == 7 { 6e4 } else { 1e-3 });
    }
    // of a row with one NaN all is NaN, and of no other
    case::<T>(3, 300, false, |r, c| if (r, c) == (1, 5) { f32::NAN } else { 1.0 });
}
#[test]
fn f16_rows() {
    cases::<f16>();
}
#[test]
fn bf16_rows() {
    cases::<bf16>();
}

#[test]
fn wrong_shapes_are_named() {
    let s = Device::cpu().stream().unwrap();
    let named = |x: [usize; 2], w: usize, y: [usize; 2], scales: [usize; 2]| {
        let (dx, dw) = (Tensor::<bf16, 2>::zeros(&s, x).unwrap(), Tensor::<bf16, 1>::zeros(&s, [w]).unwrap());
        let (mut y, mut scales) = (Tensor::zeros(&s, y).unwrap(), Tensor::zeros(&s, scales).unwrap());
        match rmsnorm_e4m3(&s, dx.view(), dw.view(), y.view_mut(), scales.view_mut(), EPS) {
            Err(Error::Shape { arg, .. }) => arg,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(named([2, 300], 300, [2, 301], [2, 1]), "y");
    assert_eq!(named([2, 300], 299, [2, 300], [2, 1]), "w");
    assert_eq!(named([2, 300], 300, [2, 300], [2, 2]), "scales");
    assert_eq!(named([2, 300], 300, [2, 300], [1, 3]), "scales");
    assert_eq!(named([2, 8193], 8193, [2, 8193], [2, 1]), "x");
}
