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

/// `1 / (1 + e^-x)`, to a few ulp; below 2^-126 it is zero. Two of the unit for special functions and two instructions more.
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    let y: f32;
    // SAFETY: arithmetic on registers. The constant is -log2(e).
    unsafe {
        asm!(
            "{{ .reg .f32 t; mul.ftz.f32 t, {1}, 0fBFB8AA3B; ex2.approx.ftz.f32 t, t; add.ftz.f32 t, t, 0f3F800000; \
            rcp.approx.ftz.f32 {0}, t; }}",
            out(reg32) y, in(reg32) x, options(pure, nomem, nostack)
        )
    }
    y
}

/// `e^x`, to about 1 ulp: `2^n 2^f` with `n` an integer, where `x log2(e) = n + f` is computed to twice the precision. The
/// scheme and its constants are those of CUDA's `expf`, so that results are the same bits.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    let y: f32;
    // SAFETY: arithmetic on registers.
    unsafe {
        asm!(
            "{{ .reg .f32 s, t, n, r, p; .reg .b32 i; \
            fma.rn.sat.f32 s, {1}, 0f3BBB989D, 0f3F000000; fma.rm.f32 t, s, 0f437C0000, 0f4B400001; \
            add.f32 n, t, 0fCB40007F; neg.f32 n, n; fma.rn.f32 r, {1}, 0f3FB8AA3B, n; fma.rn.f32 r, {1}, 0f32A57060, r; \
            mov.b32 i, t; shl.b32 i, i, 23; mov.b32 p, i; ex2.approx.ftz.f32 r, r; mul.f32 {0}, r, p; }}",
            out(reg32) y, in(reg32) x, options(pure, nomem, nostack)
        )
    }
    y
}

/// `a b + c`, rounded once. Two operations written apart are never joined.
#[inline(always)]
pub fn fma(a: f32, b: f32, c: f32) -> f32 {
    let r: f32;
    // SAFETY: arithmetic on registers.
    unsafe {
        asm!("fma.rn.f32 {0}, {1}, {2}, {3};", out(reg32) r, in(reg32) a, in(reg32) b, in(reg32) c,
            options(pure, nomem, nostack))
    }
    r
}

/// `1 / y` to little more than half an ulp, where both are normal numbers; of zero an infinity, of an infinity zero.
#[inline(always)]
pub fn inverse(y: f32) -> f32 {
    let r: f32;
    // SAFETY: arithmetic on registers.
    unsafe {
        asm!(
            "{{ .reg .f32 n, e; .reg .pred p; neg.f32 n, {1}; rcp.approx.ftz.f32 {0}, {1}; \
            fma.rn.f32 e, n, {0}, 0f3F800000; setp.num.f32 p, e, e; @p fma.rn.f32 {0}, {0}, e, {0}; }}",
            out(reg32) r, in(reg32) y, options(pure, nomem, nostack)
        )
    }
    r
}

/// `x / y` with the [`inverse`] of `y`, to half an ulp and what 2^-20 ulps are, as long as the inverse and the quotient are
/// normal numbers, or the quotient is an infinity, zero or NaN whatever the rounding: the steps of an exact division
/// (Markstein, "Computation of elementary functions on the IBM RISC System/6000 processor") without those for other cases,
/// which would be a branch.
#[inline(always)]
pub fn quotient(x: f32, y: f32, inverse: f32) -> f32 {
    let q: f32;
    // SAFETY: arithmetic on registers.
    unsafe {
        asm!(
            "{{ .reg .f32 n, e, q; .reg .pred p; neg.f32 n, {2}; mul.f32 q, {1}, {3}; fma.rn.f32 e, n, q, {1}; \
            setp.ne.f32 p, e, 0f00000000; @p fma.rn.f32 q, e, {3}, q; mov.f32 {0}, q; }}",
            out(reg32) q, in(reg32) x, in(reg32) y, in(reg32) inverse, options(pure, nomem, nostack)
        )
    }
    q
}

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
