//! Elements of register tiles combined with others, one piece of a thread's share after the other, so that only the values
//! of one piece are held in registers.

use core::marker::PhantomData;

use super::access::{load_edge, load_piece, store_piece, value, word};
use super::sync::warp_barrier;
use super::tile::{PerLine, Piece, Share, Spread, Words, anew, array, each, store_words, upto_16};
use crate::element::{Element, Value};
use crate::layout::Layout;
use crate::view::Window;

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
