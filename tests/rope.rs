//! Rotary embedding on the CPU against f64: both ways of pairing, in place and not, heads that are slices of a wider tensor,
//! norms before it, positions of 64 bits, and those that are not there.

use tilewright::ops::rope::{Angles, HeadNorm, Rotated, Rotation, norm_rope, rope, rope_to};
use tilewright::prelude::*;

const GUARD: f32 = -77.0;

fn noise(n: usize, mut seed: u64) -> Vec<f32> {
    (0..n)
        .map(|_| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 40) as f32 / (1u64 << 23) as f32 - 1.0
        })
        .collect()
}

fn unit<T: Element>() -> f64 {
    match T::DTYPE {
        DType::BF16 => 2f64.powi(-8),
        DType::F16 => 2f64.powi(-11),
        _ => 2f64.powi(-23),
    }
}

struct Tables {
    cos: Tensor<f32, 2>,
    sin: Tensor<f32, 2>,
    angle: Vec<f64>,
    angles: usize,
}

const KNOWN: usize = 50;

fn tables(s: &Stream, angles: usize) -> Tables {
    let angle: Vec<f64> = (0..KNOWN * angles)
        .map(|i| (i / angles) as f64 * 10_000f64.powf(-((i % angles) as f64) / angles as f64))
        .collect();
    let of = |f: fn(f64) -> f64| {
        let values: Vec<f32> = angle.iter().map(|&a| f(a) as f32).collect();
        Tensor::from_slice(s, [KNOWN, angles], &values).unwrap()
    };
    Tables { cos: of(f64::cos), sin: of(f64::sin), angle, angles }
}

/// What a head becomes.
fn turned(x: &[f64], w: Option<&[f64]>, eps: f64, t: &Tables, position: usize, rotation: Rotation) -> Vec<f64> {
    let mean = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
    let x: Vec<f64> = match w {
        Some(w) => x.iter().zip(w).map(|(x, w)| x / (mean + eps).sqrt() * w).collect(),
        None => x.to_vec(),
    };
    let mut y = x.clone();
    for i in 0..t.angles {
        let (a, b) = match rotation {
            Rotation::Halves => (i, i + t.angles),
            Rotation::Pairs => (2 * i, 2 * i + 1),
        };
        let (sin, cos) = t.angle[position * t.angles + i].sin_cos();
        (y[a], y[b]) = (x[a] * cos - x[b] * sin, x[b] * cos + x[a] * sin);
    }
    y
}

fn near<T: Element>(got: &[f64], want: &[f64], what: &str) {
    let size = want.iter().fold(0f64, |a, b| a.max(b.abs()));
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        let fine = (got - want).abs() <= want.abs() * unit::<T>() + size * 1e-6;
        assert!(fine || got.is_nan() && want.is_nan(), "{what}, {}, element {i}: {got} for {want}", T::DTYPE);
    }
}

fn value<T: Element<Value = f32>>(v: &[T]) -> Vec<f64> {
    v.iter().map(|v| f64::from(v.to_value())).collect()
}

/// `q` and `k` lie beside each other in rows that hold something else too, as a joined projection gives them.
fn case<T: Rotated>(tokens: usize, heads: [usize; 2], elements: usize, angles: usize, rotation: Rotation, wide: bool) {
    let s = Device::cpu().stream().unwrap();
    let t = tables(&s, angles);
    let [hq, hk] = heads;
    let width = (hq + hk) * elements + 3;
    let mut data: Vec<T> = noise(tokens * width, 5).iter().map(|&v| T::from_value(v * 2.0)).collect();
    data.iter_mut().skip(width - 3).step_by(width).for_each(|v| *v = T::from_value(GUARD));
    if tokens > 1 {
        data[width] = T::from_value(f32::NAN);
    }
    let place: Vec<i32> = (0..tokens).map(|i| (i * 7 % KNOWN) as i32).collect();
    let positions = if wide {
        let words: Vec<i32> = place.iter().flat_map(|&p| [p, 0]).collect();
        Tensor::from_slice(&s, [tokens, 2], &words).unwrap()
    } else {
        Tensor::from_slice(&s, [tokens, 1], &place).unwrap()
    };
    let at = Angles { positions: positions.view(), cos: t.cos.view(), sin: t.sin.view(), rotation };
    let split = |x: &[T], row: usize, head: usize| value(&x[row * width + head * elements..][..elements]);
    let [wq, wk] = [8, 9].map(|seed| noise(elements, seed).iter().map(|&v| T::from_value(v)).collect::<Vec<_>>());
    let (dwq, dwk) =
        (Tensor::from_slice(&s, [elements], &wq).unwrap(), Tensor::from_slice(&s, [elements], &wk).unwrap());
    for normed in [false, true] {
        if normed && elements != 2 * angles {
            continue;
        }
        let mut all = Tensor::from_slice(&s, [tokens, width], &data).unwrap();
        let base = all.view_mut().as_mut_ptr();
        let part = |from: usize, heads: usize| {
            // SAFETY: two ranges of columns of `all`, which lives on, and which nobody else uses meanwhile.
            unsafe {
                let extents = [tokens, heads, elements];
                TensorViewMut::from_raw(&Device::cpu(), base.add(from), extents, [width, elements, 1]).unwrap()
            }
        };
        let (q, k) = (part(0, hq), part(hq * elements, hk));
        if normed {
            let norm = HeadNorm { q: dwq.view(), k: dwk.view(), eps: 1e-6 };
            norm_rope(&s, at, norm, q, k).unwrap();
        } else {
            rope(&s, at, q, k).unwrap();
        }
        let got = all.to_vec(&s).unwrap();
        for row in 0..tokens {
            for head in 0..hq + hk {
                let w = value(if head < hq { &wq } else { &wk });
                let w = normed.then_some(&w[..]);
                let want = turned(&split(&data, row, head), w, 1e-6, &t, place[row] as usize, rotation);
                near::<T>(&split(&got, row, head), &want, &format!("{rotation:?} {elements} row {row} head {head}"));
            }
            let rest = &got[row * width + width - 3..][..3];
            let before = &data[row * width + width - 3..][..3];
            assert_eq!(value(rest), value(before), "written outside");
        }
    }
}

fn cases<T: Rotated>() {
    for rotation in [Rotation::Halves, Rotation::Pairs] {
        case::<T>(3, [4, 1], 128, 64, rotation, false);
        case::<T>(2, [33, 8], 64, 32, rotation, true);
        case::<T>(5, [3, 3], 80, 40, rotation, false);
        case::<T>(2, [9, 2], 256, 128, rotation, false);
        case::<T>(4, [2, 5], 6, 3, rotation, true);
        // the first elements of a head alone
        case::<T>(3, [4, 2], 100, 16, rotation, false);
        case::<T>(1, [1, 0], 128, 64, rotation, false);
        case::<T>(2, [0, 2], 128, 64, rotation, false);
    }
}
#[test]
fn f32_heads() {
    cases::<f32>();
}
#[test]
fn f16_heads() {
    cases::<f16>();
}
#[test]
fn bf16_heads() {
    cases::<bf16>();
}

#[test]
fn out_of_place_is_the_same() {
    let s = Device::cpu().stream().unwrap();
    let t = tables(&s, 32);
    let positions = Tensor::from_slice(&s, [4, 1], &[3, 0, 49, 7]).unwrap();
    for rotation in [Rotation::Halves, Rotation::Pairs] {
        let at = Angles { positions: positions.view(), cos: t.cos.view(), sin: t.sin.view(), rotation };
        let mut q = Tensor::<f32, 3>::from_slice(&s, [4, 5, 64], &noise(4 * 5 * 64, 1)).unwrap();
        let mut k = Tensor::<f32, 3>::from_slice(&s, [4, 2, 64], &noise(4 * 2 * 64, 2)).unwrap();
        let mut yq = Tensor::<f32, 3>::full(&s, [4, 5, 64], f32::NAN).unwrap();
        let mut yk = Tensor::<f32, 3>::full(&s, [4, 2, 64], f32::NAN).unwrap();
        rope_to(&s, at, q.view(), k.view(), yq.view_mut(), yk.view_mut()).unwrap();
        rope(&s, at, q.view_mut(), k.view_mut()).unwrap();
        assert_eq!(q.to_vec(&s).unwrap(), yq.to_vec(&s).unwrap());
        assert_eq!(k.to_vec(&s).unwrap(), yk.to_vec(&s).unwrap());
    }
}

#[test]
fn a_position_that_is_not_there_is_reported_and_gives_zeros() {
    let s = Device::cpu().stream().unwrap();
    let t = tables(&s, 4);
    for (words, list) in [(1, vec![1, KNOWN as i32, 2]), (1, vec![1, -1, 2]), (2, vec![1, 0, 1, 1, 2, 0])] {
        let positions = Tensor::from_slice(&s, [3, words], &list).unwrap();
        for rotation in [Rotation::Halves, Rotation::Pairs] {
            let at = Angles { positions: positions.view(), cos: t.cos.view(), sin: t.sin.view(), rotation };
            let mut q = Tensor::<f32, 3>::full(&s, [3, 1, 8], 1.0).unwrap();
            let mut k = Tensor::<f32, 3>::full(&s, [3, 1, 8], 1.0).unwrap();
            match rope(&s, at, q.view_mut(), k.view_mut()) {
                Err(Error::Kernel { message, .. }) => {
                    assert_eq!(message, "a token has a position that the tables do not have");
                }
                other => panic!("{other:?}"),
            }
            let q = q.to_vec(&s).unwrap();
            assert!(q[8..16].iter().all(|&x| x == 0.0) && q[..8].iter().chain(&q[16..]).any(|&x| x != 0.0));
        }
    }
}

#[test]
fn wrong_shapes_are_named() {
    let s = Device::cpu().stream().unwrap();
    let t = tables(&s, 4);
    let positions = Tensor::<i32, 2>::zeros(&s, [3, 1]).unwrap();
    let at = Angles { positions: positions.view(), cos: t.cos.view(), sin: t.sin.view(), rotation: Rotation::Halves };
    let new = |extents| Tensor::<f32, 3>::zeros(&s, extents).unwrap();
    let named = |q: [usize; 3], k: [usize; 3], at: Angles<'_>| match rope(&s, at, new(q).view_mut(), new(k).view_mut())
    {
        Err(Error::Shape { arg, .. }) => arg,
        other => panic!("{other:?}"),
    };
    assert_eq!(named([3, 2, 7], [3, 2, 8], at), "q");
    assert_eq!(named([3, 2, 8], [3, 2, 7], at), "k");
    assert_eq!(named([3, 2, 8], [4, 2, 8], at), "k");
    assert_eq!(named([2, 2, 8], [2, 2, 8], at), "positions");
    assert_eq!(named([3, 2, 8], [3, 2, 8], Angles { sin: t.sin.view().rows(1..KNOWN).unwrap(), ..at }), "sin");
    let (mut q, mut k) = (new([3, 2, 10]), new([3, 2, 8]));
    let wrong = rope_to(&s, at, new([3, 2, 10]).view(), new([3, 2, 10]).view(), q.view_mut(), k.view_mut());
    assert!(matches!(wrong, Err(Error::Shape { arg: "yk", .. })), "{wrong:?}");
    assert!(rope(&s, at, new([3, 0, 8]).view_mut(), new([3, 0, 8]).view_mut()).is_ok());
}
