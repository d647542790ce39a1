//! Register tiles on the device: each thread holds its share of the values in registers.
//!
//! The share is an array of the greatest size that a tile can have; a tile uses the first
//! [`PER_THREAD`](Layout::PER_THREAD) of it, and the rest vanishes with all that is known to be unused. Access is
//! generated straight-line, every index a constant: nothing is left to the unroller.

use core::arch::asm;
use core::marker::PhantomData;

use super::access::{Edge, Limits, load_edge, load_one, load_piece, store_edge, store_piece, value, value_anew, word};
use super::entry::Place;
use super::smem::{Smem, here};
use super::sync::{block_barrier, cluster_barrier, cluster_rank, shuffle_xor, tid, warp_barrier};
use crate::element::{Element, Value};
use crate::layout::{ByColumns, ByRows, Chunks, Layout, MOST_PER_THREAD};
use crate::tile::Fold;
use crate::view::Window;

/// A thread's values of a tile.
pub struct Spread<V>(pub(super) [V; MOST_PER_THREAD]);

/// What a thread knows of the values per row (one: a thread belongs to one row) or per column (one for each of its
/// adjacent columns).
pub struct PerLine<V>(pub(super) [V; MOST_IN_CHUNK]);
const MOST_IN_CHUNK: usize = 16;

/// Calls `$m!($arguments; 0 1 2 ...)`.
macro_rules! upto_64 {
    ($m:ident, $($arguments:tt)*) => {
        $m!($($arguments)*; 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
            32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63)
    };
}
macro_rules! upto_16 {
    ($m:ident, $($arguments:tt)*) => { $m!($($arguments)*; 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15) };
}
pub(super) use upto_16;
/// An array of `$f(i)` for `i < $n`, padded with `$rest`.
macro_rules! array {
    ($f:ident, $n:expr, $rest:expr; $($i:literal)*) => { [$(if const { $i < $n } { $f($i) } else { $rest }),*] };
}
/// `$f(i)` for `i < $n`.
macro_rules! each {
    ($f:ident, $n:expr; $($i:literal)*) => { $(if const { $i < $n } { $f($i) })* };
}
pub(super) use each;

#[inline(always)]
fn spread<V: Value, L: Layout<M, N>, const M: usize, const N: usize>(f: impl Fn(usize) -> V) -> Spread<V> {
    Spread(upto_64!(array, f, L::PER_THREAD, V::ZERO))
}

impl<V: Value> Spread<V> {
    #[inline(always)]
    pub(super) fn of<L: Layout<M, N>, const M: usize, const N: usize>(f: impl Fn(usize) -> V) -> Self {
        spread::<V, L, M, N>(f)
    }
    #[inline(always)]
    pub(crate) fn map<U: Value, L: Layout<M, N>, const M: usize, const N: usize>(
        &self,
        f: impl Fn(V) -> U,
    ) -> Spread<U> {
        spread::<U, L, M, N>(
            #[inline(always)]
            |i| f(self.0[i]),
        )
    }
    #[inline(always)]
    pub(crate) fn zip<W: Value, U: Value, L: Layout<M, N>, const M: usize, const N: usize>(
        &self,
        other: &Spread<W>,
        f: impl Fn(V, W) -> U,
    ) -> Spread<U> {
        spread::<U, L, M, N>(
            #[inline(always)]
            |i| f(self.0[i], other.0[i]),
        )
    }
    #[inline(always)]
    pub(crate) fn map_rows<P: Value, U: Value, L: Layout<M, N>, const M: usize, const N: usize>(
        &self,
        per_row: &PerLine<P>,
        f: impl Fn(V, P) -> U,
    ) -> Spread<U> {
        spread::<U, L, M, N>(
            #[inline(always)]
            |i| f(self.0[i], per_row.0[0]),
        )
    }
    #[inline(always)]
    pub(crate) fn map_columns<P: Value, U: Value, L: Layout<M, N>, const M: usize, const N: usize>(
        &self,
        per_column: &PerLine<P>,
        f: impl Fn(V, P) -> U,
    ) -> Spread<U> {
        spread::<U, L, M, N>(
            #[inline(always)]
            |i| f(self.0[i], per_column.0[i % L::CHUNK]),
        )
    }
}

impl Spread<f32> {
    #[inline(always)]
    pub(crate) fn turn_pairs<L: Layout<M, N>, const M: usize, const N: usize>(&self, cos: &Self, sin: &Self) -> Self {
        spread::<f32, L, M, N>(
            #[inline(always)]
            |i| {
                let (mine, other, c, s) = (self.0[i], self.0[i ^ 1], cos.0[i / 2], sin.0[i / 2]);
                if i % 2 == 0 { mine * c - other * s } else { mine * c + other * s }
            },
        )
    }
}

impl<V: Value> PerLine<V> {
    #[inline(always)]
    fn of(f: impl Fn(usize) -> V) -> Self {
        PerLine(upto_16!(array, f, MOST_IN_CHUNK, V::ZERO))
    }
    #[inline(always)]
    pub(crate) fn splat(value: V, _: usize) -> Self {
        Self::of(
            #[inline(always)]
            |_| value,
        )
    }
    // What is done for lines that a thread does not have is dropped by the compiler: nobody looks at it.
    #[inline(always)]
    pub(crate) fn map<U: Value>(&self, f: impl Fn(V) -> U) -> PerLine<U> {
        PerLine::of(
            #[inline(always)]
            |i| f(self.0[i]),
        )
    }
    #[inline(always)]
    pub(crate) fn zip<W: Value, U: Value>(&self, other: &PerLine<W>, f: impl Fn(V, W) -> U) -> PerLine<U> {
        PerLine::of(
            #[inline(always)]
            |i| f(self.0[i], other.0[i]),
        )
    }
}

/// How elements of type `T` travel in layout `L`: in pieces of at most 16 bytes.
pub(super) struct Piece<T, L, const M: usize, const N: usize>(T, L);
impl<T: Element, L: Layout<M, N>, const M: usize, const N: usize> Piece<T, L, M, N> {
    pub(super) const ELEMENTS: usize = if L::CHUNK * size_of::<T>() < 16 { L::CHUNK } else { 16 / size_of::<T>() };
    pub(super) const BYTES: usize = Self::ELEMENTS * size_of::<T>();
    pub(super) const COUNT: usize = {
        assert!(Self::BYTES == 4 || Self::BYTES == 8 || Self::BYTES == 16);
        L::PER_THREAD / Self::ELEMENTS
    };

    /// Whether all pieces of the window are aligned.
    #[inline(always)]
    fn aligned(w: &Window<T>) -> bool {
        let step = if M > 1 { w.stride * size_of::<T>() as u64 } else { 0 };
        (w.ptr as u64 | step) % Self::BYTES as u64 == 0
    }
    /// Whether whole pieces are all there is.
    #[inline(always)]
    fn all_whole(w: &Window<T>) -> bool {
        if let Some(whole) = w.whole {
            return whole == w.cols;
        }
        Self::aligned(w) && w.cols % Self::ELEMENTS as u32 == 0
    }
}

/// One thread's part of a window, as pointer and limits: everything about its registers but for constants.
struct Share<T> {
    /// Of register 0.
    ptr: *mut T,
    stride: u64,
    /// Rows from register 0 to the end.
    rows: u32,
    /// Columns from there to the end; of these, how many are in whole pieces.
    cols: u32,
    in_pieces: u32,
}

impl<T: Element> Share<T> {
    #[inline(always)]
    fn of<L: Layout<M, N>, const M: usize, const N: usize>(w: &Window<T>) -> Self {
        let (row, col) = L::first(here(tid()));
        let rows = w.rows.saturating_sub(row);
        let cols = if rows > 0 { w.cols.saturating_sub(col) } else { 0 };
        let in_pieces = match w.whole {
            Some(whole) if rows > 0 => whole.saturating_sub(col),
            Some(_) => 0,
            None if Piece::<T, L, M, N>::aligned(w) => {
                cols / Piece::<T, L, M, N>::ELEMENTS as u32 * Piece::<T, L, M, N>::ELEMENTS as u32
            }
            None => 0,
        };
        // where a thread has one row, the columns say it all
        let rows = if L::step(L::PER_THREAD as u32 - 1).0 == 0 { 1 } else { rows };
        Share {
            ptr: w.ptr.wrapping_add((row as u64 * w.stride) as usize).wrapping_add(col as usize),
            stride: w.stride,
            rows,
            cols,
            in_pieces,
        }
    }
    /// Where register `i` lies.
    #[inline(always)]
    fn address<L: Layout<M, N>, const M: usize, const N: usize>(&self, i: usize) -> u64 {
        let (down, across) = L::step(i as u32);
        self.ptr.wrapping_add((down as u64 * self.stride) as usize).wrapping_add(across as usize) as u64
    }
    /// When the piece that begins with register `i` is inside.
    #[inline(always)]
    fn piece<L: Layout<M, N>, const M: usize, const N: usize>(&self, i: usize) -> Limits {
        let (down, across) = L::step(i as u32);
        Limits { row: down, rows: self.rows, at: across, limit: self.in_pieces }
    }
    /// How much of the piece that begins with register `i` is inside, if it is not whole.
    #[inline(always)]
    fn edge<L: Layout<M, N>, const M: usize, const N: usize>(&self, i: usize) -> Edge {
        Edge { piece: self.piece::<L, M, N>(i), cols: self.cols }
    }
}

/// A thread's elements of a tile as memory holds them: piece by piece, the first [`COUNT`](Piece::COUNT) of them used.
pub struct Words<T>(pub(super) [[u32; 4]; 16], pub(super) PhantomData<T>);

/// Reads a window; zeros outside. All reads are under way before the first is waited for.
///
/// # Safety
/// The window is readable, and no other thread writes it.
#[inline(always)]
pub(crate) unsafe fn fetch_tile<T: Element, L: Layout<M, N>, const KEEP: bool, const M: usize, const N: usize>(
    w: &Window<T>,
) -> Words<T> {
    let share = Share::of::<L, M, N>(w);
    let in_piece = const { Piece::<T, L, M, N>::ELEMENTS };
    let read = #[inline(always)]
    |q: usize| {
        let (from, limits) = (share.address::<L, M, N>(q * in_piece), share.piece::<L, M, N>(q * in_piece));
        // SAFETY: aligned, and inside the window.
        unsafe { load_piece::<KEEP>(const { Piece::<T, L, M, N>::BYTES }, L::NARROW, from, limits) }
    };
    let mut words: [[u32; 4]; 16] = upto_16!(array, read, Piece::<T, L, M, N>::COUNT, [0; 4]);
    if !Piece::<T, L, M, N>::all_whole(w) {
        let mut read = #[inline(always)]
        |q: usize| {
            let (from, edge) = (share.address::<L, M, N>(q * in_piece), share.edge::<L, M, N>(q * in_piece));
            // SAFETY: inside the window.
            words[q] = unsafe { load_edge(size_of::<T>(), const { Piece::<T, L, M, N>::BYTES }, from, edge, words[q]) };
        };
        upto_16!(each, read, Piece::<T, L, M, N>::COUNT);
    }
    Words(words, PhantomData)
}

/// The values of elements.
#[inline(always)]
pub(crate) fn unpack<T: Element, L: Layout<M, N>, const M: usize, const N: usize>(
    words: &Words<T>,
) -> Spread<T::Value> {
    let in_piece = const { Piece::<T, L, M, N>::ELEMENTS };
    spread::<T::Value, L, M, N>(
        #[inline(always)]
        |i| value::<T>(&words.0[i / in_piece], i % in_piece),
    )
}

/// As [`unpack`], but the compiler does not see that it gives the same as the time before: else it would keep the values
/// of the first time, twice the registers, where a few instructions make them anew.
#[inline(always)]
pub(crate) fn unpack_anew<T: Element, L: Layout<M, N>, const M: usize, const N: usize>(
    words: &Words<T>,
) -> Spread<T::Value> {
    let anew = #[inline(always)]
    |q: usize| anew::<T>(words.0[q]);
    unpack::<T, L, M, N>(&Words(upto_16!(array, anew, Piece::<T, L, M, N>::COUNT, [0; 4]), PhantomData))
}

#[inline(always)]
fn anew<T: Element>(piece: [u32; 4]) -> [u32; 4] {
    let [mut x, mut y, mut z, mut w] = piece;
    if size_of::<T>() < 4 {
        // SAFETY: does nothing.
        unsafe {
            asm!("// {x} {y} {z} {w}", x = inout(reg32) x, y = inout(reg32) y, z = inout(reg32) z, w = inout(reg32) w,
                options(nomem, nostack))
        }
    }
    [x, y, z, w]
}

/// Rounds.
#[inline(always)]
pub(crate) fn pack<T: Element, L: Layout<M, N>, const M: usize, const N: usize>(values: &Spread<T::Value>) -> Words<T> {
    let in_piece = const { Piece::<T, L, M, N>::ELEMENTS };
    let pack = #[inline(always)]
    |q: usize| {
        let v = #[inline(always)]
        |k: usize| values.0[q * in_piece + k % in_piece];
        let per_word = 4 / size_of::<T>();
        [word::<T>(&v, 0), word::<T>(&v, per_word), word::<T>(&v, 2 * per_word), word::<T>(&v, 3 * per_word)]
    };
    Words(upto_16!(array, pack, Piece::<T, L, M, N>::COUNT, [0; 4]), PhantomData)
}

/// Reads a column and repeats it.
///
/// # Safety
/// As for [`fetch_tile`].
#[inline(always)]
pub(crate) unsafe fn load_column<T: Element, L: Layout<M, N>, const M: usize, const N: usize>(
    w: &Window<T>,
) -> Spread<T::Value> {
    let (first, _) = L::first(here(tid()));
    let first = spread::<T::Value, L, M, N>(
        #[inline(always)]
        |i| {
            if i % L::CHUNK != 0 {
                return T::Value::ZERO;
            }
            let row = first + L::step(i as u32).0;
            let from = w.ptr.wrapping_add((row as u64 * w.stride) as usize) as u64;
            // SAFETY: inside the window.
            unsafe { load_one::<T>(from, Limits { row, rows: w.rows, at: 0, limit: w.cols }) }
        },
    );
    spread::<T::Value, L, M, N>(
        #[inline(always)]
        |i| first.0[i / L::CHUNK * L::CHUNK],
    )
}

/// `f` of every element, its counterpart and its row's value, rounded: one piece after the other, so that only the values
/// of one piece are held.
#[inline(always)]
pub(crate) fn combine<T: Element, W: Element, P: Value, L: Layout<M, N>, const M: usize, const N: usize>(
    x: &Words<T>,
    other: &Words<W>,
    per_row: &PerLine<P>,
    cols: u32,
    f: impl Fn(T::Value, W::Value, P) -> T::Value,
) -> Words<T> {
    let (in_piece, in_other) = const { (Piece::<T, L, M, N>::ELEMENTS, Piece::<W, L, M, N>::ELEMENTS) };
    by_pieces::<T, L, M, N, _>(
        cols,
        #[inline(always)]
        |q| (q, anew::<T>(x.0[q])),
        #[inline(always)]
        |(q, x), k| {
            let i = q * in_piece + k;
            f(value::<T>(x, k), value::<W>(&other.0[i / in_other], i % in_other), per_row.0[0])
        },
    )
}

/// As [`combine`], with two counterparts and two values for each row.
#[inline(always)]
pub(crate) fn combine_two<T: Element, W: Element, P: Value, L: Layout<M, N>, const M: usize, const N: usize>(
    x: &Words<T>,
    others: (&Words<W>, &Words<W>),
    per_row: (&PerLine<P>, &PerLine<P>),
    f: impl Fn(T::Value, (W::Value, W::Value), (P, P)) -> T::Value,
) -> Words<T> {
    let (in_piece, in_other) = const { (Piece::<T, L, M, N>::ELEMENTS, Piece::<W, L, M, N>::ELEMENTS) };
    by_pieces::<T, L, M, N, _>(
        u32::MAX,
        #[inline(always)]
        |q| (q, anew::<T>(x.0[q])),
        #[inline(always)]
        |(q, x), k| {
            let (i, j) = ((q * in_piece + k) / in_other, (q * in_piece + k) % in_other);
            let others = (value::<W>(&others.0.0[i], j), value::<W>(&others.1.0[i], j));
            f(value::<T>(x, k), others, (per_row.0.0[0], per_row.1.0[0]))
        },
    )
}

/// A window that is read where its elements are needed.
struct Repeated<W> {
    share: Share<W>,
    all_whole: bool,
}
impl<W: Element> Repeated<W> {
    #[inline(always)]
    fn of<L: Layout<M, N>, const M: usize, const N: usize>(w: &Window<W>) -> Self {
        Repeated { share: Share::of::<L, M, N>(w), all_whole: Piece::<W, L, M, N>::all_whole(w) }
    }
    /// The counterparts of the `in_piece` elements from register `i` on: one piece, or two. Only if `edges` are they read
    /// by element where they must be.
    ///
    /// # Safety
    /// As for [`fetch_tile`].
    #[inline(always)]
    unsafe fn read<L: Layout<M, N>, const KEEP: bool, const M: usize, const N: usize>(
        &self,
        i: usize,
        in_piece: usize,
        edges: bool,
    ) -> [[u32; 4]; 2] {
        let one = #[inline(always)]
        |i: usize| {
            let bytes = const { Piece::<W, L, M, N>::BYTES };
            let from = self.share.address::<L, M, N>(i);
            let piece = self.share.piece::<L, M, N>(i);
            // SAFETY: aligned, and inside the window.
            let words = unsafe { load_piece::<KEEP>(bytes, false, from, piece) };
            if !edges {
                return words;
            }
            // One piece after the other: else the elements of all of them would be under way at once, and more of them
            // than there are registers.
            warp_barrier();
            // SAFETY: inside the window.
            unsafe { load_edge(size_of::<W>(), bytes, from, self.share.edge::<L, M, N>(i), words) }
        };
        let elements = const { Piece::<W, L, M, N>::ELEMENTS };
        [one(i), if elements < in_piece { one(i + elements) } else { [0; 4] }]
    }
    /// Element `k` of what `read` gave.
    #[inline(always)]
    fn value<L: Layout<M, N>, const M: usize, const N: usize>(words: &[[u32; 4]; 2], k: usize) -> W::Value {
        let elements = const { Piece::<W, L, M, N>::ELEMENTS };
        value::<W>(&words[k / elements % 2], k % elements)
    }
}

/// `f(i)` of every element, rounded: one piece after the other, so that only the values of one piece are held. Pieces that lie
/// beyond `cols` in every thread are passed over, where there is little to do for each: a branch keeps pieces apart.
#[inline(always)]
fn by_pieces<T: Element, L: Layout<M, N>, const M: usize, const N: usize, S>(
    cols: u32,
    start: impl Fn(usize) -> S,
    f: impl Fn(&S, usize) -> T::Value,
) -> Words<T> {
    let in_piece = const { Piece::<T, L, M, N>::ELEMENTS };
    let piece = #[inline(always)]
    |q: usize| {
        if q > 0 && L::step((q * in_piece) as u32).1 >= cols {
            return [0; 4];
        }
        let state = start(q);
        let v = #[inline(always)]
        |k: usize| f(&state, k % in_piece);
        let per_word = 4 / size_of::<T>();
        [word::<T>(&v, 0), word::<T>(&v, per_word), word::<T>(&v, 2 * per_word), word::<T>(&v, 3 * per_word)]
    };
    Words(upto_16!(array, piece, Piece::<T, L, M, N>::COUNT, [0; 4]), PhantomData)
}

/// As [`combine`], the counterparts read from memory, one piece after the other. They are kept in the L1 cache.
///
/// # Safety
/// As for [`fetch_tile`].
#[inline(always)]
pub(crate) unsafe fn combine_row<T: Element, W: Element, P: Value, L: Layout<M, N>, const M: usize, const N: usize>(
    x: &Words<T>,
    w: &Window<W>,
    per_row: &PerLine<P>,
    cols: u32,
    f: impl Fn(T::Value, W::Value, P) -> T::Value,
) -> Words<T> {
    let w = Repeated::of::<L, M, N>(w);
    let in_piece = const { Piece::<T, L, M, N>::ELEMENTS };
    let all = #[inline(always)]
    |edges: bool| {
        by_pieces::<T, L, M, N, _>(
            cols,
            // SAFETY: the caller's.
            #[inline(always)]
            |q| unsafe { (anew::<T>(x.0[q]), w.read::<L, true, M, N>(q * in_piece, in_piece, edges)) },
            #[inline(always)]
            |(x, w), k| f(value::<T>(x, k), Repeated::<W>::value::<L, M, N>(w, k), per_row.0[0]),
        )
    };
    all(!w.all_whole)
}

/// [`combine_row`] and [`store_words`] in one, a piece after the other, so that registers are free early. Streamed.
///
/// # Safety
/// As for both.
#[inline(always)]
pub(crate) unsafe fn stream_row<T: Element, W: Element, P: Value, L: Layout<M, N>, const M: usize, const N: usize>(
    to: &Window<T>,
    x: &Words<T>,
    w: &Window<W>,
    per_row: &PerLine<P>,
    f: impl Fn(T::Value, W::Value, P) -> T::Value,
) {
    if !Piece::<T, L, M, N>::all_whole(to) {
        // SAFETY: the caller's.
        unsafe { store_words::<T, L, true, M, N>(to, &combine_row::<T, W, P, L, M, N>(x, w, per_row, to.cols, f)) };
        return;
    }
    let (w, share) = (Repeated::of::<L, M, N>(w), Share::of::<L, M, N>(to));
    let in_piece = const { Piece::<T, L, M, N>::ELEMENTS };
    let all = #[inline(always)]
    |edges: bool| {
        let piece = #[inline(always)]
        |q: usize| {
            let i = q * in_piece;
            // SAFETY: the caller's.
            let others = unsafe { w.read::<L, true, M, N>(i, in_piece, edges) };
            let mine = anew::<T>(x.0[q]);
            let v = #[inline(always)]
            |k: usize| {
                let k = k % in_piece;
                f(value::<T>(&mine, k), Repeated::<W>::value::<L, M, N>(&others, k), per_row.0[0])
            };
            let per_word = 4 / size_of::<T>();
            let words =
                [word::<T>(&v, 0), word::<T>(&v, per_word), word::<T>(&v, 2 * per_word), word::<T>(&v, 3 * per_word)];
            let (to, limits) = (share.address::<L, M, N>(i), share.piece::<L, M, N>(i));
            // SAFETY: aligned, and inside the window.
            unsafe { store_piece::<true>(const { Piece::<T, L, M, N>::BYTES }, to, words, limits) }
        };
        upto_16!(each, piece, Piece::<T, L, M, N>::COUNT);
    };
    all(!w.all_whole)
}

/// As [`combine_row`], with two rows and two values for each row.
///
/// # Safety
/// As for [`fetch_tile`].
#[inline(always)]
pub(crate) unsafe fn combine_rows<T: Element, W: Element, P: Value, L: Layout<M, N>, const M: usize, const N: usize>(
    x: &Words<T>,
    rows: (&Window<W>, &Window<W>),
    per_row: (&PerLine<P>, &PerLine<P>),
    f: impl Fn(T::Value, (W::Value, W::Value), (P, P)) -> T::Value,
) -> Words<T> {
    let (w, b) = (Repeated::of::<L, M, N>(rows.0), Repeated::of::<L, M, N>(rows.1));
    let in_piece = const { Piece::<T, L, M, N>::ELEMENTS };
    let all = #[inline(always)]
    |edges: bool| {
        by_pieces::<T, L, M, N, _>(
            u32::MAX,
            #[inline(always)]
            |q| {
                let i = q * in_piece;
                // SAFETY: the caller's.
                let (w, b) = unsafe {
                    (w.read::<L, true, M, N>(i, in_piece, edges), b.read::<L, true, M, N>(i, in_piece, edges))
                };
                (anew::<T>(x.0[q]), w, b)
            },
            #[inline(always)]
            |(x, w, b), k| {
                let of_row = (Repeated::<W>::value::<L, M, N>(w, k), Repeated::<W>::value::<L, M, N>(b, k));
                f(value::<T>(x, k), of_row, (per_row.0.0[0], per_row.1.0[0]))
            },
        )
    };
    all(!(w.all_whole && b.all_whole))
}

/// `f` of every element and its row's two values, rounded.
#[inline(always)]
pub(crate) fn map_words<T: Element, P: Value, L: Layout<M, N>, const M: usize, const N: usize>(
    x: &Words<T>,
    per_row: (&PerLine<P>, &PerLine<P>),
    f: impl Fn(T::Value, (P, P)) -> T::Value,
) -> Words<T> {
    by_pieces::<T, L, M, N, _>(
        u32::MAX,
        #[inline(always)]
        |q| anew::<T>(x.0[q]),
        #[inline(always)]
        |x, k| f(value::<T>(x, k), (per_row.0.0[0], per_row.1.0[0])),
    )
}

/// Writes, clipped to the window. With `STREAM`, what is written is the first that the L2 cache gives up.
///
/// # Safety
/// The window is the block's alone, and no other thread touches this one's elements.
#[inline(always)]
pub(crate) unsafe fn store_words<T: Element, L: Layout<M, N>, const STREAM: bool, const M: usize, const N: usize>(
    w: &Window<T>,
    words: &Words<T>,
) {
    let share = Share::of::<L, M, N>(w);
    let in_piece = const { Piece::<T, L, M, N>::ELEMENTS };
    let words = &words.0;
    let write = #[inline(always)]
    |q: usize| {
        let (to, limits) = (share.address::<L, M, N>(q * in_piece), share.piece::<L, M, N>(q * in_piece));
        // SAFETY: aligned, and inside the window.
        unsafe { store_piece::<STREAM>(const { Piece::<T, L, M, N>::BYTES }, to, words[q], limits) }
    };
    upto_16!(each, write, Piece::<T, L, M, N>::COUNT);
    if !Piece::<T, L, M, N>::all_whole(w) {
        let write = #[inline(always)]
        |q: usize| {
            let (to, edge) = (share.address::<L, M, N>(q * in_piece), share.edge::<L, M, N>(q * in_piece));
            // SAFETY: inside the window.
            unsafe { store_edge(size_of::<T>(), const { Piece::<T, L, M, N>::BYTES }, to, edge, words[q]) }
        };
        upto_16!(each, write, Piece::<T, L, M, N>::COUNT);
    }
}

// ---- reductions ------------------------------------------------------------------------------------------------
//
// Warps meet through the block's scratch, 1024 bytes in two halves that are used by turns: who writes a half for the
// second time has passed the barrier of the turn between, and so have, before that, all readers of the first time. One
// barrier a turn is enough.
pub(super) const HALF: u32 = 512;

/// Four partial results, so that the joins of one need not wait for each other.
#[inline(always)]
fn partial<F: Fold<V>, V: Value, L: Layout<M, N>, const M: usize, const N: usize>(v: impl Fn(usize) -> V) -> V {
    let mut sums = [v(0), v(1), v(2), v(3)];
    let mut join = #[inline(always)]
    |i: usize| {
        if i >= 4 {
            sums[i % 4] = F::join(sums[i % 4], v(i));
        }
    };
    upto_64!(each, join, L::PER_THREAD);
    F::join(F::join(sums[0], sums[1]), F::join(sums[2], sums[3]))
}

#[inline(always)]
pub(super) fn join_across<F: Fold<V>, V: Value>(v: V, lanes: u32) -> V {
    F::join(v, V::from_bits32(shuffle_xor(v.to_bits32(), lanes)))
}

/// Joins the values of each row.
///
/// # Safety
/// By the whole block.
#[inline(always)]
pub(crate) unsafe fn fold_rows<
    F: Fold<V>,
    V: Value,
    const THREADS: usize,
    C: Chunks,
    const M: usize,
    const N: usize,
>(
    scratch: &mut Smem,
    v: &Spread<V>,
    cols: u32,
) -> PerLine<V> {
    let s = if cols >= N as u32 {
        partial::<F, V, ByRows<THREADS, C>, M, N>(
            #[inline(always)]
            |i| v.0[i],
        )
    } else {
        let left = cols.saturating_sub(<ByRows<THREADS, C> as Layout<M, N>>::first(tid()).1);
        partial::<F, V, ByRows<THREADS, C>, M, N>(
            #[inline(always)]
            |i| {
                let (_, across) = <ByRows<THREADS, C> as Layout<M, N>>::step(i as u32);
                if across < left { v.0[i] } else { F::START }
            },
        )
    };
    // SAFETY: the caller's.
    unsafe { join_row::<F, V, THREADS, C, M>(scratch, s) }
}

/// Joins `f` of the elements of each row and the row's value: of all elements that the tile can hold if `all`, else of those
/// that are inside. Values are made where they are used, a piece at a time.
///
/// # Safety
/// By the whole block.
#[inline(always)]
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
    all: bool,
    cols: u32,
    f: impl Fn(T::Value, P) -> V,
) -> PerLine<V> {
    let in_piece = const { Piece::<T, ByRows<THREADS, C>, M, N>::ELEMENTS };
    let s = if all || cols >= N as u32 {
        partial::<F, V, ByRows<THREADS, C>, M, N>(
            #[inline(always)]
            |i| f(value_anew::<T>(&words.0[i / in_piece], i % in_piece), per_row.0[0]),
        )
    } else {
        let left = cols.saturating_sub(<ByRows<THREADS, C> as Layout<M, N>>::first(tid()).1);
        partial::<F, V, ByRows<THREADS, C>, M, N>(
            #[inline(always)]
            |i| {
                let (_, across) = <ByRows<THREADS, C> as Layout<M, N>>::step(i as u32);
                let v = f(value::<T>(&words.0[i / in_piece], i % in_piece), per_row.0[0]);
                if across < left { v } else { F::START }
            },
        )
    };
    // SAFETY: the caller's.
    unsafe { join_row::<F, V, THREADS, C, M>(scratch, s) }
}

/// Joins what the threads of each row have.
///
/// # Safety
/// By the whole block.
#[inline(always)]
pub(super) unsafe fn join_row<F: Fold<V>, V: Value, const THREADS: usize, C: Chunks, const M: usize>(
    scratch: &mut Smem,
    mut s: V,
) -> PerLine<V> {
    let t = tid();
    let threads = const { ByRows::<THREADS, C>::threads_of_row(M) };
    if threads > 16 {
        s = join_across::<F, V>(s, 16);
    }
    if threads > 8 {
        s = join_across::<F, V>(s, 8);
    }
    if threads > 4 {
        s = join_across::<F, V>(s, 4);
    }
    if threads > 2 {
        s = join_across::<F, V>(s, 2);
    }
    if threads > 1 {
        s = join_across::<F, V>(s, 1);
    }
    if threads > 32 {
        let warps = threads / 32;
        // SAFETY: every warp has a word of its own in this half; see above.
        unsafe { scratch.add((t / 32 * 4) as usize).store_u32_if(s.to_bits32(), t % 32 == 0) };
        block_barrier();
        let first = scratch.add((t / threads as u32 * (warps * 4) as u32) as usize);
        // SAFETY: written before the barrier.
        s = V::from_bits32(unsafe { first.load_u32() });
        let mut join = #[inline(always)]
        |w: usize| {
            if w > 0 {
                // SAFETY: as above.
                s = F::join(s, V::from_bits32(unsafe { first.add(w * 4).load_u32() }));
            }
        };
        // 32 at most
        upto_64!(each, join, ByRows::<THREADS, C>::threads_of_row(M) / 32);
        scratch.0 ^= HALF;
    }
    PerLine::splat(s, 1)
}

/// Where the blocks of a cluster leave values for this one, in the first half, behind what reductions of rows use of it:
/// a word for each block, twice, used by turns.
const EXCHANGE: usize = 128;
const EXCHANGE_TURN: usize = 64;

/// Joins the one value that each block of the cluster has.
///
/// # Safety
/// By all blocks of the cluster, in all of which `exchanges` is equal: how often they have done this before.
#[inline(always)]
pub(crate) unsafe fn join_cluster<F: Fold<V>, V: Value, const CLUSTER: usize>(
    scratch: Smem,
    _: Place,
    exchanges: u32,
    v: &PerLine<V>,
) -> PerLine<V> {
    if CLUSTER == 1 {
        return PerLine::splat(v.0[0], 1);
    }
    if exchanges == 0 {
        // the others have begun: before that their memory is not there
        cluster_barrier();
    }
    // A block that writes for the second time to one half has passed the meeting of the turn between, and so have,
    // before that, all readers of the first time.
    let half = Smem(scratch.0 & !HALF).add(EXCHANGE).add((exchanges % 2) as usize * EXCHANGE_TURN);
    // SAFETY: every block has a word of its own in every other's half; written by one thread for each of them.
    unsafe { half.add(cluster_rank() as usize * 4).store_u32_to_peers(v.0[0].to_bits32(), CLUSTER as u32) };
    cluster_barrier();
    // SAFETY: written before the meeting.
    let mut s = V::from_bits32(unsafe { half.load_u32() });
    let mut join = #[inline(always)]
    |rank: usize| {
        if rank > 0 {
            // SAFETY: as above.
            s = F::join(s, V::from_bits32(unsafe { half.add(rank * 4).load_u32() }));
        }
    };
    upto_16!(each, join, CLUSTER);
    PerLine::splat(s, 1)
}

/// How the sums of columns travel between warps: in rounds, as many columns at a time as half the scratch holds.
struct Rounds<const THREADS: usize, C, const N: usize>(C);
impl<const THREADS: usize, C: Chunks, const N: usize> Rounds<THREADS, C, N> {
    /// Columns of a thread in one round.
    const COLUMNS: usize = {
        let words = N * (THREADS / 32);
        let rounds = words.div_ceil(HALF as usize / 4);
        assert!(C::LEN % rounds == 0, "too many threads for the scratch of a reduction over rows");
        C::LEN / rounds
    };
}

/// Joins the values of each column.
///
/// # Safety
/// By the whole block.
#[inline(always)]
pub(crate) unsafe fn fold_columns<
    F: Fold<V>,
    V: Value,
    const THREADS: usize,
    C: Chunks,
    const M: usize,
    const N: usize,
>(
    scratch: &mut Smem,
    v: &Spread<V>,
    rows: u32,
) -> PerLine<V> {
    let t = tid();
    let across = const { (N / C::LEN) as u32 };
    let left = rows.saturating_sub(<ByColumns<THREADS, C> as Layout<M, N>>::first(t).0);
    let column = #[inline(always)]
    |k: usize| {
        if k >= C::LEN {
            return V::ZERO;
        }
        let mut s = F::START;
        let mut join = #[inline(always)]
        |i: usize| {
            if i % C::LEN == k {
                let (down, _) = <ByColumns<THREADS, C> as Layout<M, N>>::step(i as u32);
                s = F::join(s, if down < left { v.0[i] } else { F::START });
            }
        };
        upto_64!(each, join, <ByColumns<THREADS, C> as Layout<M, N>>::PER_THREAD);
        if across <= 1 {
            s = join_across::<F, V>(s, 1);
        }
        if across <= 2 {
            s = join_across::<F, V>(s, 2);
        }
        if across <= 4 {
            s = join_across::<F, V>(s, 4);
        }
        if across <= 8 {
            s = join_across::<F, V>(s, 8);
        }
        if across <= 16 {
            s = join_across::<F, V>(s, 16);
        }
        s
    };
    let mut sums = PerLine::<V>::of(column);
    if THREADS > 32 {
        let in_round = const { Rounds::<THREADS, C, N>::COLUMNS };
        let mut round = #[inline(always)]
        |r: usize| {
            let lane = t % 32;
            let mine = scratch.add((t / 32 * across + lane) as usize * in_round * 4);
            let write = #[inline(always)]
            |k: usize| {
                // SAFETY: the words of this warp's columns, written by the first lane that has the column.
                unsafe { mine.add(k * 4).store_u32_if(sums.0[r * in_round + k].to_bits32(), lane < across) }
            };
            upto_16!(each, write, Rounds::<THREADS, C, N>::COLUMNS);
            block_barrier();
            let all = scratch.add((t % across) as usize * in_round * 4);
            let mut read = #[inline(always)]
            |k: usize| {
                let from = all.add(k * 4);
                // SAFETY: written before the barrier.
                let mut s = V::from_bits32(unsafe { from.load_u32() });
                let mut join = #[inline(always)]
                |w: usize| {
                    if w > 0 {
                        // SAFETY: as above.
                        let other = unsafe { from.add(w * across as usize * in_round * 4).load_u32() };
                        s = F::join(s, V::from_bits32(other));
                    }
                };
                upto_64!(each, join, THREADS / 32);
                sums.0[r * in_round + k] = s;
            };
            upto_16!(each, read, Rounds::<THREADS, C, N>::COLUMNS);
            scratch.0 ^= HALF;
        };
        upto_16!(each, round, C::LEN / Rounds::<THREADS, C, N>::COLUMNS);
    }
    sums
}

/// `f` of every element, its counterparts in two columns and its column's value, rounded: one piece after the other.
#[inline(always)]
pub(crate) fn combine_columns<T: Element, W: Value, P: Value, L: Layout<M, N>, const M: usize, const N: usize>(
    x: &Words<T>,
    columns: (&Spread<W>, &Spread<W>),
    per_column: &PerLine<P>,
    f: impl Fn(T::Value, (W, W), P) -> T::Value,
) -> Words<T> {
    let in_piece = const { Piece::<T, L, M, N>::ELEMENTS };
    by_pieces::<T, L, M, N, _>(
        u32::MAX,
        #[inline(always)]
        |q| (q, anew::<T>(x.0[q])),
        #[inline(always)]
        |(q, x), k| {
            let i = q * in_piece + k;
            f(value::<T>(x, k), (columns.0.0[i], columns.1.0[i]), per_column.0[i % L::CHUNK])
        },
    )
}
