//! MLA decode through its front door on the CPU backend, against f64. Page tails and unused pages are NaN, unused entries of
//! the page table are far out of range, outputs begin as NaN and have guards around them.

// `!(error <= allowed)` is true of NaN, which is what is meant
#![allow(clippy::neg_cmp_op_on_partial_ord)]

use tilewright::ops::mla::{
    Args, Cache, KEY, Latent, PageLists, Path, Problem, Query, ROPE, VALUE, decode_by, page_table, plan,
};
use tilewright::prelude::*;

struct Random(u64);
impl Random {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        self.0 >> 33
    }
    /// Between -1 and 1.
    fn uniform(&mut self) -> f32 {
        self.bits() as f32 / (1u64 << 30) as f32 - 1.0
    }
}

const UNUSED: i32 = 2_147_480_000;

/// A step with everything it needs, as host memory.
struct Case<T> {
    heads: usize,
    queries: usize,
    page_rows: usize,
    lengths: Vec<i32>,
    scale: f32,
    q: Vec<T>,
    cache: Vec<T>,
    table: Vec<i32>,
    columns: usize,
    /// The table names pages that do not exist.
    faulty: bool,
    path: Path,
    /// Queries and keys in two tensors each, pages in lists: as FlashInfer has them.
    split: bool,
}

impl<T: Latent> Case<T> {
    /// Random q and keys, later keys larger so that the maximum moves; pages in random order, with unused ones between.
    fn new(heads: usize, queries: usize, page_rows: usize, lengths: &[i32], gain: f32) -> Self {
        let mut random = Random(heads as u64 * 31 + lengths.len() as u64);
        let used: Vec<usize> = lengths.iter().map(|&n| (n.max(0) as usize).div_ceil(page_rows)).collect();
        let columns = used.iter().max().unwrap_or(&0) + 2;
        let pages = used.iter().sum::<usize>() + 3;
        let mut order: Vec<usize> = (0..pages).collect();
        for i in (1..pages).rev() {
            order.swap(i, random.bits() as usize % (i + 1));
        }
        let mut table = vec![UNUSED; lengths.len() * columns];
        let mut cache = vec![T::from_value(f32::NAN); pages * page_rows * KEY];
        let mut fresh = order.into_iter();
        for (r, &length) in lengths.iter().enumerate() {
            for p in 0..used[r] {
                let page = fresh.next().unwrap();
                table[r * columns + p] = page as i32;
                for row in 0..page_rows.min(length as usize - p * page_rows) {
                    let growth = 1.0 + (p * page_rows + row) as f32 / 64.0 / (1.0 + length as f32 / 512.0);
                    for x in &mut cache[(page * page_rows + row) * KEY..][..KEY] {
                        *x = T::from_value(random.uniform() * growth);
                    }
                }
            }
        }
        let q = (0..lengths.len() * queries * heads * KEY).map(|_| T::from_value(random.uniform() * gain)).collect();
        let (lengths, scale) = (lengths.to_vec(), 1.0 / (KEY as f32).sqrt());
        Case {
            heads,
            queries,
            page_rows,
            lengths,
            scale,
            q,
            cache,
            table,
            columns,
            faulty: false,
            path: Path::Hopper,
            split: false,
        }
    }

    /// The same for another kernel and layout.
    fn with(mut self, path: Path, split: bool) -> Self {
        (self.path, self.split) = (path, split);
        self
    }

    /// The columns `from` of every row of `KEY` elements.
    fn cut(all: &[T], from: std::ops::Range<usize>) -> Vec<T> {
        all.chunks_exact(KEY).flat_map(|row| &row[from.clone()]).copied().collect()
    }

    /// `out` and `lse` with the work shared out among `parts`.
    fn run(&self, parts: usize) -> (Vec<T>, Vec<f32>) {
        let stream = Device::cpu().stream().unwrap();
        let requests = self.lengths.len();
        let problem = Problem::with_parts(requests, self.heads, self.queries, parts).unwrap();
        let (h, s) = (self.heads, self.queries);
        let q = Tensor::from_slice(&stream, [requests, s, h, KEY], &self.q).unwrap();
        let pages = self.cache.len() / self.page_rows / KEY;
        let cache = Tensor::from_slice(&stream, [pages, self.page_rows, KEY], &self.cache).unwrap();
        let mut table = Tensor::from_slice(&stream, [requests, self.columns], &self.table).unwrap();
        let mut lengths = Tensor::from_slice(&stream, [requests], &self.lengths).unwrap();
        let parts_of = |all: &[T], from: std::ops::Range<usize>| Self::cut(all, from);
        let q_parts = [
            Tensor::from_slice(&stream, [requests, s, h, VALUE], &parts_of(&self.q, 0..VALUE)).unwrap(),
            Tensor::from_slice(&stream, [requests, s, h, ROPE], &parts_of(&self.q, VALUE..KEY)).unwrap(),
        ];
        let paged = [pages, self.page_rows];
        let cache_parts = [
            Tensor::from_slice(&stream, [paged[0], paged[1], VALUE], &parts_of(&self.cache, 0..VALUE)).unwrap(),
            Tensor::from_slice(&stream, [paged[0], paged[1], ROPE], &parts_of(&self.cache, VALUE..KEY)).unwrap(),
        ];
        if self.split {
            self.tables_from_lists(&stream, &mut table, &mut lengths);
        }
        let mut words = Tensor::<u32, 1>::full(&stream, [problem.plan_words()], 0xdead_beef).unwrap();
        let mut workspace = Tensor::<f32, 1>::full(&stream, [problem.workspace_len()], f32::NAN).unwrap();
        let mut out = Tensor::<T, 4>::full(&stream, [requests + 2, s, h, VALUE], T::from_value(f32::NAN)).unwrap();
        let mut lse = Tensor::<f32, 3>::full(&stream, [requests + 2, s, h], f32::NAN).unwrap();
        plan(&stream, &problem, lengths.view(), self.columns * self.page_rows, words.view_mut()).unwrap();
        let inside = 1..requests + 1;
        let args = Args {
            q: if self.split { Query::Split(q_parts[0].view(), q_parts[1].view()) } else { q.view().into() },
            cache: if self.split {
                Cache::Split(cache_parts[0].view(), cache_parts[1].view())
            } else {
                cache.view().into()
            },
            table: table.view(),
            lengths: lengths.view(),
            scale: self.scale,
            plan: words.view(),
            workspace: workspace.view_mut(),
            out: out.view_mut().slice(0, inside.clone()).unwrap(),
            lse: lse.view_mut().slice(0, inside).unwrap(),
        };
        match decode_by(self.path, &stream, &problem, args) {
            Err(Error::Kernel { message, .. }) if self.faulty => {
                assert!(message.contains("a page that does not exist"), "{message}");
                return (Vec::new(), Vec::new());
            }
            result => result.unwrap(),
        }
        assert!(!self.faulty, "not reported");
        let (out, lse) = (out.to_vec(&stream).unwrap(), lse.to_vec(&stream).unwrap());
        let (wide, narrow) = (s * h * VALUE, s * h);
        let guards = out[..wide].iter().chain(&out[(requests + 1) * wide..]).all(|x| x.to_value().is_nan());
        let lse_guards = lse[..narrow].iter().chain(&lse[(requests + 1) * narrow..]).all(|x| x.is_nan());
        assert!(guards && lse_guards, "written beyond the output");
        (out[wide..(requests + 1) * wide].to_vec(), lse[narrow..(requests + 1) * narrow].to_vec())
    }

    /// The table and the lengths, made anew from page lists.
    fn tables_from_lists(&self, stream: &Stream, table: &mut Tensor<i32, 2>, lengths: &mut Tensor<i32, 1>) {
        let (mut indptr, mut indices, mut last) = (vec![0], Vec::new(), Vec::new());
        for (r, &n) in self.lengths.iter().enumerate() {
            let n = n.max(0) as usize;
            indices.extend(&self.table[r * self.columns..][..n.div_ceil(self.page_rows)]);
            indptr.push(indices.len() as i32);
            last.push(if n == 0 { UNUSED } else { (n as i32 - 1) % self.page_rows as i32 + 1 });
        }
        indices.extend([UNUSED; 3]);
        let list = |l: &[i32]| Tensor::<i32, 1>::from_slice(stream, [l.len()], l).unwrap();
        let (indptr, indices, last) = (list(&indptr), list(&indices), list(&last));
        let lists = PageLists { kv_indptr: indptr.view(), kv_indices: indices.view(), kv_last_page_len: last.view() };
        page_table(stream, lists, self.page_rows, table.view_mut(), lengths.view_mut()).unwrap();
        let wanted: Vec<i32> = self.lengths.iter().map(|&n| n.max(0)).collect();
        assert_eq!(lengths.to_vec(stream).unwrap(), wanted);
    }

    /// Key `s` of request `r`; zeros if its page does not exist.
    fn key(&self, r: usize, s: usize) -> Vec<f64> {
        let page = self.table[r * self.columns + s / self.page_rows];
        let pages = self.cache.len() / self.page_rows / KEY;
        if page < 0 || page as usize >= pages {
            return vec![0.0; KEY];
        }
        let at = (page as usize * self.page_rows + s % self.page_rows) * KEY;
        self.cache[at..at + KEY].iter().map(|x| x.to_value() as f64).collect()
    }

    /// Compares with f64, and two runs with each other.
    fn check(&self, parts: usize) {
        let (out, lse) = self.run(parts);
        if self.faulty {
            return;
        }
        let (again, lse_again) = self.run(parts);
        let bits = |v: &[T]| v.iter().map(|x| x.to_value().to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&out), bits(&again), "not repeatable");
        assert!(lse.iter().zip(&lse_again).all(|(a, b)| a.to_bits() == b.to_bits()), "not repeatable");
        // the probabilities are rounded once more than the output
        let unit = if T::DTYPE == DType::BF16 { 1.0 / 256.0 } else { 1.0 / 2048.0 };
        let (mut bad, mut first) = (0, String::new());
        for (r, &length) in self.lengths.iter().enumerate() {
            let keys: Vec<_> = (0..length.max(0) as usize).map(|s| self.key(r, s)).collect();
            for row in 0..self.queries * self.heads {
                let seen = (keys.len() + row / self.heads + 1).saturating_sub(self.queries);
                let at = r * self.queries * self.heads + row;
                let q = &self.q[at * KEY..][..KEY];
                let logits: Vec<f64> = keys[..seen]
                    .iter()
                    .map(|k| k.iter().zip(q).map(|(k, q)| k * q.to_value() as f64).sum::<f64>() * self.scale as f64)
                    .collect();
                let max = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let sum: f64 = logits.iter().map(|l| (l - max).exp()).sum();
                let (found, want) = (lse[at] as f64, max + sum.ln());
                let right = if seen == 0 {
                    found == f64::NEG_INFINITY
                } else {
                    (found - want).abs() <= 1e-4 * (1.0 + max.abs())
                };
                if !right {
                    (bad, first) = (bad + 1, format!("lse of request {r} row {row}: {found}, not {want}"));
                }
                let (mut want, mut size) = (vec![0.0; VALUE], vec![0.0; VALUE]);
                for (k, l) in keys.iter().zip(&logits) {
                    let p = (l - max).exp() / sum;
                    for c in 0..VALUE {
                        want[c] += p * k[c];
                        size[c] += p * k[c].abs();
                    }
                }
                for c in 0..VALUE {
                    let found = out[at * VALUE + c].to_value() as f64;
                    if !((found - want[c]).abs() <= 2.0 * unit * size[c] + 1e-6) {
                        (bad, first) = (bad + 1, format!("request {r} row {row} column {c}: {found}, not {}", want[c]));
                    }
                }
            }
        }
        let Case { heads, queries, page_rows, lengths, .. } = self;
        assert_eq!(
            bad, 0,
            "{first}; {heads} heads, {queries} queries, pages of {page_rows}, {parts} parts, {lengths:?}"
        );
    }
}

#[test]
fn lengths_around_a_block() {
    let lengths = [1, 2, 63, 64, 65, 127, 129, 255, 1000];
    Case::<bf16>::new(3, 1, 64, &lengths, 1.0).check(4);
    Case::<f16>::new(1, 1, 64, &lengths, 4.0).check(1);
}

/// Both kernels, in both layouts, on every kind of case.
#[test]
fn every_path_and_layout() {
    let lengths = [1, 2, 63, 64, 65, 127, 0, 129, 255, 1000, -3];
    for (path, split) in [(Path::Portable, false), (Path::Portable, true), (Path::Hopper, true)] {
        Case::<bf16>::new(1, 1, 64, &lengths, 1.0).with(path, split).check(4);
        for heads in [9, 33, 63, 126] {
            Case::<f16>::new(heads, 1, 64, &[66, 0, 33], 2.0).with(path, split).check(3);
        }
        for queries in 2..=4 {
            Case::<f16>::new(9, queries, 64, &[1, 2, 3, 4, 65, 66], 1.0).with(path, split).check(5);
        }
        for page_rows in [16, 48] {
            Case::<bf16>::new(5, 1, page_rows, &[17, 100, 1, 64], 1.0).with(path, split).check(3);
        }
        Case::<bf16>::new(4, 1, 64, &[0, 0, 3, 0, 129, 0], 1.0).with(path, split).check(64);
        Case::<bf16>::new(20, 1, 64, &[300, 33], 30.0).with(path, split).check(13);
    }
}

/// Whatever the layout, the same kernel computes the same.
#[test]
fn layouts_agree_bit_for_bit() {
    for path in [Path::Hopper, Path::Portable] {
        let case = |split| Case::<bf16>::new(40, 2, 16, &[300, 5, 0, 77], 1.0).with(path, split).run(3);
        let (packed, split) = (case(false), case(true));
        let bits = |v: &[bf16]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&packed.0), bits(&split.0));
        assert!(packed.1.iter().zip(&split.1).all(|(a, b)| a.to_bits() == b.to_bits()));
    }
}

/// The portable kernel reads tensors that the copy engine can not.
#[test]
fn the_portable_path_takes_any_alignment() {
    let stream = Device::cpu().stream().unwrap();
    let problem = Problem::with_parts(1, 2, 1, 1).unwrap();
    let q = Tensor::<f16, 1>::full(&stream, [1 + 2 * KEY], f16::from_value(0.5)).unwrap();
    let cache = Tensor::<f16, 3>::full(&stream, [1, 16, KEY + 1], f16::from_value(3.0)).unwrap();
    let (table, lengths) =
        (Tensor::<i32, 2>::zeros(&stream, [1, 1]).unwrap(), Tensor::<i32, 1>::full(&stream, [1], 9).unwrap());
    let mut words = Tensor::<u32, 1>::zeros(&stream, [problem.plan_words()]).unwrap();
    plan(&stream, &problem, lengths.view(), 16, words.view_mut()).unwrap();
    for path in [Path::Hopper, Path::Portable] {
        let mut workspace = Tensor::<f32, 1>::zeros(&stream, [problem.workspace_len()]).unwrap();
        let mut out = Tensor::<f16, 4>::zeros(&stream, [1, 1, 2, VALUE]).unwrap();
        let mut lse = Tensor::<f32, 3>::zeros(&stream, [1, 1, 2]).unwrap();
        let args = Args {
            q: q.view().slice(0, 1..1 + 2 * KEY).unwrap().reshape([1, 1, 2, KEY]).unwrap().into(),
            cache: cache.view().slice(2, 1..KEY + 1).unwrap().into(),
            table: table.view(),
            lengths: lengths.view(),
            scale: 0.1,
            plan: words.view(),
            workspace: workspace.view_mut(),
            out: out.view_mut(),
            lse: lse.view_mut(),
        };
        let result = decode_by(path, &stream, &problem, args);
        if path == Path::Hopper {
            assert!(matches!(result, Err(Error::Alignment { .. })), "{result:?}");
        } else {
            result.unwrap();
            assert!(out.to_vec(&stream).unwrap().iter().all(|x| x.to_value() == 3.0));
        }
    }
}

#[test]
fn one_long_request_in_many_parts() {
    let case = Case::<bf16>::new(2, 1, 64, &[8191], 1.0);
    case.check(66);
    let (a, b) = (case.run(1), case.run(13));
    // probabilities are rounded, each to 2^-9 of itself; keys have up to 8.5 times the size of the first
    let near = |x: f32, y: f32| (x - y).abs() <= 0.02 * x.abs() + 2.0 * 8.5 / 512.0;
    assert!(a.0.iter().zip(&b.0).all(|(x, y)| near(x.to_value(), y.to_value())));
    let far = a.0.iter().zip(&b.0).map(|(x, y)| (x.to_value() - y.to_value()).abs()).fold(0.0, f32::max);
    println!("{far}");
    for (x, y) in a.1.iter().zip(&b.1) {
        assert!((x - y).abs() <= 1e-5 * x.abs().max(1.0));
    }
}

#[test]
fn head_counts() {
    for heads in [1, 3, 9, 63, 64, 65, 126, 128] {
        Case::<bf16>::new(heads, 1, 64, &[130, 0, 70], 2.0).check(3);
    }
}

#[test]
fn several_query_positions() {
    for queries in 2..=4 {
        Case::<f16>::new(9, queries, 64, &[1, 2, 3, 4, 65, 66, 128, 200], 1.0).check(5);
        Case::<bf16>::new(48, queries, 64, &[131, 64, 1], 1.0).check(2);
    }
}

#[test]
fn pages_of_other_sizes() {
    for page_rows in [16, 32, 48, 64, 80, 128, 256] {
        Case::<bf16>::new(5, 1, page_rows, &[17, 300, 1, 64], 1.0).check(3);
    }
}

#[test]
fn more_parts_than_blocks_and_empty_requests() {
    Case::<bf16>::new(4, 1, 64, &[0, 0, 3, 0, 129, 0], 1.0).check(64);
    Case::<f16>::new(4, 2, 64, &[0], 1.0).check(8);
    Case::<f16>::new(4, 1, 64, &[-5, 7, i32::MIN], 1.0).check(2);
}

/// They read as zeros, and the launch says so.
#[test]
fn page_numbers_that_do_not_exist_are_reported() {
    let mut case = Case::<bf16>::new(3, 1, 64, &[200, 100, 512], 1.0);
    let pages = (case.cache.len() / 64 / KEY) as i32;
    let columns = case.columns;
    (case.table[1], case.table[columns]) = (-1, UNUSED);
    (case.table[2 * columns], case.table[2 * columns + 5]) = (i32::MIN, pages);
    case.faulty = true;
    case.check(3);
    case.with(Path::Portable, false).check(3);
}

#[test]
fn logits_far_below_zero_beside_masked_ones() {
    let mut case = Case::<f16>::new(3, 1, 64, &[70, 1], 1.0);
    case.scale = 1.0;
    for q in case.q.chunks_mut(KEY) {
        q.fill(f16::from_value(0.0));
        q[0] = f16::from_value(-1000.0);
    }
    for k in case.cache.chunks_mut(KEY) {
        if !k[0].to_value().is_nan() {
            k[0] = f16::from_value(100.0);
        }
    }
    case.check(1);
    case.with(Path::Portable, true).check(2);
}

#[test]
fn a_sharp_softmax() {
    Case::<bf16>::new(64, 1, 64, &[700, 333], 30.0).check(3);
}

#[test]
fn lengths_beyond_the_table_are_cut_off() {
    let mut case = Case::<bf16>::new(2, 1, 64, &[128], 1.0);
    case.columns = 2;
    case.table.truncate(2);
    let full = case.run(1);
    case.lengths[0] = 1_000_000;
    assert_eq!(full.1, case.run(2).1);
    case.path = Path::Portable;
    let near = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-5 * a.abs().max(1.0);
    assert!(full.1.iter().zip(&case.run(2).1).all(near));
}

/// A plan is data: whatever it says, no tile is written twice and none outside the output.
#[test]
fn a_senseless_plan_harms_nothing() {
    let stream = Device::cpu().stream().unwrap();
    let case = Case::<bf16>::new(4, 1, 64, &[100, 200, 65], 1.0);
    let problem = Problem::with_parts(3, 4, 1, 5).unwrap();
    let q = Tensor::from_slice(&stream, [3, 1, 4, KEY], &case.q).unwrap();
    let cache = Tensor::from_slice(&stream, [case.cache.len() / 64 / KEY, 64, KEY], &case.cache).unwrap();
    let table = Tensor::from_slice(&stream, [3, case.columns], &case.table).unwrap();
    let lengths = Tensor::from_slice(&stream, [3], &case.lengths).unwrap();
    let mut random = Random(5);
    for round in 0..20 {
        let words: Vec<u32> = (0..problem.plan_words())
            .map(|_| match random.bits() % 4 {
                0 => random.bits() as u32 % 8,
                1 => u32::MAX,
                _ => random.bits() as u32 % 3,
            })
            .collect();
        let words = Tensor::from_slice(&stream, [words.len()], &words).unwrap();
        let mut workspace = Tensor::<f32, 1>::full(&stream, [problem.workspace_len()], f32::NAN).unwrap();
        let mut out = Tensor::<bf16, 4>::full(&stream, [5, 1, 4, VALUE], bf16::from_value(7.0)).unwrap();
        let mut lse = Tensor::<f32, 3>::zeros(&stream, [3, 1, 4]).unwrap();
        let args = Args {
            q: q.view().into(),
            cache: cache.view().into(),
            table: table.view(),
            lengths: lengths.view(),
            scale: 0.1,
            plan: words.view(),
            workspace: workspace.view_mut(),
            out: out.view_mut().slice(0, 1..4).unwrap(),
            lse: lse.view_mut(),
        };
        // a plan may name a page that is none of a request's
        let path = if round % 2 == 0 { Path::Hopper } else { Path::Portable };
        let result = decode_by(path, &stream, &problem, args);
        assert!(matches!(result, Ok(()) | Err(Error::Kernel { .. })), "{result:?}");
        let out = out.to_vec(&stream).unwrap();
        let guards = out[..4 * VALUE].iter().chain(&out[4 * 4 * VALUE..]);
        assert!(guards.clone().all(|x| x.to_value() == 7.0), "round {round}");
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    assert!(matches!(Problem::with_parts(1, 0, 1, 1), Err(Error::Shape { arg: "heads", .. })));
    assert!(matches!(Problem::with_parts(1, 129, 1, 1), Err(Error::Shape { arg: "heads", .. })));
    assert!(matches!(Problem::with_parts(1, 1, 5, 1), Err(Error::Shape { arg: "queries", .. })));
    assert!(matches!(Problem::with_parts(1, 1, 1, 0), Err(Error::Shape { arg: "parts", .. })));
    let stream = Device::cpu().stream().unwrap();
    let problem = Problem::with_parts(2, 1, 1, 1).unwrap();
    let lengths = Tensor::<i32, 1>::zeros(&stream, [3]).unwrap();
    let mut words = Tensor::<u32, 1>::zeros(&stream, [problem.plan_words()]).unwrap();
    let refused = plan(&stream, &problem, lengths.view(), 64, words.view_mut());
    assert!(matches!(refused, Err(Error::Shape { arg: "lengths", .. })), "{refused:?}");
}
