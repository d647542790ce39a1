//! Products of 8-bit factors with scales: checked against f64, timed beside the product of bf16 of the same extents.

use std::cell::RefCell;

use tilewright::ops::gemm::{Scaled, Unscaled, gemm, gemm_e4m3};
use tilewright::prelude::*;

use crate::Options;
use crate::gemm::{buffers, normal};
use crate::report::{Report, Row};
use crate::timing::{candidate, measure, sets};

fn elements(n: usize, seed: u64) -> Vec<e4m3> {
    // a period that no extent divides, of numbers over the whole range
    let some: Vec<e4m3> = normal::<f32>((1 << 20) + 7, seed).into_iter().map(|x| e4m3::from_f32(x * 64.0)).collect();
    some.iter().copied().cycle().take(n).collect()
}

fn scales(n: usize, seed: u64) -> Vec<f32> {
    normal::<f32>(n, seed).into_iter().map(|x| x.exp2() / 64.0).collect()
}

/// Shapes with every kind of edge; scales for all, for rows, for 128 of a row and for squares.
pub fn check(stream: &Stream, o: &Options) -> Result<bool, Error> {
    let all: [(usize, usize, usize); 8] = [
        (1, 1, 16),
        (7, 130, 144),
        (65, 40, 1040),
        (300, 520, 208),
        (1000, 777, 1104),
        (1537, 2304, 400),
        (18_000, 100, 144),
        (129, 256, 7168),
    ];
    let shapes = if o.quick { &all[3..4] } else { &all[..] };
    let mut right = true;
    for &(m, n, k) in shapes {
        for of_a in [(1, 1), (m, 1), (m, k.div_ceil(128))] {
            for of_b in [(1, 1), (n.div_ceil(128), k.div_ceil(128))] {
                right &= case::<bf16>(stream, [m, n, k], of_a, of_b)?;
                right &= case::<f16>(stream, [m, n, k], of_a, of_b)?;
                right &= case::<f32>(stream, [m, n, k], of_a, of_b)?;
            }
        }
    }
    let verdict = if right { "right" } else { "WRONG" };
    println!("gemm of e4m3: {} shapes, every element against f64: {verdict}", shapes.len());
    Ok(right)
}

fn case<T: Unscaled>(
    stream: &Stream,
    [m, n, k]: [usize; 3],
    (ra, ca): (usize, usize),
    (rb, cb): (usize, usize),
) -> Result<bool, Error> {
    let (a, b, sa, sb) = (elements(m * k, 1), elements(n * k, 2), scales(ra * ca, 3), scales(rb * cb, 4));
    let (da, db) = (Tensor::from_slice(stream, [m, k], &a)?, Tensor::from_slice(stream, [n, k], &b)?);
    let (dsa, dsb) = (Tensor::from_slice(stream, [ra, ca], &sa)?, Tensor::from_slice(stream, [rb, cb], &sb)?);
    let (va, vb) =
        (Scaled { elements: da.view(), scales: dsa.view() }, Scaled { elements: db.view(), scales: dsb.view() });
    // dense, and with a stride that the copy engine does not take
    let mut first: Vec<Vec<u32>> = Vec::new();
    let mut guards = true;
    for gap in [0, 0, 1] {
        let width = n + gap;
        let mut c = Tensor::<T, 2>::full(stream, [m + 2, width], T::from_value(f32::NAN))?;
        gemm_e4m3(stream, va, vb, c.view_mut().rows(1..m + 1)?.cols(0..n)?)?;
        let c = c.to_vec(stream)?;
        guards &= c[..width].iter().chain(&c[width * (m + 1)..]).all(|x| x.to_value().is_nan());
        guards &= c.chunks(width).all(|row| row[n..].iter().all(|x| x.to_value().is_nan()));
        first.push(
            c[width..width * (m + 1)].chunks(width).flat_map(|r| &r[..n]).map(|x| x.to_value().to_bits()).collect(),
        );
    }
    let again = first[0] == first[1] && first[0] == first[2];
    let wide = |v: &[e4m3], s: &[f32], rows: usize, share: usize, columns: usize| -> Vec<f64> {
        let scale = |r: usize, x: usize| f64::from(s[(r / share).min(rows - 1) * columns + (x / 128).min(columns - 1)]);
        (0..v.len()).map(|at| f64::from(v[at].to_f32()) * scale(at / k, at % k)).collect()
    };
    let (a, b) = (wide(&a, &sa, ra, 1, ca), wide(&b, &sb, rb, 128, cb));
    let unit = match T::DTYPE {
        DType::BF16 => 1.0 / 256.0,
        DType::F16 => 1.0 / 2048.0,
        _ => 1e-7,
    };
    let mut outside = 0;
    // rows far apart where there are many: each is a sum over all of the depth
    for i in (0..m).step_by(m.div_ceil(64)).chain([m - 1]) {
        for j in 0..n {
            let terms = || a[i * k..][..k].iter().zip(&b[j * k..][..k]).map(|(x, y)| x * y);
            let (want, size) = (terms().sum::<f64>(), terms().map(f64::abs).sum::<f64>());
            let got = f64::from(f32::from_bits(first[0][i * n + j]));
            // of terms that they add at a time, the tensor cores keep 13 bits behind the first of the largest
            outside += usize::from((got - want).abs() > want.abs() * unit + size / 4096.0);
        }
    }
    let right = outside == 0 && guards && again;
    if !right {
        println!(
            "gemm of e4m3 to {} {m}x{n}x{k}, scales {ra}x{ca} and {rb}x{cb}: {outside} outside; guards {guards}; repeatable {again}",
            T::DTYPE
        );
    }
    Ok(right)
}

/// Shapes of DeepSeek-V3's layers, scales for 128 of a row and for squares.
pub fn time(stream: &Stream, o: &Options, report: &mut Report) -> Result<(), Error> {
    let mut shapes: Vec<(usize, usize, usize)> = vec![(4096, 7168, 2048), (4096, 4096, 7168)];
    if !o.quick {
        shapes.extend([
            (4096, 2112, 7168),
            (4096, 24576, 1536),
            (4096, 32768, 512),
            (4096, 7168, 16384),
            (128, 7168, 2048),
        ]);
        shapes.extend([(4096, 4096, 4096), (8192, 8192, 8192)]);
    }
    for (m, n, k) in shapes {
        let depth = k.div_ceil(128);
        let count = sets(m * k + n * k + 2 * m * n);
        let sets: Vec<_> = (0..count as u64)
            .map(|i| {
                Ok((
                    Tensor::from_slice(stream, [m, k], &elements(m * k, i + 1))?,
                    Tensor::from_slice(stream, [m, depth], &scales(m * depth, i + 2))?,
                    Tensor::from_slice(stream, [n, k], &elements(n * k, i + 3))?,
                    Tensor::from_slice(stream, [n.div_ceil(128), depth], &scales(n.div_ceil(128) * depth, i + 4))?,
                    RefCell::new(Tensor::<bf16, 2>::zeros(stream, [m, n])?),
                ))
            })
            .collect::<Result<_, Error>>()?;
        let halves = buffers::<bf16>(stream, [m, n, k])?;
        let mut all = [
            candidate(stream, "e4m3", count, |s, i| {
                let (a, sa, b, sb, c) = &sets[i];
                let (a, b) = (
                    Scaled { elements: a.view(), scales: sa.view() },
                    Scaled { elements: b.view(), scales: sb.view() },
                );
                gemm_e4m3(s, a, b, c.borrow_mut().view_mut())
            })?,
            candidate(stream, "bf16", halves.len(), |s, i| {
                let (a, b, c) = &halves[i];
                gemm(s, a.view(), b.view(), c.borrow_mut().view_mut())
            })?,
        ];
        measure(stream, &mut all, if o.quick { 5 } else { 9 }, 15.0)?;
        let (ours_us, peer_us) = (all[0].micros(), all[1].micros());
        let rate = format!("{:.0} TFLOP/s", 2e-6 * (m * n * k) as f64 / ours_us);
        report.add(Row {
            op: "gemm_e4m3",
            dtype: DType::E4M3,
            shape: format!("{m}x{n}x{k}"),
            ours_us,
            peer: "bf16",
            peer_us,
            rate,
        });
    }
    Ok(())
}
