//! Warpgroup products on the CPU. A product is computed when the device's would have retired: as late as the rules
//! allow, so that a slot released too early is seen.

use std::vec;
use std::vec::Vec;

use crate::element::{Element, bf16, f16};
use crate::layout::tile_offset;
use crate::shared::{All, Rows};
use crate::tma::SPAN;

/// A width as a type, so that traits can be implemented for the widths that exist.
pub struct Width<const N: usize>;

/// 16-bit floating-point elements.
pub trait Pack16: Element<Value = f32> {}
impl Pack16 for f16 {}
impl Pack16 for bf16 {}

/// Element types that tensor cores multiply.
pub trait MmaElement: Pack16 {}
impl MmaElement for f16 {}
impl MmaElement for bf16 {}

/// A width that warpgroup products have.
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
    type Regs: AsRef<[f32]> + AsMut<[f32]>;
    #[doc(hidden)]
    fn zero() -> Self::Regs;
    #[doc(hidden)]
    fn map(d: Self::Regs, f: impl Fn(u32, u32, f32) -> f32) -> Self::Regs;
}
macro_rules! wgmma {
    ($n:literal, $($rest:tt)*) => {
        // SAFETY: the width is in the table.
        unsafe impl Wgmma for Width<$n> {
            type Regs = Vec<f32>;
            fn zero() -> Vec<f32> {
                vec![0.0; 64 * $n]
            }
            fn map(mut d: Vec<f32>, f: impl Fn(u32, u32, f32) -> f32) -> Vec<f32> {
                for (i, x) in d.iter_mut().enumerate() {
                    *x = f((i / $n) as u32, (i % $n) as u32, *x);
                }
                d
            }
        }
    };
}
crate::widths::widths!(wgmma);

/// A product that was started and not yet computed.
pub(crate) struct Pending(Option<Operands>);

struct Operands {
    a: *const u8,
    a_slab: usize,
    b: *const u8,
    n: usize,
    k: usize,
    compute: unsafe fn(&Operands, &mut [f32]),
}

impl Pending {
    pub(crate) fn none() -> Self {
        Pending(None)
    }
    fn compute(&mut self, regs: &mut [f32]) {
        if let Some(operands) = self.0.take() {
            // SAFETY: the slots are still held: the group owns them until after this call.
            unsafe { (operands.compute)(&operands, regs) }
        }
    }
}

/// Puts off `regs += A B^T`, and computes what was put off before.
///
/// # Safety
/// The operands stay full until the next call, or `settle`.
pub(crate) unsafe fn issue<T: MmaElement, const N: usize, const C: usize>(
    regs: &mut <Width<N> as Wgmma>::Regs,
    pending: &mut Pending,
    a: &Rows<'_, T, C>,
    b: &All<'_, T, N, C>,
) where
    Width<N>: Wgmma,
{
    pending.compute(regs.as_mut());
    pending.0 = Some(Operands { a: a.base.ptr, a_slab: a.slab, b: b.base.ptr, n: N, k: C, compute: product::<T> });
}

/// Computes what was put off.
pub(crate) fn settle<const N: usize>(regs: &mut <Width<N> as Wgmma>::Regs, pending: &mut Pending)
where
    Width<N>: Wgmma,
{
    pending.compute(regs.as_mut());
}

/// Nothing runs by itself.
pub(crate) fn wait<const N: u64>() {}

/// Reads a swizzled operand of `rows` x `k` into `f32`, row by row. `tall` rows lie in the tile, `base` may point at its
/// row 64, 128, ...: multiples of 8 rows, where the swizzle begins anew.
unsafe fn unpack<T: Element<Value = f32>>(base: *const u8, slab: usize, rows: usize, k: usize, out: &mut Vec<f32>) {
    let in_chunk = 16 / size_of::<T>();
    out.clear();
    for r in 0..rows {
        for chunk in 0..k / in_chunk {
            let byte = chunk * 16;
            let at = byte / SPAN * slab + tile_offset(rows, r, byte % SPAN);
            // SAFETY: the caller's: the tile has these rows and columns.
            let from = unsafe { base.add(at) } as *const T;
            for e in 0..in_chunk {
                // SAFETY: as above.
                out.push(unsafe { from.add(e).read() }.to_value());
            }
        }
    }
}

/// # Safety
/// The operands' slots are full.
unsafe fn product<T: MmaElement>(o: &Operands, regs: &mut [f32]) {
    let (mut a, mut b) = (Vec::with_capacity(64 * o.k), Vec::with_capacity(o.n * o.k));
    // SAFETY: 64 rows of A, n rows of B, k columns each.
    unsafe {
        unpack::<T>(o.a, o.a_slab, 64, o.k, &mut a);
        unpack::<T>(o.b, o.n * SPAN, o.n, o.k, &mut b);
    }
    accumulate(regs, &a, &b, 64, o.n, o.k);
}

/// `c += A B^T` on plain row-major `f32`: m x n, m x k, n x k.
pub(crate) fn accumulate(c: &mut [f32], a: &[f32], b: &[f32], m: usize, n: usize, k: usize) {
    debug_assert!(c.len() >= m * n && a.len() >= m * k && b.len() >= n * k);
    let (n_, k_) = (n as isize, k as isize);
    // SAFETY: the slices hold the matrices that the strides describe.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            c.as_mut_ptr(),
            1,
            n_,
            true,
            a.as_ptr(),
            1,
            k_,
            b.as_ptr(),
            k_,
            1,
            1.0f32,
            1.0f32,
            false,
            false,
            false,
            gemm::Parallelism::None,
        )
    }
}
