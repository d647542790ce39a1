//! Accesses of register tiles to global memory: predicated in the assembler text, piece by piece, and element by element at
//! the edges.

// labels are local to the braces around each text
#![allow(named_asm_labels)]

use core::arch::asm;

use super::element::{Pack16, bf16, f16, pack_e4m3};
use super::sync::{other_unknown_zero, unknown_zero};
use crate::element::{DType, Element, Value, e4m3};

/// An access happens if `row < rows` and `at < limit`. Compared where it happens, in the assembler text: as values that
/// the compiler knows, dozens of such predicates would be kept in registers from one tile to the next.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    pub(super) row: u32,
    pub(super) rows: u32,
    pub(super) at: u32,
    pub(super) limit: u32,
}

/// Element `k` of a piece is accessed by itself if the piece is not accessed as a whole, and `at + k < cols`.
#[derive(Clone, Copy)]
pub(super) struct Edge {
    pub(super) piece: Limits,
    pub(super) cols: u32,
}

/// Sets predicate `p` of an access: see [`Limits`].
macro_rules! if_inside {
    ($text:literal) => {
        concat!("{{ .reg .pred p; setp.lt.u32 p, {row}, {rows}; setp.lt.and.u32 p, {at}, {limit}, p; ", $text, " }}")
    };
}

/// An access to `[{to}]` if `$l` holds.
macro_rules! access {
    ($text:expr, $l:ident, $to:ident, $($operands:tt)*) => {
        asm!($text, row = in(reg32) $l.row, rows = in(reg32) $l.rows, at = in(reg32) $l.at, limit = in(reg32) $l.limit,
            to = in(reg64) $to, $($operands)*)
    };
}

/// Reads `bytes` (4, 8 or 16) if inside, else gives zeros. Predicated, not branched. With `neighbours`, what is not kept in the
/// L1 cache is read into the L2 cache with the 256 bytes around it, which other blocks are about to read.
///
/// # Safety
/// If inside, they are readable and aligned.
#[inline(always)]
pub(super) unsafe fn load_piece<const KEEP: bool>(bytes: usize, neighbours: bool, to: u64, l: Limits) -> [u32; 4] {
    let (mut x, mut y, mut z, mut w) = (0u32, 0u32, 0u32, 0u32);
    macro_rules! ld {
        ($text:literal, $($r:ident)*) => {
            access!(if_inside!($text), l, to, $($r = inout(reg32) $r,)* options(nostack, readonly))
        };
    }
    // SAFETY: the caller's.
    unsafe {
        match (bytes, KEEP) {
            (16, false) if neighbours => {
                ld!("@p ld.global.L1::no_allocate.L2::256B.v4.b32 {{{x}, {y}, {z}, {w}}}, [{to}];", x y z w)
            }
            (16, false) => ld!("@p ld.global.L1::no_allocate.v4.b32 {{{x}, {y}, {z}, {w}}}, [{to}];", x y z w),
            (8, false) => ld!("@p ld.global.L1::no_allocate.v2.b32 {{{x}, {y}}}, [{to}];", x y),
            (_, false) => ld!("@p ld.global.L1::no_allocate.b32 {x}, [{to}];", x),
            (16, true) => ld!("@p ld.global.v4.b32 {{{x}, {y}, {z}, {w}}}, [{to}];", x y z w),
            (8, true) => ld!("@p ld.global.v2.b32 {{{x}, {y}}}, [{to}];", x y),
            (_, true) => ld!("@p ld.global.b32 {x}, [{to}];", x),
        }
    }
    [x, y, z, w]
}

/// Writes the first `bytes` (4, 8 or 16) of `words` if inside. With `STREAM`, they are the first that the L2 cache gives up.
///
/// # Safety
/// If inside, they are the thread's to write, and aligned.
#[inline(always)]
pub(super) unsafe fn store_piece<const STREAM: bool>(bytes: usize, to: u64, words: [u32; 4], l: Limits) {
    let [x, y, z, w] = words;
    macro_rules! st {
        ($text:literal, $($r:ident)*) => { access!(if_inside!($text), l, to, $($r = in(reg32) $r,)* options(nostack)) };
    }
    // SAFETY: the caller's.
    unsafe {
        match (bytes, STREAM) {
            (16, false) => st!("@p st.global.v4.b32 [{to}], {{{x}, {y}, {z}, {w}}};", x y z w),
            (8, false) => st!("@p st.global.v2.b32 [{to}], {{{x}, {y}}};", x y),
            (_, false) => st!("@p st.global.b32 [{to}], {x};", x),
            (16, true) => st!("@p st.global.cs.v4.b32 [{to}], {{{x}, {y}, {z}, {w}}};", x y z w),
            (8, true) => st!("@p st.global.cs.v2.b32 [{to}], {{{x}, {y}}};", x y),
            (_, true) => st!("@p st.global.cs.b32 [{to}], {x};", x),
        }
    }
}

/// Reads one element if inside, else gives zero.
///
/// # Safety
/// If inside, it is readable.
#[inline(always)]
pub(super) unsafe fn load_one<T: Element>(to: u64, l: Limits) -> T::Value {
    let mut x = 0u32;
    macro_rules! ld {
        ($text:literal) => { access!(if_inside!($text), l, to, x = inout(reg32) x, options(nostack, readonly)) };
    }
    // SAFETY: the caller's.
    unsafe {
        match size_of::<T>() {
            4 => ld!("@p ld.global.b32 {x}, [{to}];"),
            2 => ld!("@p ld.global.u16 {x}, [{to}];"),
            _ => ld!("@p ld.global.u8 {x}, [{to}];"),
        }
    }
    widen::<T>(x)
}

/// The text of an [`Edge`] access: `n` elements of the piece, from its first on. `p` and `t` are scratch.
macro_rules! edge {
    ($e:ident, $size:literal, $to:ident, [$($text:expr),*], $($operands:tt)*) => {
        asm!(
            concat!(
                "{{ .reg .pred p, q; .reg .b32 n, t; .reg .b16 h; ",
                "setp.lt.u32 q, {row}, {rows}; setp.ge.and.u32 q, {at}, {limit}, q; ",
                "sub.s32 n, {cols}, {at}; selp.b32 n, n, 0, q; ",
                $($text,)*
                "}}"
            ),
            row = in(reg32) $e.piece.row, rows = in(reg32) $e.piece.rows, at = in(reg32) $e.piece.at,
            limit = in(reg32) $e.piece.limit, cols = in(reg32) $e.cols, to = in(reg64) $to, $($operands)*)
    };
}
/// `$access` on each element of the word `$r`: its size, its number in the piece, its bytes' offset and its shift.
macro_rules! of_word {
    ($access:ident 4 $r:literal 0) => { $access!(4 $r 0 0 0) };
    ($access:ident 4 $r:literal 1) => { $access!(4 $r 1 4 0) };
    ($access:ident 4 $r:literal 2) => { $access!(4 $r 2 8 0) };
    ($access:ident 4 $r:literal 3) => { $access!(4 $r 3 12 0) };
    ($access:ident 2 $r:literal 0) => { concat!($access!(2 $r 0 0 0), $access!(2 $r 1 2 16)) };
    ($access:ident 2 $r:literal 1) => { concat!($access!(2 $r 2 4 0), $access!(2 $r 3 6 16)) };
    ($access:ident 2 $r:literal 2) => { concat!($access!(2 $r 4 8 0), $access!(2 $r 5 10 16)) };
    ($access:ident 2 $r:literal 3) => { concat!($access!(2 $r 6 12 0), $access!(2 $r 7 14 16)) };
    ($access:ident 1 $r:literal 0) => {
        concat!($access!(1 $r 0 0 0), $access!(1 $r 1 1 8), $access!(1 $r 2 2 16), $access!(1 $r 3 3 24))
    };
    ($access:ident 1 $r:literal 1) => {
        concat!($access!(1 $r 4 4 0), $access!(1 $r 5 5 8), $access!(1 $r 6 6 16), $access!(1 $r 7 7 24))
    };
    ($access:ident 1 $r:literal 2) => {
        concat!($access!(1 $r 8 8 0), $access!(1 $r 9 9 8), $access!(1 $r 10 10 16), $access!(1 $r 11 11 24))
    };
    ($access:ident 1 $r:literal 3) => {
        concat!($access!(1 $r 12 12 0), $access!(1 $r 13 13 8), $access!(1 $r 14 14 16), $access!(1 $r 15 15 24))
    };
}
/// Words of a piece that is not whole are zero: what is read is joined to them.
macro_rules! load_text {
    (4 $r:literal $k:literal $offset:literal 0) => {
        concat!("setp.gt.s32 p, n, ", $k, "; @p ld.global.b32 {", $r, "}, [{to}+", $offset, "];")
    };
    (2 $r:literal $k:literal $offset:literal 0) => {
        concat!("setp.gt.s32 p, n, ", $k, "; @p ld.global.u16 {", $r, "}, [{to}+", $offset, "];")
    };
    (1 $r:literal $k:literal $offset:literal 0) => {
        concat!("setp.gt.s32 p, n, ", $k, "; @p ld.global.u8 {", $r, "}, [{to}+", $offset, "];")
    };
    (2 $r:literal $k:literal $offset:literal $shift:literal) => {
        concat!(
            "setp.gt.s32 p, n, ",
            $k,
            "; mov.b32 t, 0; @p ld.global.u16 t, [{to}+",
            $offset,
            "]; shl.b32 t, t, ",
            $shift,
            "; or.b32 {",
            $r,
            "}, {",
            $r,
            "}, t;"
        )
    };
    (1 $r:literal $k:literal $offset:literal $shift:literal) => {
        concat!(
            "setp.gt.s32 p, n, ",
            $k,
            "; mov.b32 t, 0; @p ld.global.u8 t, [{to}+",
            $offset,
            "]; shl.b32 t, t, ",
            $shift,
            "; or.b32 {",
            $r,
            "}, {",
            $r,
            "}, t;"
        )
    };
}
macro_rules! store_text {
    (4 $r:literal $k:literal $offset:literal 0) => {
        concat!("setp.gt.s32 p, n, ", $k, "; @p st.global.b32 [{to}+", $offset, "], {", $r, "};")
    };
    (2 $r:literal $k:literal $offset:literal $shift:literal) => {
        concat!(
            "setp.gt.s32 p, n, ",
            $k,
            "; shr.u32 t, {",
            $r,
            "}, ",
            $shift,
            "; cvt.u16.u32 h, t; @p st.global.u16 [{to}+",
            $offset,
            "], h;"
        )
    };
    (1 $r:literal $k:literal $offset:literal $shift:literal) => {
        concat!(
            "setp.gt.s32 p, n, ",
            $k,
            "; shr.u32 t, {",
            $r,
            "}, ",
            $shift,
            "; @p st.global.u8 [{to}+",
            $offset,
            "], t;"
        )
    };
}

/// Reads the elements of a piece of `bytes` that `e` asks for, if it does; else gives `words` as they are.
///
/// # Safety
/// Those elements are readable.
#[inline(always)]
pub(super) unsafe fn load_edge(size: usize, bytes: usize, to: u64, e: Edge, words: [u32; 4]) -> [u32; 4] {
    let [mut x, mut y, mut z, mut w] = words;
    macro_rules! ld {
        ($size:tt, $($r:ident $name:literal $k:tt),*) => {
            edge!(e, $size, to, [$(of_word!(load_text $size $name $k)),*], $($r = inout(reg32) $r,)* options(nostack, readonly))
        };
    }
    // SAFETY: the caller's.
    unsafe {
        match (size, bytes) {
            (4, 16) => ld!(4, x "x" 0, y "y" 1, z "z" 2, w "w" 3),
            // Most kernels have this one, several times: a loop, which is a fifth of the text. From the last element on,
            // each is shifted in before those that follow it.
            (2, 16) => edge!(e, 2, to, ["\
                setp.le.s32 p, n, 0; @p bra DONE; \
                .reg .b64 a; .reg .s32 k; add.s64 a, {to}, 14; mov.b32 k, 7;\n\
                NEXT: setp.gt.s32 p, n, k; mov.b32 t, 0; @p ld.global.u16 t, [a]; \
                shf.l.wrap.b32 {w}, {z}, {w}, 16; shf.l.wrap.b32 {z}, {y}, {z}, 16; shf.l.wrap.b32 {y}, {x}, {y}, 16; \
                shl.b32 {x}, {x}, 16; or.b32 {x}, {x}, t; \
                add.s64 a, a, -2; add.s32 k, k, -1; setp.ge.s32 p, k, 0; @p bra NEXT;\n\
                DONE: "], x = inout(reg32) x, y = inout(reg32) y, z = inout(reg32) z, w = inout(reg32) w,
                options(nostack, readonly)),
            (2, 8) => ld!(2, x "x" 0, y "y" 1),
            (1, 16) => ld!(1, x "x" 0, y "y" 1, z "z" 2, w "w" 3),
            (1, 8) => ld!(1, x "x" 0, y "y" 1),
            _ => ld!(1, x "x" 0),
        }
    }
    [x, y, z, w]
}

/// Writes the elements of a piece of `bytes` that `e` asks for.
///
/// # Safety
/// Those elements are the thread's to write.
#[inline(always)]
pub(super) unsafe fn store_edge(size: usize, bytes: usize, to: u64, e: Edge, words: [u32; 4]) {
    let [x, y, z, w] = words;
    macro_rules! st {
        ($size:tt, $($r:ident $name:literal $k:tt),*) => {
            edge!(e, $size, to, [$(of_word!(store_text $size $name $k)),*], $($r = in(reg32) $r,)* options(nostack))
        };
    }
    // SAFETY: the caller's.
    unsafe {
        match (size, bytes) {
            (4, 16) => st!(4, x "x" 0, y "y" 1, z "z" 2, w "w" 3),
            (2, 16) => edge!(e, 2, to, ["\
                setp.le.s32 p, n, 0; @p bra DONE; \
                .reg .b64 a; .reg .s32 k; .reg .b32 c, d, f, g; mov.b64 a, {to}; mov.b32 k, 0; \
                mov.b32 c, {x}; mov.b32 d, {y}; mov.b32 f, {z}; mov.b32 g, {w};\n\
                NEXT: cvt.u16.u32 h, c; st.global.u16 [a], h; \
                shf.r.wrap.b32 c, c, d, 16; shf.r.wrap.b32 d, d, f, 16; shf.r.wrap.b32 f, f, g, 16; shr.u32 g, g, 16; \
                add.s64 a, a, 2; add.s32 k, k, 1; setp.lt.s32 p, k, n; setp.lt.and.s32 p, k, 8, p; @p bra NEXT;\n\
                DONE: "], x = in(reg32) x, y = in(reg32) y, z = in(reg32) z, w = in(reg32) w, options(nostack)),
            (2, 8) => st!(2, x "x" 0, y "y" 1),
            (1, 16) => st!(1, x "x" 0, y "y" 1, z "z" 2, w "w" 3),
            (1, 8) => st!(1, x "x" 0, y "y" 1),
            _ => st!(1, x "x" 0),
        }
    }
}

/// Element `k` of a piece.
#[inline(always)]
pub(super) fn value<T: Element>(words: &[u32; 4], k: usize) -> T::Value {
    let per_word = 4 / size_of::<T>();
    widen::<T>(words[k / per_word] >> (k % per_word * size_of::<T>() * 8))
}

/// As [`value`], by other instructions: the assembler, which finds equal computations too, does not see that it is the
/// same, and does not keep the values of the first time where a few instructions make them anew.
#[inline(always)]
pub(super) fn value_anew<T: Element>(words: &[u32; 4], k: usize) -> T::Value {
    let r: u32;
    if T::DTYPE as u8 == DType::F16 as u8 {
        // there is one instruction that widens f16: its operand is what differs
        let word = words[k / 2] ^ unknown_zero();
        return widen::<T>(word >> (k % 2 * 16));
    }
    if T::DTYPE as u8 != DType::BF16 as u8 {
        return value::<T>(words, k);
    }
    // SAFETY: arithmetic on registers: two bytes become the upper half.
    unsafe {
        if k % 2 == 0 {
            asm!("prmt.b32 {0}, {1}, 0, 0x1044;", out(reg32) r, in(reg32) words[k / 2], options(pure, nomem, nostack))
        } else {
            asm!("prmt.b32 {0}, {1}, 0, 0x3244;", out(reg32) r, in(reg32) words[k / 2], options(pure, nomem, nostack))
        }
    }
    T::Value::from_bits32(r)
}

/// As [`value_anew`], by yet other instructions, for a use between the first and the last.
#[inline(always)]
pub(super) fn value_between<T: Element>(words: &[u32; 4], k: usize) -> T::Value {
    if size_of::<T>() == 4 {
        return value::<T>(words, k);
    }
    let per_word = 4 / size_of::<T>();
    let word = words[k / per_word] ^ other_unknown_zero();
    widen::<T>(word >> (k % per_word * size_of::<T>() * 8))
}

/// The value of an element whose bits are the low ones of `raw`.
#[inline(always)]
pub(super) fn widen<T: Element>(raw: u32) -> T::Value {
    T::Value::from_bits32(match T::DTYPE {
        // of 64 bits there are no tiles
        DType::F32 | DType::I32 | DType::U32 | DType::I64 => raw,
        DType::F16 => f16::from_bits(raw as u16).to_f32().to_bits(),
        DType::BF16 => bf16::from_bits(raw as u16).to_f32().to_bits(),
        DType::I8 => raw as i8 as u32,
        DType::U8 => raw as u8 as u32,
        DType::E4M3 => e4m3::from_bits(raw as u8).to_f32().to_bits(),
    })
}

/// The element nearest to a value: its bits are the low ones.
#[inline(always)]
pub(super) fn bits<T: Element>(v: T::Value) -> u32 {
    let raw = v.to_bits32();
    match T::DTYPE {
        DType::F32 | DType::I32 | DType::U32 | DType::I64 => raw,
        DType::F16 => f16::from_f32(f32::from_bits(raw)).to_bits() as u32,
        DType::BF16 => bf16::from_f32(f32::from_bits(raw)).to_bits() as u32,
        DType::E4M3 => e4m3::from_f32(f32::from_bits(raw)).to_bits() as u32,
        DType::I8 | DType::U8 => raw & 0xff,
    }
}

/// The word that begins with element `k`.
#[inline(always)]
pub(super) fn word<T: Element>(v: &impl Fn(usize) -> T::Value, k: usize) -> u32 {
    let float = #[inline(always)]
    |k: usize| f32::from_bits(v(k).to_bits32());
    match T::DTYPE {
        DType::F32 | DType::I32 | DType::U32 | DType::I64 => v(k).to_bits32(),
        DType::F16 => f16::pack(float(k), float(k + 1)),
        DType::BF16 => bf16::pack(float(k), float(k + 1)),
        DType::E4M3 => pack_e4m3(float(k), float(k + 1)) | pack_e4m3(float(k + 2), float(k + 3)) << 16,
        DType::I8 | DType::U8 => {
            bits::<T>(v(k)) | bits::<T>(v(k + 1)) << 8 | bits::<T>(v(k + 2)) << 16 | bits::<T>(v(k + 3)) << 24
        }
    }
}
