//! Keys into a paged cache: checked against plain loops, timed beside a device copy of as many bytes.

use std::cell::RefCell;

use tilewright::ops::mla::{CacheMut, Cached, KEY, ROPE, VALUE, concat_and_cache};
use tilewright::prelude::*;

use crate::Options;
use crate::mla::uniform;
use crate::report::{Report, Row};
use crate::timing::{candidate, measure, sets};

const EMPTY: f32 = 7.0;

/// Slots in disorder, with padding, duplicates and, if `bad`, some that do not exist; either layout, aligned or not.
pub fn check(stream: &Stream) -> Result<bool, Error> {
    let mut right = true;
    for (tokens, pages, page_rows) in [(1, 2, 16), (77, 5, 64), (1000, 20, 64), (4100, 300, 16)] {
        for margin in [0, 1] {
            for split in [false, true] {
                for bad in [false, true] {
                    right &= one::<bf16>(stream, tokens, [pages, page_rows], margin, split, bad)?;
                    right &= one::<f16>(stream, tokens, [pages, page_rows], margin, split, bad)?;
                }
            }
        }
    }
    println!("mla cache: 32 mappings against loops: {}", if right { "right" } else { "WRONG" });
    Ok(right)
}

fn one<T: Cached>(
    stream: &Stream,
    tokens: usize,
    [pages, page_rows]: [usize; 2],
    margin: usize,
    split: bool,
    bad: bool,
) -> Result<bool, Error> {
    let rows = pages * page_rows;
    let slots: Vec<i64> = (0..tokens as i64)
        .map(|t| match t % 11 {
            3 => -1 - t,
            5 if bad => rows as i64 + t,
            6 if bad => i64::MAX - t,
            7 => 1,
            _ => t * 37 % rows as i64,
        })
        .collect();
    let keys = uniform::<T>(tokens * KEY, 3);
    let part = |from: usize, cols: usize| -> Result<Tensor<T, 2>, Error> {
        let wide = cols + margin;
        let mut all = vec![T::from_value(f32::NAN); tokens * wide];
        for (row, key) in all.chunks_exact_mut(wide).zip(keys.chunks_exact(KEY)) {
            row[margin..].copy_from_slice(&key[from..from + cols]);
        }
        Tensor::from_slice(stream, [tokens, wide], &all)
    };
    let (latent, rope) = (part(0, VALUE)?, part(VALUE, ROPE)?);
    let list = Tensor::from_slice(stream, [tokens], &slots)?;
    let empty = |cols: usize| Tensor::<T, 3>::full(stream, [pages, page_rows, cols + margin], T::from_value(EMPTY));
    let mut packed = empty(KEY)?;
    let (mut left, mut right) = (empty(VALUE)?, empty(ROPE)?);
    let to = if split {
        CacheMut::Split(
            left.view_mut().slice(2, margin..margin + VALUE)?,
            right.view_mut().slice(2, margin..margin + ROPE)?,
        )
    } else {
        CacheMut::Packed(packed.view_mut().slice(2, margin..margin + KEY)?)
    };
    let cut = margin..margin + VALUE;
    concat_and_cache(stream, latent.view().cols(cut)?, rope.view().cols(margin..margin + ROPE)?, list.view(), to)?;
    // some are bad only where there are so many tokens
    let named = bad && tokens > 5;
    let reported = match stream.synchronize() {
        Ok(()) => !named,
        Err(Error::Kernel { .. }) => named,
        Err(e) => return Err(e),
    };
    let found = if split {
        let (l, r) = (left.to_vec(stream)?, right.to_vec(stream)?);
        let rows = l.chunks_exact(VALUE + margin).zip(r.chunks_exact(ROPE + margin));
        rows.flat_map(|(l, r)| [&l[margin..], &r[margin..]].concat()).collect()
    } else {
        packed.to_vec(stream)?.chunks_exact(KEY + margin).flat_map(|row| row[margin..].to_vec()).collect::<Vec<T>>()
    };
    let mut writers = vec![Vec::new(); rows];
    for (t, &slot) in slots.iter().enumerate() {
        if let Ok(slot) = usize::try_from(slot)
            && slot < rows
        {
            writers[slot].push(t);
        }
    }
    let wrong = found.chunks_exact(KEY).zip(&writers).map(|(row, writers)| {
        let fits = |(c, x): (usize, &T)| {
            if writers.is_empty() { x.to_value() == EMPTY } else { writers.iter().any(|&t| keys[t * KEY + c] == *x) }
        };
        row.iter().enumerate().filter(|&e| !fits(e)).count()
    });
    let wrong: usize = wrong.sum();
    if wrong > 0 || !reported {
        let dtype = T::DTYPE;
        println!(
            "mla cache {dtype} {tokens} tokens, margin {margin}, split {split}, bad {bad}: {wrong} wrong; reported as it should: {reported}"
        );
    }
    Ok(wrong == 0 && reported)
}

/// Steps of decoding and of prefill, packed.
pub fn time(stream: &Stream, o: &Options, report: &mut Report) -> Result<(), Error> {
    type T = bf16;
    let shapes: &[usize] = if o.quick { &[128, 32768] } else { &[128, 1024, 8192, 32768, 131_072] };
    for &tokens in shapes {
        let size = tokens * KEY;
        let count = sets(size * 4);
        let rows = tokens.next_multiple_of(64);
        let order: Vec<i64> = (0..tokens).map(|t| (t * 7919 % rows.max(1)) as i64).collect();
        let slots = Tensor::from_slice(stream, [tokens], &order)?;
        let values = uniform::<T>(size.min(1 << 24), 3);
        let some = |n: usize, skip: usize| values.iter().cycle().skip(skip).take(n).copied().collect::<Vec<T>>();
        let mut data = Vec::new();
        for set in 0..count {
            data.push((
                Tensor::from_slice(stream, [tokens, VALUE], &some(tokens * VALUE, 1001 * set))?,
                Tensor::from_slice(stream, [tokens, ROPE], &some(tokens * ROPE, 77 * set))?,
                RefCell::new(Tensor::<T, 3>::zeros(stream, [rows / 64, 64, KEY])?),
                Tensor::from_slice(stream, [size], &some(size, 5 * set))?,
            ));
        }
        let ours = candidate(stream, "cache", count, |st, set| {
            let (latent, rope, cache, _) = &data[set];
            concat_and_cache(st, latent.view(), rope.view(), slots.view(), cache.borrow_mut().view_mut())
        })?;
        let copy = candidate(stream, "copy", count, |st, set| {
            let (_, _, cache, from) = &data[set];
            let mut cache = cache.borrow_mut();
            let all = cache.view_mut().reshape([rows * KEY])?.slice(0, 0..size)?;
            { all }.copy_from(st, from.view())
        })?;
        let mut all = [ours, copy];
        measure(stream, &mut all, if o.quick { 5 } else { 9 }, 20.0)?;
        let (ours_us, peer_us) = (all[0].micros(), all[1].micros());
        report.add(Row {
            op: "mla_cache",
            dtype: T::DTYPE,
            shape: tokens.to_string(),
            ours_us,
            peer: "copy",
            peer_us,
            rate: format!("{:.0} GB/s", 1e-3 * (size * 4 + tokens * 8) as f64 / ours_us),
        });
    }
    Ok(())
}
