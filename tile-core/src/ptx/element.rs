//! The 16-bit element types on the device: bits, with the hardware's conversions.

use core::arch::asm;

macro_rules! half {
    ($(#[$doc:meta])* $name:ident, |$bits:ident| $to:expr, $from:literal) => {
        $(#[$doc])*
        #[allow(non_camel_case_types)]
        #[derive(Clone, Copy, Debug, Default)]
        #[repr(transparent)]
        pub struct $name(u16);
        // SAFETY: a transparent u16.
        unsafe impl bytemuck::Zeroable for $name {}
        // SAFETY: as above.
        unsafe impl bytemuck::Pod for $name {}
        impl PartialEq for $name {
            #[inline(always)]
            fn eq(&self, other: &Self) -> bool {
                self.to_f32() == other.to_f32()
            }
        }
        impl $name {
            /// From its bits.
            #[inline(always)]
            pub const fn from_bits(bits: u16) -> Self {
                Self(bits)
            }
            /// Its bits.
            #[inline(always)]
            pub const fn to_bits(self) -> u16 {
                self.0
            }
            /// Exact.
            #[inline(always)]
            pub fn to_f32(self) -> f32 {
                let $bits = self.0;
                $to
            }
            /// To nearest even.
            #[inline(always)]
            pub fn from_f32(v: f32) -> Self {
                let r: u16;
                // SAFETY: arithmetic on registers.
                unsafe { asm!($from, out(reg16) r, in(reg32) v, options(pure, nomem, nostack)) }
                Self(r)
            }
        }
    };
}
half!(
    /// bfloat16: the upper half of an `f32`.
    bf16, |bits| f32::from_bits((bits as u32) << 16), "cvt.rn.bf16.f32 {0}, {1};"
);
half!(
    /// IEEE half precision.
    f16, |bits| {
        let r: f32;
        // SAFETY: arithmetic on registers.
        unsafe { asm!("cvt.f32.f16 {0}, {1};", out(reg32) r, in(reg16) bits, options(pure, nomem, nostack)) }
        r
    }, "cvt.rn.f16.f32 {0}, {1};"
);

/// Two values rounded to `e4m3` and packed into the lower half, `lo` in the lower byte.
#[inline(always)]
pub(super) fn pack_e4m3(lo: f32, hi: f32) -> u32 {
    #[cfg(target_feature = "sm_90a")]
    {
        let r: u32;
        // SAFETY: arithmetic on registers.
        unsafe {
            asm!("{{ .reg .b16 t; cvt.rn.satfinite.e4m3x2.f32 t, {1}, {2}; cvt.u32.u16 {0}, t; }}",
                out(reg32) r, in(reg32) hi, in(reg32) lo, options(pure, nomem, nostack))
        }
        r
    }
    #[cfg(not(target_feature = "sm_90a"))]
    {
        use crate::element::e4m3;
        e4m3::from_f32(lo).to_bits() as u32 | (e4m3::from_f32(hi).to_bits() as u32) << 8
    }
}

/// Two values rounded to nearest even and packed, `lo` in the lower half.
pub trait Pack16: super::epilogue::AccElement {
    /// Packs.
    fn pack(lo: f32, hi: f32) -> u32;
    /// The values of two packed ones.
    fn unpack(pair: u32) -> [f32; 2];
    /// Reads and packs those whose condition holds; the others are zero.
    ///
    /// # Safety
    /// Where the condition holds, the element can be read.
    #[doc(hidden)]
    unsafe fn load_packed(from: [*const Self; 2], inside: [bool; 2]) -> u32;
}
impl Pack16 for bf16 {
    #[inline(always)]
    fn pack(lo: f32, hi: f32) -> u32 {
        let v: u32;
        // SAFETY: arithmetic on registers.
        unsafe {
            asm!("cvt.rn.bf16x2.f32 {0}, {1}, {2};", out(reg32) v, in(reg32) hi, in(reg32) lo, options(pure, nomem, nostack))
        }
        v
    }
    #[inline(always)]
    fn unpack(pair: u32) -> [f32; 2] {
        <Self as super::epilogue::AccElement>::values(pair)
    }
    #[inline(always)]
    unsafe fn load_packed(from: [*const Self; 2], inside: [bool; 2]) -> u32 {
        // SAFETY: the caller's.
        unsafe { <Self as super::epilogue::AccElement>::load_two(from, inside) }
    }
}
impl Pack16 for f16 {
    #[inline(always)]
    fn pack(lo: f32, hi: f32) -> u32 {
        let v: u32;
        // SAFETY: arithmetic on registers.
        unsafe {
            asm!("cvt.rn.f16x2.f32 {0}, {1}, {2};", out(reg32) v, in(reg32) hi, in(reg32) lo, options(pure, nomem, nostack))
        }
        v
    }
    #[inline(always)]
    fn unpack(pair: u32) -> [f32; 2] {
        <Self as super::epilogue::AccElement>::values(pair)
    }
    #[inline(always)]
    unsafe fn load_packed(from: [*const Self; 2], inside: [bool; 2]) -> u32 {
        // SAFETY: the caller's.
        unsafe { <Self as super::epilogue::AccElement>::load_two(from, inside) }
    }
}
