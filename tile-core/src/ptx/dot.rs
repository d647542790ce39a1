//! The loop of a block-level product.
//!
//! Source of the scheme: CUTLASS's multistage kernels for sm_80. `STAGES - 1` tiles are on their way while one is
//! multiplied; within a tile, the fragments of the next 16 of depth are loaded while tensor cores work on these.

use core::arch::asm;

use super::cp_async::{commit_copies, copy_chunks, copy_pieces, in_chunks, wait_copies};
use super::dot_store::{store_16bit, store_f32};
use super::dot_strips::{plain, strips_loop};
use super::mma_sync::{BlockProduct, Split};
use super::smem::Smem;
use super::sync::block_barrier;
use crate::element::{Element, bf16, f16};
use crate::view::{Strip, TileRef, Window};

/// Element types that block-level products read and write: `f32`, `f16`, `bf16`.
pub trait DotElement: Element<Value = f32> {
    /// # Safety
    /// As for [`dot`].
    #[doc(hidden)]
    unsafe fn run<'a, const M: usize, const N: usize, const K: usize, const STAGES: usize, const THREADS: usize>(
        regs: &mut <Split<M, N, THREADS> as BlockProduct>::Regs,
        ring: Smem,
        steps: u32,
        operands: impl Fn(u32) -> (TileRef<'a, Self, M, K>, TileRef<'a, Self, N, K>),
    ) where
        Split<M, N, THREADS>: BlockProduct;
    /// # Safety
    /// As for [`dot_strips`].
    #[doc(hidden)]
    unsafe fn run_strips<const M: usize, const N: usize, const K: usize, const STAGES: usize, const THREADS: usize>(
        regs: &mut <Split<M, N, THREADS> as BlockProduct>::Regs,
        ring: Smem,
        steps: u32,
        a: Strip<'_, Self, M, K>,
        b: Strip<'_, Self, N, K>,
    ) where
        Split<M, N, THREADS>: BlockProduct;
    /// Writes a row of four products side by side, of which this thread has two values each.
    /// # Safety
    /// By the whole warp; the window is the block's.
    #[doc(hidden)]
    unsafe fn store_four(w: &Window<Self>, whole: bool, row: u32, column: u32, v: [[f32; 2]; 4]);
    /// Bytes at a time of a fast store.
    #[doc(hidden)]
    const VECTOR: u64;
}

macro_rules! half {
    ($t:ty, $multiply:ident) => {
        impl DotElement for $t {
            #[inline(always)]
            unsafe fn run<
                'a,
                const M: usize,
                const N: usize,
                const K: usize,
                const STAGES: usize,
                const THREADS: usize,
            >(
                regs: &mut <Split<M, N, THREADS> as BlockProduct>::Regs,
                ring: Smem,
                steps: u32,
                operands: impl Fn(u32) -> (TileRef<'a, Self, M, K>, TileRef<'a, Self, N, K>),
            ) where
                Split<M, N, THREADS>: BlockProduct,
            {
                // SAFETY: the caller's; inlined, the tensor cores' part is the whole warp's.
                unsafe {
                    tensor_loop::<Self, M, N, K, STAGES, THREADS>(
                        regs,
                        ring,
                        steps,
                        operands,
                        #[inline(always)]
                        |d, x| Split::<M, N, THREADS>::$multiply(d, x),
                    )
                }
            }
            #[inline(always)]
            unsafe fn run_strips<
                const M: usize,
                const N: usize,
                const K: usize,
                const STAGES: usize,
                const THREADS: usize,
            >(
                regs: &mut <Split<M, N, THREADS> as BlockProduct>::Regs,
                ring: Smem,
                steps: u32,
                a: Strip<'_, Self, M, K>,
                b: Strip<'_, Self, N, K>,
            ) where
                Split<M, N, THREADS>: BlockProduct,
            {
                let multiply = #[inline(always)]
                |d: &mut <Split<M, N, THREADS> as BlockProduct>::Regs,
                                x: &<Split<M, N, THREADS> as BlockProduct>::Fragments| {
                    // SAFETY: the caller's; inlined, the tensor cores' part is the whole warp's.
                    unsafe { Split::<M, N, THREADS>::$multiply(d, x) }
                };
                let (wa, wb) = (a.window(), b.window());
                // SAFETY: the caller's. A row has 64 bytes or 128: `Stages` has seen to that.
                unsafe {
                    if !plain(wa, wb, M as u32, N as u32) {
                        edge_loop::<Self, M, N, K, STAGES, THREADS>(regs, ring, steps, both(a, b), multiply)
                    } else if const { K * size_of::<Self>() == 64 } {
                        strips_loop::<Self, M, N, K, STAGES, 64, THREADS>(regs, ring, steps, wa, wb, multiply)
                    } else {
                        strips_loop::<Self, M, N, K, STAGES, 128, THREADS>(regs, ring, steps, wa, wb, multiply)
                    }
                }
            }
            #[inline(always)]
            unsafe fn store_four(w: &Window<Self>, whole: bool, row: u32, column: u32, v: [[f32; 2]; 4]) {
                // SAFETY: the caller's.
                unsafe { store_16bit(w, whole, row, column, v) }
            }
            const VECTOR: u64 = 16;
        }
    };
}
half!(bf16, multiply_bf16);
half!(f16, multiply_f16);

impl DotElement for f32 {
    #[inline(always)]
    unsafe fn run<'a, const M: usize, const N: usize, const K: usize, const STAGES: usize, const THREADS: usize>(
        regs: &mut <Split<M, N, THREADS> as BlockProduct>::Regs,
        ring: Smem,
        steps: u32,
        operands: impl Fn(u32) -> (TileRef<'a, Self, M, K>, TileRef<'a, Self, N, K>),
    ) where
        Split<M, N, THREADS>: BlockProduct,
    {
        // SAFETY: the caller's.
        unsafe { fma_loop::<M, N, K, STAGES, THREADS>(regs, ring, steps, operands) }
    }
    #[inline(always)]
    unsafe fn run_strips<const M: usize, const N: usize, const K: usize, const STAGES: usize, const THREADS: usize>(
        regs: &mut <Split<M, N, THREADS> as BlockProduct>::Regs,
        ring: Smem,
        steps: u32,
        a: Strip<'_, Self, M, K>,
        b: Strip<'_, Self, N, K>,
    ) where
        Split<M, N, THREADS>: BlockProduct,
    {
        // SAFETY: the caller's.
        unsafe { fma_loop::<M, N, K, STAGES, THREADS>(regs, ring, steps, both(a, b)) }
    }
    #[inline(always)]
    unsafe fn store_four(w: &Window<Self>, whole: bool, row: u32, column: u32, v: [[f32; 2]; 4]) {
        // SAFETY: the caller's.
        unsafe { store_f32(w, whole, row, column, v) }
    }
    const VECTOR: u64 = 8;
}

/// `regs += A B^T` over `steps` pairs of tiles.
///
/// # Safety
/// By the whole block, which has the ring of `STAGES` stages to itself. Nothing is in flight in it before; nor after,
/// when all threads have met.
#[inline(always)]
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
    if steps == 0 {
        return;
    }
    // SAFETY: the caller's.
    unsafe { T::run::<M, N, K, STAGES, THREADS>(regs, ring, steps, operands) };
    wait_copies::<0>();
    block_barrier();
}

/// The `k`th tiles of two strips.
#[inline(always)]
fn both<'a, T: Element, const M: usize, const N: usize, const K: usize>(
    a: Strip<'a, T, M, K>,
    b: Strip<'a, T, N, K>,
) -> impl Fn(u32) -> (TileRef<'a, T, M, K>, TileRef<'a, T, N, K>) {
    #[inline(always)]
    move |k| (a.tile(k), b.tile(k))
}

/// `regs += A B^T` over the first `steps` tiles of two rows of tiles.
///
/// # Safety
/// As for [`dot`].
#[inline(always)]
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
    if steps == 0 {
        return;
    }
    // SAFETY: the caller's.
    unsafe { T::run_strips::<M, N, K, STAGES, THREADS>(regs, ring, steps, a, b) };
    wait_copies::<0>();
    block_barrier();
}

/// Starts filling the stage at `to` for step `step`, if there is such a step, with what can be copied 16 bytes at a time.
/// What can not is left to [`fill_rest`]: true for A, for B.
///
/// # Safety
/// By the whole block; the stage is the block's to write.
#[inline(always)]
unsafe fn fill_stage<'a, T: DotElement, const M: usize, const N: usize, const K: usize, const THREADS: usize>(
    to: Smem,
    step: u32,
    steps: u32,
    operands: &impl Fn(u32) -> (TileRef<'a, T, M, K>, TileRef<'a, T, N, K>),
) -> (bool, bool) {
    // Past the end: a tile that exists, not copied.
    let (go, step) = if step < steps { (true, step) } else { (false, steps - 1) };
    let (a, b) = operands(step);
    let (fits_a, fits_b) = (in_chunks(&a.window), in_chunks(&b.window));
    // SAFETY: the caller's. A row has 64 bytes or 128: `Stages` has seen to that.
    unsafe {
        if const { K * size_of::<T>() == 64 } {
            copy_chunks::<T, M, 64, THREADS>(to, &a.window, go & fits_a);
            copy_chunks::<T, N, 64, THREADS>(to.add(M * 64), &b.window, go & fits_b);
        } else {
            copy_chunks::<T, M, 128, THREADS>(to, &a.window, go & fits_a);
            copy_chunks::<T, N, 128, THREADS>(to.add(M * 128), &b.window, go & fits_b);
        }
    }
    (go & !fits_a, go & !fits_b)
}

/// Brings what [`fill_stage`] left, and ends the step's group: groups count steps, also empty ones.
///
/// # Safety
/// As for [`fill_stage`].
#[inline(always)]
unsafe fn fill_rest<'a, T: DotElement, const M: usize, const N: usize, const K: usize, const THREADS: usize>(
    to: Smem,
    step: u32,
    rest: (bool, bool),
    operands: &impl Fn(u32) -> (TileRef<'a, T, M, K>, TileRef<'a, T, N, K>),
) {
    if rest.0 | rest.1 {
        // Asked for again, rather than kept in registers that the products need.
        let (a, b) = operands(opaque(step));
        // SAFETY: the caller's.
        unsafe {
            if const { K * size_of::<T>() == 64 } {
                if rest.0 {
                    copy_pieces::<T, M, 64, THREADS>(to, &a.window);
                }
                if rest.1 {
                    copy_pieces::<T, N, 64, THREADS>(to.add(M * 64), &b.window);
                }
            } else {
                if rest.0 {
                    copy_pieces::<T, M, 128, THREADS>(to, &a.window);
                }
                if rest.1 {
                    copy_pieces::<T, N, 128, THREADS>(to.add(M * 128), &b.window);
                }
            }
        }
    }
    commit_copies();
}

/// The same number, as far as the compiler knows another one.
#[inline(always)]
fn opaque(n: u32) -> u32 {
    let r: u32;
    // SAFETY: arithmetic on a register.
    unsafe { asm!("mov.b32 {0}, {1};", out(reg32) r, in(reg32) n, options(nomem, nostack)) }
    r
}

/// Fills the first `STAGES - 1` stages.
///
/// # Safety
/// As for [`dot`].
#[inline(always)]
unsafe fn fill_first<
    'a,
    T: DotElement,
    const M: usize,
    const N: usize,
    const K: usize,
    const STAGES: usize,
    const THREADS: usize,
>(
    ring: Smem,
    steps: u32,
    operands: &impl Fn(u32) -> (TileRef<'a, T, M, K>, TileRef<'a, T, N, K>),
) {
    let mut s = 0;
    while s < STAGES as u32 - 1 {
        let to = ring.add(s as usize * const { (M + N) * K * size_of::<T>() });
        // SAFETY: the caller's.
        unsafe {
            let rest = fill_stage::<T, M, N, K, THREADS>(to, s, steps, operands);
            fill_rest::<T, M, N, K, THREADS>(to, s, rest, operands);
        }
        s += 1;
    }
}

/// Waits until all but the newest `STAGES - 2` steps have landed, for every thread.
#[inline(always)]
pub(super) fn await_stage<const STAGES: usize>() {
    match STAGES {
        2 => wait_copies::<0>(),
        3 => wait_copies::<1>(),
        4 => wait_copies::<2>(),
        5 => wait_copies::<3>(),
        _ => wait_copies::<4>(),
    }
    block_barrier();
}

/// The warp's fragments of 16 of depth, the `deep`th such of the stage at `at`: 32 bytes each, an XOR in a lane's offset.
///
/// # Safety
/// By the whole warp; the stage is full.
#[inline(always)]
pub(super) unsafe fn load<P: BlockProduct, const M: usize, const K: usize>(
    at: Smem,
    lanes: (usize, usize),
    deep: usize,
) -> P::Fragments {
    let (a, b) = (at.add(lanes.0 ^ deep * 32), at.add(M * K * 2).add(lanes.1 ^ deep * 32));
    // SAFETY: the caller's.
    unsafe { if const { K * 2 == 64 } { P::load::<64>(a, b) } else { P::load::<128>(a, b) } }
}

/// # Safety
/// As for [`dot`].
#[inline(always)]
unsafe fn tensor_loop<
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
    multiply: impl Fn(&mut <Split<M, N, THREADS> as BlockProduct>::Regs, &<Split<M, N, THREADS> as BlockProduct>::Fragments),
) where
    Split<M, N, THREADS>: BlockProduct,
{
    let (row, stage) = const { (K * 2, (M + N) * K * 2) };
    // SAFETY: stages are filled once all have read them (the barrier of the step before), and read once filled.
    unsafe {
        fill_first::<T, M, N, K, STAGES, THREADS>(ring, steps, &operands);
        await_stage::<STAGES>();
        let lanes = Split::<M, N, THREADS>::lanes(row);
        let (mut read, mut write) = (ring, ring.add((STAGES - 1) * stage));
        let end = ring.add(STAGES * stage);
        let mut now = load::<Split<M, N, THREADS>, M, K>(ring, lanes, 0);
        let mut k = 0;
        while k < steps {
            let next = load::<Split<M, N, THREADS>, M, K>(read, lanes, 1);
            // Into the stage that the step before read: all have met since.
            let step = k + (STAGES as u32 - 1);
            let rest = fill_stage::<T, M, N, K, THREADS>(write, step, steps, &operands);
            multiply(regs, &now);
            now = next;
            if const { K == 64 } {
                let next = load::<Split<M, N, THREADS>, M, K>(read, lanes, 2);
                multiply(regs, &now);
                let last = load::<Split<M, N, THREADS>, M, K>(read, lanes, 3);
                multiply(regs, &next);
                now = last;
            }
            fill_rest::<T, M, N, K, THREADS>(write, step, rest, &operands);
            await_stage::<STAGES>();
            write = read;
            read = read.add(stage);
            if read.0 == end.0 {
                read = ring;
            }
            // After the last step these are stale, and not used.
            let next = load::<Split<M, N, THREADS>, M, K>(read, lanes, 0);
            multiply(regs, &now);
            now = next;
            k += 1;
        }
    }
}

/// As [`tensor_loop`], for what [`strips_loop`] leaves: fragments are loaded when they are used, so that a kernel which has
/// both loops gets by with the registers of the other one.
///
/// # Safety
/// As for [`dot`].
#[inline(always)]
unsafe fn edge_loop<
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
    multiply: impl Fn(&mut <Split<M, N, THREADS> as BlockProduct>::Regs, &<Split<M, N, THREADS> as BlockProduct>::Fragments),
) where
    Split<M, N, THREADS>: BlockProduct,
{
    let (row, stage) = const { (K * 2, (M + N) * K * 2) };
    // SAFETY: stages are filled once all have read them (the barrier of the step), and read once filled.
    unsafe {
        fill_first::<T, M, N, K, STAGES, THREADS>(ring, steps, &operands);
        let lanes = Split::<M, N, THREADS>::lanes(row);
        let (mut read, mut write) = (ring, ring.add((STAGES - 1) * stage));
        let end = ring.add(STAGES * stage);
        let mut k = 0;
        while k < steps {
            await_stage::<STAGES>();
            let step = k + (STAGES as u32 - 1);
            let rest = fill_stage::<T, M, N, K, THREADS>(write, step, steps, &operands);
            fill_rest::<T, M, N, K, THREADS>(write, step, rest, &operands);
            write = read;
            multiply(regs, &load::<Split<M, N, THREADS>, M, K>(read, lanes, 0));
            multiply(regs, &load::<Split<M, N, THREADS>, M, K>(read, lanes, 1));
            if const { K == 64 } {
                multiply(regs, &load::<Split<M, N, THREADS>, M, K>(read, lanes, 2));
                multiply(regs, &load::<Split<M, N, THREADS>, M, K>(read, lanes, 3));
            }
            read = read.add(stage);
            if read.0 == end.0 {
                read = ring;
            }
            k += 1;
        }
    }
}

/// # Safety
/// As for [`dot`].
#[inline(always)]
unsafe fn fma_loop<'a, const M: usize, const N: usize, const K: usize, const STAGES: usize, const THREADS: usize>(
    regs: &mut <Split<M, N, THREADS> as BlockProduct>::Regs,
    ring: Smem,
    steps: u32,
    operands: impl Fn(u32) -> (TileRef<'a, f32, M, K>, TileRef<'a, f32, N, K>),
) where
    Split<M, N, THREADS>: BlockProduct,
{
    let (row, stage) = const { (K * 4, (M + N) * K * 4) };
    // SAFETY: stages are filled once all have read them (the barrier of the step), and read once filled.
    unsafe {
        fill_first::<f32, M, N, K, STAGES, THREADS>(ring, steps, &operands);
        let (mut read, mut write) = (ring, ring.add((STAGES - 1) * stage));
        let end = ring.add(STAGES * stage);
        let mut k = 0;
        while k < steps {
            await_stage::<STAGES>();
            let step = k + (STAGES as u32 - 1);
            let rest = fill_stage::<f32, M, N, K, THREADS>(write, step, steps, &operands);
            fill_rest::<f32, M, N, K, THREADS>(write, step, rest, &operands);
            write = read;
            let (a, b) = (read, read.add(M * row));
            let mut chunk = 0;
            while chunk < row / 16 {
                if const { K * 4 == 64 } {
                    Split::<M, N, THREADS>::multiply_f32::<64>(regs, a, b, chunk);
                } else {
                    Split::<M, N, THREADS>::multiply_f32::<128>(regs, a, b, chunk);
                }
                chunk += 1;
            }
            read = read.add(stage);
            if read.0 == end.0 {
                read = ring;
            }
            k += 1;
        }
    }
}
