//! The attention layer of DeepSeek-V2-Lite, decoding one token for each request, on tilewright's kernels: projections,
//! RMSNorm of the latent part, the new key written to the paged cache, attention in its absorbed form, and the projection
//! back. Checked against the layer as it is defined, in f64: with a key and a value of its own for every head.
//!
//! ```text
//! cargo run --release --example 08_mla_layer [-- --device cpu]
//! ```
//!
//! Absorbed: a head's key is `W_uk latent`, so that `q . (W_uk latent) = (W_uk^T q) . latent`; its value is `W_uv latent`, so
//! that weighed sums of values are `W_uv` of weighed sums of latents. The cache holds latents alone.
//!
//! The rotary embedding is computed on the host, between launches: what a real engine does in a kernel of its own.

// `!(error <= allowed)` is true of NaN, which is what is meant
#![allow(clippy::neg_cmp_op_on_partial_ord)]

mod common;

use tilewright::ops::gemm::gemm;
use tilewright::ops::mla::{Args, KEY, Problem, Query, ROPE, VALUE, concat_and_cache, decode, plan};
use tilewright::ops::rmsnorm::rmsnorm;
use tilewright::prelude::*;

const PAGE: usize = 64;
const EPS: f32 = 1e-6;
/// Elements of a head's query and key that are not rotated, and of its value.
const HEAD: usize = 128;

struct Shape {
    hidden: usize,
    heads: usize,
    /// Keys of each request, the new one included.
    lengths: Vec<usize>,
}

/// A matrix of weights that keeps the size of what it multiplies, as f64 and on the device.
fn weights(stream: &Stream, rows: usize, cols: usize, seed: u64) -> Result<(Vec<f64>, Tensor<bf16, 2>), Error> {
    let scale = (3.0 / cols as f32).sqrt();
    let w: Vec<bf16> = common::random(rows, cols, seed).to_f32().iter().map(|x| bf16::from_f32(x * scale)).collect();
    Ok((common::wide(&w), Tensor::from_slice(stream, [rows, cols], &w)?))
}

/// `w x` of a matrix of rows.
fn times(w: &[f64], x: &[f64]) -> Vec<f64> {
    w.chunks_exact(x.len()).map(|row| row.iter().zip(x).map(|(w, x)| w * x).sum()).collect()
}

/// The rotary embedding of 64 elements at a position: pairs of neighbours turn.
fn rotate(x: &[f64], position: usize) -> Vec<f64> {
    let turn = |(i, pair): (usize, &[f64])| {
        let angle = position as f64 * 10000f64.powf(-((2 * i) as f64) / ROPE as f64);
        let (sin, cos) = angle.sin_cos();
        [pair[0] * cos - pair[1] * sin, pair[0] * sin + pair[1] * cos]
    };
    x.chunks_exact(2).enumerate().flat_map(turn).collect()
}

/// [`rotate`] of some rows of elements.
fn rotate_rows(x: &[bf16], rows: usize, position: impl Fn(usize) -> usize) -> Vec<bf16> {
    let each = x.chunks_exact(x.len() / rows.max(1)).enumerate();
    each.flat_map(|(r, x)| rotate(&common::wide(x), position(r))).map(bf16::from_f64).collect()
}

fn run() -> common::Outcome {
    let device = common::device_argument()?;
    let stream = &device.stream()?;
    println!("device  {device}");
    let shape = if device.is_cpu() {
        Shape { hidden: 96, heads: 2, lengths: vec![1, 65, 30] }
    } else {
        Shape { hidden: 2048, heads: 16, lengths: (0..8).map(|r| 1 + r * 137).collect() }
    };
    let Shape { hidden, heads, ref lengths } = shape;
    let requests = lengths.len();
    let scale = 1.0 / ((HEAD + ROPE) as f32).sqrt();

    let (w_q, dw_q) = weights(stream, heads * (HEAD + ROPE), hidden, 1)?;
    let (w_kv, dw_kv) = weights(stream, KEY, hidden, 2)?;
    let (w_uk, _) = weights(stream, heads * HEAD, VALUE, 3)?;
    let (w_uv, dw_uv) = weights(stream, heads * HEAD, VALUE, 4)?;
    let (w_o, dw_o) = weights(stream, hidden, heads * HEAD, 5)?;
    // W_uk^T, head by head: 512 x 128
    let across = |i: usize| {
        let (h, l, d) = (i / (VALUE * HEAD), i / HEAD % VALUE, i % HEAD);
        bf16::from_f64(w_uk[(h * HEAD + d) * VALUE + l])
    };
    let w_ukt: Vec<bf16> = (0..heads * VALUE * HEAD).map(across).collect();
    let dw_ukt = Tensor::<bf16, 2>::from_slice(stream, [heads * VALUE, HEAD], &w_ukt)?;
    let norm = common::random(1, VALUE, 6).to_f32().iter().map(|x| 1.0 + 0.25 * x).collect::<Vec<_>>();
    let dnorm = Tensor::<f32, 1>::from_slice(stream, [VALUE], &norm)?;
    let x: Vec<bf16> = common::random(requests, hidden, 7).to();
    let dx = Tensor::<bf16, 2>::from_slice(stream, [requests, hidden], &x)?;

    // the cache holds what earlier steps left there; request r has the pages r, r + requests, ...
    let columns = lengths.iter().map(|n| n.div_ceil(PAGE)).max().unwrap_or(1);
    let table: Vec<i32> = (0..requests * columns).map(|i| (i / columns + i % columns * requests) as i32).collect();
    let slot = |r: usize, s: usize| (r + s / PAGE * requests) * PAGE + s % PAGE;
    let pages = requests * columns;
    let history: Vec<bf16> = common::random(pages * PAGE, KEY, 8).to();
    let mut cache = Tensor::<bf16, 3>::from_slice(stream, [pages, PAGE, KEY], &history)?;
    let new: Vec<i64> = lengths.iter().enumerate().map(|(r, n)| slot(r, n - 1) as i64).collect();
    let slots = Tensor::<i64, 1>::from_slice(stream, [requests], &new)?;
    let dtable = Tensor::<i32, 2>::from_slice(stream, [requests, columns], &table)?;
    let counts: Vec<i32> = lengths.iter().map(|&n| n as i32).collect();
    let dlengths = Tensor::<i32, 1>::from_slice(stream, [requests], &counts)?;

    // down: a query for each head, and the latent key, normed
    let mut q = Tensor::<bf16, 2>::zeros(stream, [requests, heads * (HEAD + ROPE)])?;
    let mut kv = Tensor::<bf16, 2>::zeros(stream, [requests, KEY])?;
    let mut latent = Tensor::<bf16, 2>::zeros(stream, [requests, VALUE])?;
    gemm(stream, dx.view(), dw_q.view(), q.view_mut())?;
    gemm(stream, dx.view(), dw_kv.view(), kv.view_mut())?;
    rmsnorm(stream, kv.view().cols(0..VALUE)?, dnorm.view(), latent.view_mut(), EPS)?;

    // rotate, each at its position
    let host_q = q.to_vec(stream)?;
    let of_head = |row: &[bf16]| row[HEAD..].to_vec();
    let q_rope: Vec<bf16> = host_q.chunks_exact(HEAD + ROPE).flat_map(of_head).collect();
    let q_rope = rotate_rows(&q_rope, requests * heads, |row| lengths[row / heads] - 1);
    let q_rope = Tensor::<bf16, 4>::from_slice(stream, [requests, 1, heads, ROPE], &q_rope)?;
    let k_rope: Vec<bf16> = kv.to_vec(stream)?.chunks_exact(KEY).flat_map(|row| row[VALUE..].to_vec()).collect();
    let k_rope = rotate_rows(&k_rope, requests, |r| lengths[r] - 1);
    let k_rope = Tensor::<bf16, 2>::from_slice(stream, [requests, ROPE], &k_rope)?;
    concat_and_cache(stream, latent.view(), k_rope.view(), slots.view(), cache.view_mut())?;

    // absorb, attend, and up again
    let mut absorbed = Tensor::<bf16, 2>::zeros(stream, [requests, heads * VALUE])?;
    for h in 0..heads {
        let from = h * (HEAD + ROPE);
        let w = dw_ukt.view().rows(h * VALUE..(h + 1) * VALUE)?;
        let to = absorbed.view_mut().cols(h * VALUE..(h + 1) * VALUE)?;
        gemm(stream, q.view().cols(from..from + HEAD)?, w, to)?;
    }
    let problem = Problem::on(&device, requests, heads, 1)?;
    let mut words = Tensor::<u32, 1>::zeros(stream, [problem.plan_words()])?;
    let mut workspace = Tensor::<f32, 1>::zeros(stream, [problem.workspace_len()])?;
    let mut out = Tensor::<bf16, 4>::zeros(stream, [requests, 1, heads, VALUE])?;
    let mut lse = Tensor::<f32, 3>::zeros(stream, [requests, 1, heads])?;
    plan(stream, &problem, dlengths.view(), columns * PAGE, words.view_mut())?;
    let args = Args {
        q: Query::Split(absorbed.view().reshape([requests, 1, heads, VALUE])?, q_rope.view()),
        cache: cache.view().into(),
        table: dtable.view(),
        lengths: dlengths.view(),
        scale,
        plan: words.view(),
        workspace: workspace.view_mut(),
        out: out.view_mut(),
        lse: lse.view_mut(),
    };
    decode(stream, &problem, args)?;
    let mut values = Tensor::<bf16, 2>::zeros(stream, [requests, heads * HEAD])?;
    for h in 0..heads {
        let from = out.view().reshape([requests, heads * VALUE])?.cols(h * VALUE..(h + 1) * VALUE)?;
        let w = dw_uv.view().rows(h * HEAD..(h + 1) * HEAD)?;
        gemm(stream, from, w, values.view_mut().cols(h * HEAD..(h + 1) * HEAD)?)?;
    }
    let mut y = Tensor::<bf16, 2>::zeros(stream, [requests, hidden])?;
    gemm(stream, values.view(), dw_o.view(), y.view_mut())?;
    let y = common::wide(&y.to_vec(stream)?);

    // the layer as it is defined
    let (mut errors, mut size) = (0.0, 0.0);
    for r in 0..requests {
        let (x, n) = (common::wide(&x[r * hidden..][..hidden]), lengths[r]);
        let (q, kv) = (times(&w_q, &x), times(&w_kv, &x));
        let mean = kv[..VALUE].iter().map(|v| v * v).sum::<f64>() / VALUE as f64;
        let factor = 1.0 / (mean + f64::from(EPS)).sqrt();
        let mut new: Vec<f64> = kv[..VALUE].iter().zip(&norm).map(|(v, &w)| v * factor * f64::from(w)).collect();
        new.extend(rotate(&kv[VALUE..], n - 1));
        let keys =
            (0..n).map(|s| if s == n - 1 { new.clone() } else { common::wide(&history[slot(r, s) * KEY..][..KEY]) });
        let keys: Vec<Vec<f64>> = keys.collect();
        let mut joined = Vec::new();
        for (h, q) in q.chunks_exact(HEAD + ROPE).enumerate() {
            let (uk, uv) = (&w_uk[h * HEAD * VALUE..][..HEAD * VALUE], &w_uv[h * HEAD * VALUE..][..HEAD * VALUE]);
            let turned = rotate(&q[HEAD..], n - 1);
            let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
            let logit = |k: &Vec<f64>| {
                (dot(&times(uk, &k[..VALUE]), &q[..HEAD]) + dot(&k[VALUE..], &turned)) * f64::from(scale)
            };
            let logits: Vec<f64> = keys.iter().map(logit).collect();
            let max = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = logits.iter().map(|l| (l - max).exp()).sum();
            let mut weighed = vec![0.0; HEAD];
            for (k, l) in keys.iter().zip(&logits) {
                let p = (l - max).exp() / sum;
                weighed.iter_mut().zip(times(uv, &k[..VALUE])).for_each(|(w, v)| *w += p * v);
            }
            joined.extend(weighed);
        }
        let want = times(&w_o, &joined);
        errors += y[r * hidden..][..hidden].iter().zip(&want).map(|(y, w)| (y - w) * (y - w)).sum::<f64>();
        size += want.iter().map(|w| w * w).sum::<f64>();
    }
    // each of the seven steps rounds to 8 bits
    let (error, allowed) = ((errors / size).sqrt(), 7.0 / 256.0);
    println!("layer   {requests} requests of {heads} heads, {hidden} hidden; lengths {lengths:?}");
    println!("y       relative error {error:.1e} where {allowed:.1e} is allowed");
    if !(error <= allowed) {
        return Err("the layer's result is wrong".into());
    }
    Ok(())
}

fn main() -> std::process::ExitCode {
    common::exit(run())
}
