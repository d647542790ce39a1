//! Warpgroup products (PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions").
//!
//! Fence, commit and wait are intrinsics; `wgmma.mma_async` has none, and its `asm!` stands right behind the fence, in
//! the same basic block. Element access is generated straight-line by the width table: nothing is left to the unroller,
//! and the accumulators stay in registers without a compiler flag.

use crate::element::{Element, bf16, e4m3, f16};
use crate::layout::accumulator_at;
use crate::shared::Major;

use super::sync::tid;

/// A matrix descriptor, of which only the lower word differs from one place in a tile to the next: addresses lie in
/// its lowest 14 bits, in units of 16 bytes, and shared memory has no more than they can say.
#[derive(Clone, Copy)]
pub struct Descriptor {
    low: u32,
    high: u32,
}

impl Descriptor {
    #[inline(always)]
    pub(crate) fn new(bits: u64) -> Self {
        Descriptor { low: bits as u32, high: (bits >> 32) as u32 }
    }
    /// The same, `bytes` further.
    #[inline(always)]
    pub(crate) fn further(self, bytes: usize) -> Self {
        Descriptor { low: self.low + (bytes / 16) as u32, ..self }
    }
    /// As the instruction takes it, `units` of 16 bytes further.
    #[inline(always)]
    fn at(self, units: u32) -> u64 {
        (self.low + units) as u64 | (self.high as u64) << 32
    }
}

/// A width as a type, so that traits can be implemented for the widths that exist.
pub struct Width<const N: usize>;

/// Element types that tensor cores multiply, from shared memory.
pub trait SharedFactor: Element {
    /// # Safety
    /// As for [`issue`].
    #[doc(hidden)]
    unsafe fn issue<W: Wgmma, M: Major>(d: &mut W::Regs, a: Descriptor, b: Descriptor);
}

/// Element types that tensor cores multiply, from shared memory and from registers: those of 16 bits.
pub trait MmaElement: SharedFactor + super::element::Pack16 {
    /// # Safety
    /// As for [`issue_packed`].
    #[doc(hidden)]
    unsafe fn issue_packed<W: Wgmma, M: Major>(d: &mut W::Regs, a: [u32; 16], b: Descriptor);
}
macro_rules! element {
    ($t:ty, $issue:ident $issue_t:ident $packed:ident $packed_t:ident) => {
        impl SharedFactor for $t {
            #[inline(always)]
            unsafe fn issue<W: Wgmma, M: Major>(d: &mut W::Regs, a: Descriptor, b: Descriptor) {
                // SAFETY: the caller's.
                unsafe { if M::TRANSPOSED { W::$issue_t(d, a, b) } else { W::$issue(d, a, b) } }
            }
        }
        impl MmaElement for $t {
            #[inline(always)]
            unsafe fn issue_packed<W: Wgmma, M: Major>(d: &mut W::Regs, a: [u32; 16], b: Descriptor) {
                // SAFETY: the caller's.
                unsafe { if M::TRANSPOSED { W::$packed_t(d, a, b) } else { W::$packed(d, a, b) } }
            }
        }
    };
}
element!(bf16, issue_bf16 issue_bf16_t packed_bf16 packed_bf16_t);
element!(f16, issue_f16 issue_f16_t packed_f16 packed_f16_t);

impl SharedFactor for e4m3 {
    #[inline(always)]
    unsafe fn issue<W: Wgmma, M: Major>(d: &mut W::Regs, a: Descriptor, b: Descriptor) {
        const { assert!(!M::TRANSPOSED, "factors of 8 bits lie along the depth") };
        // SAFETY: the caller's.
        unsafe { W::issue_e4m3(d, a, b) }
    }
}

/// A width that warpgroup products have in this image.
///
/// # Safety
/// Implemented here alone.
#[diagnostic::on_unimplemented(
    message = "warpgroup products have no such width in this image",
    label = "`{Self}`",
    note = "8, 16, 32, 64, 128 and 256 exist, in sm_90a images and on the CPU"
)]
pub unsafe trait Wgmma {
    #[doc(hidden)]
    type Regs: Copy;
    /// As the left operand of a further product: two elements a register.
    #[doc(hidden)]
    type Packed: Copy;
    #[doc(hidden)]
    fn zero() -> Self::Regs;
    /// `f(row, column, value)` of every element.
    #[doc(hidden)]
    fn map(d: Self::Regs, f: impl Fn(u32, u32, f32) -> f32) -> Self::Regs;
    /// `f(value, rows[row])` of every element; a thread has two rows.
    #[doc(hidden)]
    fn map_rows(d: Self::Regs, rows: [f32; 2], f: impl Fn(f32, f32) -> f32) -> Self::Regs;
    /// `f(i, d[2i], d[2i+1])`.
    #[doc(hidden)]
    fn pairs(d: &Self::Regs, f: impl FnMut(usize, f32, f32));
    /// `f(g, d[8g..8g+8])`: 16 columns.
    #[doc(hidden)]
    fn groups(d: &Self::Regs, f: impl FnMut(usize, [f32; 8]));
    /// `f(g, d[4g..4g+4])`, which replaces them: 8 columns.
    #[doc(hidden)]
    fn quads(d: Self::Regs, f: impl FnMut(usize, [f32; 4]) -> [f32; 4]) -> Self::Regs;
    /// `f(g, d[16g..16g+16])`, which replaces them: 32 columns. Only for multiples of 32.
    #[doc(hidden)]
    fn chunks(d: Self::Regs, f: impl FnMut(usize, [f32; 16]) -> [f32; 16]) -> Self::Regs;
    #[doc(hidden)]
    fn pack<T: super::element::Pack16>(d: &Self::Regs) -> Self::Packed;
    /// `f(i)` for every register.
    #[doc(hidden)]
    fn packed_from(f: impl Fn(usize) -> u32) -> Self::Packed;
    /// `f(g, p[4g..4g+4])`: 16 columns.
    #[doc(hidden)]
    fn packed_groups(p: &Self::Packed, f: impl FnMut(usize, [u32; 4]));
    /// `p[i]`.
    #[doc(hidden)]
    fn packed_at(p: &Self::Packed, i: usize) -> u32;
    /// `p[16s..16s+16]`: 64 columns.
    #[doc(hidden)]
    fn packed_slab(p: &Self::Packed, s: usize) -> [u32; 16];
    #[doc(hidden)]
    unsafe fn issue_bf16(d: &mut Self::Regs, a: Descriptor, b: Descriptor);
    #[doc(hidden)]
    unsafe fn issue_f16(d: &mut Self::Regs, a: Descriptor, b: Descriptor);
    #[doc(hidden)]
    unsafe fn issue_e4m3(d: &mut Self::Regs, a: Descriptor, b: Descriptor);
    /// `d + p * rows[row]` of every element; a thread has two rows.
    #[doc(hidden)]
    fn add_scaled(d: Self::Regs, p: &Self::Regs, rows: [f32; 2]) -> Self::Regs;
    #[doc(hidden)]
    unsafe fn issue_bf16_t(d: &mut Self::Regs, a: Descriptor, b: Descriptor);
    #[doc(hidden)]
    unsafe fn issue_f16_t(d: &mut Self::Regs, a: Descriptor, b: Descriptor);
    #[doc(hidden)]
    unsafe fn packed_bf16(d: &mut Self::Regs, a: [u32; 16], b: Descriptor);
    #[doc(hidden)]
    unsafe fn packed_f16(d: &mut Self::Regs, a: [u32; 16], b: Descriptor);
    #[doc(hidden)]
    unsafe fn packed_bf16_t(d: &mut Self::Regs, a: [u32; 16], b: Descriptor);
    #[doc(hidden)]
    unsafe fn packed_f16_t(d: &mut Self::Regs, a: [u32; 16], b: Descriptor);
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

/// Four steps of 16 in depth. `$major` says how B lies, `$step` how far its steps are apart in units of 16 bytes.
#[cfg(target_feature = "sm_90a")]
macro_rules! issue {
    ($name:ident, $types:literal, $major:literal, $step:literal, $n:literal, $r:literal, $i0:literal; $($i:literal)*) => {
        #[inline(always)]
        unsafe fn $name(d: &mut [f32; $r], a: Descriptor, b: Descriptor) {
            // SAFETY: descriptors of full slots, behind a fence; the group owns the accumulators until it is waited for.
            unsafe { core::arch::asm!(
                concat!("wgmma.mma_async.sync.aligned.m64n", $n, "k16.f32.", $types, " {{{", $i0, "}", $(", {", $i, "}",)* "}}, {a0}, {b0}, 1, 1, 1, 0, ", $major, ";"),
                concat!("wgmma.mma_async.sync.aligned.m64n", $n, "k16.f32.", $types, " {{{", $i0, "}", $(", {", $i, "}",)* "}}, {a1}, {b1}, 1, 1, 1, 0, ", $major, ";"),
                concat!("wgmma.mma_async.sync.aligned.m64n", $n, "k16.f32.", $types, " {{{", $i0, "}", $(", {", $i, "}",)* "}}, {a2}, {b2}, 1, 1, 1, 0, ", $major, ";"),
                concat!("wgmma.mma_async.sync.aligned.m64n", $n, "k16.f32.", $types, " {{{", $i0, "}", $(", {", $i, "}",)* "}}, {a3}, {b3}, 1, 1, 1, 0, ", $major, ";"),
                inout(reg32) d[$i0], $(inout(reg32) d[$i],)*
                a0 = in(reg64) a.at(0), a1 = in(reg64) a.at(2), a2 = in(reg64) a.at(4), a3 = in(reg64) a.at(6),
                b0 = in(reg64) b.at(0), b1 = in(reg64) b.at($step), b2 = in(reg64) b.at(2 * $step), b3 = in(reg64) b.at(3 * $step),
                options(nostack)) }
        }
    };
}

/// Four steps of 32 in depth, of elements of 8 bits: they take as many bytes.
#[cfg(target_feature = "sm_90a")]
macro_rules! issue_8 {
    ($name:ident, $types:literal, $n:literal, $r:literal, $i0:literal; $($i:literal)*) => {
        #[inline(always)]
        unsafe fn $name(d: &mut [f32; $r], a: Descriptor, b: Descriptor) {
            // SAFETY: as above.
            unsafe { core::arch::asm!(
                concat!("wgmma.mma_async.sync.aligned.m64n", $n, "k32.f32.", $types, " {{{", $i0, "}", $(", {", $i, "}",)* "}}, {a0}, {b0}, 1, 1, 1;"),
                concat!("wgmma.mma_async.sync.aligned.m64n", $n, "k32.f32.", $types, " {{{", $i0, "}", $(", {", $i, "}",)* "}}, {a1}, {b1}, 1, 1, 1;"),
                concat!("wgmma.mma_async.sync.aligned.m64n", $n, "k32.f32.", $types, " {{{", $i0, "}", $(", {", $i, "}",)* "}}, {a2}, {b2}, 1, 1, 1;"),
                concat!("wgmma.mma_async.sync.aligned.m64n", $n, "k32.f32.", $types, " {{{", $i0, "}", $(", {", $i, "}",)* "}}, {a3}, {b3}, 1, 1, 1;"),
                inout(reg32) d[$i0], $(inout(reg32) d[$i],)*
                a0 = in(reg64) a.at(0), a1 = in(reg64) a.at(2), a2 = in(reg64) a.at(4), a3 = in(reg64) a.at(6),
                b0 = in(reg64) b.at(0), b1 = in(reg64) b.at(2), b2 = in(reg64) b.at(4), b3 = in(reg64) b.at(6),
                options(nostack)) }
        }
    };
}

/// The same with A in registers.
#[cfg(target_feature = "sm_90a")]
macro_rules! issue_packed {
    ($name:ident, $types:literal, $major:literal, $step:literal, $n:literal, $r:literal, $i0:literal; $($i:literal)*) => {
        #[inline(always)]
        unsafe fn $name(d: &mut [f32; $r], a: [u32; 16], b: Descriptor) {
            // SAFETY: as above; the group owns the registers of A, too.
            unsafe { core::arch::asm!(
                concat!("wgmma.mma_async.sync.aligned.m64n", $n, "k16.f32.", $types, " {{{", $i0, "}", $(", {", $i, "}",)* "}}, {{{a0}, {a1}, {a2}, {a3}}}, {b0}, 1, 1, 1, ", $major, ";"),
                concat!("wgmma.mma_async.sync.aligned.m64n", $n, "k16.f32.", $types, " {{{", $i0, "}", $(", {", $i, "}",)* "}}, {{{a4}, {a5}, {a6}, {a7}}}, {b1}, 1, 1, 1, ", $major, ";"),
                concat!("wgmma.mma_async.sync.aligned.m64n", $n, "k16.f32.", $types, " {{{", $i0, "}", $(", {", $i, "}",)* "}}, {{{a8}, {a9}, {a10}, {a11}}}, {b2}, 1, 1, 1, ", $major, ";"),
                concat!("wgmma.mma_async.sync.aligned.m64n", $n, "k16.f32.", $types, " {{{", $i0, "}", $(", {", $i, "}",)* "}}, {{{a12}, {a13}, {a14}, {a15}}}, {b3}, 1, 1, 1, ", $major, ";"),
                inout(reg32) d[$i0], $(inout(reg32) d[$i],)*
                a0 = in(reg32) a[0], a1 = in(reg32) a[1], a2 = in(reg32) a[2], a3 = in(reg32) a[3],
                a4 = in(reg32) a[4], a5 = in(reg32) a[5], a6 = in(reg32) a[6], a7 = in(reg32) a[7],
                a8 = in(reg32) a[8], a9 = in(reg32) a[9], a10 = in(reg32) a[10], a11 = in(reg32) a[11],
                a12 = in(reg32) a[12], a13 = in(reg32) a[13], a14 = in(reg32) a[14], a15 = in(reg32) a[15],
                b0 = in(reg64) b.at(0), b1 = in(reg64) b.at($step), b2 = in(reg64) b.at(2 * $step), b3 = in(reg64) b.at(3 * $step),
                options(nostack)) }
        }
    };
}

#[cfg(target_feature = "sm_90a")]
macro_rules! wgmma {
    ($n:literal, $r:literal, $i0:literal; $($i:literal)*; $($p:literal)*) => {
        // SAFETY: m64nNk16 with N/2 accumulators a thread.
        unsafe impl Wgmma for Width<$n> {
            type Regs = [f32; $r];
            type Packed = [u32; $r / 2];
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
            fn map_rows(d: [f32; $r], rows: [f32; 2], f: impl Fn(f32, f32) -> f32) -> [f32; $r] {
                [f(d[$i0], rows[0]), $(f(d[$i], rows[$i / 2 % 2])),*]
            }
            #[inline(always)]
            fn pairs(d: &[f32; $r], mut f: impl FnMut(usize, f32, f32)) {
                f(0, d[0], d[1]);
                $(if $i % 2 == 0 { f($i / 2, d[$i], d[$i | 1]) })*
            }
            #[inline(always)]
            fn groups(d: &[f32; $r], mut f: impl FnMut(usize, [f32; 8])) {
                // A width of 8 has no group; the remainder keeps the indices inside.
                f(0, [d[0], d[1], d[2], d[3], d[4 % $r], d[5 % $r], d[6 % $r], d[7 % $r]]);
                $(if $i % 8 == 0 {
                    f($i / 8, [d[$i], d[$i | 1], d[$i | 2], d[$i | 3], d[$i | 4], d[$i | 5], d[$i | 6], d[$i | 7]])
                })*
            }
            #[inline(always)]
            fn quads(mut d: [f32; $r], mut f: impl FnMut(usize, [f32; 4]) -> [f32; 4]) -> [f32; $r] {
                [d[0], d[1], d[2], d[3]] = f(0, [d[0], d[1], d[2], d[3]]);
                $(if $i % 4 == 0 {
                    let v = f($i / 4, [d[$i], d[$i | 1], d[$i | 2], d[$i | 3]]);
                    (d[$i], d[$i | 1], d[$i | 2], d[$i | 3]) = (v[0], v[1], v[2], v[3]);
                })*
                d
            }
            #[inline(always)]
            fn chunks(mut d: [f32; $r], mut f: impl FnMut(usize, [f32; 16]) -> [f32; 16]) -> [f32; $r] {
                macro_rules! chunk {
                    ($at:expr) => {{
                        // narrower widths have no such chunk; the remainder keeps the indices inside
                        let v = f($at / 16, [
                            d[$at], d[($at + 1) % $r], d[($at + 2) % $r], d[($at + 3) % $r], d[($at + 4) % $r],
                            d[($at + 5) % $r], d[($at + 6) % $r], d[($at + 7) % $r], d[($at + 8) % $r],
                            d[($at + 9) % $r], d[($at + 10) % $r], d[($at + 11) % $r], d[($at + 12) % $r],
                            d[($at + 13) % $r], d[($at + 14) % $r], d[($at + 15) % $r],
                        ]);
                        d[$at] = v[0];
                        d[($at + 1) % $r] = v[1];
                        d[($at + 2) % $r] = v[2];
                        d[($at + 3) % $r] = v[3];
                        d[($at + 4) % $r] = v[4];
                        d[($at + 5) % $r] = v[5];
                        d[($at + 6) % $r] = v[6];
                        d[($at + 7) % $r] = v[7];
                        d[($at + 8) % $r] = v[8];
                        d[($at + 9) % $r] = v[9];
                        d[($at + 10) % $r] = v[10];
                        d[($at + 11) % $r] = v[11];
                        d[($at + 12) % $r] = v[12];
                        d[($at + 13) % $r] = v[13];
                        d[($at + 14) % $r] = v[14];
                        d[($at + 15) % $r] = v[15];
                    }};
                }
                chunk!(0usize);
                $(if $i % 16 == 0 { chunk!($i as usize) })*
                d
            }
            #[inline(always)]
            fn pack<T: super::element::Pack16>(d: &[f32; $r]) -> [u32; $r / 2] {
                [$(T::pack(d[2 * $p], d[2 * $p + 1])),*]
            }
            #[inline(always)]
            fn packed_from(f: impl Fn(usize) -> u32) -> [u32; $r / 2] {
                [$(f($p)),*]
            }
            #[inline(always)]
            fn packed_groups(p: &[u32; $r / 2], mut f: impl FnMut(usize, [u32; 4])) {
                $(if $p % 4 == 0 { f($p / 4, [p[$p], p[$p | 1], p[($p | 2) % ($r / 2)], p[($p | 3) % ($r / 2)]]) })*
            }
            #[inline(always)]
            fn packed_at(p: &[u32; $r / 2], i: usize) -> u32 {
                p[i % ($r / 2)]
            }
            #[inline(always)]
            fn packed_slab(p: &[u32; $r / 2], s: usize) -> [u32; 16] {
                let p = &p[16 * s..16 * s + 16];
                [
                    p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7],
                    p[8], p[9], p[10], p[11], p[12], p[13], p[14], p[15],
                ]
            }
            issue!(issue_bf16, "bf16.bf16", "0", 2, $n, $r, $i0; $($i)*);
            issue!(issue_f16, "f16.f16", "0", 2, $n, $r, $i0; $($i)*);
            issue_8!(issue_e4m3, "e4m3.e4m3", $n, $r, $i0; $($i)*);
            #[inline(always)]
            fn add_scaled(d: [f32; $r], p: &[f32; $r], rows: [f32; 2]) -> [f32; $r] {
                use super::math::fma;
                [fma(p[$i0], rows[0], d[$i0]), $(fma(p[$i], rows[$i / 2 % 2], d[$i])),*]
            }
            issue!(issue_bf16_t, "bf16.bf16", "1", 128, $n, $r, $i0; $($i)*);
            issue!(issue_f16_t, "f16.f16", "1", 128, $n, $r, $i0; $($i)*);
            issue_packed!(packed_bf16, "bf16.bf16", "0", 2, $n, $r, $i0; $($i)*);
            issue_packed!(packed_f16, "f16.f16", "0", 2, $n, $r, $i0; $($i)*);
            issue_packed!(packed_bf16_t, "bf16.bf16", "1", 128, $n, $r, $i0; $($i)*);
            issue_packed!(packed_f16_t, "f16.f16", "1", 128, $n, $r, $i0; $($i)*);
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
