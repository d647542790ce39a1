//! Elementary functions on `f32`, by the hardware's approximations.

use core::arch::asm;

macro_rules! unary {
    ($(#[$doc:meta])* $name:ident, $asm:literal) => {
        $(#[$doc])*
        #[inline(always)]
        pub fn $name(x: f32) -> f32 {
            let y: f32;
            // SAFETY: arithmetic on registers.
            unsafe { asm!(concat!($asm, " {0}, {1};"), out(reg32) y, in(reg32) x, options(pure, nomem, nostack)) }
            y
        }
    };
}
unary!(
    /// `2^x`; results below the normal range are zero.
    exp2, "ex2.approx.ftz.f32");
unary!(
    /// `log2(x)`.
    log2, "lg2.approx.ftz.f32");
unary!(
    /// `1 / sqrt(x)`; subnormal `x` are not flushed.
    rsqrt, "rsqrt.approx.f32");
unary!(
    /// `sqrt(x)`, correctly rounded.
    sqrt, "sqrt.rn.f32");
unary!(
    /// `tanh(x)`, to about 2^-11.
    tanh, "tanh.approx.f32");
unary!(
    /// `1 / x`, to 1 ulp.
    reciprocal, "rcp.approx.f32");

/// The greater; NaN if one is.
#[inline(always)]
pub(crate) fn max_nan(x: f32, y: f32) -> f32 {
    let r: f32;
    // SAFETY: arithmetic on registers.
    unsafe { asm!("max.NaN.f32 {0}, {1}, {2};", out(reg32) r, in(reg32) x, in(reg32) y, options(pure, nomem, nostack)) }
    r
}

/// The less; NaN if one is.
#[inline(always)]
pub(crate) fn min_nan(x: f32, y: f32) -> f32 {
    let r: f32;
    // SAFETY: arithmetic on registers.
    unsafe { asm!("min.NaN.f32 {0}, {1}, {2};", out(reg32) r, in(reg32) x, in(reg32) y, options(pure, nomem, nostack)) }
    r
}
