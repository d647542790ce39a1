//! The front doors of row kernels on the CPU, against f64: LayerNorm, softmax, gated activations, RMSNorm with SiLU. Views
//! are dense, and in the middle of wider matrices that begin at an odd element; what lies around them stays as it was.

use tilewright::ops::gated::{gelu_mul, halves, silu_mul};
use tilewright::ops::layernorm::layernorm;
use tilewright::ops::rms_silu::{Norm, Numerics, RmsSilu, rms_silu, rms_silu_channels, rmsnorm_channels};
use tilewright::ops::rmsnorm::{Scaling, rmsnorm, rmsnorm_in_place};
use tilewright::ops::softmax::softmax;
use tilewright::prelude::*;

const WIDTHS: [usize; 10] = [1, 3, 96, 100, 127, 192, 513, 2049, 4096, 7168];
const GUARD: f32 = -77.0;

fn noise(n: usize, mut seed: u64) -> Vec<f64> {
    (0..n)
        .map(|_| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 40) as f64 / (1u64 << 23) as f64 - 1.0
        })
        .collect()
}

fn unit<T: Element>() -> f64 {
    match T::DTYPE {
        DType::BF16 => 2f64.powi(-8),
        DType::F16 => 2f64.powi(-11),
        _ => 2f64.powi(-24),
    }
}

/// A matrix in the middle of one that is `2 * margin` columns wider.
struct Framed<T: Element<Value = f32>> {
    tensor: Tensor<T, 2>,
    rows: usize,
    cols: usize,
    margin: usize,
}
impl<T: Element<Value = f32>> Framed<T> {
    fn new(s: &Stream, rows: usize, cols: usize, margin: usize, f: impl Fn(usize, usize) -> f64) -> Self {
        let wide = cols + 2 * margin;
        let mut data = vec![T::from_value(GUARD); rows * wide];
        for r in 0..rows {
            for c in 0..cols {
                data[r * wide + margin + c] = T::from_value(f(r, c) as f32);
            }
        }
        Framed { tensor: Tensor::from_slice(s, [rows, wide], &data).unwrap(), rows, cols, margin }
    }
    fn view(&self) -> TensorView<'_, T, 2> {
        self.tensor.view().cols(self.margin..self.margin + self.cols).unwrap()
    }
    fn view_mut(&mut self) -> TensorViewMut<'_, T, 2> {
        let range = self.margin..self.margin + self.cols;
        self.tensor.view_mut().cols(range).unwrap()
    }
    /// All rows; panics if the frame was written to.
    fn values(&self, s: &Stream) -> Vec<Vec<f64>> {
        let all = self.tensor.to_vec(s).unwrap();
        let wide = self.cols + 2 * self.margin;
        let guard = T::from_value(GUARD).to_value();
        (0..self.rows)
            .map(|r| {
                let row = &all[r * wide..(r + 1) * wide];
                let (before, rest) = row.split_at(self.margin);
                let (inside, after) = rest.split_at(self.cols);
                assert!(before.iter().chain(after).all(|x| x.to_value() == guard), "written outside, row {r}");
                inside.iter().map(|x| f64::from(x.to_value())).collect()
            })
            .collect()
    }
}

/// Panics unless every element is within `relative` of `want`, and half a unit, and `absolute`.
fn near<T: Element>(what: &str, got: &[f64], want: &[f64], relative: f64, absolute: f64) {
    for (c, (got, want)) in got.iter().zip(want).enumerate() {
        let fine = (got - want).abs() <= want.abs() * (unit::<T>() + relative) + absolute
            || want.is_nan() && got.is_nan()
            || got == want;
        assert!(fine, "{what}, {}, column {c}: {got} for {want}", T::DTYPE);
    }
}

/// Runs `case(stream, rows, cols, margin, data)` over widths, frames and kinds of data.
fn everywhere(case: impl Fn(&Stream, usize, usize, usize, &dyn Fn(usize, usize) -> f64)) {
    let s = Device::cpu().stream().unwrap();
    for cols in WIDTHS {
        for (rows, margin) in [(1, 0), (5, 8), (9, 3)] {
            let data = noise(rows * cols, 7);
            case(&s, rows, cols, margin, &|r, c| data[r * cols + c] * 3.0);
        }
        case(&s, 3, cols, 0, &|r, _| if r == 1 { 0.0 } else { -0.0 });
        case(&s, 4, cols, 1, &|r, c| if (r, c) == (2, cols / 2) { f64::NAN } else { c as f64 / cols as f64 });
        case(&s, 3, cols, 0, &|r, c| if c == r % cols { 1.0 } else { 0.0 });
        case(&s, 2, cols, 0, &|_, c| (c % 7) as f64 * 6e-8);
        case(&s, 2, cols, 3, &|r, c| if (r + c) % 2 == 0 { 6e4 } else { 5e4 });
    }
}

fn silu64(x: f64) -> f64 {
    x / (1.0 + (-x).exp())
}

fn layernorm_of<T: tilewright::ops::layernorm::Centred>() {
    everywhere(|s, rows, cols, margin, f| {
        let x = Framed::<T>::new(s, rows, cols, margin, f);
        let [w, b] = [5, 6].map(|seed| Framed::<T>::new(s, 1, cols, 0, |_, c| noise(cols, seed)[c]));
        let (wt, bt) = (w.view().reshape([cols]).unwrap(), b.view().reshape([cols]).unwrap());
        for (wv, bv) in [(Some(wt), Some(bt)), (None, None), (Some(wt), None)] {
            let mut y = Framed::<T>::new(s, rows, cols, margin, |_, _| f64::NAN);
            layernorm(s, x.view(), wv, bv, y.view_mut(), 1e-5).unwrap();
            let (ws, bs) = (w.values(s), b.values(s));
            for (x, y) in x.values(s).iter().zip(y.values(s)) {
                let mean = x.iter().sum::<f64>() / cols as f64;
                let var = x.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / cols as f64;
                let factor = 1.0 / (var + 1e-5).sqrt();
                let want: Vec<f64> = (0..cols)
                    .map(|c| {
                        let w = if wv.is_some() { ws[0][c] } else { 1.0 };
                        (x[c] - mean) * factor * w + if bv.is_some() { bs[0][c] } else { 0.0 }
                    })
                    .collect();
                // the mean is known to a few units of f32 of the largest element
                let size = x.iter().fold(0f64, |a, b| a.max(b.abs()));
                near::<T>("layernorm", &y, &want, 1e-5, 4e-6 + size * factor * 4e-7);
            }
        }
    });
}
#[test]
fn layernorm_rows() {
    layernorm_of::<f32>();
    layernorm_of::<f16>();
    layernorm_of::<bf16>();
}

fn softmax_of<T: tilewright::ops::softmax::Weighed>() {
    everywhere(|s, rows, cols, margin, f| {
        let x = Framed::<T>::new(s, rows, cols, margin, f);
        let mut y = Framed::<T>::new(s, rows, cols, margin, |_, _| f64::NAN);
        softmax(s, x.view(), y.view_mut(), 0.5).unwrap();
        for (x, y) in x.values(s).iter().zip(y.values(s)) {
            let most = x.iter().fold(f64::NEG_INFINITY, |a, &b| if b.is_nan() { b } else { a.max(b) });
            let powers: Vec<f64> = x.iter().map(|x| (0.5 * (x - most)).exp()).collect();
            let sum: f64 = powers.iter().sum();
            near::<T>("softmax", &y, &powers.iter().map(|p| p / sum).collect::<Vec<_>>(), 5e-6, 1e-7);
        }
    });
}
#[test]
fn softmax_rows() {
    softmax_of::<f32>();
    softmax_of::<f16>();
    softmax_of::<bf16>();
}

fn gated_of<T: tilewright::ops::gated::Gated>() {
    everywhere(|s, rows, cols, margin, f| {
        let gate = Framed::<T>::new(s, rows, cols, margin, f);
        let other = noise(rows * cols, 9);
        let up = Framed::<T>::new(s, rows, cols, 0, |r, c| other[r * cols + c]);
        let mut y = Framed::<T>::new(s, rows, cols, margin, |_, _| f64::NAN);
        silu_mul(s, gate.view(), up.view(), y.view_mut()).unwrap();
        let (gates, ups) = (gate.values(s), up.values(s));
        for ((g, u), y) in gates.iter().zip(&ups).zip(y.values(s)) {
            let want: Vec<f64> = g.iter().zip(u).map(|(g, u)| silu64(*g) * u).collect();
            near::<T>("silu_mul", &y, &want, 1e-5, 1e-7);
        }
        gelu_mul(s, gate.view(), up.view(), y.view_mut()).unwrap();
        for ((g, u), y) in gates.iter().zip(&ups).zip(y.values(s)) {
            let gelu = |x: f64| {
                let t = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
                if x < -30.0 { 0.0 } else { 0.5 * x * (1.0 + t.tanh()) }
            };
            let want: Vec<f64> = g.iter().zip(u).map(|(g, u)| gelu(*g) * u).collect();
            near::<T>("gelu_mul", &y, &want, 1e-5, 1e-6);
        }
    });
}
#[test]
fn gates() {
    gated_of::<f32>();
    gated_of::<f16>();
    gated_of::<bf16>();
}

#[test]
fn rows_that_hold_both_halves() {
    let s = Device::cpu().stream().unwrap();
    let both = Tensor::<f32, 2>::from_slice(&s, [2, 6], &[1., 2., 3., 4., 5., 6., 7., 8., 9., 1., 2., 3.]).unwrap();
    let mut y = Tensor::<f32, 2>::zeros(&s, [2, 3]).unwrap();
    let (gate, up) = halves(both.view()).unwrap();
    silu_mul(&s, gate, up, y.view_mut()).unwrap();
    let y = y.to_vec(&s).unwrap();
    for (got, (g, u)) in y.iter().zip([(1., 4.), (2., 5.), (3., 6.), (7., 1.), (8., 2.), (9., 3.)]) {
        assert!((f64::from(*got) - silu64(g) * u).abs() < 1e-5);
    }
    let odd = Tensor::<f32, 2>::zeros(&s, [2, 5]).unwrap();
    assert!(matches!(halves(odd.view()), Err(Error::Shape { arg: "both", .. })));
}

fn normed64(x: &[f64], norm: Norm) -> Vec<f64> {
    let (sum, n) = (x.iter().map(|v| v * v).sum::<f64>(), x.len() as f64);
    let factor = match norm {
        Norm::MeanSquare { eps } => 1.0 / (sum / n + f64::from(eps)).sqrt(),
        Norm::Clamped { least } => n.sqrt() / if sum.is_nan() { sum } else { sum.sqrt().max(f64::from(least)) },
    };
    x.iter().map(|x| x * factor).collect()
}
const NORMS: [Norm; 2] = [Norm::MeanSquare { eps: 1e-6 }, Norm::Clamped { least: 1e-12 }];

fn rms_silu_of<T: tilewright::ops::rms_silu::Activated>() {
    everywhere(|s, rows, cols, margin, f| {
        let x = Framed::<T>::new(s, rows, cols, margin, f);
        let [w, b] = [5, 6].map(|seed| Framed::<T>::new(s, 1, cols, 0, |_, c| noise(cols, seed)[c]));
        let (wv, bv) = (w.view().reshape([cols]).unwrap(), b.view().reshape([cols]).unwrap());
        let (ws, bs) = (w.values(s), b.values(s));
        for (norm, bias) in [(NORMS[0], None), (NORMS[1], None), (NORMS[1], Some(bv))] {
            let mut y = Framed::<T>::new(s, rows, cols, margin, |_, _| f64::NAN);
            rms_silu(s, x.view(), wv, bias, y.view_mut(), RmsSilu { norm, numerics: Numerics::Fused }).unwrap();
            for (x, y) in x.values(s).iter().zip(y.values(s)) {
                let unit = normed64(x, norm);
                let b = |c: usize| if bias.is_some() { bs[0][c] } else { 0.0 };
                let want: Vec<f64> = (0..cols).map(|c| silu64(unit[c] * ws[0][c] + b(c))).collect();
                near::<T>("rms_silu", &y, &want, 1e-5, 1e-6);
            }
            if cols > 4096 {
                continue;
            }
            // step by step, by the same operations on single elements
            rms_silu(s, x.view(), wv, bias, y.view_mut(), RmsSilu { norm, numerics: Numerics::Lossless }).unwrap();
            let r = |x: f32| T::from_value(x).to_value();
            for (x, y) in x.values(s).iter().zip(y.values(s)) {
                let n = cols as f32;
                let exact = |f: &dyn Fn(f32) -> f32| x.iter().map(|&x| f64::from(f(x as f32))).sum::<f64>() as f32;
                let step = |x: f32| match norm {
                    Norm::MeanSquare { eps } => {
                        let mean = r(exact(&|x| r(x * x)) / n);
                        r(x * r(1.0 / r(mean + eps).sqrt()))
                    }
                    Norm::Clamped { least } => {
                        let size = r(exact(&|x| x * x).sqrt());
                        r(r(x / r(if size < least { least } else { size })) * n.sqrt())
                    }
                };
                let want: Vec<f64> = (0..cols)
                    .map(|c| {
                        let x = r(step(x[c] as f32) * ws[0][c] as f32);
                        let x = if bias.is_some() { r(x + bs[0][c] as f32) } else { x };
                        f64::from(r(x / (1.0 + (-x).exp())))
                    })
                    .collect();
                if T::DTYPE == DType::F32 {
                    near::<T>("lossless", &y, &want, 1e-5, 1e-6);
                } else {
                    let same = |(got, want): (&f64, &f64)| got == want || got.is_nan() && want.is_nan();
                    assert!(y.iter().zip(&want).all(same), "lossless {} {cols} {norm:?}", T::DTYPE);
                }
            }
        }
    });
}
#[test]
fn rms_silu_rows() {
    rms_silu_of::<f32>();
    rms_silu_of::<f16>();
    rms_silu_of::<bf16>();
}

fn channels_of<T: tilewright::ops::rms_silu::Activated>() {
    let s = Device::cpu().stream().unwrap();
    for (batch, channels, positions) in [(1, 1, 1), (2, 3, 40), (3, 96, 33), (1, 100, 130), (2, 384, 64), (1, 1000, 7)]
    {
        let data = noise(batch * channels * positions, 3);
        let x: Vec<T> = data.iter().map(|&v| T::from_value(v as f32 * 2.0)).collect();
        let [w, b] = [5, 6].map(|seed| {
            let v: Vec<T> = noise(channels, seed).iter().map(|&v| T::from_value(v as f32)).collect();
            Tensor::from_slice(&s, [channels], &v).unwrap()
        });
        let dx = Tensor::from_slice(&s, [batch, channels, positions], &x).unwrap();
        for (norm, bias) in [(NORMS[0], Some(b.view())), (NORMS[1], None)] {
            let nan = T::from_value(f32::NAN);
            let mut y = Tensor::<T, 3>::full(&s, [batch, channels, positions], nan).unwrap();
            rms_silu_channels(&s, dx.view(), w.view(), bias, y.view_mut(), norm).unwrap();
            let mut normed = Tensor::<T, 3>::full(&s, [batch, channels, positions], nan).unwrap();
            rmsnorm_channels(&s, dx.view(), w.view(), bias, normed.view_mut(), norm).unwrap();
            let normed = normed.to_vec(&s).unwrap();
            let value = |v: &[T], i: usize| f64::from(v[i].to_value());
            let (y, ws, bs) = (y.to_vec(&s).unwrap(), w.to_vec(&s).unwrap(), b.to_vec(&s).unwrap());
            for n in 0..batch {
                for p in 0..positions {
                    let at = |c: usize| (n * channels + c) * positions + p;
                    let unit = normed64(&(0..channels).map(|c| value(&x, at(c))).collect::<Vec<_>>(), norm);
                    let b = |c: usize| if bias.is_some() { value(&bs, c) } else { 0.0 };
                    let want: Vec<f64> = (0..channels).map(|c| silu64(unit[c] * value(&ws, c) + b(c))).collect();
                    let got: Vec<f64> = (0..channels).map(|c| value(&y, at(c))).collect();
                    near::<T>("channels", &got, &want, 1e-5, 1e-6);
                    let want: Vec<f64> = (0..channels).map(|c| unit[c] * value(&ws, c) + b(c)).collect();
                    let got: Vec<f64> = (0..channels).map(|c| value(&normed, at(c))).collect();
                    near::<T>("channels without SiLU", &got, &want, 1e-5, 1e-6);
                }
            }
        }
    }
}
#[test]
fn rms_silu_over_channels() {
    channels_of::<f32>();
    channels_of::<f16>();
    channels_of::<bf16>();
}

#[test]
fn in_place_is_the_same_as_out_of_place() {
    everywhere(|s, rows, cols, margin, f| {
        let x = Framed::<bf16>::new(s, rows, cols, margin, f);
        let w = Tensor::<f32, 1>::full(s, [cols], 0.25).unwrap();
        let (mut y, mut z) = (
            Framed::<bf16>::new(s, rows, cols, margin, |_, _| f64::NAN),
            Framed::<bf16>::new(s, rows, cols, margin, f),
        );
        let scaling = Scaling { eps: 1e-6, offset: 1.0 };
        rmsnorm(s, x.view(), w.view(), y.view_mut(), scaling).unwrap();
        rmsnorm_in_place(s, z.view_mut(), w.view(), scaling).unwrap();
        let bits = |m: &Framed<bf16>| m.values(s).concat().iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&y), bits(&z));
    });
}

#[test]
fn wide_rows() {
    let s = Device::cpu().stream().unwrap();
    let cols = 20_001;
    let data = noise(2 * cols, 11);
    let x = Framed::<f32>::new(&s, 2, cols, 1, |r, c| data[r * cols + c]);
    let mut y = Framed::<f32>::new(&s, 2, cols, 1, |_, _| f64::NAN);
    softmax(&s, x.view(), y.view_mut(), 1.0).unwrap();
    for row in y.values(&s) {
        assert!((row.iter().sum::<f64>() - 1.0).abs() < 1e-5);
    }
    layernorm(&s, x.view(), None, None, y.view_mut(), 0.0).unwrap();
    for row in y.values(&s) {
        assert!(row.iter().sum::<f64>().abs() < 0.1);
        assert!((row.iter().map(|v| v * v).sum::<f64>() / cols as f64 - 1.0).abs() < 1e-4);
    }
}

#[test]
fn wrong_shapes_are_named() {
    let s = Device::cpu().stream().unwrap();
    let x = Tensor::<f32, 2>::zeros(&s, [2, 8]).unwrap();
    let (w, v) = (Tensor::<f32, 1>::zeros(&s, [8]).unwrap(), Tensor::<f32, 1>::zeros(&s, [7]).unwrap());
    let (mut y, mut z) = (Tensor::<f32, 2>::zeros(&s, [2, 8]).unwrap(), Tensor::<f32, 2>::zeros(&s, [3, 8]).unwrap());
    let arg = |r: Result<(), Error>| match r {
        Err(Error::Shape { arg, .. }) => arg,
        other => panic!("{other:?}"),
    };
    assert_eq!(arg(softmax(&s, x.view(), z.view_mut(), 1.0)), "y");
    assert_eq!(arg(softmax(&s, x.view(), y.view_mut(), 0.0)), "scale");
    assert_eq!(arg(layernorm(&s, x.view(), Some(v.view()), None, y.view_mut(), 1e-5)), "w");
    assert_eq!(arg(layernorm(&s, x.view(), None, Some(v.view()), y.view_mut(), 1e-5)), "b");
    assert_eq!(arg(silu_mul(&s, x.view(), z.view(), y.view_mut())), "up");
    let how = RmsSilu { norm: NORMS[0], numerics: Numerics::Fused };
    assert_eq!(arg(rms_silu(&s, x.view(), v.view(), None, y.view_mut(), how)), "w");
    assert_eq!(arg(rms_silu(&s, x.view(), w.view(), Some(v.view()), y.view_mut(), how)), "b");
    for (most, numerics) in [(16384, Numerics::Fused), (4096, Numerics::Lossless)] {
        let how = RmsSilu { numerics, ..how };
        for (cols, fits) in [(most, true), (most + 1, false)] {
            let broad = Tensor::<f32, 2>::zeros(&s, [1, cols]).unwrap();
            let many = Tensor::<f32, 1>::zeros(&s, [cols]).unwrap();
            let mut out = Tensor::<f32, 2>::zeros(&s, [1, cols]).unwrap();
            let result = rms_silu(&s, broad.view(), many.view(), None, out.view_mut(), how);
            assert!(if fits { result.is_ok() } else { arg(result) == "x" }, "{numerics:?} {cols}");
        }
    }
}
