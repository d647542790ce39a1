//! Attention over latent keys by a block of four warps, for GPUs from sm_80 up: FlashAttention's running softmax over 16
//! keys at a time.
//!
//! Logits of 32 rows and 16 keys are four products of 16 x 8, one a warp; of the values each warp has 128 columns. What
//! the warps tell each other of the rows goes through shared memory, between three barriers a turn: keys have landed (and
//! the last are done with), maxima are known, probabilities are there.

use core::arch::asm;

use super::cp_async::{commit_copies, copy_16, copy_elements, wait_copies};
use super::element::Pack16;
use super::epilogue::AccElement;
use super::math::{exp2, log2, reciprocal};
use super::mma_sync::{ldmatrix, ldmatrix_transposed, mma_bf16, mma_f16};
use super::smem::{Smem, here};
use super::sync::{block_barrier, shuffle_xor, tid};
use crate::attention::{KEYS, LOW, LatentKeys, MASKED, QUERIES, ROPE, VALUE};
use crate::element::{bf16, f16};
use crate::layout::{ldmatrix_a, mma_d, swizzle_128b};
use crate::tma::SPAN;
use crate::view::Window;

/// Element types of queries and keys: f16 and bf16.
pub trait AttentionElement: Pack16 {
    /// `d += a b` of 16 x 8 x 16, b's registers `H` and `H + 1`.
    /// # Safety
    /// By the whole warp.
    #[doc(hidden)]
    unsafe fn mma<const H: usize>(d: &mut [f32; 4], a: &[u32; 4], b: &[u32; 4]);
}
impl AttentionElement for bf16 {
    #[inline(always)]
    unsafe fn mma<const H: usize>(d: &mut [f32; 4], a: &[u32; 4], b: &[u32; 4]) {
        // SAFETY: the caller's.
        unsafe { mma_bf16::<H>(d, a, b) }
    }
}
impl AttentionElement for f16 {
    #[inline(always)]
    unsafe fn mma<const H: usize>(d: &mut [f32; 4], a: &[u32; 4], b: &[u32; 4]) {
        // SAFETY: the caller's.
        unsafe { mma_f16::<H>(d, a, b) }
    }
}

/// A warp's values, by 16 x 8 product, and the logarithms of the thread's four rows.
pub struct Attended([[[f32; 4]; 16]; 2], [[f32; 2]; 2]);

// Shared memory, in bytes from its beginning. Tiles lie in slabs of 128-byte rows, swizzled.
const SLABS: usize = (VALUE + ROPE) * 2 / SPAN;
const Q_SLAB: usize = QUERIES * SPAN;
const K_SLAB: usize = KEYS * SPAN;
const STAGE: usize = SLABS * K_SLAB;
const STAGES: usize = SLABS * Q_SLAB;
/// Probabilities: rows of 48 bytes, so that eight of them lie in different banks.
const P: usize = STAGES + 2 * STAGE;
const P_ROW: usize = 48;
/// Of each row, by halves of the 16 keys: the greatest logit, and the sum of probabilities.
const MAXIMA: usize = P + QUERIES * P_ROW;
const SUMS: usize = MAXIMA + 2 * QUERIES * 4;
/// Of each row: the greatest logit so far, and what the values are to be scaled by.
const MAX: usize = SUMS + 2 * QUERIES * 4;
const SHRINK: usize = MAX + QUERIES * 4;
const _: () = assert!(SHRINK + QUERIES * 4 <= (QUERIES + 2 * KEYS) * 2 * (VALUE + ROPE) + 3072);

/// Brings eight elements of which the first `left` are there, zeros for the others.
///
/// # Safety
/// `to` is the caller's; the first `left` elements may be read; `aligned` says whether `from` is a multiple of 16 bytes.
#[inline(always)]
unsafe fn bring<T>(to: Smem, from: *const T, left: u32, aligned: bool) {
    // SAFETY: the caller's.
    unsafe {
        if aligned && (left == 0 || left >= 8) {
            copy_16(to, from, left, 0, 1);
        } else {
            copy_elements(to, from, left);
        }
    }
}

/// Whether all rows of a window begin at multiples of 16 bytes.
#[inline(always)]
fn aligned<T>(ptr: *const T, strides: u64) -> bool {
    (ptr as u64 | strides * 2) % 16 == 0
}

/// Has the part of the queries that lies in `w` brought to slabs from `to` on.
///
/// # Safety
/// By the whole block; the window may be read, the slabs are the block's to write.
#[inline(always)]
unsafe fn bring_queries<T>(to: Smem, w: &Window<T>, slabs: u32) {
    let (row, chunk) = (tid() / 8, tid() % 8);
    let whole = aligned(w.ptr, w.stride);
    let mut i = 0;
    while i < slabs * 2 {
        let (slab, row) = (i / 2, row + i % 2 * 16);
        let column = slab * 64 + chunk * 8;
        let left = if row < w.rows && column < w.cols { w.cols - column } else { 0 };
        let from = w.ptr.wrapping_add((row as u64 * w.stride + column as u64) as usize);
        let at = slab as usize * Q_SLAB + swizzle_128b(row as usize * SPAN + chunk as usize * 16);
        // SAFETY: the caller's.
        unsafe { bring(to.add(at), from, left, whole) };
        i += 1;
    }
}

macro_rules! eight {
    ($m:ident) => {
        $m!(0);
        $m!(1);
        $m!(2);
        $m!(3);
        $m!(4);
        $m!(5);
        $m!(6);
        $m!(7);
    };
}

/// # Safety
/// By the whole block of 128 threads, which has the memory to itself; the windows and the keys may be read.
#[inline(always)]
pub(crate) unsafe fn attend<T: AttentionElement>(
    memory: Smem,
    q: (&Window<T>, &Window<T>),
    keys: &LatentKeys<'_, T>,
    first: u32,
    stop: u32,
    limit: impl Fn(u32) -> u32,
    scale: f32,
) -> Attended {
    let (lane, warp) = (tid() % 32, tid() / 32);
    // of the logits the warp has 16 rows and 8 keys
    let (m, n) = (warp / 2, warp % 2);
    let (row, column) = mma_d(lane, 0);
    let float = |at: usize, i: u32| memory.add(at + i as usize * 4);
    // everyone has finished with what was here before
    block_barrier();
    // SAFETY: the caller's.
    unsafe {
        bring_queries(memory, q.0, SLABS as u32 - 1);
        bring_queries(memory.add((SLABS - 1) * Q_SLAB), q.1, 1);
    }
    let (l, r) = (&keys.latent, &keys.rope);
    let whole =
        (aligned(l.base, l.raw.row_stride | l.raw.slab_stride), aligned(r.base, r.raw.row_stride | r.raw.slab_stride));
    let bring_keys = #[inline(always)]
    |stage: u32, first: u32| {
        let (row, chunk) = (tid() / 8, tid() % 8);
        let key = first + row;
        let found = if key < stop { keys.at(key) } else { None };
        let (latent, rope, left) = match found {
            Some((latent, rope)) => (latent, rope, 8),
            None => (l.base, r.base, 0),
        };
        let at = STAGES + stage as usize * STAGE + swizzle_128b(row as usize * SPAN + chunk as usize * 16);
        let (to, latent) = (memory.add(at), latent.wrapping_add(chunk as usize * 8));
        // SAFETY: a key of a page that exists, or nothing of it.
        unsafe {
            let mut slab = 0;
            while slab < SLABS - 1 {
                bring(to.add(slab * K_SLAB), latent.wrapping_add(slab * 64), left, whole.0);
                slab += 1;
            }
            bring(to.add((SLABS - 1) * K_SLAB), rope.wrapping_add(chunk as usize * 8), left, whole.1);
        }
        commit_copies();
    };
    let zero: f32;
    // An array of a constant becomes a memset of local memory; of a value that LLVM can not see through, not.
    // SAFETY: arithmetic on a register.
    unsafe { asm!("mov.b32 {0}, 0;", out(reg32) zero, options(pure, nomem, nostack)) }
    let z = [zero; 4];
    let mut o = [[z, z, z, z, z, z, z, z, z, z, z, z, z, z, z, z], [z, z, z, z, z, z, z, z, z, z, z, z, z, z, z, z]];
    // the row that a thread of the first warp keeps account of
    let (mut max, mut sum) = (LOW, 0.0f32);
    let mine = tid();
    if mine < QUERIES as u32 {
        // SAFETY: this thread's.
        unsafe { float(MAX, mine).store_u32(max.to_bits()) };
    }
    let rows = [m * 16 + row, m * 16 + row + 8];
    let limits = [limit(rows[0]), limit(rows[1])];
    let (a_row, a_chunk) = ldmatrix_a(lane);
    let a_swizzle = a_row % 8;
    let of_q = memory.add(((m * 16 + a_row) * SPAN as u32) as usize);
    // 8 keys, 32 deep: four matrices side by side
    let b_swizzle = lane % 8;
    let of_k = STAGES + ((n * 8 + lane % 8) * SPAN as u32) as usize;
    // 16 keys and 16 columns, transposed: keys 0-7 and 8-15 of the first eight columns, then of the others
    let of_v = STAGES + ((lane / 8 % 2 * 8 + lane % 8) * SPAN as u32) as usize;
    let of_p = memory.add(P + a_row as usize * P_ROW + a_chunk as usize * 16);

    let (mut at, mut stage) = (first, 0u32);
    if at < stop {
        bring_keys(stage, at);
    }
    while at < stop {
        wait_copies::<0>();
        block_barrier();
        if at + (KEYS as u32) < stop {
            bring_keys(stage ^ 1, at + KEYS as u32);
        }
        let keys_at = memory.add(stage as usize * STAGE);
        let (mut s, mut t) = ([0.0f32; 4], [0.0f32; 4]);
        let mut slab = 0;
        while slab < SLABS {
            let (a, b) = (of_q.add(slab * Q_SLAB), keys_at.add(of_k + slab * K_SLAB));
            macro_rules! half {
                ($h:literal) => {
                    // SAFETY: by whole warps; queries and keys have landed, and nobody writes them before the next barrier.
                    unsafe {
                        let k = ldmatrix(b.add((((4 * $h + lane / 8) ^ b_swizzle) * 16) as usize));
                        let x = ldmatrix(a.add((((4 * $h + a_chunk) ^ a_swizzle) * 16) as usize));
                        let y = ldmatrix(a.add((((4 * $h + 2 + a_chunk) ^ a_swizzle) * 16) as usize));
                        T::mma::<0>(&mut s, &x, &k);
                        T::mma::<2>(&mut t, &y, &k);
                    }
                };
            }
            half!(0);
            half!(1);
            slab += 1;
        }
        let key = at + n * 8 + column;
        let logit = #[inline(always)]
        |i: usize| {
            if key + (i % 2) as u32 >= limits[i / 2] { MASKED } else { (s[i] + t[i]) * scale }
        };
        let s = [logit(0), logit(1), logit(2), logit(3)];
        let across = #[inline(always)]
        |x: f32, f: fn(f32, f32) -> f32| {
            let x = f(x, f32::from_bits(shuffle_xor(x.to_bits(), 1)));
            f(x, f32::from_bits(shuffle_xor(x.to_bits(), 2)))
        };
        let greatest = [across(s[0].max(s[1]), f32::max), across(s[2].max(s[3]), f32::max)];
        if lane % 4 == 0 {
            // SAFETY: this thread's, until the barrier.
            unsafe {
                float(MAXIMA, n * 32 + rows[0]).store_u32(greatest[0].to_bits());
                float(MAXIMA, n * 32 + rows[1]).store_u32(greatest[1].to_bits());
            }
        }
        block_barrier();
        let raised = #[inline(always)]
        |row: u32| {
            // SAFETY: nobody writes them before the next barrier.
            let [a, b, c] = unsafe {
                [float(MAX, row).load_u32(), float(MAXIMA, row).load_u32(), float(MAXIMA, 32 + row).load_u32()]
            };
            f32::from_bits(a).max(f32::from_bits(b)).max(f32::from_bits(c))
        };
        let (high, low) = (raised(rows[0]), raised(rows[1]));
        let p = [exp2(s[0] - high), exp2(s[1] - high), exp2(s[2] - low), exp2(s[3] - low)];
        let sums = [across(p[0] + p[1], |x, y| x + y), across(p[2] + p[3], |x, y| x + y)];
        let to = memory.add(P + ((n * 8 + column) * 2) as usize);
        // SAFETY: this thread's, until the barrier.
        unsafe {
            to.add(rows[0] as usize * P_ROW).store_u32(T::pack(p[0], p[1]));
            to.add(rows[1] as usize * P_ROW).store_u32(T::pack(p[2], p[3]));
            if lane % 4 == 0 {
                float(SUMS, n * 32 + rows[0]).store_u32(sums[0].to_bits());
                float(SUMS, n * 32 + rows[1]).store_u32(sums[1].to_bits());
            }
        }
        let mut risen = (max, 1.0);
        if mine < QUERIES as u32 {
            let raised = raised(mine);
            risen = (raised, exp2(max - raised));
            // SAFETY: this thread's, until the barrier.
            unsafe { float(SHRINK, mine).store_u32(risen.1.to_bits()) };
        }
        block_barrier();
        if mine < QUERIES as u32 {
            max = risen.0;
            // SAFETY: the maximum is read after the next barrier, the sums are written after it.
            unsafe {
                let more = (float(SUMS, mine).load_u32(), float(SUMS, 32 + mine).load_u32());
                sum = sum * risen.1 + (f32::from_bits(more.0) + f32::from_bits(more.1));
                float(MAX, mine).store_u32(max.to_bits());
            }
        }
        // SAFETY: nobody writes them before the barrier after the next.
        let shrink = #[inline(always)]
        |row: u32| f32::from_bits(unsafe { float(SHRINK, row).load_u32() });
        let f = [[shrink(row), shrink(row + 8)], [shrink(row + 16), shrink(row + 24)]];
        macro_rules! scale_column {
            ($j:literal) => {
                scale_column!(@ 0 $j);
                scale_column!(@ 1 $j);
            };
            (@ $m:literal $j:literal) => {
                let d = &mut o[$m];
                d[2 * $j] = [d[2 * $j][0] * f[$m][0], d[2 * $j][1] * f[$m][0], d[2 * $j][2] * f[$m][1], d[2 * $j][3] * f[$m][1]];
                d[2 * $j + 1] = [d[2 * $j + 1][0] * f[$m][0], d[2 * $j + 1][1] * f[$m][0], d[2 * $j + 1][2] * f[$m][1], d[2 * $j + 1][3] * f[$m][1]];
            };
        }
        eight!(scale_column);
        // SAFETY: by whole warps; probabilities and keys are there until the next barrier.
        unsafe {
            let (x, y) = (ldmatrix(of_p), ldmatrix(of_p.add(16 * P_ROW)));
            macro_rules! columns {
                ($j:literal) => {
                    let chunk = warp * 16 + 2 * $j + lane / 16;
                    let slab = warp as usize * 2 + $j / 4;
                    let v = keys_at.add(of_v + slab * K_SLAB + (((chunk % 8) ^ b_swizzle) * 16) as usize);
                    let v = ldmatrix_transposed(v);
                    T::mma::<0>(&mut o[0][2 * $j], &x, &v);
                    T::mma::<2>(&mut o[0][2 * $j + 1], &x, &v);
                    T::mma::<0>(&mut o[1][2 * $j], &y, &v);
                    T::mma::<2>(&mut o[1][2 * $j + 1], &y, &v);
                };
            }
            eight!(columns);
        }
        at += KEYS as u32;
        stage ^= 1;
    }
    wait_copies::<0>();
    if mine < QUERIES as u32 {
        // SAFETY: its last reader was this thread.
        unsafe { float(SUMS, mine).store_u32(sum.to_bits()) };
    }
    block_barrier();
    let of_row = #[inline(always)]
    |row: u32| {
        // SAFETY: nobody writes them before the next barrier.
        let [sum, max] = unsafe { [float(SUMS, row).load_u32(), float(MAX, row).load_u32()] };
        let (sum, max) = (f32::from_bits(sum), f32::from_bits(max));
        (if sum > 0.0 { reciprocal(sum) } else { 0.0 }, max + log2(sum))
    };
    let of = [[of_row(row), of_row(row + 8)], [of_row(row + 16), of_row(row + 24)]];
    macro_rules! share {
        ($j:literal) => {
            share!(@ 0 $j);
            share!(@ 1 $j);
        };
        (@ $m:literal $j:literal) => {
            let (d, f) = (&mut o[$m], &of[$m]);
            d[2 * $j] = [d[2 * $j][0] * f[0].0, d[2 * $j][1] * f[0].0, d[2 * $j][2] * f[1].0, d[2 * $j][3] * f[1].0];
            d[2 * $j + 1] = [d[2 * $j + 1][0] * f[0].0, d[2 * $j + 1][1] * f[0].0, d[2 * $j + 1][2] * f[1].0, d[2 * $j + 1][3] * f[1].0];
        };
    }
    eight!(share);
    Attended(o, [[of[0][0].1, of[0][1].1], [of[1][0].1, of[1][1].1]])
}

/// # Safety
/// By the whole block, whose windows they are.
#[inline(always)]
pub(crate) unsafe fn store_attended<T: AccElement>(
    w: &Window<T>,
    rows: &Window<f32>,
    a: &Attended,
    f: impl Fn(f32) -> f32,
) {
    let (lane, warp) = (here(tid() % 32), tid() / 32);
    let (row, column) = mma_d(lane, 0);
    let column = warp * 128 + column;
    let put = #[inline(always)]
    |m: u32, j: u32, h: u32, x: f32, y: f32| {
        let (r, c) = (m * 16 + row + h * 8, column + j * 8);
        let p = w.ptr.wrapping_add((r as u64 * w.stride + c as u64) as usize);
        let inside = [r < w.rows && c < w.cols, r < w.rows && c + 1 < w.cols];
        // SAFETY: only elements inside the window are written.
        unsafe { T::store_two([p, p.wrapping_add(1)], [x, y], inside) }
    };
    macro_rules! columns {
        ($j:literal) => {
            columns!(@ 0 $j);
            columns!(@ 1 $j);
        };
        (@ $m:literal $j:literal) => {
            let d = &a.0[$m];
            put($m, 2 * $j, 0, d[2 * $j][0], d[2 * $j][1]);
            put($m, 2 * $j, 1, d[2 * $j][2], d[2 * $j][3]);
            put($m, 2 * $j + 1, 0, d[2 * $j + 1][0], d[2 * $j + 1][1]);
            put($m, 2 * $j + 1, 1, d[2 * $j + 1][2], d[2 * $j + 1][3]);
        };
    }
    eight!(columns);
    if tid() < 32 && lane % 4 == 0 && rows.cols > 0 {
        let log = #[inline(always)]
        |r: u32, x: f32| {
            if r < rows.rows {
                // SAFETY: inside the window.
                unsafe { rows.ptr.wrapping_add((r as u64 * rows.stride) as usize).write(f(x)) }
            }
        };
        log(row, a.1[0][0]);
        log(row + 8, a.1[0][1]);
        log(row + 16, a.1[1][0]);
        log(row + 24, a.1[1][1]);
    }
}
