//! Register tiles on the CPU: all values of the block, row by row. Reductions join values in the device's order.

use std::vec;
use std::vec::Vec;

use super::Smem;
use super::monitor::exchange;
use super::run::Place;
use crate::element::{Element, Value};
use crate::layout::{ByRows, Chunks, Layout};
use crate::tile::Fold;
use crate::view::Window;

/// The values of a tile.
pub struct Spread<V>(pub(super) Vec<V>);

/// One value for each row, or each column.
pub struct PerLine<V>(pub(super) Vec<V>);

impl<V: Value> Spread<V> {
    pub(crate) fn map<U, L, const M: usize, const N: usize>(&self, f: impl Fn(V) -> U) -> Spread<U> {
        Spread(self.0.iter().map(|&v| f(v)).collect())
    }
    pub(crate) fn zip<W: Value, U, L, const M: usize, const N: usize>(
        &self,
        other: &Spread<W>,
        f: impl Fn(V, W) -> U,
    ) -> Spread<U> {
        Spread(self.0.iter().zip(&other.0).map(|(&v, &w)| f(v, w)).collect())
    }
    pub(crate) fn map_rows<P: Value, U, L, const M: usize, const N: usize>(
        &self,
        per_row: &PerLine<P>,
        f: impl Fn(V, P) -> U,
    ) -> Spread<U> {
        Spread(self.0.iter().enumerate().map(|(i, &v)| f(v, per_row.0[i / N])).collect())
    }
    pub(crate) fn map_columns<P: Value, U, L, const M: usize, const N: usize>(
        &self,
        per_column: &PerLine<P>,
        f: impl Fn(V, P) -> U,
    ) -> Spread<U> {
        Spread(self.0.iter().enumerate().map(|(i, &v)| f(v, per_column.0[i % N])).collect())
    }
}

impl Spread<f32> {
    pub(crate) fn turn_pairs<L, const M: usize, const N: usize>(&self, cos: &Self, sin: &Self) -> Self {
        let turned = |i: usize| {
            let (mine, other, c, s) = (self.0[i], self.0[i ^ 1], cos.0[i / 2], sin.0[i / 2]);
            if i % 2 == 0 { mine * c - other * s } else { mine * c + other * s }
        };
        Spread((0..self.0.len()).map(turned).collect())
    }
}

impl<V: Value> PerLine<V> {
    pub(crate) fn splat(value: V, lines: usize) -> Self {
        PerLine(vec![value; lines])
    }
    pub(crate) fn map<U>(&self, f: impl Fn(V) -> U) -> PerLine<U> {
        PerLine(self.0.iter().map(|&v| f(v)).collect())
    }
    pub(crate) fn zip<W: Value, U>(&self, other: &PerLine<W>, f: impl Fn(V, W) -> U) -> PerLine<U> {
        PerLine(self.0.iter().zip(&other.0).map(|(&v, &w)| f(v, w)).collect())
    }
}

/// The elements of a tile, each a value that its type can hold.
pub struct Words<T: Element>(pub(super) Vec<T::Value>);

impl<T: Element> Words<T> {
    pub(crate) fn spread(&self) -> Spread<T::Value> {
        Spread(self.0.clone())
    }
}

/// Reads a window; zeros outside.
///
/// # Safety
/// The window is readable, and nobody else writes it.
pub(crate) unsafe fn fetch_tile<T: Element, L: Layout<M, N>, const KEEP: bool, const M: usize, const N: usize>(
    w: &Window<T>,
) -> Words<T> {
    let _ = const { L::PER_THREAD }; // what does not fit the device does not compile here either
    let mut values = vec![T::Value::ZERO; M * N];
    for r in 0..w.rows as usize {
        for c in 0..w.cols as usize {
            // SAFETY: inside the window.
            values[r * N + c] = unsafe { w.ptr.add(r * w.stride as usize + c).read() }.to_value();
        }
    }
    Words(values)
}

/// The values of elements.
pub(crate) fn unpack<T: Element, L: Layout<M, N>, const M: usize, const N: usize>(
    words: &Words<T>,
) -> Spread<T::Value> {
    Spread(words.0.clone())
}
pub(crate) use unpack as unpack_anew;

/// Rounds.
pub(crate) fn pack<T: Element, L: Layout<M, N>, const M: usize, const N: usize>(values: &Spread<T::Value>) -> Words<T> {
    Words(values.0.iter().map(|&v| T::from_value(v).to_value()).collect())
}

/// Reads a column and repeats it.
///
/// # Safety
/// As for [`fetch_tile`].
pub(crate) unsafe fn load_column<T: Element, L: Layout<M, N>, const M: usize, const N: usize>(
    w: &Window<T>,
) -> Spread<T::Value> {
    let _ = const { L::PER_THREAD };
    let mut values = vec![T::Value::ZERO; M * N];
    if w.cols > 0 {
        for r in 0..w.rows as usize {
            // SAFETY: inside the window.
            let v = unsafe { w.ptr.add(r * w.stride as usize).read() }.to_value();
            values[r * N..(r + 1) * N].fill(v);
        }
    }
    Spread(values)
}

/// `f` of every element, its counterpart and its row's value, rounded.
pub(crate) fn combine<T: Element, W: Element, P: Value, L: Layout<M, N>, const M: usize, const N: usize>(
    x: &Words<T>,
    other: &Words<W>,
    per_row: &PerLine<P>,
    _cols: u32,
    f: impl Fn(T::Value, W::Value, P) -> T::Value,
) -> Words<T> {
    let each = x.0.iter().zip(&other.0).enumerate();
    Words(each.map(|(i, (&x, &w))| T::from_value(f(x, w, per_row.0[i / N])).to_value()).collect())
}

/// Writes, clipped to the window.
///
/// # Safety
/// The window is the caller's alone.
pub(crate) unsafe fn store_words<T: Element, L: Layout<M, N>, const STREAM: bool, const M: usize, const N: usize>(
    w: &Window<T>,
    words: &Words<T>,
) {
    for r in 0..w.rows as usize {
        for c in 0..w.cols as usize {
            // SAFETY: inside the window.
            unsafe { w.ptr.add(r * w.stride as usize + c).write(T::from_value(words.0[r * N + c])) }
        }
    }
}

/// All threads of a block are one here.
pub(crate) fn block_barrier() {}

/// As [`combine`], the counterparts read from memory.
///
/// # Safety
/// As for [`fetch_tile`].
pub(crate) unsafe fn combine_row<T: Element, W: Element, P: Value, L: Layout<M, N>, const M: usize, const N: usize>(
    x: &Words<T>,
    w: &Window<W>,
    per_row: &PerLine<P>,
    cols: u32,
    f: impl Fn(T::Value, W::Value, P) -> T::Value,
) -> Words<T> {
    // SAFETY: the caller's.
    let row = unsafe { fetch_tile::<W, L, true, M, N>(w) };
    combine::<T, W, P, L, M, N>(x, &row, per_row, cols, f)
}

/// [`combine_row`] and [`store_words`] in one.
///
/// # Safety
/// As for both.
pub(crate) unsafe fn stream_row<T: Element, W: Element, P: Value, L: Layout<M, N>, const M: usize, const N: usize>(
    to: &Window<T>,
    x: &Words<T>,
    w: &Window<W>,
    per_row: &PerLine<P>,
    f: impl Fn(T::Value, W::Value, P) -> T::Value,
) {
    // SAFETY: the caller's.
    unsafe { store_words::<T, L, true, M, N>(to, &combine_row::<T, W, P, L, M, N>(x, w, per_row, to.cols, f)) }
}

/// As [`combine`], with two counterparts and two values for each row.
pub(crate) fn combine_two<T: Element, W: Element, P: Value, L: Layout<M, N>, const M: usize, const N: usize>(
    x: &Words<T>,
    others: (&Words<W>, &Words<W>),
    per_row: (&PerLine<P>, &PerLine<P>),
    f: impl Fn(T::Value, (W::Value, W::Value), (P, P)) -> T::Value,
) -> Words<T> {
    let all = x.0.iter().zip(others.0.0.iter().zip(&others.1.0)).enumerate();
    let values =
        all.map(|(i, (&x, (&w, &b)))| T::from_value(f(x, (w, b), (per_row.0.0[i / N], per_row.1.0[i / N]))).to_value());
    Words(values.collect())
}

/// As [`combine_row`], with two rows and two values for each row.
///
/// # Safety
/// As for [`fetch_tile`].
pub(crate) unsafe fn combine_rows<T: Element, W: Element, P: Value, L: Layout<M, N>, const M: usize, const N: usize>(
    x: &Words<T>,
    rows: (&Window<W>, &Window<W>),
    per_row: (&PerLine<P>, &PerLine<P>),
    f: impl Fn(T::Value, (W::Value, W::Value), (P, P)) -> T::Value,
) -> Words<T> {
    // SAFETY: the caller's.
    let (w, b) = unsafe { (fetch_tile::<W, L, true, M, N>(rows.0), fetch_tile::<W, L, true, M, N>(rows.1)) };
    combine_two::<T, W, P, L, M, N>(x, (&w, &b), per_row, f)
}

/// `f` of every element and its row's two values, rounded.
pub(crate) fn map_words<T: Element, P: Value, L: Layout<M, N>, const M: usize, const N: usize>(
    x: &Words<T>,
    per_row: (&PerLine<P>, &PerLine<P>),
    f: impl Fn(T::Value, (P, P)) -> T::Value,
) -> Words<T> {
    let all = x.0.iter().enumerate();
    Words(all.map(|(i, &x)| T::from_value(f(x, (per_row.0.0[i / N], per_row.1.0[i / N]))).to_value()).collect())
}

/// Joins `f` of the elements of each row that are inside, and the row's value.
///
/// # Safety
/// As for [`fold_rows`].
pub(crate) unsafe fn fold_words<
    F: Fold<V>,
    T: Element,
    P: Value,
    V: Value,
    const THREADS: usize,
    C: Chunks,
    const M: usize,
    const N: usize,
>(
    scratch: &mut Smem,
    words: &Words<T>,
    per_row: &PerLine<P>,
    _all: bool,
    cols: u32,
    f: impl Fn(T::Value, P) -> V,
) -> PerLine<V> {
    let values = Spread(words.0.iter().enumerate().map(|(i, &v)| f(v, per_row.0[i / N])).collect());
    // SAFETY: the caller's.
    unsafe { fold_rows::<F, V, THREADS, C, M, N>(scratch, &values, cols) }
}

/// Joins the values of each row.
///
/// # Safety
/// None here; on the device, by the whole block.
pub(crate) unsafe fn fold_rows<
    F: Fold<V>,
    V: Value,
    const THREADS: usize,
    C: Chunks,
    const M: usize,
    const N: usize,
>(
    _: &mut Smem,
    v: &Spread<V>,
    cols: u32,
) -> PerLine<V> {
    let threads = ByRows::<THREADS, C>::threads_of_row(M);
    let partial = |t: usize| {
        let mut sums = [F::START; 4];
        for i in 0..<ByRows<THREADS, C> as Layout<M, N>>::PER_THREAD {
            let (r, c) = <ByRows<THREADS, C> as Layout<M, N>>::at(t as u32, i as u32);
            if c < cols {
                sums[i % 4] = F::join(sums[i % 4], v.0[r as usize * N + c as usize]);
            }
        }
        F::join(F::join(sums[0], sums[1]), F::join(sums[2], sums[3]))
    };
    let row = |r: usize| {
        let mut sums: Vec<V> = (r * threads..(r + 1) * threads).map(partial).collect();
        let mut apart = threads.min(32) / 2;
        while apart > 0 {
            sums = (0..threads).map(|t| F::join(sums[t], sums[t ^ apart])).collect();
            apart /= 2;
        }
        sums.into_iter().step_by(32).reduce(F::join).unwrap_or(F::START)
    };
    PerLine((0..M).map(row).collect())
}

/// `f` of every element, its counterparts in two columns and its column's value, rounded.
pub(crate) fn combine_columns<T: Element, W: Value, P: Value, L: Layout<M, N>, const M: usize, const N: usize>(
    x: &Words<T>,
    columns: (&Spread<W>, &Spread<W>),
    per_column: &PerLine<P>,
    f: impl Fn(T::Value, (W, W), P) -> T::Value,
) -> Words<T> {
    let all = x.0.iter().zip(columns.0.0.iter().zip(&columns.1.0)).enumerate();
    let values = all.map(|(i, (&x, (&w, &b)))| T::from_value(f(x, (w, b), per_column.0[i % N])).to_value());
    Words(values.collect())
}

/// Joins the one value that each block of the cluster has.
///
/// # Safety
/// None here.
pub(crate) unsafe fn join_cluster<F: Fold<V>, V: Value, const CLUSTER: usize>(
    _: Smem,
    place: Place,
    exchanges: u32,
    v: &PerLine<V>,
) -> PerLine<V> {
    if CLUSTER == 1 {
        return PerLine(v.0.clone());
    }
    let all = exchange::<CLUSTER>(place.rank, exchanges, v.0[0].to_bits32());
    PerLine(all.into_iter().map(V::from_bits32).reduce(F::join).into_iter().collect())
}

/// Joins the values of each column.
///
/// # Safety
/// None here; on the device, by the whole block.
pub(crate) unsafe fn fold_columns<
    F: Fold<V>,
    V: Value,
    const THREADS: usize,
    C: Chunks,
    const M: usize,
    const N: usize,
>(
    _: &mut Smem,
    v: &Spread<V>,
    rows: u32,
) -> PerLine<V> {
    let (across, down) = (N / C::LEN, THREADS / (N / C::LEN));
    let column = |c: usize| {
        // thread g of the column holds the rows g, g + down, ...
        let mut sums: Vec<V> = (0..down)
            .map(|g| (g..M.min(rows as usize)).step_by(down).fold(F::START, |s, r| F::join(s, v.0[r * N + c])))
            .collect();
        let in_warp = down.min(32 / across);
        let mut apart = 1;
        while apart < in_warp {
            sums = (0..down).map(|g| F::join(sums[g], sums[g ^ apart])).collect();
            apart *= 2;
        }
        sums.into_iter().step_by(in_warp).reduce(F::join).unwrap_or(F::START)
    };
    PerLine((0..N).map(column).collect())
}
