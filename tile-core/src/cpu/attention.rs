//! Attention over latent keys on the CPU: as many keys at a time as on the device, joined in its order.

use std::vec;
use std::vec::Vec;

use super::{AccElement, Smem, exp2, log2, reciprocal};
use crate::attention::{KEYS, LOW, LatentKeys, MASKED, QUERIES, ROPE, VALUE};
use crate::element::{bf16, f16};
use crate::view::Window;

/// Element types of queries and keys: f16 and bf16.
pub trait AttentionElement: AccElement {}
impl AttentionElement for f16 {}
impl AttentionElement for bf16 {}

/// Values by row, and each row's logarithm.
pub struct Attended(Vec<[f32; VALUE]>, [f32; QUERIES]);

/// Element by element; zeros outside the window.
unsafe fn query<T: AttentionElement, const N: usize>(w: &Window<T>, row: usize, to: &mut [f32]) {
    for (c, x) in to.iter_mut().enumerate().take(N) {
        let inside = row < w.rows as usize && c < w.cols as usize;
        // SAFETY: inside the window, which can be read.
        *x = if inside { unsafe { w.ptr.add(row * w.stride as usize + c).read() }.to_value() } else { 0.0 };
    }
}

/// # Safety
/// The windows and the keys can be read.
pub(crate) unsafe fn attend<T: AttentionElement>(
    _: Smem,
    q: (&Window<T>, &Window<T>),
    keys: &LatentKeys<'_, T>,
    first: u32,
    stop: u32,
    limit: impl Fn(u32) -> u32,
    scale: f32,
) -> Attended {
    let mut queries = vec![[0.0f32; VALUE + ROPE]; QUERIES];
    for (r, row) in queries.iter_mut().enumerate() {
        // SAFETY: the caller's.
        unsafe {
            query::<T, VALUE>(q.0, r, &mut row[..VALUE]);
            query::<T, ROPE>(q.1, r, &mut row[VALUE..]);
        }
    }
    let mut o = vec![[0.0f32; VALUE]; QUERIES];
    let (mut max, mut sum) = ([LOW; QUERIES], [0.0f32; QUERIES]);
    let mut tile = vec![[0.0f32; VALUE + ROPE]; KEYS];
    for at in (first..stop).step_by(KEYS) {
        for (k, key) in tile.iter_mut().enumerate() {
            let k = at + k as u32;
            match if k < stop { keys.at(k) } else { None } {
                // SAFETY: a key of a page that exists.
                Some((latent, rope)) => unsafe {
                    for (c, x) in key.iter_mut().enumerate() {
                        let from = if c < VALUE { latent.wrapping_add(c) } else { rope.wrapping_add(c - VALUE) };
                        *x = from.read().to_value();
                    }
                },
                None => key.fill(0.0),
            }
        }
        for r in 0..QUERIES.min(q.0.rows as usize) {
            let seen = limit(r as u32).min(stop);
            let logit = |k: usize| {
                if at + k as u32 >= seen {
                    return MASKED;
                }
                queries[r].iter().zip(&tile[k]).map(|(q, k)| q * k).sum::<f32>() * scale
            };
            let logits: [f32; KEYS] = core::array::from_fn(logit);
            let raised = logits.iter().fold(max[r], |m, &l| m.max(l));
            let shrink = exp2(max[r] - raised);
            let p = logits.map(|l| exp2(l - raised));
            sum[r] = sum[r] * shrink + p.iter().sum::<f32>();
            max[r] = raised;
            o[r].iter_mut().for_each(|x| *x *= shrink);
            for (p, key) in p.iter().zip(&tile) {
                let p = T::from_value(*p).to_value();
                o[r].iter_mut().zip(key).for_each(|(x, v)| *x += p * v);
            }
        }
    }
    for (row, &sum) in o.iter_mut().zip(&sum) {
        let share = if sum > 0.0 { reciprocal(sum) } else { 0.0 };
        row.iter_mut().for_each(|x| *x *= share);
    }
    Attended(o, core::array::from_fn(|r| max[r] + log2(sum[r])))
}

/// # Safety
/// The windows are the caller's alone.
pub(crate) unsafe fn store_attended<T: AccElement>(
    w: &Window<T>,
    rows: &Window<f32>,
    a: &Attended,
    f: impl Fn(f32) -> f32,
) {
    for (r, row) in a.0.iter().enumerate() {
        for (c, &x) in row.iter().enumerate() {
            if r < w.rows as usize && c < w.cols as usize {
                // SAFETY: inside the window.
                unsafe { w.ptr.add(r * w.stride as usize + c).write(T::from_value(x)) }
            }
        }
        if r < rows.rows as usize && rows.cols > 0 {
            // SAFETY: inside the window.
            unsafe { rows.ptr.add(r * rows.stride as usize).write(f(a.1[r])) }
        }
    }
}
