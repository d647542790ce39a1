//! Element types: what lies in memory, and what a kernel computes in.
//!
//! Memory holds `f32`, `f16`, `bf16`, `e4m3` or integers, of which `i64` is for indices alone: there are no tiles of it.
//! Arithmetic happens in the element's [`Value`](Element::Value): `f32`
//! for all floating-point elements (one rounding, to nearest even, when a value is stored), `i32` and `u32` for integers.

use crate::backend;
use crate::layout::Chunk;

#[cfg(not(target_arch = "nvptx64"))]
pub use half::{bf16, f16};

#[cfg(target_arch = "nvptx64")]
pub use crate::backend::element::{bf16, f16};

pub use crate::e4m3::e4m3;

/// The element types by name: their numbers are part of a kernel's signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum DType {
    /// IEEE single precision.
    F32 = 1,
    /// IEEE half precision.
    F16 = 2,
    /// bfloat16: the upper half of an `f32`.
    BF16 = 3,
    /// 32-bit signed integer.
    I32 = 4,
    /// 32-bit unsigned integer.
    U32 = 5,
    /// 8-bit signed integer.
    I8 = 6,
    /// 8-bit unsigned integer.
    U8 = 7,
    /// 8-bit floating point, four bits of exponent: [`e4m3`].
    E4M3 = 8,
    /// 64-bit signed integer.
    I64 = 9,
}

impl DType {
    /// Bytes an element takes.
    pub const fn size(self) -> usize {
        match self {
            DType::I64 => 8,
            DType::F32 | DType::I32 | DType::U32 => 4,
            DType::F16 | DType::BF16 => 2,
            DType::I8 | DType::U8 | DType::E4M3 => 1,
        }
    }

    /// The name as Rust spells it.
    pub const fn name(self) -> &'static str {
        match self {
            DType::F32 => "f32",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::I32 => "i32",
            DType::U32 => "u32",
            DType::I8 => "i8",
            DType::U8 => "u8",
            DType::I64 => "i64",
            DType::E4M3 => "e4m3",
        }
    }
}

impl core::fmt::Display for DType {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.name())
    }
}

mod sealed {
    pub trait Sealed {}
}

/// A type that register tiles compute in: `f32`, `i32` or `u32`. Sealed.
pub trait Value:
    Copy + Send + Sync + PartialEq + PartialOrd + Default + core::fmt::Debug + 'static + sealed::Sealed
{
    /// The 32 bits of the value, as they travel between threads.
    #[doc(hidden)]
    fn to_bits32(self) -> u32;
    /// The inverse of `to_bits32`.
    #[doc(hidden)]
    fn from_bits32(bits: u32) -> Self;
    /// Zero.
    #[doc(hidden)]
    const ZERO: Self;
    /// No value is greater than the greatest.
    #[doc(hidden)]
    const GREATEST: Self;
    /// No value is less than the least.
    #[doc(hidden)]
    const LEAST: Self;
    /// Integers wrap.
    #[doc(hidden)]
    fn plus(self, other: Self) -> Self;
    /// NaN if one is.
    #[doc(hidden)]
    fn greater(self, other: Self) -> Self;
    /// NaN if one is.
    #[doc(hidden)]
    fn less(self, other: Self) -> Self;
}

macro_rules! value {
    ($t:ty, $least:expr, $greatest:expr, |$v:ident| $to:expr, |$b:ident| $from:expr,
        |$x:ident, $y:ident| $plus:expr, $greater:expr, $less:expr) => {
        impl sealed::Sealed for $t {}
        impl Value for $t {
            #[inline(always)]
            fn to_bits32(self) -> u32 {
                let $v = self;
                $to
            }
            #[inline(always)]
            fn from_bits32($b: u32) -> Self {
                $from
            }
            const ZERO: Self = 0 as $t;
            const GREATEST: Self = $greatest;
            const LEAST: Self = $least;
            #[inline(always)]
            fn plus(self, $y: Self) -> Self {
                let $x = self;
                $plus
            }
            #[inline(always)]
            fn greater(self, $y: Self) -> Self {
                let $x = self;
                $greater
            }
            #[inline(always)]
            fn less(self, $y: Self) -> Self {
                let $x = self;
                $less
            }
        }
    };
}
value!(
    f32,
    f32::NEG_INFINITY,
    f32::INFINITY,
    |v| v.to_bits(),
    |b| f32::from_bits(b),
    |x, y| x + y,
    backend::max_nan(x, y),
    backend::min_nan(x, y)
);
value!(i32, i32::MIN, i32::MAX, |v| v as u32, |b| b as i32, |x, y| x.wrapping_add(y), Ord::max(x, y), Ord::min(x, y));
value!(u32, 0, u32::MAX, |v| v, |b| b, |x, y| x.wrapping_add(y), Ord::max(x, y), Ord::min(x, y));

/// An element of a tensor: every bit pattern is valid, and host and device agree on it. Sealed.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an element type of tensors",
    note = "f32, f16, bf16, e4m3, i32, u32, i64, i8 and u8 are"
)]
pub trait Element:
    bytemuck::Pod + Send + Sync + PartialEq + Default + core::fmt::Debug + 'static + sealed::Sealed
{
    /// The type by name.
    const DTYPE: DType;
    /// What it is computed in.
    type Value: Value;
    /// As many elements as 16 bytes hold: what a thread reads or writes at once.
    #[doc(hidden)]
    type Chunk: crate::layout::Chunks;
    /// Half as many.
    #[doc(hidden)]
    type HalfChunk: crate::layout::Chunks;
    /// Widens to the type computed in. Exact; an `i64` becomes the nearest `i32`.
    fn to_value(self) -> Self::Value;
    /// Rounds to nearest even, `e4m3` to its greatest number at most; integers keep their low bits.
    fn from_value(v: Self::Value) -> Self;
}

macro_rules! element {
    ($t:ty, $d:ident, $v:ty, |$x:ident| $to:expr, |$y:ident| $from:expr) => {
        impl Element for $t {
            const DTYPE: DType = DType::$d;
            type Value = $v;
            type Chunk = Chunk<{ 16 / size_of::<$t>() }>;
            type HalfChunk = Chunk<{ 8 / size_of::<$t>() }>;
            #[inline(always)]
            fn to_value(self) -> $v {
                let $x = self;
                $to
            }
            #[inline(always)]
            fn from_value($y: $v) -> Self {
                $from
            }
        }
    };
}
impl sealed::Sealed for f16 {}
impl sealed::Sealed for bf16 {}
impl sealed::Sealed for e4m3 {}
impl sealed::Sealed for i8 {}
impl sealed::Sealed for u8 {}
impl sealed::Sealed for i64 {}
element!(f32, F32, f32, |x| x, |v| v);
element!(f16, F16, f32, |x| x.to_f32(), |v| f16::from_f32(v));
element!(bf16, BF16, f32, |x| x.to_f32(), |v| bf16::from_f32(v));
element!(e4m3, E4M3, f32, |x| x.to_f32(), |v| e4m3::from_f32(v));
element!(i32, I32, i32, |x| x, |v| v);
element!(u32, U32, u32, |x| x, |v| v);
// An index: kernels read it one at a time, and what is beyond an `i32` is as far out as an `i32` can be.
element!(i64, I64, i32, |x| x.clamp(i32::MIN as i64, i32::MAX as i64) as i32, |v| v as i64);
element!(i8, I8, i32, |x| x as i32, |v| v as i8);
element!(u8, U8, u32, |x| x as u32, |v| v as u8);
