//! What accumulators meet before they are stored: elements of global memory, one for each of theirs.

use core::arch::asm;

use super::element::Pack16;
use super::smem::here;
use super::store::RowValues;
use super::sync::tid;
use super::wgmma::{Wgmma, Width};
use crate::element::{Element, bf16, f16};
use crate::epilogue::Source;
use crate::layout::accumulator_at;
use crate::view::Window;

/// `$body` for each group of 8 of `$n` columns, straight-line.
macro_rules! each_group {
    ($n:expr, |$g:ident| $body:expr) => {
        each_group!(@ $n, $g, $body, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31)
    };
    (@ $n:expr, $g:ident, $body:expr, $($i:literal)*) => {
        $(if 8 * $i < $n {
            let $g: usize = $i;
            $body
        })*
    };
}

/// Elements that accumulators are combined with, rounded to and stored as, one by one.
pub trait AccElement: Element<Value = f32> {
    /// Rounds two values and writes those whose condition holds. Predicated, not branched. Two conversions in one
    /// instruction: ptxas would pull single ones out of the loop over tiles, before the products' end (C7514).
    ///
    /// # Safety
    /// Where the condition holds, the element is the caller's to write.
    #[doc(hidden)]
    unsafe fn store_two(to: [*mut Self; 2], values: [f32; 2], inside: [bool; 2]);
    /// Two rounded values of 16 bits in one word; of other types the first's bits.
    #[doc(hidden)]
    fn bits_of_two(a: f32, b: f32) -> u32;
    /// Rounds two values and writes them side by side, as one word.
    ///
    /// # Safety
    /// The elements are the caller's to write, and aligned as a pair.
    #[doc(hidden)]
    unsafe fn store_pair(to: *mut Self, a: f32, b: f32);
    /// Two elements as they were loaded.
    #[doc(hidden)]
    type Two: Copy;
    /// Reads those whose condition holds; the others are zero.
    ///
    /// # Safety
    /// Where the condition holds, the element can be read.
    #[doc(hidden)]
    unsafe fn load_two(from: [*const Self; 2], inside: [bool; 2]) -> Self::Two;
    /// Their values.
    #[doc(hidden)]
    fn values(two: Self::Two) -> [f32; 2];
}
macro_rules! bits_16 {
    ($($t:ty, |$pair:ident| $values:expr;)*) => {$(
        impl AccElement for $t {
            type Two = u32;
            #[inline(always)]
            unsafe fn store_two(to: [*mut Self; 2], values: [f32; 2], inside: [bool; 2]) {
                // SAFETY: the caller's.
                unsafe {
                    asm!("{{ .reg .pred p, q; .reg .b16 l, h; mov.b32 {{l, h}}, {0}; setp.ne.u32 p, {3}, 0; setp.ne.u32 q, {4}, 0; @p st.global.b16 [{1}], l; @q st.global.b16 [{2}], h; }}",
                        in(reg32) <$t as Pack16>::pack(values[0], values[1]), in(reg64) to[0], in(reg64) to[1],
                        in(reg32) inside[0] as u32, in(reg32) inside[1] as u32, options(nostack))
                }
            }
            #[inline(always)]
            fn bits_of_two(a: f32, b: f32) -> u32 {
                <$t as Pack16>::pack(a, b)
            }
            #[inline(always)]
            unsafe fn store_pair(to: *mut Self, a: f32, b: f32) {
                // SAFETY: the caller's.
                unsafe { *(to as *mut u32) = <$t as Pack16>::pack(a, b) }
            }
            #[inline(always)]
            unsafe fn load_two(from: [*const Self; 2], inside: [bool; 2]) -> u32 {
                let $pair: u32;
                // not `pure`: joined or hoisted, the values would fill the registers
                // SAFETY: the caller's.
                unsafe { asm!("{{ .reg .pred p, q; .reg .b16 l, h; mov.b16 l, 0; mov.b16 h, 0; setp.ne.u32 p, {3}, 0; setp.ne.u32 q, {4}, 0; @p ld.global.b16 l, [{1}]; @q ld.global.b16 h, [{2}]; mov.b32 {0}, {{l, h}}; }}",
                    out(reg32) $pair, in(reg64) from[0], in(reg64) from[1], in(reg32) inside[0] as u32,
                    in(reg32) inside[1] as u32, options(readonly, nostack)) }
                $pair
            }
            #[inline(always)]
            fn values($pair: u32) -> [f32; 2] {
                $values
            }
        }
    )*};
}
bits_16! {
    bf16, |pair| [f32::from_bits(pair << 16), f32::from_bits(pair & 0xffff_0000)];
    f16, |pair| [f16::from_bits(pair as u16).to_f32(), f16::from_bits((pair >> 16) as u16).to_f32()];
}
impl AccElement for f32 {
    type Two = [f32; 2];
    #[inline(always)]
    unsafe fn store_two(to: [*mut f32; 2], values: [f32; 2], inside: [bool; 2]) {
        // SAFETY: the caller's.
        unsafe {
            asm!("{{ .reg .pred p, q; setp.ne.u32 p, {4}, 0; setp.ne.u32 q, {5}, 0; @p st.global.b32 [{2}], {0}; @q st.global.b32 [{3}], {1}; }}",
                in(reg32) values[0], in(reg32) values[1], in(reg64) to[0], in(reg64) to[1],
                in(reg32) inside[0] as u32, in(reg32) inside[1] as u32, options(nostack))
        }
    }
    #[inline(always)]
    fn bits_of_two(a: f32, _: f32) -> u32 {
        a.to_bits()
    }
    #[inline(always)]
    unsafe fn store_pair(to: *mut f32, a: f32, b: f32) {
        // SAFETY: the caller's.
        unsafe {
            asm!("st.global.v2.b32 [{0}], {{{1}, {2}}};", in(reg64) to, in(reg32) a, in(reg32) b, options(nostack))
        }
    }
    #[inline(always)]
    unsafe fn load_two(from: [*const f32; 2], inside: [bool; 2]) -> [f32; 2] {
        let (a, b);
        // SAFETY: the caller's.
        unsafe {
            asm!("{{ .reg .pred p, q; setp.ne.u32 p, {4}, 0; setp.ne.u32 q, {5}, 0; mov.b32 {0}, 0; mov.b32 {1}, 0; @p ld.global.b32 {0}, [{2}]; @q ld.global.b32 {1}, [{3}]; }}",
            out(reg32) a, out(reg32) b, in(reg64) from[0], in(reg64) from[1], in(reg32) inside[0] as u32,
            in(reg32) inside[1] as u32, options(readonly, nostack))
        }
        [a, b]
    }
    #[inline(always)]
    fn values(two: [f32; 2]) -> [f32; 2] {
        two
    }
}

/// `f(element, element of the source in the same place)` of 64 rows; `first` is the first one's number in the source.
///
/// # Safety
/// By the whole warpgroup; what is inside the source can be read.
#[inline(always)]
pub(crate) unsafe fn zip<U: AccElement, const N: usize>(
    s: &Source<U>,
    first: u32,
    regs: <Width<N> as Wgmma>::Regs,
    f: impl Fn(f32, f32) -> f32,
) -> <Width<N> as Wgmma>::Regs
where
    Width<N>: Wgmma,
{
    let (row, col) = accumulator_at(here(tid() % 128), 0);
    let row = row + first;
    let corner = s.ptr.wrapping_add(row as usize * s.row_step + col as usize * s.col_step);
    let (up, down) = (row < s.rows, row + 8 < s.rows);
    // what belongs to the four registers of column group `g`
    let load = #[inline(always)]
    |g: usize| {
        let (col, p) = (col + 8 * g as u32, corner.wrapping_add(8 * g * s.col_step));
        let (left, right) = (col < s.cols, col + 1 < s.cols);
        let q = p.wrapping_add(8 * s.row_step);
        // SAFETY: only elements inside the source are read.
        unsafe {
            let top = U::load_two([p, p.wrapping_add(s.col_step)], [up && left, up && right]);
            // a value of each column is the same in every row
            let bottom = if s.row_step == 0 {
                top
            } else {
                U::load_two([q, q.wrapping_add(s.col_step)], [down && left, down && right])
            };
            (top, bottom)
        }
    };
    let join = #[inline(always)]
    |v: [f32; 4], (top, bottom): (U::Two, U::Two)| {
        let ([a, b], [c, d]) = (U::values(top), U::values(bottom));
        let mut v = [f(v[0], a), f(v[1], b), f(v[2], c), f(v[3], d)];
        // Computed here, in the order of the loads: put off to where they are stored, all the loaded values would be
        // alive at once.
        // SAFETY: no instruction.
        unsafe {
            asm!("/*{0}{1}{2}{3}*/", inout(reg32) v[0], inout(reg32) v[1], inout(reg32) v[2], inout(reg32) v[3], options(nostack));
        }
        v
    };
    if N % 32 != 0 {
        return Width::<N>::quads(
            regs,
            #[inline(always)]
            |g, v| join(v, load(g)),
        );
    }
    // Four groups are on their way at once.
    Width::<N>::chunks(
        regs,
        #[inline(always)]
        |c, v| {
            let (a, b, c, d) = (load(4 * c), load(4 * c + 1), load(4 * c + 2), load(4 * c + 3));
            let (a, b) = (join([v[0], v[1], v[2], v[3]], a), join([v[4], v[5], v[6], v[7]], b));
            let (c, d) = (join([v[8], v[9], v[10], v[11]], c), join([v[12], v[13], v[14], v[15]], d));
            [a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3], c[0], c[1], c[2], c[3], d[0], d[1], d[2], d[3]]
        },
    )
}

/// Two neighbouring elements as one word, read here: joined or put off, such loads would fill the registers.
///
/// # Safety
/// The pair can be read, and is aligned as one.
#[inline(always)]
unsafe fn load_word<U>(from: *const U) -> u32 {
    let word: u32;
    // SAFETY: the caller's.
    unsafe { asm!("ld.global.b32 {0}, [{1}];", out(reg32) word, in(reg64) from, options(readonly, nostack)) }
    word
}

/// The elements of a row as an accumulator's columns have them, in every row.
///
/// # Safety
/// By the whole warpgroup; what is inside the window can be read.
#[inline(always)]
pub(crate) unsafe fn fetch_columns<T: Pack16, const N: usize>(w: &Window<T>) -> <Width<N> as Wgmma>::Packed
where
    Width<N>: Wgmma,
{
    let (_, col) = accumulator_at(here(tid() % 128), 0);
    let corner = w.ptr.cast_const().wrapping_add(col as usize);
    let cols = if w.rows > 0 { w.cols } else { 0 };
    // all loads before anything else: one time of waiting
    let mut pairs = [0; 32];
    const { assert!(N <= 256, "an accumulator has 256 columns at most") };
    if cols >= N as u32 && w.ptr as u64 % 4 == 0 {
        each_group!(N, |g| {
            // SAFETY: inside the window.
            pairs[g] = unsafe { load_word(corner.wrapping_add(8 * g)) };
        });
    } else {
        each_group!(N, |g| {
            let (at, col) = (corner.wrapping_add(8 * g), col + 8 * g as u32);
            // SAFETY: only elements inside the window are read.
            pairs[g] = unsafe { T::load_packed([at, at.wrapping_add(1)], [col < cols, col + 1 < cols]) };
        });
    }
    Width::<N>::packed_from(
        #[inline(always)]
        |i| pairs[i / 2],
    )
}

/// The elements of a row as an accumulator's rows have them.
///
/// # Safety
/// As for [`fetch_columns`].
#[inline(always)]
pub(crate) unsafe fn fetch_rows<T: Pack16>(w: &Window<T>) -> RowValues {
    let (row, _) = accumulator_at(here(tid() % 128), 0);
    let at = w.ptr.cast_const().wrapping_add(row as usize);
    let cols = if w.rows > 0 { w.cols } else { 0 };
    // SAFETY: only elements inside the window are read.
    T::unpack(unsafe { T::load_packed([at, at.wrapping_add(8)], [row < cols, row + 8 < cols]) })
}

/// The elements of a column as an accumulator's rows have them.
///
/// # Safety
/// As for [`fetch_columns`].
#[inline(always)]
pub(crate) unsafe fn fetch_column(w: &Window<f32>) -> RowValues {
    let (row, _) = accumulator_at(here(tid() % 128), 0);
    let rows = if w.cols > 0 { w.rows } else { 0 };
    let at = |row: u32| {
        // SAFETY: only elements inside the window are read.
        if row < rows {
            unsafe { w.ptr.cast_const().wrapping_add(row as usize * w.stride as usize).read() }
        } else {
            0.0
        }
    };
    [at(row), at(row + 8)]
}

/// The elements of the transposed window as an accumulator has them, of the column groups of 8 whose number is `rank`
/// modulo `SPLIT`; the others are zero.
///
/// # Safety
/// As for [`fetch_columns`].
#[inline(always)]
pub(crate) unsafe fn fetch_transposed<T: Pack16, const N: usize, const SPLIT: usize>(
    w: &Window<T>,
    rank: u32,
) -> <Width<N> as Wgmma>::Packed
where
    Width<N>: Wgmma,
{
    let (row, col) = accumulator_at(here(tid() % 128), 0);
    let stride = w.stride as usize;
    let corner = w.ptr.cast_const().wrapping_add(col as usize * stride + row as usize);
    // how many columns there are of this thread's two rows
    let (top, bottom) = (if row < w.cols { w.rows } else { 0 }, if row + 8 < w.cols { w.rows } else { 0 });
    let mut pairs = [0; 64];
    const { assert!(N <= 256, "an accumulator has 256 columns at most") };
    // One by one, wherever they lie: it is waited for while the products run, and code for words would be as long again.
    each_group!(N, |g| {
        if SPLIT == 1 || g as u32 % SPLIT as u32 == rank {
            let (at, col) = (corner.wrapping_add(8 * g * stride), col + 8 * g as u32);
            // SAFETY: only elements inside the window are read.
            (pairs[2 * g], pairs[2 * g + 1]) = unsafe { load_square(at, at.wrapping_add(stride), col, top, bottom) };
        }
    });
    Width::<N>::packed_from(
        #[inline(always)]
        |i| pairs[i],
    )
}

/// Elements of 2 bytes at `left` and `right`, and 8 further behind each: two words, one of each pair. Those of the first pair
/// are read whose column, `col` or the next, is less than `top`, those of the second likewise; the others are zero.
///
/// # Safety
/// What is read can be.
#[inline(always)]
unsafe fn load_square<T: Pack16>(left: *const T, right: *const T, col: u32, top: u32, bottom: u32) -> (u32, u32) {
    const { assert!(size_of::<T>() == 2, "packed elements have 2 bytes") };
    let (a, b);
    // SAFETY: the caller's.
    unsafe {
        asm!("{{ .reg .pred p<4>; .reg .b16 v<4>; setp.lt.u32 p0, {4}, {6}; setp.lt.u32 p1, {5}, {6}; setp.lt.u32 p2, {4}, {7}; setp.lt.u32 p3, {5}, {7}; \
            mov.b16 v0, 0; mov.b16 v1, 0; mov.b16 v2, 0; mov.b16 v3, 0; @p0 ld.global.b16 v0, [{2}]; @p1 ld.global.b16 v1, [{3}]; \
            @p2 ld.global.b16 v2, [{2}+16]; @p3 ld.global.b16 v3, [{3}+16]; mov.b32 {0}, {{v0, v1}}; mov.b32 {1}, {{v2, v3}}; }}",
            out(reg32) a, out(reg32) b, in(reg64) left, in(reg64) right, in(reg32) col, in(reg32) col + 1, in(reg32) top,
            in(reg32) bottom, options(readonly, nostack))
    }
    (a, b)
}

/// Columns 16 g.. of packed elements, in the order of an accumulator's registers.
#[inline(always)]
pub(crate) fn packed_values<T: Pack16, const N: usize>(packed: &<Width<N> as Wgmma>::Packed, g: usize) -> [f32; 8]
where
    Width<N>: Wgmma,
{
    let at = |i: usize| T::unpack(Width::<N>::packed_at(packed, 4 * g + i));
    let ([a, b], [c, d], [e, f], [g, h]) = (at(0), at(1), at(2), at(3));
    [a, b, c, d, e, f, g, h]
}

/// `f` of eight pairs.
#[inline(always)]
pub(crate) fn zip_8(v: [f32; 8], w: [f32; 8], f: impl Fn(f32, f32) -> f32) -> [f32; 8] {
    [
        f(v[0], w[0]),
        f(v[1], w[1]),
        f(v[2], w[2]),
        f(v[3], w[3]),
        f(v[4], w[4]),
        f(v[5], w[5]),
        f(v[6], w[6]),
        f(v[7], w[7]),
    ]
}

/// `f(element, element of the packed ones in the same place)` of 64 rows.
#[inline(always)]
pub(crate) fn zip_packed<T: Pack16, const N: usize>(
    regs: <Width<N> as Wgmma>::Regs,
    packed: &<Width<N> as Wgmma>::Packed,
    f: impl Fn(f32, f32) -> f32,
) -> <Width<N> as Wgmma>::Regs
where
    Width<N>: Wgmma,
{
    Width::<N>::quads(
        regs,
        #[inline(always)]
        |g, v| {
            let [a, b] = T::unpack(Width::<N>::packed_at(packed, 2 * g));
            let [c, d] = T::unpack(Width::<N>::packed_at(packed, 2 * g + 1));
            [f(v[0], a), f(v[1], b), f(v[2], c), f(v[3], d)]
        },
    )
}
