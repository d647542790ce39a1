//! Warpgroup products (PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions").
//!
//! Fence, commit and wait are intrinsics; `wgmma.mma_async` has none, and its `asm!` stands right behind the fence, in
//! the same basic block. Element access is generated straight-line by the width table: nothing is left to the unroller,
//! and the accumulators stay in registers without a compiler flag.

use crate::element::{Element, bf16, f16};
use crate::layout::accumulator_at;

use super::sync::tid;

/// A width as a type, so that traits can be implemented for the widths that exist.
pub struct Width<const N: usize>;

/// Element types that tensor cores multiply.
pub trait MmaElement: Element + super::element::Pack16 {
    /// # Safety
    /// As for [`issue`].
    #[doc(hidden)]
    unsafe fn issue<W: Wgmma>(d: &mut W::Regs, a: u64, b: u64);
}
impl MmaElement for bf16 {
    #[inline(always)]
    unsafe fn issue<W: Wgmma>(d: &mut W::Regs, a: u64, b: u64) {
        // SAFETY: the caller's.
        unsafe { W::issue_bf16(d, a, b) }
    }
}
impl MmaElement for f16 {
    #[inline(always)]
    unsafe fn issue<W: Wgmma>(d: &mut W::Regs, a: u64, b: u64) {
        // SAFETY: the caller's.
        unsafe { W::issue_f16(d, a, b) }
    }
}

/// A width that warpgroup products have in this image.
///
/// # Safety
/// Implemented here alone.
#[diagnostic::on_unimplemented(
    message = "warpgroup products have no such width in this image",
    label = "`{Self}`",
    note = "64, 128 and 256 exist, in sm_90a images and on the CPU"
)]
pub unsafe trait Wgmma {
    #[doc(hidden)]
    type Regs;
    #[doc(hidden)]
    fn zero() -> Self::Regs;
    /// `f(row, column, value)` of every element.
    #[doc(hidden)]
    fn map(d: Self::Regs, f: impl Fn(u32, u32, f32) -> f32) -> Self::Regs;
    /// `f(i, d[2i], d[2i+1])`.
    #[doc(hidden)]
    fn pairs(d: &Self::Regs, f: impl FnMut(usize, f32, f32));
    /// `f(g, d[8g..8g+8])`: 16 columns.
    #[doc(hidden)]
    fn groups(d: &Self::Regs, f: impl FnMut(usize, [f32; 8]));
    #[doc(hidden)]
    unsafe fn issue_bf16(d: &mut Self::Regs, a: u64, b: u64);
    #[doc(hidden)]
    unsafe fn issue_f16(d: &mut Self::Regs, a: u64, b: u64);
    #[doc(hidden)]
    fn tie(d: &mut Self::Regs);
}

#[cfg(target_feature = "sm_90a")]
#[allow(improper_ctypes)]
unsafe extern "unadjusted" {
    #[link_name = "llvm.nvvm.wgmma.fence.sync.aligned"]
    fn wgmma_fence();
    #[link_name = "llvm.nvvm.wgmma.commit_group.sync.aligned"]
    fn wgmma_commit();
    #[link_name = "llvm.nvvm.wgmma.wait_group.sync.aligned"]
    fn wgmma_wait(pending: u64);
}

/// Ends the group of the products issued since the last.
#[inline(always)]
pub(crate) fn commit() {
    #[cfg(target_feature = "sm_90a")]
    // SAFETY: by the whole warpgroup.
    unsafe {
        wgmma_commit()
    }
}

/// Waits until at most `N` of this warpgroup's groups are in flight.
#[inline(always)]
pub(crate) fn wait<const N: u64>() {
    #[cfg(target_feature = "sm_90a")]
    // SAFETY: by the whole warpgroup.
    unsafe {
        wgmma_wait(N)
    }
}

/// Keeps uses of accumulators behind the wait before it.
#[inline(always)]
pub(crate) fn tie_after_wait<W: Wgmma>(d: &mut W::Regs) {
    W::tie(d)
}

/// Orders what the warpgroup did with registers before the products that follow.
#[inline(always)]
pub(crate) fn fence() {
    #[cfg(target_feature = "sm_90a")]
    // SAFETY: by the whole warpgroup.
    unsafe {
        wgmma_fence()
    }
}

#[cfg(target_feature = "sm_90a")]
macro_rules! issue {
    ($name:ident, $types:literal, $n:literal, $r:literal, $i0:tt; $($i:tt)*) => {
        #[inline(always)]
        unsafe fn $name(d: &mut [f32; $r], a: u64, b: u64) {
            // SAFETY: descriptors of full slots, behind a fence; the group owns the accumulators until it is waited for.
            unsafe { core::arch::asm!(
                concat!("wgmma.mma_async.sync.aligned.m64n", $n, "k16.f32.", $types, " {{{", $i0, "}", $(", {", $i, "}",)* "}}, {a0}, {b0}, 1, 1, 1, 0, 0;"),
                concat!("wgmma.mma_async.sync.aligned.m64n", $n, "k16.f32.", $types, " {{{", $i0, "}", $(", {", $i, "}",)* "}}, {a1}, {b1}, 1, 1, 1, 0, 0;"),
                concat!("wgmma.mma_async.sync.aligned.m64n", $n, "k16.f32.", $types, " {{{", $i0, "}", $(", {", $i, "}",)* "}}, {a2}, {b2}, 1, 1, 1, 0, 0;"),
                concat!("wgmma.mma_async.sync.aligned.m64n", $n, "k16.f32.", $types, " {{{", $i0, "}", $(", {", $i, "}",)* "}}, {a3}, {b3}, 1, 1, 1, 0, 0;"),
                inout(reg32) d[$i0], $(inout(reg32) d[$i],)*
                a0 = in(reg64) a, a1 = in(reg64) a + 2, a2 = in(reg64) a + 4, a3 = in(reg64) a + 6,
                b0 = in(reg64) b, b1 = in(reg64) b + 2, b2 = in(reg64) b + 4, b3 = in(reg64) b + 6,
                options(nostack)) }
        }
    };
}

#[cfg(target_feature = "sm_90a")]
macro_rules! wgmma {
    ($n:literal, $r:literal, $i0:tt; $($i:tt)*) => {
        // SAFETY: m64nNk16 with N/2 accumulators a thread.
        unsafe impl Wgmma for Width<$n> {
            type Regs = [f32; $r];
            #[inline(always)]
            fn zero() -> [f32; $r] {
                // An array of a constant becomes a memset of local memory; of a value that LLVM can not see through, not.
                let zero: f32;
                // SAFETY: arithmetic on a register.
                unsafe { core::arch::asm!("mov.b32 {0}, 0;", out(reg32) zero, options(pure, nomem, nostack)) }
                [{ let _ = $i0; zero }, $({ let _ = $i; zero }),*]
            }
            #[inline(always)]
            fn map(d: [f32; $r], f: impl Fn(u32, u32, f32) -> f32) -> [f32; $r] {
                let t = tid() % 128;
                let at = |i: u32, x: f32| {
                    let (row, column) = accumulator_at(t, i);
                    f(row, column, x)
                };
                [at($i0, d[$i0]), $(at($i, d[$i])),*]
            }
            #[inline(always)]
            fn pairs(d: &[f32; $r], mut f: impl FnMut(usize, f32, f32)) {
                f(0, d[0], d[1]);
                $(if $i % 2 == 0 { f($i / 2, d[$i], d[$i | 1]) })*
            }
            #[inline(always)]
            fn groups(d: &[f32; $r], mut f: impl FnMut(usize, [f32; 8])) {
                f(0, [d[0], d[1], d[2], d[3], d[4], d[5], d[6], d[7]]);
                $(if $i % 8 == 0 {
                    f($i / 8, [d[$i], d[$i | 1], d[$i | 2], d[$i | 3], d[$i | 4], d[$i | 5], d[$i | 6], d[$i | 7]])
                })*
            }
            issue!(issue_bf16, "bf16.bf16", $n, $r, $i0; $($i)*);
            issue!(issue_f16, "f16.f16", $n, $r, $i0; $($i)*);
            #[inline(always)]
            fn tie(d: &mut [f32; $r]) {
                // The compiler does not know that products were writing these: no use of them moves above this line.
                // SAFETY: no instruction.
                unsafe { core::arch::asm!(concat!("/*{", $i0, "}", $("{", $i, "}",)* "*/"),
                    inout(reg32) d[$i0], $(inout(reg32) d[$i],)* options(nostack)) }
            }
        }
    };
}
// In other images the trait has no implementation: generic kernels still compile, instances are refused by type.
#[cfg(target_feature = "sm_90a")]
crate::widths::widths!(wgmma);
