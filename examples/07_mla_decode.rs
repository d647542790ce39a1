//! A decoding step of multi-head latent attention over a paged cache: `softmax(scale q K^T) V` for a batch of requests of
//! different lengths, whose keys lie in pages in random order; checked against f64, and timed.
//!
//! ```text
//! cargo run --release --example 07_mla_decode [-- --device cpu]
//! ```

// `!(error <= allowed)` is true of NaN, which is what is meant
#![allow(clippy::neg_cmp_op_on_partial_ord)]

mod common;

use std::time::Instant;

use common::check::Worst;
use tilewright::ops::mla::{Args, KEY, Problem, VALUE, decode, plan};
use tilewright::prelude::*;

const PAGE: usize = 64;

/// A step as host memory.
struct Step {
    heads: usize,
    lengths: Vec<i32>,
    columns: usize,
    table: Vec<i32>,
    q: Vec<bf16>,
    cache: Vec<bf16>,
    scale: f32,
}

impl Step {
    fn new(heads: usize, lengths: Vec<i32>) -> Self {
        let used: Vec<usize> = lengths.iter().map(|&n| (n as usize).div_ceil(PAGE)).collect();
        let (columns, pages) = (used.iter().copied().max().unwrap_or(0), used.iter().sum::<usize>());
        // page numbers in an order that looks random: steps by a number that has no factor in common with theirs
        let stride = (pages * 5 / 8..).find(|s| gcd(*s, pages) == 1).unwrap_or(1);
        let mut table = vec![-1; lengths.len() * columns];
        let mut next = 0;
        for (row, &used) in table.chunks_mut(columns.max(1)).zip(&used) {
            for entry in &mut row[..used] {
                *entry = (next * stride % pages) as i32;
                next += 1;
            }
        }
        let q = common::random(lengths.len() * heads, KEY, 1).to();
        let cache = common::random(pages * PAGE, KEY, 2).to();
        Step { heads, lengths, columns, table, q, cache, scale: 1.0 / 192f32.sqrt() }
    }

    /// Key `s` of request `r`.
    fn key(&self, r: usize, s: usize) -> impl Iterator<Item = f64> {
        let page = self.table[r * self.columns + s / PAGE] as usize;
        self.cache[(page * PAGE + s % PAGE) * KEY..][..KEY].iter().map(|x| x.to_f64())
    }

    /// What row `row` (a head of a request) should be: its elements, the sizes that errors are relative to, and the
    /// logarithm.
    fn reference(&self, row: usize) -> (Vec<f64>, Vec<f64>, f64) {
        let r = row / self.heads;
        let q: Vec<f64> = self.q[row * KEY..][..KEY].iter().map(|x| x.to_f64()).collect();
        let dot = |s| self.key(r, s).zip(&q).map(|(k, q)| k * q).sum::<f64>() * f64::from(self.scale);
        let logits: Vec<f64> = (0..self.lengths[r] as usize).map(dot).collect();
        let max = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = logits.iter().map(|l| (l - max).exp()).sum();
        let (mut out, mut size) = (vec![0.0; VALUE], vec![0.0; VALUE]);
        for (s, l) in logits.iter().enumerate() {
            let p = (l - max).exp() / sum;
            for (c, v) in self.key(r, s).take(VALUE).enumerate() {
                out[c] += p * v;
                size[c] += p * v.abs();
            }
        }
        (out, size, max + sum.ln())
    }
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn run() -> common::Outcome {
    let device = common::device_argument()?;
    let stream = device.stream()?;
    println!("device  {device}");
    let step = if device.is_cpu() {
        Step::new(3, vec![70, 1, 0, 129])
    } else {
        // lengths around 4096, and one that is empty
        let lengths = (0..32).map(|r| if r == 7 { 0 } else { 4096 - 1500 + r * 94 });
        Step::new(128, lengths.collect())
    };
    let (requests, heads) = (step.lengths.len(), step.heads);
    let pages = step.cache.len() / PAGE / KEY;

    let q = Tensor::from_slice(&stream, [requests, 1, heads, KEY], &step.q)?;
    let cache = Tensor::from_slice(&stream, [pages, PAGE, KEY], &step.cache)?;
    let table = Tensor::from_slice(&stream, [requests, step.columns], &step.table)?;
    let lengths = Tensor::from_slice(&stream, [requests], &step.lengths)?;
    let mut out = Tensor::<bf16, 4>::full(&stream, [requests, 1, heads, VALUE], bf16::from_f32(f32::NAN))?;
    let mut lse = Tensor::<f32, 3>::full(&stream, [requests, 1, heads], f32::NAN)?;

    // once a step, for all layers: which part of the device works on which keys
    let problem = Problem::on(&device, requests, heads, 1)?;
    let mut words = Tensor::<u32, 1>::zeros(&stream, [problem.plan_words()])?;
    let mut workspace = Tensor::<f32, 1>::zeros(&stream, [problem.workspace_len()])?;
    plan(&stream, &problem, lengths.view(), step.columns * PAGE, words.view_mut())?;
    // once a layer
    let mut layer = || {
        let args = Args {
            q: q.view().into(),
            cache: cache.view().into(),
            table: table.view(),
            lengths: lengths.view(),
            scale: step.scale,
            plan: words.view(),
            workspace: workspace.view_mut(),
            out: out.view_mut(),
            lse: lse.view_mut(),
        };
        decode(&stream, &problem, args)
    };
    layer()?;
    stream.synchronize()?;
    let times = if device.is_cpu() { 1 } else { 50 };
    let start = Instant::now();
    for _ in 0..times {
        layer()?;
    }
    stream.synchronize()?;
    let seconds = start.elapsed().as_secs_f64() / f64::from(times);

    let keys: usize = step.lengths.iter().map(|&n| n as usize).sum();
    let flop = 2.0 * (heads * keys * (KEY + VALUE)) as f64;
    let bytes = 2.0 * (keys * KEY + requests * heads * (KEY + VALUE)) as f64;
    println!("shape   {requests} requests of {heads} heads, {keys} keys in {pages} pages of {PAGE}");
    println!(
        "time    {:.1} us, {:.1} TFLOP/s, {:.0} GB/s",
        seconds * 1e6,
        flop / seconds * 1e-12,
        bytes / seconds * 1e-9
    );

    let (out, lse) = (common::widened(&out.to_vec(&stream)?), lse.to_vec(&stream)?);
    // every row where there are few
    let rows: Vec<usize> = (0..requests * heads).step_by((requests * heads / 128).max(1)).collect();
    let mut worst = Worst::none(rows.len() * VALUE);
    for &row in &rows {
        let (want, size, log) = step.reference(row);
        for (c, (want, size)) in want.iter().zip(&size).enumerate() {
            // probabilities are rounded, and the result
            let allowed = 2.0 * common::check::relative_rounding(DType::BF16) * size + 1e-6;
            worst.see(f64::from(out[row * VALUE + c]), *want, allowed, DType::BF16);
        }
        let found = f64::from(lse[row]);
        if !(found == log || (found - log).abs() <= 1e-4 * (1.0 + log.abs())) {
            return Err(format!("row {row}: expected a logarithm of {log}, found {found}").into());
        }
    }
    worst.report("out")
}

fn main() -> std::process::ExitCode {
    common::exit(run())
}
