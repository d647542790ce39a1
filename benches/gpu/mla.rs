//! MLA decode: checked against f64, timed beside a device copy that moves as many bytes as the cache has.

use std::cell::RefCell;

use tilewright::ops::mla::{
    Args, Cache, KEY, Latent, PageLists, Path, Problem, Query, ROPE, VALUE, decode_by, page_table, plan,
};
use tilewright::prelude::*;

use crate::Options;
use crate::report::{Report, Row};
use crate::timing::{candidate, measure, sets};

/// Uniform values between -1 and 1.
pub(crate) fn uniform<T: Element<Value = f32>>(n: usize, seed: u64) -> Vec<T> {
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

struct Case {
    heads: usize,
    queries: usize,
    page_rows: usize,
    lengths: Vec<i32>,
}

/// Every kind of edge: lengths around a block, cut requests, empty ones, ragged heads, several queries, odd pages.
pub fn check(stream: &Stream, o: &Options) -> Result<bool, Error> {
    let case =
        |heads, queries, page_rows, lengths: &[i32]| Case { heads, queries, page_rows, lengths: lengths.to_vec() };
    let all = [
        case(9, 1, 64, &[1, 2, 63, 64, 65, 127, 129, 255, 1000]),
        case(126, 2, 64, &[300, 1, 0]),
        case(128, 1, 64, &[4096, 3000, 0, 77]),
        case(3, 1, 64, &[8191]),
        case(63, 3, 64, &[1, 2, 3, 66, 200]),
        case(16, 4, 16, &[100, 500, 33]),
        case(1, 1, 128, &[1000, 0, 48]),
    ];
    // a few for the sanitizers, which are slow
    let cases = if o.quick { &all[..2] } else { &all[..] };
    let mut right = true;
    for c in cases {
        for (path, split) in [(Path::Hopper, false), (Path::Portable, true)] {
            right &= one::<bf16>(stream, c, path, split)? & one::<f16>(stream, c, path, !split)?;
        }
    }
    println!(
        "mla: {} steps by both kernels, in both layouts, against f64: {}",
        cases.len(),
        if right { "right" } else { "WRONG" }
    );
    Ok(right)
}

fn one<T: Latent>(stream: &Stream, c: &Case, path: Path, split: bool) -> Result<bool, Error> {
    let &Case { heads, queries, page_rows, ref lengths } = c;
    let requests = lengths.len();
    let used: Vec<usize> = lengths.iter().map(|&n| (n.max(0) as usize).div_ceil(page_rows)).collect();
    let (columns, pages) = (used.iter().max().unwrap_or(&0) + 1, used.iter().sum::<usize>() + 1);
    let mut cache = uniform::<T>(pages * page_rows * KEY, 1);
    let mut table = vec![2_147_480_000; requests * columns];
    let mut page = pages;
    for (r, &used) in used.iter().enumerate() {
        for p in 0..used {
            page -= 1;
            table[r * columns + p] = page as i32;
            let end = (lengths[r] as usize - p * page_rows).min(page_rows);
            cache[(page * page_rows + end) * KEY..(page + 1) * page_rows * KEY].fill(T::from_value(f32::NAN));
        }
    }
    let q = uniform::<T>(requests * queries * heads * KEY, 2);
    let scale = 1.0 / (KEY as f32).sqrt();
    let problem = Problem::on(&stream.device(), requests, heads, queries)?;
    let dq = Tensor::from_slice(stream, [requests, queries, heads, KEY], &q)?;
    let dcache = Tensor::from_slice(stream, [pages, page_rows, KEY], &cache)?;
    let mut dtable = Tensor::from_slice(stream, [requests, columns], &table)?;
    let mut dlengths = Tensor::from_slice(stream, [requests], lengths)?;
    let part = |all: &[T], from: usize, to: usize| -> Vec<T> {
        all.chunks_exact(KEY).flat_map(|row| &row[from..to]).copied().collect()
    };
    let dq_parts = (
        Tensor::from_slice(stream, [requests, queries, heads, VALUE], &part(&q, 0, VALUE))?,
        Tensor::from_slice(stream, [requests, queries, heads, ROPE], &part(&q, VALUE, KEY))?,
    );
    let dcache_parts = (
        Tensor::from_slice(stream, [pages, page_rows, VALUE], &part(&cache, 0, VALUE))?,
        Tensor::from_slice(stream, [pages, page_rows, ROPE], &part(&cache, VALUE, KEY))?,
    );
    if split {
        let (mut indptr, mut indices, mut last) = (vec![0], Vec::new(), Vec::new());
        for (r, &used) in used.iter().enumerate() {
            indices.extend(&table[r * columns..][..used]);
            indptr.push(indices.len() as i32);
            last.push(if used == 0 { -9 } else { (lengths[r] - 1) % page_rows as i32 + 1 });
        }
        let list = |l: &[i32]| Tensor::<i32, 1>::from_slice(stream, [l.len()], l);
        let (indptr, indices, last) = (list(&indptr)?, list(&indices)?, list(&last)?);
        let lists = PageLists { kv_indptr: indptr.view(), kv_indices: indices.view(), kv_last_page_len: last.view() };
        (dtable, dlengths) = (Tensor::full(stream, [requests, columns], -1)?, Tensor::full(stream, [requests], -1)?);
        page_table(stream, lists, page_rows, dtable.view_mut(), dlengths.view_mut())?;
    }
    let mut words = Tensor::<u32, 1>::full(stream, [problem.plan_words()], u32::MAX)?;
    let mut workspace = Tensor::<f32, 1>::full(stream, [problem.workspace_len()], f32::NAN)?;
    let mut first: Option<Vec<u32>> = None;
    let (mut out, mut lse) = (Vec::new(), Vec::new());
    let mut again = true;
    for _ in 0..4 {
        let mut dout = Tensor::<T, 4>::full(stream, [requests, queries, heads, VALUE], T::from_value(f32::NAN))?;
        let mut dlse = Tensor::<f32, 3>::full(stream, [requests, queries, heads], f32::NAN)?;
        plan(stream, &problem, dlengths.view(), columns * page_rows, words.view_mut())?;
        let args = Args {
            q: if split { Query::Split(dq_parts.0.view(), dq_parts.1.view()) } else { dq.view().into() },
            cache: if split {
                Cache::Split(dcache_parts.0.view(), dcache_parts.1.view())
            } else {
                dcache.view().into()
            },
            table: dtable.view(),
            lengths: dlengths.view(),
            scale,
            plan: words.view(),
            workspace: workspace.view_mut(),
            out: dout.view_mut(),
            lse: dlse.view_mut(),
        };
        decode_by(path, stream, &problem, args)?;
        (out, lse) = (dout.to_vec(stream)?, dlse.to_vec(stream)?);
        let bits = out.iter().map(|x| x.to_value()).chain(lse.iter().copied()).map(f32::to_bits).collect();
        again &= first.as_ref().is_none_or(|f| *f == bits);
        first = Some(bits);
    }
    let unit = if T::DTYPE == DType::BF16 { 1.0 / 256.0 } else { 1.0 / 2048.0 };
    let mut bad = 0;
    for (r, &length) in lengths.iter().enumerate() {
        let key = |s: usize| {
            let page = table[r * columns + s / page_rows] as usize;
            &cache[(page * page_rows + s % page_rows) * KEY..][..KEY]
        };
        for row in (0..queries * heads).step_by(1 + heads / 16) {
            let seen = (length.max(0) as usize + row / heads + 1).saturating_sub(queries);
            let at = r * queries * heads + row;
            let dot = |s: usize| -> f64 {
                key(s).iter().zip(&q[at * KEY..]).map(|(k, q)| f64::from(k.to_value()) * f64::from(q.to_value())).sum()
            };
            let logits: Vec<f64> = (0..seen).map(|s| dot(s) * f64::from(scale)).collect();
            let max = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = logits.iter().map(|l| (l - max).exp()).sum();
            let near = (f64::from(lse[at]) - (max + sum.ln())).abs() <= 1e-4;
            bad += usize::from(!if seen == 0 { lse[at] == f32::NEG_INFINITY } else { near });
            for c in (0..VALUE).step_by(5) {
                let (mut want, mut size) = (0.0, 0.0);
                for (s, l) in logits.iter().enumerate() {
                    let (p, v) = ((l - max).exp() / sum, f64::from(key(s)[c].to_value()));
                    want += p * v;
                    size += p * v.abs();
                }
                let near = (f64::from(out[at * VALUE + c].to_value()) - want).abs() <= 2.0 * unit * size + 1e-6;
                bad += usize::from(!near);
            }
        }
    }
    if bad > 0 || !again {
        let dtype = T::DTYPE;
        println!(
            "mla {path} {dtype} split {split} {heads} heads {queries} queries {lengths:?}: {bad} outside; repeatable {again}"
        );
    }
    Ok(bad == 0 && again)
}

/// Shapes of the project's aim.
pub fn time(stream: &Stream, o: &Options, report: &mut Report) -> Result<(), Error> {
    let mut shapes = vec![(128, 128, 4096), (1, 128, 1024)];
    if !o.quick {
        shapes.extend([(64, 128, 4096), (132, 128, 4096), (128, 128, 1024), (1, 128, 4096), (128, 16, 4096)]);
    }
    for (b, h, s) in shapes {
        time_shape::<bf16>(stream, o, report, b, h, s)?;
    }
    Ok(())
}

fn time_shape<T: Latent>(
    stream: &Stream,
    o: &Options,
    report: &mut Report,
    b: usize,
    h: usize,
    s: usize,
) -> Result<(), Error> {
    let columns = s.div_ceil(64);
    let (pages, size) = (b * columns, b * columns * 64 * KEY);
    let count = sets(size * 2);
    let problem = Problem::on(&stream.device(), b, h, 1)?;
    let table: Vec<i32> = (0..pages as i32).rev().collect();
    let table = Tensor::from_slice(stream, [b, columns], &table)?;
    let lengths = Tensor::<i32, 1>::full(stream, [b], s as i32)?;
    let mut words = Tensor::<u32, 1>::zeros(stream, [problem.plan_words()])?;
    plan(stream, &problem, lengths.view(), columns * 64, words.view_mut())?;
    let values = uniform::<T>(size.min(1 << 24), 3);
    let mut data = Vec::new();
    for set in 0..count {
        let cache: Vec<T> = values.iter().cycle().skip(1001 * set).take(size).copied().collect();
        data.push((
            Tensor::from_slice(stream, [b, 1, h, KEY], &uniform::<T>(b * h * KEY, set as u64 + 5))?,
            Tensor::from_slice(stream, [pages, 64, KEY], &cache)?,
            RefCell::new((
                Tensor::<f32, 1>::zeros(stream, [problem.workspace_len()])?,
                Tensor::<T, 4>::zeros(stream, [b, 1, h, VALUE])?,
                Tensor::<f32, 3>::zeros(stream, [b, 1, h])?,
            )),
        ));
    }
    let step = |path: Path, st: &Stream, set: usize| {
        let (q, cache, outputs) = &data[set];
        let (workspace, out, lse) = &mut *outputs.borrow_mut();
        let args = Args {
            q: q.view().into(),
            cache: cache.view().into(),
            table: table.view(),
            lengths: lengths.view(),
            scale: 1.0 / (KEY as f32).sqrt(),
            plan: words.view(),
            workspace: workspace.view_mut(),
            out: out.view_mut(),
            lse: lse.view_mut(),
        };
        decode_by(path, st, &problem, args)
    };
    let ours = candidate(stream, "mla", count, |st, set| step(Path::Hopper, st, set))?;
    let portable = candidate(stream, "mla portable", count, |st, set| step(Path::Portable, st, set))?;
    // reads half of the cache and writes as much: as many bytes as the cache has
    let half = RefCell::new(Tensor::<T, 1>::zeros(stream, [size / 2])?);
    let copy = candidate(stream, "copy", count, |st, set| {
        let cache = data[set].1.view().reshape([size])?.slice(0, 0..size / 2)?;
        half.borrow_mut().view_mut().copy_from(st, cache)
    })?;
    let mut all = [ours, copy, portable];
    measure(stream, &mut all, if o.quick { 5 } else { 9 }, 20.0)?;
    let (ours_us, peer_us) = (all[0].micros(), all[1].micros());
    let rate = |us: f64| {
        if h > 64 {
            format!("{:.0} TFLOP/s", 2e-6 * (b * h * s * (KEY + VALUE)) as f64 / us)
        } else {
            format!("{:.0} GB/s", 1e-3 * (size * 2) as f64 / us)
        }
    };
    let shape = format!("{b}/{h}/{s}");
    let portable_us = all[2].micros();
    report.add(Row {
        op: "mla_portable",
        dtype: T::DTYPE,
        shape: shape.clone(),
        ours_us: portable_us,
        peer: "mla_decode",
        peer_us: ours_us,
        rate: rate(portable_us),
    });
    report.add(Row { op: "mla_decode", dtype: T::DTYPE, shape, ours_us, peer: "copy", peer_us, rate: rate(ours_us) });
    Ok(())
}
