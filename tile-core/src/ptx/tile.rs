//! Register tiles on the device: each thread holds its share of the values in registers.
//!
//! The share is an array of the greatest size that a tile can have; a tile uses the first
//! [`PER_THREAD`](Layout::PER_THREAD) of it, and the rest vanishes with all that is known to be unused. Access is
//! generated straight-line, every index a constant: nothing is left to the unroller.

use core::arch::asm;
use core::marker::PhantomData;

use super::access::{Edge, Limits, load_edge, load_one, load_piece, store_edge, store_piece, value, word};
use super::smem::here;
use super::sync::tid;
use crate::element::{Element, Value};
use crate::layout::{Layout, MOST_PER_THREAD};
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
pub(super) use upto_64;
macro_rules! upto_16 {
    ($m:ident, $($arguments:tt)*) => { $m!($($arguments)*; 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15) };
}
pub(super) use upto_16;
/// An array of `$f(i)` for `i < $n`, padded with `$rest`.
macro_rules! array {
    ($f:ident, $n:expr, $rest:expr; $($i:literal)*) => { [$(if const { $i < $n } { $f($i) } else { $rest }),*] };
}
pub(super) use array;
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
    pub(super) fn of(f: impl Fn(usize) -> V) -> Self {
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
    pub(super) fn all_whole(w: &Window<T>) -> bool {
        if let Some(whole) = w.whole {
            return whole == w.cols;
        }
        Self::aligned(w) && w.cols % Self::ELEMENTS as u32 == 0
    }
}

/// One thread's part of a window, as pointer and limits: everything about its registers but for constants.
pub(super) struct Share<T> {
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
    pub(super) fn of<L: Layout<M, N>, const M: usize, const N: usize>(w: &Window<T>) -> Self {
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
    pub(super) fn address<L: Layout<M, N>, const M: usize, const N: usize>(&self, i: usize) -> u64 {
        let (down, across) = L::step(i as u32);
        self.ptr.wrapping_add((down as u64 * self.stride) as usize).wrapping_add(across as usize) as u64
    }
    /// When the piece that begins with register `i` is inside.
    #[inline(always)]
    pub(super) fn piece<L: Layout<M, N>, const M: usize, const N: usize>(&self, i: usize) -> Limits {
        let (down, across) = L::step(i as u32);
        Limits { row: down, rows: self.rows, at: across, limit: self.in_pieces }
    }
    /// How much of the piece that begins with register `i` is inside, if it is not whole.
    #[inline(always)]
    pub(super) fn edge<L: Layout<M, N>, const M: usize, const N: usize>(&self, i: usize) -> Edge {
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
pub(super) fn anew<T: Element>(piece: [u32; 4]) -> [u32; 4] {
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
