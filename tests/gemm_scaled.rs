//! Products of 8-bit factors with scales, on the CPU backend, against f64.

use tilewright::ops::gemm::{Scaled, Unscaled, gemm_e4m3};
use tilewright::ops::quantised::rmsnorm_e4m3;
use tilewright::prelude::*;

struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }
    fn elements(&mut self, n: usize) -> Vec<e4m3> {
        (0..n).map(|_| e4m3::from_f32(self.next() * 8.0)).collect()
    }
    fn scales(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| (self.next() * 2.0).exp2()).collect()
    }
}

fn rounding(dtype: DType) -> f64 {
    match dtype {
        DType::BF16 => 1.0 / 256.0,
        DType::F16 => 1.0 / 2048.0,
        _ => 1e-7,
    }
}

#[derive(Clone, Copy)]
enum Of {
    Tensor,
    Rows,
    Groups,
}

/// Views one row into larger matrices, with `gap` columns more; what surrounds the output is NaN and stays it.
fn case<T: Unscaled>(m: usize, n: usize, k: usize, gap: usize, of_a: Of, of_b: Of) -> Result<(), Error> {
    let stream = Device::cpu().stream()?;
    let mut numbers = Numbers((m * 31 + n * 7 + k) as u64);
    let wide = k.next_multiple_of(16) + 16 * gap;
    let depth = k.div_ceil(128);
    let (ra, ca) = match of_a {
        Of::Tensor => (1, 1),
        Of::Rows => (m, 1),
        Of::Groups => (m, depth),
    };
    let (rb, cb) = if let Of::Tensor = of_b { (1, 1) } else { (n.div_ceil(128), depth) };
    let (a, b) = (numbers.elements((m + 1) * wide), numbers.elements((n + 1) * wide));
    let (sa, sb) = (numbers.scales(ra * (ca + 1)), numbers.scales(rb * (cb + 2)));
    let da = Tensor::from_slice(&stream, [m + 1, wide], &a)?;
    let db = Tensor::from_slice(&stream, [n + 1, wide], &b)?;
    let dsa = Tensor::from_slice(&stream, [ra, ca + 1], &sa)?;
    let dsb = Tensor::from_slice(&stream, [rb, cb + 2], &sb)?;
    let va = Scaled { elements: da.view().rows(1..m + 1)?.cols(0..k)?, scales: dsa.view().cols(0..ca)? };
    let vb = Scaled { elements: db.view().rows(1..n + 1)?.cols(0..k)?, scales: dsb.view().cols(0..cb)? };
    let mut bits: Vec<u32> = Vec::new();
    for turn in 0..2 {
        let mut c = Tensor::<T, 2>::full(&stream, [m + 2, n + gap], T::from_value(f32::NAN))?;
        gemm_e4m3(&stream, va, vb, c.view_mut().rows(1..m + 1)?.cols(0..n)?)?;
        let c = c.to_vec(&stream)?;
        let now: Vec<u32> = c.iter().map(|x| x.to_value().to_bits()).collect();
        if turn == 1 {
            assert_eq!(now, bits);
            break;
        }
        bits = now;
        for i in 0..m + 2 {
            for j in 0..n + gap {
                let got = f64::from(c[i * (n + gap) + j].to_value());
                if i == 0 || i > m || j >= n {
                    assert!(got.is_nan(), "{m}x{n}x{k} writes outside");
                    continue;
                }
                let (mut want, mut size) = (0.0, 0.0);
                for x in 0..k {
                    let scale = f64::from(sa[(i - 1) % ra * (ca + 1) + (x / 128).min(ca - 1)])
                        * f64::from(sb[(j / 128).min(rb - 1) * (cb + 2) + (x / 128).min(cb - 1)]);
                    let product =
                        f64::from(a[i * wide + x].to_f32()) * f64::from(b[(j + 1) * wide + x].to_f32()) * scale;
                    want += product;
                    size += product.abs();
                }
                let allowed = want.abs() * rounding(T::DTYPE) + 1e-6 * size;
                assert!((got - want).abs() <= allowed, "{} {m}x{n}x{k} [{i}, {j}]: {got}, not {want}", T::DTYPE);
            }
        }
    }
    Ok(())
}

#[test]
fn every_kind_of_scales() -> Result<(), Error> {
    for of_a in [Of::Tensor, Of::Rows, Of::Groups] {
        for of_b in [Of::Tensor, Of::Groups] {
            case::<bf16>(65, 136, 400, 0, of_a, of_b)?;
            case::<f32>(30, 257, 256, 1, of_a, of_b)?;
        }
    }
    Ok(())
}

#[test]
fn sizes_that_break_others() -> Result<(), Error> {
    for m in [1, 7, 63, 64, 127, 129, 257] {
        case::<bf16>(m, 40, 128, 0, Of::Groups, Of::Groups)?;
    }
    for n in [1, 8, 127, 129, 300] {
        case::<f16>(5, n, 144, 3, Of::Groups, Of::Groups)?;
    }
    for k in [1, 15, 16, 17, 127, 128, 129, 640] {
        case::<f32>(70, 130, k, 1, Of::Groups, Of::Groups)?;
    }
    Ok(())
}

/// A sum of a large product and many small ones: with 14 bits for a sum, the small ones would be lost.
#[test]
fn long_sums_are_added_in_f32() -> Result<(), Error> {
    let stream = Device::cpu().stream()?;
    let k = 8192;
    let a: Vec<e4m3> = (0..k).map(|x| e4m3::from_f32(if x == 0 { 256.0 } else { 0.5 })).collect();
    let b: Vec<e4m3> = (0..k).map(|x| e4m3::from_f32(if x == 0 { 256.0 } else { 0.25 })).collect();
    let (da, db) = (Tensor::from_slice(&stream, [1, k], &a)?, Tensor::from_slice(&stream, [1, k], &b)?);
    let one = Tensor::<f32, 2>::full(&stream, [1, 1], 1.0)?;
    let mut c = Tensor::<f32, 2>::zeros(&stream, [1, 1])?;
    let of = |elements| Scaled { elements, scales: one.view() };
    gemm_e4m3(&stream, of(da.view()), of(db.view()), c.view_mut())?;
    assert_eq!(c.to_vec(&stream)?, [65_536.0 + 8191.0 / 8.0]);
    Ok(())
}

#[test]
fn takes_what_the_norm_makes() -> Result<(), Error> {
    let stream = Device::cpu().stream()?;
    let (m, k, n) = (5, 384, 24);
    let mut numbers = Numbers(3);
    let x: Vec<bf16> = (0..m * k).map(|_| bf16::from_f32(numbers.next())).collect();
    let dx = Tensor::from_slice(&stream, [m, k], &x)?;
    let w = Tensor::<bf16, 1>::full(&stream, [k], bf16::ONE)?;
    let b = numbers.elements(n * k);
    let db = Tensor::from_slice(&stream, [n, k], &b)?;
    let one = Tensor::<f32, 2>::full(&stream, [1, 1], 0.5)?;
    for columns in [1, 3] {
        let mut y = Tensor::<e4m3, 2>::zeros(&stream, [m, k])?;
        let mut scales = Tensor::<f32, 2>::zeros(&stream, [m, columns])?;
        rmsnorm_e4m3(&stream, dx.view(), w.view(), y.view_mut(), scales.view_mut(), 0.0)?;
        let mut c = Tensor::<f32, 2>::zeros(&stream, [m, n])?;
        let a = Scaled { elements: y.view(), scales: scales.view() };
        gemm_e4m3(&stream, a, Scaled { elements: db.view(), scales: one.view() }, c.view_mut())?;
        for (at, got) in c.to_vec(&stream)?.into_iter().enumerate() {
            let row = &x[at / n * k..][..k];
            let norm = (row.iter().map(|x| f64::from(x.to_f32()).powi(2)).sum::<f64>() / k as f64).sqrt();
            let of_b = &b[at % n * k..][..k];
            let terms = row.iter().zip(of_b).map(|(x, b)| f64::from(x.to_f32()) / norm * f64::from(b.to_f32()) * 0.5);
            let (want, size) = terms.fold((0.0, 0.0), |(sum, size): (f64, f64), t| (sum + t, size + t * t));
            // each element of A is off by a sixteenth at most
            assert!((f64::from(got) - want).abs() <= size.sqrt() / 8.0, "{columns} columns, {at}: {got}, not {want}");
        }
    }
    Ok(())
}

#[test]
fn what_does_not_fit_is_named() -> Result<(), Error> {
    let stream = Device::cpu().stream()?;
    let a = Tensor::<e4m3, 2>::zeros(&stream, [3, 272])?;
    let b = Tensor::<e4m3, 2>::zeros(&stream, [130, 272])?;
    let one = Tensor::<f32, 2>::full(&stream, [1, 1], 1.0)?;
    let many = Tensor::<f32, 2>::full(&stream, [3, 2], 1.0)?;
    let mut c = Tensor::<bf16, 2>::zeros(&stream, [3, 130])?;
    let of = |elements, scales| Scaled { elements, scales };
    for (arg, a, b) in [
        ("a.scales", of(a.view(), many.view()), of(b.view(), one.view())),
        ("b.scales", of(a.view(), one.view()), of(b.view(), many.view())),
        ("b", of(a.view(), one.view()), of(b.view().cols(0..256)?, one.view())),
    ] {
        match gemm_e4m3(&stream, a, b, c.view_mut()) {
            Err(Error::Shape { arg: found, .. }) => assert_eq!(found, arg),
            other => panic!("{other:?}"),
        }
    }
    let misaligned = of(a.view().cols(1..257)?, one.view());
    let e = gemm_e4m3(&stream, misaligned, of(b.view().cols(0..256)?, one.view()), c.view_mut()).unwrap_err();
    assert!(matches!(e, Error::Alignment { .. }), "{e}");
    // nothing to add up, and nothing to do
    gemm_e4m3(&stream, of(a.view().cols(0..0)?, one.view()), of(b.view().cols(0..0)?, one.view()), c.view_mut())?;
    let mut none = Tensor::<bf16, 2>::zeros(&stream, [0, 130])?;
    gemm_e4m3(&stream, of(a.view().rows(0..0)?, one.view()), of(b.view(), one.view()), none.view_mut())?;
    Ok(())
}
