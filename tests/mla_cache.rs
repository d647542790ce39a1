//! Keys into a paged cache, and page lists as tables: front doors on the CPU backend against plain loops. Caches begin as a
//! pattern that no key has, with guards around them.

use tilewright::ops::mla::{CacheMut, Cached, KEY, PageLists, ROPE, VALUE, concat_and_cache, page_table};
use tilewright::prelude::*;

fn stream() -> Stream {
    Device::cpu().stream().unwrap()
}

/// Element `c` of token `t`'s key: different for neighbours, and exact in both types.
fn value<T: Element<Value = f32>>(t: usize, c: usize) -> T {
    T::from_value(((t * 37 + c * 11) % 255) as f32 - 127.0)
}

/// What no token has.
const EMPTY: f32 = 200.0;

/// A cache of pages of `page_rows` rows, and what `slots` puts there.
struct Case<'a> {
    pages: usize,
    page_rows: usize,
    slots: &'a [i64],
    split: bool,
    /// Columns before and behind each row, in the cache and in what is written: 0 is the aligned case.
    margin: usize,
}

impl Case<'_> {
    fn check<T: Cached>(&self, fault: bool) {
        let &Case { pages, page_rows, slots, split, margin } = self;
        let (stream, tokens) = (stream(), slots.len());
        let source = |first: usize, cols: usize| {
            let wide = cols + 2 * margin;
            let all: Vec<T> = (0..tokens * wide)
                .map(|i| {
                    let (t, c) = (i / wide, i % wide);
                    if c < margin || c >= margin + cols {
                        T::from_value(f32::NAN)
                    } else {
                        value(t, first + c - margin)
                    }
                })
                .collect();
            Tensor::from_slice(&stream, [tokens, wide], &all).unwrap()
        };
        let (latent, rope) = (source(0, VALUE), source(VALUE, ROPE));
        let list = Tensor::from_slice(&stream, [tokens], slots).unwrap();
        // one page before and behind, which the view leaves out
        let cache = |cols: usize| {
            Tensor::<T, 3>::full(&stream, [pages + 2, page_rows, cols + 2 * margin], T::from_value(EMPTY)).unwrap()
        };
        let mut caches = if split { vec![cache(VALUE), cache(ROPE)] } else { vec![cache(KEY)] };
        let mut views = caches.iter_mut().map(|c| {
            let wide = c.extents()[2];
            c.view_mut().slice(0, 1..pages + 1).unwrap().slice(2, margin..wide - margin).unwrap()
        });
        let to = match (views.next().unwrap(), views.next()) {
            (latent, Some(rope)) => CacheMut::Split(latent, rope),
            (cache, None) => CacheMut::Packed(cache),
        };
        let cut = |t: &'_ Tensor<T, 2>| t.extents()[1] - margin;
        let result = concat_and_cache(
            &stream,
            latent.view().cols(margin..cut(&latent)).unwrap(),
            rope.view().cols(margin..cut(&rope)).unwrap(),
            list.view(),
            to,
        );
        match result {
            Err(Error::Kernel { message, .. }) if fault => assert!(message.contains("slot mapping"), "{message}"),
            result => {
                result.unwrap();
                assert!(!fault, "not reported");
            }
        }
        let found: Vec<Vec<T>> = caches.iter().map(|c| c.to_vec(&stream).unwrap()).collect();
        let rows = (pages + 2) * page_rows;
        for row in 0..rows {
            let slot = row as i64 - page_rows as i64;
            // nothing outside the view, whatever the list says
            let inside = (0..(pages * page_rows) as i64).contains(&slot);
            let writers: Vec<usize> = (0..tokens).filter(|&t| inside && slots[t] == slot).collect();
            for (cache, (first, cols)) in found.iter().zip([(0, if split { VALUE } else { KEY }), (VALUE, ROPE)]) {
                let wide = cols + 2 * margin;
                for c in 0..wide {
                    let found = cache[row * wide + c].to_value();
                    let right = if writers.is_empty() || c < margin || c >= margin + cols {
                        found == EMPTY
                    } else {
                        writers.iter().any(|&t| value::<T>(t, first + c - margin).to_value() == found)
                    };
                    assert!(right, "row {row} column {c}: {found}; {writers:?}");
                }
            }
        }
    }
}

fn both(case: &Case<'_>, fault: bool) {
    case.check::<bf16>(fault);
    case.check::<f16>(fault);
}

#[test]
fn every_token_goes_to_its_slot_in_either_layout() {
    let shuffled: Vec<i64> = (0..150).map(|t| t * 77 % 160).collect();
    for split in [false, true] {
        for tokens in [0, 1, 15, 16, 17, 150] {
            both(&Case { pages: 10, page_rows: 16, slots: &shuffled[..tokens], split, margin: 0 }, false);
        }
    }
}

#[test]
fn any_strides_alignment_and_page_size() {
    for margin in [1, 3, 8] {
        for (pages, page_rows) in [(5, 3), (1, 20), (20, 1)] {
            let slots: Vec<i64> = (0..13).rev().collect();
            both(&Case { pages, page_rows, slots: &slots, split: false, margin }, false);
            both(&Case { pages, page_rows, slots: &slots, split: true, margin }, false);
        }
    }
}

#[test]
fn padding_is_left_out() {
    both(&Case { pages: 2, page_rows: 64, slots: &[-1, 5, -1, i64::MIN, 127, -128], split: false, margin: 0 }, false);
}

#[test]
fn slots_that_do_not_exist_are_dropped_and_reported() {
    for bad in [128, 129, 191, 2_147_480_000, 1 << 32, 5 + (1 << 32), i64::MAX] {
        both(&Case { pages: 2, page_rows: 64, slots: &[3, bad, 0], split: false, margin: 0 }, true);
        both(&Case { pages: 2, page_rows: 64, slots: &[3, bad, 0], split: true, margin: 1 }, true);
    }
}

/// Every element is one of the tokens'.
#[test]
fn slots_named_twice() {
    let slots: Vec<i64> = (0..100).map(|t| [7, 7, 9, 7, 120][t % 5]).collect();
    both(&Case { pages: 2, page_rows: 64, slots: &slots, split: false, margin: 0 }, false);
}

#[test]
fn what_does_not_fit_is_refused() {
    let s = stream();
    let (latent, rope) =
        (Tensor::<bf16, 2>::zeros(&s, [2, 512]).unwrap(), Tensor::<bf16, 2>::zeros(&s, [2, 64]).unwrap());
    let slots = Tensor::<i64, 1>::zeros(&s, [3]).unwrap();
    let mut cache = Tensor::<bf16, 3>::zeros(&s, [1, 16, 576]).unwrap();
    let found = concat_and_cache(&s, latent.view(), rope.view(), slots.view(), cache.view_mut());
    assert!(matches!(found, Err(Error::Shape { arg: "latent", .. })), "{found:?}");
    let slots = Tensor::<i64, 1>::zeros(&s, [2]).unwrap();
    let found =
        concat_and_cache(&s, latent.view(), rope.view(), slots.view(), cache.view_mut().slice(2, 0..512).unwrap());
    assert!(matches!(found, Err(Error::Shape { arg: "cache", .. })), "{found:?}");
    let mut other = Tensor::<bf16, 3>::zeros(&s, [2, 16, 64]).unwrap();
    let split = CacheMut::Split(cache.view_mut().slice(2, 0..512).unwrap(), other.view_mut());
    let found = concat_and_cache(&s, latent.view(), rope.view(), slots.view(), split);
    assert!(matches!(found, Err(Error::Shape { arg: "cache", .. })), "{found:?}");
}

/// The table and the lengths of `lists`, or what was reported.
fn tables(
    indptr: &[i32],
    indices: &[i32],
    last: &[i32],
    page_rows: usize,
    columns: usize,
) -> (Vec<i32>, Vec<i32>, Option<String>) {
    let s = stream();
    let list = |l: &[i32]| Tensor::<i32, 1>::from_slice(&s, [l.len()], l).unwrap();
    let (indptr, indices, last) = (list(indptr), list(indices), list(last));
    let lists = PageLists { kv_indptr: indptr.view(), kv_indices: indices.view(), kv_last_page_len: last.view() };
    let requests = last.extents()[0];
    let mut table = Tensor::<i32, 2>::full(&s, [requests, columns], -7).unwrap();
    let mut lengths = Tensor::<i32, 1>::full(&s, [requests], -7).unwrap();
    let reported = match page_table(&s, lists, page_rows, table.view_mut(), lengths.view_mut()) {
        Ok(()) => None,
        Err(Error::Kernel { message, .. }) => Some(message),
        Err(e) => panic!("{e}"),
    };
    (table.to_vec(&s).unwrap(), lengths.to_vec(&s).unwrap(), reported)
}

#[test]
fn page_lists_become_tables() {
    let counts = [0usize, 1, 2, 127, 128, 129, 0, 300];
    let mut indptr = vec![0];
    counts.iter().for_each(|&n| indptr.push(indptr.last().unwrap() + n as i32));
    let total = *indptr.last().unwrap();
    let indices: Vec<i32> = (0..total).map(|i| i * 31 % 997).collect();
    let last: Vec<i32> = (0..8).map(|r| if counts[r] == 0 { 2_147_480_000 } else { 1 + r as i32 * 9 }).collect();
    let (table, lengths, reported) = tables(&indptr, &indices, &last, 64, 301);
    assert_eq!(reported, None);
    for (r, &n) in counts.iter().enumerate() {
        let want = if n == 0 { 0 } else { (n as i32 - 1) * 64 + last[r] };
        assert_eq!(lengths[r], want);
        assert_eq!(table[r * 301..][..n], indices[indptr[r] as usize..][..n]);
    }
}

#[test]
fn senseless_page_lists_are_reported_and_empty() {
    let indices = [4, 5, 6];
    for indptr in [[0, -1], [2, 1], [0, 4], [-1, 2], [3, i32::MAX], [i32::MIN, i32::MAX], [0, 3]] {
        let (_, lengths, reported) = tables(&indptr, &indices, &[16], 16, 2);
        assert_eq!(lengths, [0], "{indptr:?}");
        assert!(reported.unwrap().contains("kv_indptr"), "{indptr:?}");
    }
    for last in [0, -1, 17, i32::MIN, i32::MAX] {
        let (_, lengths, reported) = tables(&[0, 2], &indices, &[last], 16, 2);
        assert_eq!(lengths, [0]);
        assert!(reported.unwrap().contains("last page"), "{last}");
    }
}
