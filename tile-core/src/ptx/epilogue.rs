//! What accumulators meet before they are stored: elements of global memory, one for each of theirs.

use core::arch::asm;

use super::element::Pack16;
use super::smem::here;
use super::sync::tid;
use super::wgmma::{Wgmma, Width};
use crate::element::{Element, bf16, f16};
use crate::epilogue::Source;
use crate::layout::accumulator_at;

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
/// Of the column groups of 8 only those are read whose number is `rank` modulo `SPLIT`; the others count as zero.
///
/// # Safety
/// By the whole warpgroup; what is inside the source can be read.
#[inline(always)]
pub(crate) unsafe fn zip<U: AccElement, const N: usize, const SPLIT: usize>(
    s: &Source<U>,
    first: u32,
    rank: u32,
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
        let mine = SPLIT == 1 || g as u32 % SPLIT as u32 == rank;
        let (left, right) = (mine && col < s.cols, mine && col + 1 < s.cols);
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
    if N < 32 {
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
