//! candle's tensors under tilewright's kernels, against candle's own arithmetic: on its CPU device, and with the feature
//! `candle-cuda` on a GPU.

use candle_core::{D, DType, Device, Result, Tensor};
use tilewright_adapters::candle::{Axpy, Linear, RmsNorm};

fn devices() -> Vec<Device> {
    let mut all = vec![Device::Cpu];
    if cfg!(feature = "candle-cuda") && !tilewright::Device::best().is_cpu() {
        all.push(Device::new_cuda(0).unwrap());
    }
    all
}

/// Data from nowhere in particular, the same every time.
fn data(shape: &[usize], seed: u64, device: &Device) -> Result<Tensor> {
    let mut seed = seed;
    let n: usize = shape.iter().product();
    let values: Vec<f32> = (0..n)
        .map(|_| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 40) as f32 / (1u64 << 23) as f32 - 1.0
        })
        .collect();
    Tensor::from_vec(values, shape, device)
}

fn close(got: &Tensor, want: &Tensor, allowed: f64) -> Result<()> {
    assert_eq!(got.dims(), want.dims());
    let (got, want) = (got.to_dtype(DType::F32)?.flatten_all()?, want.to_dtype(DType::F32)?.flatten_all()?);
    for (i, (g, w)) in got.to_vec1::<f32>()?.into_iter().zip(want.to_vec1::<f32>()?).enumerate() {
        let (g, w) = (f64::from(g), f64::from(w));
        assert!((g - w).abs() <= allowed * (1.0 + w.abs()), "element {i} is {g}, not {w}");
    }
    Ok(())
}

/// In f32, however the input is stored.
fn norm_by_candle(x: &Tensor, w: &Tensor, eps: f64) -> Result<Tensor> {
    let (x, w) = (x.to_dtype(DType::F32)?, w.to_dtype(DType::F32)?);
    let mean = x.sqr()?.mean_keepdim(D::Minus1)?;
    x.broadcast_div(&(mean + eps)?.sqrt()?)?.broadcast_mul(&w)
}

fn rounding(t: DType) -> f64 {
    match t {
        DType::BF16 => 1.0 / 128.0,
        DType::F16 => 1.0 / 1024.0,
        _ => 1e-5,
    }
}

#[test]
fn norms() -> Result<()> {
    for device in devices() {
        for (x, w) in [
            (DType::F32, DType::F32),
            (DType::F16, DType::F16),
            (DType::F16, DType::F32),
            (DType::BF16, DType::BF16),
            (DType::BF16, DType::F32),
        ] {
            for shape in [&[64][..], &[3, 100], &[2, 5, 33], &[2, 3, 4, 7], &[1, 1, 1, 1], &[0, 8], &[2, 0, 3]] {
                let cols = *shape.last().unwrap();
                let (a, b) = (data(shape, 1, &device)?.to_dtype(x)?, data(&[cols], 2, &device)?.to_dtype(w)?);
                let y = a.apply_op2_no_bwd(&b, &RmsNorm { eps: 1e-3 })?;
                assert_eq!((y.dtype(), y.is_contiguous()), (x, true));
                close(&y, &norm_by_candle(&a, &b, 1e-3)?, rounding(x))?;
            }
        }
        // parts of larger tensors: columns, rows, tokens and heads swapped
        let (big, w) = (data(&[4, 6, 5, 40], 3, &device)?, data(&[50], 4, &device)?);
        for x in [
            big.narrow(3, 3, 20)?,
            big.narrow(2, 1, 3)?,
            big.narrow(0, 1, 2)?.narrow(1, 2, 3)?,
            big.get(1)?.transpose(0, 1)?,
            big.get(2)?.narrow(2, 8, 8)?.transpose(0, 1)?,
        ] {
            let w = w.narrow(0, 7, x.dim(D::Minus1)?)?;
            close(&x.apply_op2_no_bwd(&w, &RmsNorm { eps: 0.0 })?, &norm_by_candle(&x.contiguous()?, &w, 0.0)?, 1e-5)?;
        }
    }
    Ok(())
}

#[test]
fn products() -> Result<()> {
    for device in devices() {
        for t in [DType::F32, DType::F16, DType::BF16] {
            for (shape, n) in
                [(&[64, 32][..], 48), (&[3, 5, 40], 7), (&[1, 8], 1), (&[17], 9), (&[0, 8], 3), (&[4, 0], 3)]
            {
                let k = *shape.last().unwrap();
                let x = data(shape, 1, &device)?.to_dtype(t)?;
                let w = data(&[n, k], 2, &device)?.to_dtype(t)?;
                let y = x.apply_op2_no_bwd(&w, &Linear)?;
                assert_eq!((y.dtype(), *y.dims().last().unwrap()), (t, n));
                let flat = x.to_dtype(DType::F32)?.reshape(((), k.max(1)))?;
                if k == 0 {
                    close(&y, &Tensor::zeros(y.dims(), DType::F32, &device)?, 0.0)?;
                    continue;
                }
                let want = flat.matmul(&w.to_dtype(DType::F32)?.t()?)?.reshape(y.dims())?;
                close(&y, &want, rounding(t))?;
            }
        }
        let (big, w) = (data(&[6, 5, 40], 3, &device)?, data(&[30, 64], 4, &device)?);
        let (x, w) = (big.narrow(2, 4, 24)?.transpose(0, 1)?, w.narrow(1, 8, 24)?.narrow(0, 3, 11)?);
        let want = x.contiguous()?.broadcast_matmul(&w.contiguous()?.t()?)?;
        close(&x.apply_op2_no_bwd(&w, &Linear)?, &want, 1e-5)?;
    }
    Ok(())
}

#[test]
fn in_place() -> Result<()> {
    for device in devices() {
        for t in [DType::F32, DType::F16, DType::BF16] {
            for shape in [&[5000][..], &[3, 100], &[2, 5, 33], &[0, 3]] {
                let (x, y) = (data(shape, 1, &device)?.to_dtype(t)?, data(shape, 2, &device)?.to_dtype(t)?);
                let want = (x.to_dtype(DType::F32)? * 0.5)?.add(&y.to_dtype(DType::F32)?)?;
                y.inplace_op2(&x, &Axpy { a: 0.5 })?;
                close(&y, &want, rounding(t))?;
            }
        }
        // a part alone, and from swapped dimensions
        let (x, y) = (data(&[4, 6], 1, &device)?, data(&[8, 4], 2, &device)?);
        let (part, turned) = (y.narrow(0, 1, 6)?, x.t()?.contiguous()?);
        let want = Tensor::cat(&[&y.narrow(0, 0, 1)?, &(&part + &turned)?, &y.narrow(0, 7, 1)?], 0)?;
        part.inplace_op2(&turned, &Axpy { a: 1.0 })?;
        close(&y, &want, 1e-6)?;
    }
    Ok(())
}

#[test]
fn what_does_not_fit_is_said() -> Result<()> {
    for device in devices() {
        let x = data(&[4, 6, 8, 10], 1, &device)?;
        let w = data(&[10], 1, &device)?;
        let message = |r: Result<Tensor>| r.unwrap_err().to_string().lines().next().unwrap_or_default().to_string();
        let norm = RmsNorm { eps: 0.0 };
        assert_eq!(message(x.apply_op2_no_bwd(&w.narrow(0, 0, 9)?, &norm)), "rmsnorm: w: expected [10], found [9]");
        let e = message(x.transpose(2, 3)?.apply_op2_no_bwd(&data(&[8], 1, &device)?, &norm));
        assert!(e.contains("x: expected adjacent rows") && e.contains("make it contiguous"), "{e}");
        let e = message(x.to_dtype(DType::F64)?.apply_op2_no_bwd(&w, &norm));
        assert!(e.contains("found x of F64 and w of F32"), "{e}");
        let e = message(x.apply_op2_no_bwd(&data(&[3, 9], 1, &device)?, &Linear));
        assert_eq!(e, "linear: w: expected [3, 10], found [3, 9]");
        let e = message(x.apply_op2_no_bwd(&w, &Linear));
        assert_eq!(e, "linear: w: expected two dimensions, found [10]");
        let scalar = Tensor::new(1f32, &device)?;
        assert!(message(scalar.apply_op2_no_bwd(&w, &norm)).contains("found a scalar"));
        let e = w.inplace_op2(&data(&[9], 1, &device)?, &Axpy { a: 1.0 }).unwrap_err().to_string();
        assert!(e.contains("axpy: x: expected [10], found [9]"), "{e}");
        // several indices that mean one element can be read, and not written
        let broad = w.broadcast_as((3, 10))?;
        close(&broad.apply_op2_no_bwd(&w, &norm)?, &norm_by_candle(&broad.contiguous()?, &w, 0.0)?, 1e-5)?;
        let e = broad.inplace_op2(&data(&[3, 10], 1, &device)?, &Axpy { a: 1.0 }).unwrap_err().to_string();
        assert!(e.contains("repeated elements"), "{e}"); // by candle itself
    }
    Ok(())
}
