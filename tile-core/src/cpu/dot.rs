//! Block-level products on the CPU: the device's ring of swizzled tiles, in the device's order of fills and reads.

use core::cell::RefCell;
use std::vec;
use std::vec::Vec;

use super::{Smem, accumulate_strided};
use crate::element::{Element, bf16, f16};
use crate::layout::operand_offset;
use crate::view::{Strip, TileRef, Window};

/// Element types that block-level products read and write: `f32`, `f16`, `bf16`.
pub trait DotElement: Element<Value = f32> {}
impl DotElement for f32 {}
impl DotElement for f16 {}
impl DotElement for bf16 {}

/// A block's product, as a type: `M` x `N` by `THREADS` threads.
pub struct Split<const M: usize, const N: usize, const THREADS: usize>;

/// A shape that block-level products have.
///
/// # Safety
/// Implemented here alone.
#[diagnostic::on_unimplemented(
    message = "block-level products have no such shape",
    label = "`{Self}`",
    note = "M, N and threads can be (128, 256, 256), (128, 128, 128), (128, 128, 256) or (64, 64, 128)"
)]
pub unsafe trait BlockProduct {
    #[doc(hidden)]
    type Regs: AsRef<[f32]> + AsMut<[f32]>;
    #[doc(hidden)]
    fn zero() -> Self::Regs;
    #[doc(hidden)]
    fn map(d: Self::Regs, f: impl Fn(u32, u32, f32) -> f32) -> Self::Regs;
}

macro_rules! split {
    ($m:literal, $n:literal, $threads:literal, $($rest:tt)*) => {
        // SAFETY: the shape is in the table.
        unsafe impl BlockProduct for Split<$m, $n, $threads> {
            type Regs = Vec<f32>;
            fn zero() -> Vec<f32> {
                vec![0.0; $m * $n]
            }
            fn map(mut d: Vec<f32>, f: impl Fn(u32, u32, f32) -> f32) -> Vec<f32> {
                for (r, row) in d.chunks_exact_mut($n).enumerate() {
                    for (c, x) in row.iter_mut().enumerate() {
                        *x = f(r as u32, c as u32, *x);
                    }
                }
                d
            }
        }
    };
}
crate::splits::splits!(split);

/// Copies a tile of `rows` rows of `ROW` bytes, zeros for what lies outside the window.
///
/// # Safety
/// The tile at `to` is the caller's to write.
unsafe fn fill<T: Element, const ROW: usize>(to: Smem, rows: usize, w: &Window<T>) {
    let in_chunk = const { 16 / size_of::<T>() };
    for r in 0..rows {
        let cols = if r < w.rows as usize { w.cols as usize } else { 0 };
        let row = w.ptr.wrapping_add(r * w.stride as usize) as *const T;
        // Whole rows, nearly all of them, take a loop of fixed length.
        if cols * size_of::<T>() >= ROW {
            for chunk in 0..const { ROW / 16 } {
                // SAFETY: the row lies in the view; the chunk lies in the tile.
                unsafe {
                    let to = to.ptr.add(operand_offset(ROW, r, chunk * 16));
                    core::ptr::copy_nonoverlapping(row.add(chunk * in_chunk) as *const u8, to, 16);
                }
            }
            continue;
        }
        for chunk in 0..const { ROW / 16 } {
            // SAFETY: `inside` elements lie in the view; the chunk lies in the tile.
            unsafe {
                let to = to.ptr.add(operand_offset(ROW, r, chunk * 16));
                let inside = cols.saturating_sub(chunk * in_chunk).min(in_chunk);
                let from = row.wrapping_add(chunk * in_chunk) as *const u8;
                core::ptr::copy_nonoverlapping(from, to, inside * size_of::<T>());
                to.add(inside * size_of::<T>()).write_bytes(0, 16 - inside * size_of::<T>());
            }
        }
    }
}

/// Reads a tile into columns `column..` of plain `f32` rows, `stride` apart.
///
/// # Safety
/// The tile at `from` is full.
unsafe fn unpack<T: Element<Value = f32>, const ROW: usize>(
    from: Smem,
    rows: usize,
    out: &mut [f32],
    stride: usize,
    column: usize,
) {
    let in_chunk = const { 16 / size_of::<T>() };
    for (r, row) in out.chunks_exact_mut(stride).take(rows).enumerate() {
        let row = &mut row[column..][..const { ROW / size_of::<T>() }];
        for chunk in 0..const { ROW / 16 } {
            // SAFETY: the caller's: the tile has this chunk, 16-byte aligned.
            let from = unsafe { from.ptr.add(operand_offset(ROW, r, chunk * 16)) } as *const T;
            for (e, x) in row[chunk * in_chunk..][..in_chunk].iter_mut().enumerate() {
                // SAFETY: as above.
                *x = unsafe { from.add(e).read() }.to_value();
            }
        }
    }
}

/// Depth that is gathered for one product: enough to make the library's overhead small, and to stay in the cache.
const DEPTH: usize = 256;
/// A cache line more from row to row: rows a power of two apart would fall into the same few sets of the cache.
const PAD: usize = 16;

std::thread_local! {
    /// Operands gathered as plain `f32`. The products of a thread follow each other.
    static GATHERED: RefCell<(Vec<f32>, Vec<f32>)> = const { RefCell::new((Vec::new(), Vec::new())) };
}

/// `regs += A B^T` over `steps` pairs of tiles.
///
/// # Safety
/// The ring of `STAGES` stages is the caller's.
pub(crate) unsafe fn dot<
    'a,
    T: DotElement,
    const M: usize,
    const N: usize,
    const K: usize,
    const STAGES: usize,
    const THREADS: usize,
>(
    regs: &mut <Split<M, N, THREADS> as BlockProduct>::Regs,
    ring: Smem,
    steps: u32,
    operands: impl Fn(u32) -> (TileRef<'a, T, M, K>, TileRef<'a, T, N, K>),
) where
    Split<M, N, THREADS>: BlockProduct,
{
    // SAFETY: the caller's. A row has 64 bytes or 128: `Stages` has seen to that.
    unsafe {
        if const { K * size_of::<T>() == 64 } {
            ring_loop::<T, M, N, K, STAGES, 64>(regs.as_mut(), ring, steps, operands)
        } else {
            ring_loop::<T, M, N, K, STAGES, 128>(regs.as_mut(), ring, steps, operands)
        }
    }
}

/// As [`dot`], of the first `steps` tiles of two rows of tiles.
///
/// # Safety
/// As for [`dot`].
pub(crate) unsafe fn dot_strips<
    T: DotElement,
    const M: usize,
    const N: usize,
    const K: usize,
    const STAGES: usize,
    const THREADS: usize,
>(
    regs: &mut <Split<M, N, THREADS> as BlockProduct>::Regs,
    ring: Smem,
    steps: u32,
    a: Strip<'_, T, M, K>,
    b: Strip<'_, T, N, K>,
) where
    Split<M, N, THREADS>: BlockProduct,
{
    // SAFETY: the caller's.
    unsafe { dot::<T, M, N, K, STAGES, THREADS>(regs, ring, steps, |k| (a.tile(k), b.tile(k))) }
}

unsafe fn ring_loop<
    'a,
    T: DotElement,
    const M: usize,
    const N: usize,
    const K: usize,
    const STAGES: usize,
    const ROW: usize,
>(
    regs: &mut [f32],
    ring: Smem,
    steps: u32,
    operands: impl Fn(u32) -> (TileRef<'a, T, M, K>, TileRef<'a, T, N, K>),
) {
    let stage = |step: u32| ring.add(step as usize % STAGES * (M + N) * ROW);
    let fill = |step: u32| {
        if step < steps {
            let (a, b) = operands(step);
            // SAFETY: the stage was read before: see the order below.
            unsafe {
                fill::<T, ROW>(stage(step), M, &a.window);
                fill::<T, ROW>(stage(step).add(M * ROW), N, &b.window);
            }
        }
    };
    (0..STAGES as u32 - 1).for_each(fill);
    GATHERED.with_borrow_mut(|(a, b)| {
        let together = (DEPTH / K) as u32;
        let mut k = 0;
        while k < steps {
            let now = together.min(steps - k);
            let depth = now as usize * K;
            let stride = depth + PAD;
            a.resize(M * stride, 0.0);
            b.resize(N * stride, 0.0);
            for i in 0..now {
                fill(k + i + STAGES as u32 - 1);
                // SAFETY: filled STAGES - 1 steps ago.
                unsafe {
                    unpack::<T, ROW>(stage(k + i), M, a, stride, i as usize * K);
                    unpack::<T, ROW>(stage(k + i).add(M * ROW), N, b, stride, i as usize * K);
                }
            }
            accumulate_strided(regs, a, b, [M, N, depth], stride);
            k += now;
        }
    });
}

/// Rounds and writes a block's accumulator, clipped to the window.
///
/// # Safety
/// The window is the caller's alone.
pub(crate) unsafe fn store_block<T: DotElement, const M: usize, const N: usize, const THREADS: usize>(
    w: &Window<T>,
    regs: &<Split<M, N, THREADS> as BlockProduct>::Regs,
) where
    Split<M, N, THREADS>: BlockProduct,
{
    for (r, row) in regs.as_ref().chunks_exact(N).take(w.rows as usize).enumerate() {
        for (c, &x) in row.iter().take(w.cols as usize).enumerate() {
            // SAFETY: inside the window.
            unsafe { w.ptr.add(r * w.stride as usize + c).write(T::from_value(x)) }
        }
    }
}
