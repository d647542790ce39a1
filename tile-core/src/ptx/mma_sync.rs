//! Warp-level products (PTX ISA, "Warp Level Matrix Instructions"): what one warp multiplies of a block's product.
//!
//! `ldmatrix` and the product of bf16 are intrinsics, which LLVM knows to be convergent. The intrinsic of the f16 product
//! takes vectors of two halves, which rustc passes to no function of any ABI on this target, so that one is `asm!`: it
//! stands in straight-line code of a loop that is uniform over the block, and the PTX lint counts it.

use core::arch::asm;

use super::math::fma;
use super::smem::Smem;
use super::sync::tid;
use crate::layout::{ldmatrix_a, ldmatrix_b, mma_d, operand_offset};

#[repr(C)]
struct Four<V>(V, V, V, V);

#[allow(improper_ctypes)]
unsafe extern "unadjusted" {
    #[link_name = "llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.b16.p0"]
    fn ldmatrix_x4(from: *const u8) -> Four<u32>;
    #[link_name = "llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.trans.b16.p0"]
    fn ldmatrix_x4_trans(from: *const u8) -> Four<u32>;
    #[link_name = "llvm.nvvm.mma.m16n8k16.row.col.bf16"]
    fn mma_m16n8k16_bf16(
        a0: u32,
        a1: u32,
        a2: u32,
        a3: u32,
        b0: u32,
        b1: u32,
        c0: f32,
        c1: f32,
        c2: f32,
        c3: f32,
    ) -> Four<f32>;
}

/// Four 8 x 8 matrices of 2-byte elements. Each address is made generic by itself: ptxas then folds the constant part
/// into the instruction.
///
/// # Safety
/// By the whole warp; `from` is 16-byte aligned, its 16 bytes are written by nobody meanwhile.
#[inline(always)]
pub(crate) unsafe fn ldmatrix(from: Smem) -> [u32; 4] {
    // SAFETY: the caller's.
    let r = unsafe { ldmatrix_x4(from.generic()) };
    [r.0, r.1, r.2, r.3]
}

/// As [`ldmatrix`], each matrix transposed.
///
/// # Safety
/// As for [`ldmatrix`].
#[inline(always)]
pub(super) unsafe fn ldmatrix_transposed(from: Smem) -> [u32; 4] {
    // SAFETY: the caller's.
    let r = unsafe { ldmatrix_x4_trans(from.generic()) };
    [r.0, r.1, r.2, r.3]
}

/// `d += a b` of 16 x 8 x 16, b's registers `H` and `H + 1`.
///
/// # Safety
/// By the whole warp.
#[inline(always)]
pub(super) unsafe fn mma_bf16<const H: usize>(d: &mut [f32; 4], a: &[u32; 4], b: &[u32; 4]) {
    // SAFETY: the caller's.
    let r = unsafe { mma_m16n8k16_bf16(a[0], a[1], a[2], a[3], b[H], b[H + 1], d[0], d[1], d[2], d[3]) };
    *d = [r.0, r.1, r.2, r.3];
}

/// As [`mma_bf16`].
///
/// # Safety
/// By the whole warp.
#[inline(always)]
pub(super) unsafe fn mma_f16<const H: usize>(d: &mut [f32; 4], a: &[u32; 4], b: &[u32; 4]) {
    // SAFETY: the caller's.
    unsafe {
        asm!("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {{{0}, {1}, {2}, {3}}}, {{{4}, {5}, {6}, {7}}}, {{{8}, {9}}}, {{{0}, {1}, {2}, {3}}};",
            inout(reg32) d[0], inout(reg32) d[1], inout(reg32) d[2], inout(reg32) d[3],
            in(reg32) a[0], in(reg32) a[1], in(reg32) a[2], in(reg32) a[3], in(reg32) b[H], in(reg32) b[H + 1],
            options(nomem, nostack))
    }
}

/// # Safety
/// 16-byte aligned, written by nobody meanwhile.
#[inline(always)]
unsafe fn load_f32x4(from: Smem) -> [f32; 4] {
    let (a, b, c, d): (f32, f32, f32, f32);
    // SAFETY: the caller's.
    unsafe {
        asm!("ld.shared.v4.f32 {{{0}, {1}, {2}, {3}}}, [{4}];", out(reg32) a, out(reg32) b, out(reg32) c, out(reg32) d, in(reg32) from.0, options(nostack))
    }
    [a, b, c, d]
}

/// A block's product, as a type: `M` x `N` by `THREADS` threads.
pub struct Split<const M: usize, const N: usize, const THREADS: usize>;

/// A shape that block-level products have: how warps share it. A warp's part is a rectangle of 16 x 8 products.
///
/// # Safety
/// Implemented here alone: the warps' parts cover `M` x `N` once.
#[diagnostic::on_unimplemented(
    message = "block-level products have no such shape",
    label = "`{Self}`",
    note = "M, N and threads can be (128, 256, 256), (128, 128, 128), (128, 128, 256) or (64, 64, 128)"
)]
pub unsafe trait BlockProduct {
    /// A warp's accumulators, by 16 x 8 product.
    #[doc(hidden)]
    type Regs;
    /// A warp's operands for 16 of depth, in 2-byte elements.
    #[doc(hidden)]
    type Fragments;
    #[doc(hidden)]
    fn zero() -> Self::Regs;
    /// `f(row, column, value)` of every element of the thread.
    #[doc(hidden)]
    fn map(d: Self::Regs, f: impl Fn(u32, u32, f32) -> f32) -> Self::Regs;
    /// `f(row, column, values)` for each row of each four products side by side: where they begin, and the thread's two
    /// values in each.
    #[doc(hidden)]
    fn fours(d: &Self::Regs, f: impl FnMut(u32, u32, [[f32; 2]; 4]));
    /// Byte offsets, in the operand tiles of rows of `row_bytes`, at which the thread points `ldmatrix`.
    #[doc(hidden)]
    fn lanes(row_bytes: usize) -> (usize, usize);
    /// # Safety
    /// By the whole warp; the tiles are full; addresses as by `lanes`.
    #[doc(hidden)]
    unsafe fn load<const ROW: usize>(a: Smem, b: Smem) -> Self::Fragments;
    /// # Safety
    /// By the whole warp.
    #[doc(hidden)]
    unsafe fn multiply_bf16(d: &mut Self::Regs, x: &Self::Fragments);
    /// # Safety
    /// By the whole warp.
    #[doc(hidden)]
    unsafe fn multiply_f16(d: &mut Self::Regs, x: &Self::Fragments);
    /// Multiplies chunk `chunk` (4 of depth) of tiles of `f32`.
    /// # Safety
    /// The tiles are full.
    #[doc(hidden)]
    unsafe fn multiply_f32<const ROW: usize>(d: &mut Self::Regs, a: Smem, b: Smem, chunk: usize);
}

// Straight-line code for a row of products: nothing is left to the unroller, and accumulators stay in registers.
macro_rules! row {
    (zero $zero:ident [$($n:tt)*]) => {
        [$({ let _ = $n; [$zero; 4] }),*]
    };
    (map $at:ident $d:ident $m:tt [$($n:tt)*]) => {
        [$({
            let d = $d[$m][$n];
            [$at($m, $n, 0, d[0]), $at($m, $n, 1, d[1]), $at($m, $n, 2, d[2]), $at($m, $n, 3, d[3])]
        }),*]
    };
    (fours $f:ident $d:ident $corner:ident $m:tt [$($four:tt)*]) => {
        $({
            let d = &$d[$m];
            let (n, row, column) = ($four * 4, $corner.0 + $m * 16, $corner.1 + $four * 32);
            $f(row, column, [[d[n][0], d[n][1]], [d[n + 1][0], d[n + 1][1]], [d[n + 2][0], d[n + 2][1]], [d[n + 3][0], d[n + 3][1]]]);
            $f(row + 8, column, [[d[n][2], d[n][3]], [d[n + 1][2], d[n + 1][3]], [d[n + 2][2], d[n + 2][3]], [d[n + 3][2], d[n + 3][3]]]);
        })*
    };
    (mma $mma:ident $d:ident $x:ident $m:tt [$($pair:tt)*]) => {
        $(
            $mma::<0>(&mut $d[$m][$pair * 2], &$x.0[$m], &$x.1[$pair]);
            $mma::<2>(&mut $d[$m][$pair * 2 + 1], &$x.0[$m], &$x.1[$pair]);
        )*
    };
    (fma $d:ident $a:ident $b0:ident $b1:ident $n:tt [$($m:tt)*]) => {
        $({
            let d = &mut $d[$m][$n];
            let a: &[[f32; 4]; 2] = &$a[$m];
            $crate::backend::mma_sync::row!(dot d a $b0 $b1 0);
            $crate::backend::mma_sync::row!(dot d a $b0 $b1 1);
            $crate::backend::mma_sync::row!(dot d a $b0 $b1 2);
            $crate::backend::mma_sync::row!(dot d a $b0 $b1 3);
        })*
    };
    (dot $d:ident $a:ident $b0:ident $b1:ident $k:tt) => {
        *$d = [
            fma($a[0][$k], $b0[$k], $d[0]),
            fma($a[0][$k], $b1[$k], $d[1]),
            fma($a[1][$k], $b0[$k], $d[2]),
            fma($a[1][$k], $b1[$k], $d[3]),
        ];
    };
}
use row;

macro_rules! split {
    ($mm:literal, $nn:literal, $threads:literal, $across:literal, [$($m:tt)*], $n:tt, $pair:tt, $four:tt) => {
        split!(@ $mm, $nn, $threads, $across, [$($m)*] [$($m)*], $n $n, $pair $pair, $four);
    };
    (@ $mm:literal, $nn:literal, $threads:literal, $across:literal, [$($m:tt)*] $ms:tt, $ns:tt [$($n:tt)*], $pairs:tt [$($pair:tt)*], $four:tt) => {
        // SAFETY: THREADS / 32 warps, `across` from left to right, of 16 x 8 products.
        unsafe impl BlockProduct for Split<$mm, $nn, $threads> {
            type Regs = [[[f32; 4]; { [$($n),*].len() }]; { [$($m),*].len() }];
            type Fragments = ([[u32; 4]; { [$($m),*].len() }], [[u32; 4]; { [$($pair),*].len() }]);
            #[inline(always)]
            fn zero() -> Self::Regs {
                // An array of a constant becomes a memset of local memory; of a value that LLVM can not see through, not.
                let zero: f32;
                // SAFETY: arithmetic on a register.
                unsafe { asm!("mov.b32 {0}, 0;", out(reg32) zero, options(pure, nomem, nostack)) }
                [$({ let _ = $m; row!(zero zero $ns) }),*]
            }
            #[inline(always)]
            fn map(d: Self::Regs, f: impl Fn(u32, u32, f32) -> f32) -> Self::Regs {
                let corner = corner::<$mm, $nn, $threads, $across>();
                let at = |m: u32, n: u32, i: u32, x: f32| {
                    let (r, c) = mma_d(tid() % 32, i);
                    f(corner.0 + m * 16 + r, corner.1 + n * 8 + c, x)
                };
                [$(row!(map at d $m $ns)),*]
            }
            #[inline(always)]
            fn fours(d: &Self::Regs, mut f: impl FnMut(u32, u32, [[f32; 2]; 4])) {
                let corner = corner::<$mm, $nn, $threads, $across>();
                $(row!(fours f d corner $m $four);)*
            }
            #[inline(always)]
            fn lanes(row_bytes: usize) -> (usize, usize) {
                let corner = corner::<$mm, $nn, $threads, $across>();
                let (a, b) = (ldmatrix_a(tid() % 32), ldmatrix_b(tid() % 32));
                (
                    operand_offset(row_bytes, (corner.0 + a.0) as usize, a.1 as usize * 16),
                    operand_offset(row_bytes, (corner.1 + b.0) as usize, b.1 as usize * 16),
                )
            }
            #[inline(always)]
            unsafe fn load<const ROW: usize>(a: Smem, b: Smem) -> Self::Fragments {
                // SAFETY: the caller's; 16 rows further the swizzle is the same.
                unsafe { ([$(ldmatrix(a.add($m * 16 * ROW))),*], [$(ldmatrix(b.add($pair * 16 * ROW))),*]) }
            }
            #[inline(always)]
            unsafe fn multiply_bf16(d: &mut Self::Regs, x: &Self::Fragments) {
                // SAFETY: the caller's.
                unsafe { $(row!(mma mma_bf16 d x $m $pairs);)* }
            }
            #[inline(always)]
            unsafe fn multiply_f16(d: &mut Self::Regs, x: &Self::Fragments) {
                // SAFETY: the caller's.
                unsafe { $(row!(mma mma_f16 d x $m $pairs);)* }
            }
            #[inline(always)]
            unsafe fn multiply_f32<const ROW: usize>(d: &mut Self::Regs, a: Smem, b: Smem, chunk: usize) {
                let corner = corner::<$mm, $nn, $threads, $across>();
                let (r, c) = mma_d(tid() % 32, 0);
                // 8 rows further the swizzle is the same, too.
                let a = a.add(operand_offset(ROW, (corner.0 + r) as usize, chunk * 16));
                let b0 = b.add(operand_offset(ROW, (corner.1 + c) as usize, chunk * 16));
                let b1 = b.add(operand_offset(ROW, (corner.1 + c) as usize + 1, chunk * 16));
                // SAFETY: the caller's.
                unsafe {
                    let a = [$([load_f32x4(a.add($m * 16 * ROW)), load_f32x4(a.add(($m * 16 + 8) * ROW))]),*];
                    $(
                        let (x, y) = (load_f32x4(b0.add($n * 8 * ROW)), load_f32x4(b1.add($n * 8 * ROW)));
                        row!(fma d a x y $n $ms);
                    )*
                }
            }
        }
    };
}
crate::splits::splits!(split);

/// Row and column at which the warp's part begins.
#[inline(always)]
fn corner<const M: usize, const N: usize, const THREADS: usize, const ACROSS: usize>() -> (u32, u32) {
    let (down, across) = const { ((THREADS / 32 / ACROSS) as u32, ACROSS as u32) };
    let warp = tid() / 32;
    (warp / across * (M as u32 / down), warp % across * (N as u32 / across))
}
