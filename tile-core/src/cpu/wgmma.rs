//! Warpgroup products on the CPU. A product is computed when the device's would have retired: as late as the rules
//! allow, so that a slot released too early is seen.

use std::vec;
use std::vec::Vec;

use super::AccElement;
use crate::element::{Element, bf16, e4m3, f16};
use crate::layout::tile_offset;
use crate::mma::Packed;
use crate::shared::{Major, Right, Rows};
use crate::tma::SPAN;

/// A width as a type, so that traits can be implemented for the widths that exist.
pub struct Width<const N: usize>;

/// 16-bit floating-point elements.
pub trait Pack16: AccElement {}
impl Pack16 for f16 {}
impl Pack16 for bf16 {}

/// Element types that tensor cores multiply, from shared memory.
pub trait SharedFactor: Element<Value = f32> {
    /// Whether both ways to lie in a tile are possible.
    #[doc(hidden)]
    const TRANSPOSES: bool = true;
}
impl SharedFactor for f16 {}
impl SharedFactor for bf16 {}
impl SharedFactor for e4m3 {
    const TRANSPOSES: bool = false;
}

/// Element types that tensor cores multiply, from shared memory and from registers: those of 16 bits.
pub trait MmaElement: SharedFactor + Pack16 {}
impl MmaElement for f16 {}
impl MmaElement for bf16 {}

/// A width that warpgroup products have.
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
    type Regs: AsRef<[f32]> + AsMut<[f32]>;
    /// Rounded already, so exact as `f32`. On the heap, where it stays when its owner moves.
    #[doc(hidden)]
    type Packed: AsRef<[f32]>;
    #[doc(hidden)]
    fn packed(values: Vec<f32>) -> Self::Packed;
    #[doc(hidden)]
    fn pack<T: Pack16>(d: &Self::Regs) -> Self::Packed {
        Self::packed(d.as_ref().iter().map(|x| T::from_value(*x).to_value()).collect())
    }
    /// `f(value, rows[row])` of every element.
    #[doc(hidden)]
    fn map_rows(d: Self::Regs, rows: RowValues, f: impl Fn(f32, f32) -> f32) -> Self::Regs {
        Self::map(d, |row, _, x| f(x, rows[row as usize]))
    }
    #[doc(hidden)]
    fn zero() -> Self::Regs;
    #[doc(hidden)]
    fn map(d: Self::Regs, f: impl Fn(u32, u32, f32) -> f32) -> Self::Regs;
    /// `d + p * rows[row]` of every element.
    #[doc(hidden)]
    fn add_scaled(mut d: Self::Regs, p: &Self::Regs, rows: RowValues) -> Self::Regs {
        let p = p.as_ref();
        let columns = p.len() / rows.len();
        for (i, x) in d.as_mut().iter_mut().enumerate() {
            *x = super::fma(p[i], rows[i / columns], *x);
        }
        d
    }
}
macro_rules! wgmma {
    ($n:literal, $($rest:tt)*) => {
        // SAFETY: the width is in the table.
        unsafe impl Wgmma for Width<$n> {
            type Regs = Vec<f32>;
            type Packed = Vec<f32>;
            fn packed(values: Vec<f32>) -> Vec<f32> {
                values
            }
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

/// The values of a warpgroup's 64 rows.
pub(crate) type RowValues = [f32; 64];

pub(crate) fn zip_rows(a: RowValues, b: RowValues, f: impl Fn(f32, f32) -> f32) -> RowValues {
    core::array::from_fn(|i| f(a[i], b[i]))
}

/// Every element times its row's value.
pub(crate) fn scale_rows<const N: usize>(regs: <Width<N> as Wgmma>::Regs, by: RowValues) -> <Width<N> as Wgmma>::Regs
where
    Width<N>: Wgmma,
{
    Width::<N>::map_rows(regs, by, |x, s| x * s)
}

/// Folds every row.
pub(crate) fn fold_acc_rows<const N: usize>(regs: &<Width<N> as Wgmma>::Regs, f: impl Fn(f32, f32) -> f32) -> RowValues
where
    Width<N>: Wgmma,
{
    let regs = regs.as_ref();
    core::array::from_fn(|r| regs[r * N + 1..(r + 1) * N].iter().fold(regs[r * N], |a, b| f(a, *b)))
}

/// `H` values of `make`.
pub(crate) fn stack<R, const H: usize>(make: impl Fn() -> R) -> [R; H] {
    core::array::from_fn(|_| make())
}

/// `f(h, regs[h])`.
pub(crate) fn map_stack<R, const H: usize>(regs: [R; H], f: impl Fn(u32, R) -> R) -> [R; H] {
    let mut h = 0;
    regs.map(|r| {
        h += 1;
        f(h - 1, r)
    })
}

/// A product that was started and not yet computed.
pub(crate) struct Pending(Option<Operands>);

struct Operands {
    a: Left,
    b: *const u8,
    b_slab: usize,
    transposed: bool,
    n: usize,
    k: usize,
    compute: unsafe fn(&Operands, usize, &mut [f32]),
}

enum Left {
    Shared { base: *const u8, slab: usize },
    Packed(*const f32),
}

impl Pending {
    pub(crate) fn none() -> Self {
        Pending(None)
    }
    fn compute<R: AsMut<[f32]>>(&mut self, regs: &mut [R]) {
        if let Some(operands) = self.0.take() {
            for (h, regs) in regs.iter_mut().enumerate() {
                // SAFETY: the slots are still held: the group owns them until after this call.
                unsafe { (operands.compute)(&operands, h, regs.as_mut()) }
            }
        }
    }
}

/// Puts off `regs += A B`, and computes what was put off before.
///
/// # Safety
/// The operands stay full until the next call, or `settle`.
pub(crate) unsafe fn issue<T: SharedFactor, const N: usize, const K: usize, const H: usize, M: Major>(
    regs: &mut [<Width<N> as Wgmma>::Regs; H],
    pending: &mut Pending,
    a: &Rows<'_, T, K, H>,
    b: &Right<'_, T, N, K, M>,
) where
    Width<N>: Wgmma,
{
    pending.compute(regs);
    let a = Left::Shared { base: a.base.ptr, slab: a.slab };
    pending.0 = Some(operands(a, b));
}

/// As [`issue`], the left operand in registers.
///
/// # Safety
/// As for [`issue`].
pub(crate) unsafe fn issue_packed<T: MmaElement, const N: usize, const K: usize, M: Major>(
    regs: &mut <Width<N> as Wgmma>::Regs,
    pending: &mut Pending,
    a: &Packed<T, K>,
    b: &Right<'_, T, N, K, M>,
) where
    Width<N>: Wgmma,
    Width<K>: Wgmma,
{
    pending.compute(core::slice::from_mut(regs));
    pending.0 = Some(operands(Left::Packed(a.regs.as_ref().as_ptr()), b));
}

fn operands<T: SharedFactor, const N: usize, const K: usize, M: Major>(a: Left, b: &Right<'_, T, N, K, M>) -> Operands {
    const { assert!(T::TRANSPOSES || !M::TRANSPOSED, "factors of 8 bits lie along the depth") };
    Operands { a, b: b.base.ptr, b_slab: b.slab, transposed: M::TRANSPOSED, n: N, k: K, compute: product::<T> }
}

/// Computes what was put off.
pub(crate) fn settle<const N: usize, const H: usize>(regs: &mut [<Width<N> as Wgmma>::Regs; H], pending: &mut Pending)
where
    Width<N>: Wgmma,
{
    pending.compute(regs);
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
unsafe fn product<T: SharedFactor>(o: &Operands, h: usize, regs: &mut [f32]) {
    let (mut left, mut b) = (Vec::new(), Vec::with_capacity(o.n * o.k));
    // SAFETY: 64 rows of A; n rows of B and k columns, or, transposed, k rows and n columns.
    unsafe {
        let a = match o.a {
            Left::Shared { base, slab } => {
                unpack::<T>(base.add(h * 64 * SPAN), slab, 64, o.k, &mut left);
                &left[..]
            }
            Left::Packed(values) => core::slice::from_raw_parts(values, 64 * o.k),
        };
        if o.transposed {
            unpack::<T>(o.b, o.b_slab, o.k, o.n, &mut b);
            let by_columns: Vec<f32> = (0..o.n * o.k).map(|i| b[i % o.k * o.n + i / o.k]).collect();
            accumulate(regs, a, &by_columns, 64, o.n, o.k);
        } else {
            unpack::<T>(o.b, o.b_slab, o.n, o.k, &mut b);
            accumulate(regs, a, &b, 64, o.n, o.k);
        }
    }
}

/// `c += A B^T` on plain row-major `f32`: m x n, m x k, n x k.
pub(crate) fn accumulate(c: &mut [f32], a: &[f32], b: &[f32], m: usize, n: usize, k: usize) {
    accumulate_strided(c, a, b, [m, n, k], k)
}

/// The same, with `stride` elements from row to row of `a` and `b`.
pub(crate) fn accumulate_strided(c: &mut [f32], a: &[f32], b: &[f32], [m, n, k]: [usize; 3], stride: usize) {
    assert!(k <= stride && c.len() >= m * n && a.len() >= m * stride && b.len() >= n * stride);
    let (n_, k_) = (n as isize, stride as isize);
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
