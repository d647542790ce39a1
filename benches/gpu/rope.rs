//! Rotary embedding: checked against f64, timed beside a device copy of as many bytes.

use std::cell::RefCell;

use tilewright::ops::rope::{Angles, HeadNorm, Rotated, Rotation, norm_rope, rope, rope_to};
use tilewright::prelude::*;

use crate::Options;
use crate::gemm::normal;
use crate::report::{Report, Row};
use crate::timing::{Candidate, candidate, measure, sets};

const KNOWN: usize = 4096;

struct Tables {
    cos: Tensor<f32, 2>,
    sin: Tensor<f32, 2>,
    positions: Tensor<i32, 2>,
}

fn angle(position: usize, i: usize, angles: usize) -> f64 {
    position as f64 * 10_000f64.powf(-(i as f64) / angles as f64)
}

fn tables(s: &Stream, tokens: usize, angles: usize) -> Result<Tables, Error> {
    let of = |f: fn(f64) -> f64| {
        let values: Vec<f32> = (0..KNOWN * angles).map(|i| f(angle(i / angles, i % angles, angles)) as f32).collect();
        Tensor::from_slice(s, [KNOWN, angles], &values)
    };
    let positions: Vec<i32> = (0..tokens).map(place).map(|p| p as i32).collect();
    Ok(Tables { cos: of(f64::cos)?, sin: of(f64::sin)?, positions: Tensor::from_slice(s, [tokens, 1], &positions)? })
}

fn place(token: usize) -> usize {
    token * 7 % KNOWN
}

pub fn check(stream: &Stream, _: &Options) -> Result<bool, Error> {
    let mut right = true;
    for rotation in [Rotation::Halves, Rotation::Pairs] {
        for (tokens, heads, elements) in
            [(70, [32, 8], 128), (9, [5, 1], 64), (13, [128, 1], 64), (5, [3, 3], 80), (6, [8, 2], 256)]
        {
            for normed in [false, true] {
                right &= case::<bf16>(stream, tokens, heads, elements, rotation, normed)?;
                right &= case::<f16>(stream, tokens, heads, elements, rotation, normed)?;
                right &= case::<f32>(stream, tokens, heads, elements, rotation, normed)?;
            }
        }
    }
    println!("rope: every element against f64: {}", if right { "right" } else { "WRONG" });
    Ok(right)
}

fn case<T: Rotated>(
    s: &Stream,
    tokens: usize,
    [hq, hk]: [usize; 2],
    elements: usize,
    rotation: Rotation,
    normed: bool,
) -> Result<bool, Error> {
    let angles = elements / 2;
    let t = tables(s, tokens, angles)?;
    let at = Angles { positions: t.positions.view(), cos: t.cos.view(), sin: t.sin.view(), rotation };
    let (x, y) = (normal::<T>(tokens * hq * elements, 1), normal::<T>(tokens * hk * elements, 2));
    let mut q = Tensor::from_slice(s, [tokens, hq, elements], &x)?;
    let mut k = Tensor::from_slice(s, [tokens, hk, elements], &y)?;
    let (wq, wk) = (normal::<T>(elements, 3), normal::<T>(elements, 4));
    let (dwq, dwk) = (Tensor::from_slice(s, [elements], &wq)?, Tensor::from_slice(s, [elements], &wk)?);
    if normed {
        let norm = HeadNorm { q: dwq.view(), k: dwk.view(), eps: 1e-6 };
        norm_rope(s, at, norm, q.view_mut(), k.view_mut())?;
    } else {
        rope(s, at, q.view_mut(), k.view_mut())?;
    }
    let value = |v: &T| f64::from(v.to_value());
    let unit = [2f64.powi(-23), 2f64.powi(-11), 2f64.powi(-8)][match T::DTYPE {
        DType::F32 => 0,
        DType::F16 => 1,
        _ => 2,
    }];
    // half the distance of numbers that are too small to be normal: only those of f16 come up here
    let least = if T::DTYPE == DType::F16 { 2f64.powi(-25) } else { 0.0 };
    let mut outside = 0;
    for (got, x, w, heads) in [(q.to_vec(s)?, &x, &wq, hq), (k.to_vec(s)?, &y, &wk, hk)] {
        for (head, (got, x)) in got.chunks(elements).zip(x.chunks(elements)).enumerate() {
            let mean = x.iter().map(|x| value(x).powi(2)).sum::<f64>() / elements as f64;
            let scale = if normed { 1.0 / (mean + 1e-6).sqrt() } else { 1.0 };
            let x: Vec<f64> =
                x.iter().zip(w).map(|(x, w)| value(x) * scale * if normed { value(w) } else { 1.0 }).collect();
            for i in 0..angles {
                let (a, b) = match rotation {
                    Rotation::Halves => (i, i + angles),
                    Rotation::Pairs => (2 * i, 2 * i + 1),
                };
                let (sin, cos) = angle(place(head / heads), i, angles).sin_cos();
                for (at, want) in [(a, x[a] * cos - x[b] * sin), (b, x[b] * cos + x[a] * sin)] {
                    let size = x[a].abs() + x[b].abs();
                    outside += usize::from((value(&got[at]) - want).abs() > want.abs() * unit + size * 2e-6 + least);
                }
            }
        }
    }
    if outside > 0 {
        println!("rope {} {rotation:?} {tokens}x{hq}+{hk}x{elements} normed {normed}: {outside} outside", T::DTYPE);
    }
    Ok(outside == 0)
}

pub fn time(stream: &Stream, o: &Options, report: &mut Report) -> Result<(), Error> {
    for (tokens, hq, hk, elements) in
        [(16384, 32, 8, 128), (64, 32, 8, 128)].into_iter().take(if o.quick { 1 } else { 2 })
    {
        shape(stream, o, report, tokens, [hq, hk], elements)?;
    }
    Ok(())
}

fn shape(
    s: &Stream,
    o: &Options,
    report: &mut Report,
    tokens: usize,
    [hq, hk]: [usize; 2],
    elements: usize,
) -> Result<(), Error> {
    let width = (hq + hk) * elements;
    let bytes = 4 * tokens * width;
    let t = tables(s, tokens, elements / 2)?;
    let w = Tensor::from_slice(s, [elements], &normal::<bf16>(elements, 3))?;
    let at = |rotation| Angles { positions: t.positions.view(), cos: t.cos.view(), sin: t.sin.view(), rotation };
    let mut buffers = Vec::new();
    for set in 0..sets(bytes) as u64 {
        let x = normal::<bf16>(1 << 20, set);
        let x: Vec<bf16> = x.iter().copied().cycle().take(tokens * width).collect();
        let new = |from: usize, heads: usize| {
            Tensor::<bf16, 3>::from_slice(s, [tokens, heads, elements], &x[from..from + tokens * heads * elements])
        };
        let (q, k) = (new(0, hq)?, new(tokens * hq * elements, hk)?);
        let (yq, yk) = (new(0, hq)?, new(tokens * hq * elements, hk)?);
        buffers.push((q, k, RefCell::new((yq, yk))));
    }
    let mut all: Vec<Candidate> = Vec::new();
    for (name, rotation) in [("rope_halves", Rotation::Halves), ("rope_pairs", Rotation::Pairs)] {
        all.push(candidate(s, name, buffers.len(), |s, set| {
            let (q, k, y) = &buffers[set];
            let (yq, yk) = &mut *y.borrow_mut();
            rope_to(s, at(rotation), q.view(), k.view(), yq.view_mut(), yk.view_mut())
        })?);
    }
    for (name, rotation) in [("norm_rope_halves", Rotation::Halves), ("norm_rope_pairs", Rotation::Pairs)] {
        all.push(candidate(s, name, buffers.len(), |s, set| {
            let (yq, yk) = &mut *buffers[set].2.borrow_mut();
            let norm = HeadNorm { q: w.view(), k: w.view(), eps: 1e-6 };
            norm_rope(s, at(rotation), norm, yq.view_mut(), yk.view_mut())
        })?);
    }
    all.push(candidate(s, "copy", buffers.len(), |s, set| {
        let (q, k, y) = &buffers[set];
        let (yq, yk) = &mut *y.borrow_mut();
        yq.copy_from(s, q.view())?;
        yk.copy_from(s, k.view())
    })?);
    measure(s, &mut all, if o.quick { 5 } else { 9 }, 10.0)?;
    let peer_us = all[4].micros();
    for c in &all[..4] {
        let ours_us = c.micros();
        let rate = format!("{:.0} GB/s", bytes as f64 / ours_us * 1e-3);
        let shape = format!("{tokens}x{hq}+{hk}x{elements}");
        report.add(Row { op: c.name, dtype: DType::BF16, shape, ours_us, peer: "copy", peer_us, rate });
    }
    Ok(())
}
