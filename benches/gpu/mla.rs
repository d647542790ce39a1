//! MLA decode: checked against f64, timed.

use std::cell::RefCell;

use tilewright::kernels::mla::seesaw;
use tilewright::prelude::*;

use crate::Options;
use crate::timing::{candidate, measure, sets};

/// Uniform values.
fn uniform<T: Element<Value = f32>>(n: usize, seed: u64) -> Vec<T> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..n)
        .map(|_| {
            state ^= state >> 12;
            state ^= state << 25;
            state ^= state >> 27;
            T::from_value((state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 40) as f32 / (1 << 23) as f32 - 1.0)
        })
        .collect()
}

pub fn check(stream: &Stream, _o: &Options) -> Result<bool, Error> {
    let mut right = true;
    for (heads, capacity, lengths) in
        [(64, 320, vec![1, 2, 63, 64, 65, 127, 128, 129, 255, 320]), (128, 4096, vec![4096, 4000, 1, 0, 2222])]
    {
        let requests = lengths.len();
        let q = uniform::<bf16>(requests * heads * 576, 1);
        let kv = uniform::<bf16>(requests * capacity * 576, 2);
        let dq = Tensor::from_slice(stream, [requests * heads, 576], &q)?;
        let dkv = Tensor::from_slice(stream, [requests * capacity, 576], &kv)?;
        let dl = Tensor::<u32, 2>::from_slice(stream, [requests, 1], &lengths)?;
        let mut out = Tensor::<bf16, 2>::full(stream, [requests * heads, 512], bf16::from_value(f32::NAN))?;
        let mut lse = Tensor::<f32, 2>::full(stream, [requests * heads, 1], f32::NAN)?;
        let scale = 1.0 / 576f64.sqrt();
        let factor = (scale * std::f64::consts::LOG2_E) as f32;
        let mut first: Option<Vec<u16>> = None;
        for _ in 0..5 {
            seesaw::decode::<bf16>::launch(
                stream,
                (dq.tma_tiles()?, dkv.tma_tiles()?, dl.tiles()?, heads as u32 / 64, capacity as u32, factor, out.tiles_mut()?, lse.tiles_mut()?),
            )?;
            let bits: Vec<u16> = out.to_vec(stream)?.iter().map(|x| x.to_bits()).collect();
            right &= first.as_ref().is_none_or(|f| *f == bits);
            first = Some(bits);
        }
        let (out, lse) = (out.to_vec(stream)?, lse.to_vec(stream)?);
        let (mut bad, mut worst) = (0, 0f64);
        for row in (0..requests * heads).step_by(7) {
            let (r, length) = (row / heads, lengths[row / heads] as usize);
            let key = |s: usize| &kv[(r * capacity + s) * 576..][..576];
            let logits: Vec<f64> = (0..length)
                .map(|s| {
                    let dot: f64 =
                        key(s).iter().zip(&q[row * 576..]).map(|(k, q)| k.to_value() as f64 * q.to_value() as f64).sum();
                    dot * scale
                })
                .collect();
            let max = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = logits.iter().map(|l| (l - max).exp()).sum();
            bad += if length == 0 {
                (lse[row] != f32::NEG_INFINITY) as usize
            } else {
                !((lse[row] as f64 - (max + sum.ln())).abs() <= 1e-4) as usize
            };
            for c in 0..512 {
                let (mut want, mut size) = (0.0, 0.0);
                for (s, l) in logits.iter().enumerate() {
                    let p = (l - max).exp() / sum;
                    want += p * key(s)[c].to_value() as f64;
                    size += p * key(s)[c].to_value().abs() as f64;
                }
                let got = out[row * 512 + c].to_value() as f64;
                worst = worst.max((got - want).abs() / (size + 1e-9));
                bad += !((got - want).abs() <= size / 128.0 + 1e-6) as usize;
            }
        }
        println!("mla seesaw {heads} heads: bad {bad}, worst {worst:.2e}, repeatable {right}");
        right &= bad == 0;
    }
    Ok(right)
}

pub fn time(stream: &Stream, _o: &Options) -> Result<(), Error> {
    let heads = 128;
    for (b, s) in [(66usize, 4096usize), (128, 4096), (132, 4096), (132, 1024)] {
        let bytes = b * s * 576 * 2;
        let count = sets(bytes);
        let base = uniform::<bf16>(1 << 24, 3);
        let mut data = Vec::new();
        for set in 0..count {
            let kv: Vec<bf16> = base.iter().cycle().skip(set * 1001).take(b * s * 576).copied().collect();
            let q = uniform::<bf16>(b * heads * 576, set as u64 + 5);
            data.push((
                Tensor::from_slice(stream, [b * heads, 576], &q)?,
                Tensor::from_slice(stream, [b * s, 576], &kv)?,
                RefCell::new(Tensor::<bf16, 2>::zeros(stream, [b * heads, 512])?),
                RefCell::new(Tensor::<f32, 2>::zeros(stream, [b * heads, 1])?),
            ));
        }
        let dl = Tensor::<u32, 2>::from_slice(stream, [b, 1], &vec![s as u32; b])?;
        let c = candidate(stream, "seesaw", count, |st, set| {
            let (q, kv, out, lse) = &data[set];
            seesaw::decode::<bf16>::launch(
                st,
                (q.tma_tiles()?, kv.tma_tiles()?, dl.tiles()?, 2, s as u32, 0.06, out.borrow_mut().tiles_mut()?, lse.borrow_mut().tiles_mut()?),
            )
        })?;
        let mut all = [c];
        measure(stream, &mut all, 7, 20.0)?;
        let us = all[0].micros();
        println!("mla seesaw b {b} h {heads} s {s}: {us:.1} us, {:.0} TFLOP/s", 2e-6 * (b * heads * s * 1088) as f64 / us);
    }
    Ok(())
}
