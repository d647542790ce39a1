//! MLA decode's main loop on the CPU backend, against an f64 reference. What lies past a request's end is NaN.

// `!(error <= allowed)` is true of NaN, which is what is meant
#![allow(clippy::neg_cmp_op_on_partial_ord)]

use tilewright::__private::{Provenance, RawView, backend};
use tilewright::element::{Element, bf16, f16};
use tilewright::prelude::*;
use tilewright::tma::TensorMap;
use tilewright_kernels::mla::seesaw;

fn random(n: usize, seed: &mut u64) -> Vec<f32> {
    (0..n)
        .map(|_| {
            *seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            ((*seed >> 40) as f32 / (1u64 << 23) as f32) - 1.0
        })
        .collect()
}

/// `gain` scales q: larger makes the softmax sharper, and the running maximum move.
fn case<T: Element<Value = f32> + MmaElement>(heads: usize, capacity: usize, lengths: &[u32], gain: f32, workers: u32)
where
    seesaw::decode<T>: for<'a> Kernel<
        Args<'a> = (
            TmaTiles<'a, T, 64, 576>,
            TmaTiles<'a, T, 64, 576>,
            Tiles<'a, u32, 1, 1>,
            u32,
            u32,
            f32,
            TilesMut<'a, T, 64, 512>,
            TilesMut<'a, f32, 64, 1>,
        ),
    >,
{
    let mut seed = 7 + lengths.len() as u64;
    let requests = lengths.len();
    let q: Vec<T> = random(requests * heads * 576, &mut seed).iter().map(|x| T::from_value(x * gain)).collect();
    let mut kv: Vec<T> = random(requests * capacity * 576, &mut seed).iter().map(|x| T::from_value(*x)).collect();
    for (r, &length) in lengths.iter().enumerate() {
        // later keys are larger, so that the maximum rises block by block
        for s in 0..length as usize {
            for x in &mut kv[(r * capacity + s) * 576..(r * capacity + s + 1) * 576] {
                *x = T::from_value(x.to_value() * (1.0 + s as f32 / 64.0));
            }
        }
        kv[(r * capacity + length as usize) * 576..(r + 1) * capacity * 576].fill(T::from_value(f32::NAN));
    }
    let mut out = vec![T::from_value(f32::NAN); requests * heads * 512];
    let mut lse = vec![f32::NAN; requests * heads];
    let scale = 1.0 / (576f64).sqrt();
    let raw = |r: usize, c: usize| RawView::matrix(r as u32, c as u32, c as u64);
    let (map, cpu) = (TensorMap([0; 16]), Provenance::UNTRACKED_CPU);
    // SAFETY: the vectors hold the matrices and outlive the launch.
    let args = unsafe {
        (
            TmaTiles::from_raw(q.as_ptr(), raw(requests * heads, 576), map, cpu),
            TmaTiles::from_raw(kv.as_ptr(), raw(requests * capacity, 576), map, cpu),
            Tiles::from_raw(lengths.as_ptr(), raw(requests, 1), cpu),
            heads as u32 / 64,
            capacity as u32,
            (scale * std::f64::consts::LOG2_E) as f32,
            TilesMut::from_raw(out.as_mut_ptr(), raw(requests * heads, 512), cpu),
            TilesMut::from_raw(lse.as_mut_ptr(), raw(requests * heads, 1), cpu),
        )
    };
    backend::run::<seesaw::decode<T>>(args, workers).unwrap();
    // the probabilities are rounded once more than the output
    let unit = if T::DTYPE == DType::BF16 { 1.0 / 256.0 } else { 1.0 / 2048.0 };
    let mut bad = 0;
    for row in 0..requests * heads {
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
        if length == 0 {
            bad += (lse[row] != f32::NEG_INFINITY) as usize;
        } else {
            bad += !((lse[row] as f64 - (max + sum.ln())).abs() <= 1e-4 * (1.0 + max.abs())) as usize;
        }
        for c in 0..512 {
            let (mut want, mut size) = (0.0, 0.0);
            for (s, l) in logits.iter().enumerate() {
                let p = (l - max).exp() / sum;
                want += p * key(s)[c].to_value() as f64;
                size += p * key(s)[c].to_value().abs() as f64;
            }
            let got = out[row * 512 + c].to_value() as f64;
            bad += !((got - want).abs() <= 2.0 * unit * size + 1e-6) as usize;
        }
    }
    assert_eq!(bad, 0, "{heads} heads, lengths {lengths:?}");
}

#[test]
fn lengths_around_a_block() {
    case::<bf16>(64, 320, &[1, 2, 63, 64, 65, 127, 128, 129, 255, 320], 1.0, 3);
}

#[test]
fn sharp_softmax_and_two_head_blocks() {
    case::<f16>(128, 256, &[193, 70], 8.0, 2);
    case::<bf16>(128, 192, &[190], 30.0, 1);
}

#[test]
fn requests_without_keys() {
    case::<bf16>(64, 64, &[0, 17, 0], 1.0, 1);
}
