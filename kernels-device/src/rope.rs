//! Rotary position embedding of queries and keys, with an RMSNorm of each head before it where models have one.
//!
//! | kernel | pairs | tile | threads |
//! |---|---|---|---|
//! | [`halves`](fn@halves) | an element of a head's first half and its counterpart in the second | two of 16 heads x 64, or 8 x 128 | 128 |
//! | [`pairs`](fn@pairs) | adjacent elements | 16 heads x 128, or 8 x 256 | 128 |
//!
//! (`f32`: 4 heads of the wider.) `q` and `k` are of tokens x heads x elements, and are done by one launch: a block has some
//! heads of one token of `q`, and as many of `k` as long as there are. A token's angle in a pair is read by its position
//! from tables of cosines and sines; the position is read from the device. A position that the tables do not have gives
//! zeros, and is reported.
//!
//! With weights, each head is first normed: `x / sqrt(mean(x^2) + eps) * w`. Weights without columns mean none. All
//! arithmetic is `f32`, with one rounding at the store. **Bytes that must move**: every element read once and written once.
//!
//! An element is read by the thread that writes it, before, and so is its counterpart: the outputs may be the inputs.
//! Disjointness: outputs hand each tile to one block.

use tilewright::prelude::*;

/// The row of the tables for a token, past their end if there is none. A position is a word, or two, the low one first.
#[inline(always)]
fn position(cta: &mut Cta<128>, positions: Tiles<i32, 1, 1>, token: u32, most: u32) -> u32 {
    let low = positions.element(cta, token, 0);
    let high = positions.element(cta, token, 1);
    if high != 0 || low < 0 || low as u32 >= most { u32::MAX } else { low as u32 }
}

/// Both halves of the heads of one tensor: `x` to `y`.
#[inline(always)]
fn turn_halves<'a, T: Element<Value = f32>, const M: usize, const N: usize>(
    cta: &mut Cta<128>,
    (positions, cos, sin): (Tiles<i32, 1, 1>, Tiles<f32, 1, N>, Tiles<f32, 1, N>),
    x: (Tiles<T, M, N>, Tiles<T, M, N>),
    w: Tiles<T, 1, N>,
    y: (TilesMut<'a, T, M, N>, TilesMut<'a, T, M, N>),
    eps: f32,
) -> bool {
    let (normed, mut lost) = (w.cols() > 0, false);
    let inverse_width = reciprocal((x.0.cols() + x.1.cols()) as f32);
    let down = y.0.rows().div_ceil(M as u32);
    for (((i, j), left), (_, right)) in y.0.into_iter().zip(y.1) {
        let (a, b) = (cta.fetch(x.0.tile(i, j)), cta.fetch(x.1.tile(i, j)));
        let row = position(cta, positions, i.checked_div(down).unwrap_or(0), cos.rows());
        lost |= row == u32::MAX;
        let c = cta.load_row_as::<f32, M, N, ByRows<128, T::Chunk>>(cos.tile(row, 0));
        let s = cta.load_row_as::<f32, M, N, ByRows<128, T::Chunk>>(sin.tile(row, 0));
        let (mut a, mut b) = (a.widen(), b.widen());
        if normed {
            let (wa, wb) = (cta.load_row_like(&a, w.tile(0, 0)), cta.load_row_like(&b, w.tile(1, 0)));
            let squares = a.map(|x| x * x).row_sum(cta).zip(&b.map(|x| x * x).row_sum(cta), |a, b| a + b);
            let factors = squares.map(|sum| rsqrt(sum * inverse_width + eps));
            a = a.map_rows(&factors, |x, s| x * s).zip(&wa, |x, w| x * w);
            b = b.map_rows(&factors, |x, s| x * s).zip(&wb, |x, w| x * w);
        }
        let turned = (
            a.zip(&c, |a, c| a * c).zip(&b.zip(&s, |b, s| b * s), |x, y| x - y),
            b.zip(&c, |b, c| b * c).zip(&a.zip(&s, |a, s| a * s), |x, y| x + y),
        );
        left.store(cta, &turned.0);
        right.store(cta, &turned.1);
    }
    lost
}

/// An element of a head's first half turns with its counterpart in the second. The halves are views of their own; those of
/// the weights are two rows.
#[kernel(
    grid = one_tile,
    min_blocks = 4,
    faults(NO_POSITION = "a token has a position that the tables do not have"),
    instances([<f16>, <bf16>] x [<16, 64>, <8, 128>], [<f32>] x [<4, 128>])
)]
pub fn halves<T: Element<Value = f32>, const M: usize, const N: usize>(
    mut cta: Cta<128>,
    positions: Tiles<i32, 1, 1>,
    cos: Tiles<f32, 1, N>,
    sin: Tiles<f32, 1, N>,
    q_left: Tiles<T, M, N>,
    q_right: Tiles<T, M, N>,
    q_weights: Tiles<T, 1, N>,
    yq_left: TilesMut<T, M, N>,
    yq_right: TilesMut<T, M, N>,
    k_left: Tiles<T, M, N>,
    k_right: Tiles<T, M, N>,
    k_weights: Tiles<T, 1, N>,
    yk_left: TilesMut<T, M, N>,
    yk_right: TilesMut<T, M, N>,
    eps: f32,
) {
    let at = (positions, cos, sin);
    let lost = turn_halves(&mut cta, at, (q_left, q_right), q_weights, (yq_left, yq_right), eps);
    let lost = turn_halves(&mut cta, at, (k_left, k_right), k_weights, (yk_left, yk_right), eps) || lost;
    cta.fault_if(lost, NO_POSITION);
}

/// The heads of one tensor, adjacent elements together: `x` to `y`.
#[inline(always)]
fn turn_adjacent<'a, T: Element<Value = f32>, const M: usize, const N: usize, const H: usize>(
    cta: &mut Cta<128>,
    (positions, cos, sin): (Tiles<i32, 1, 1>, Tiles<f32, 1, H>, Tiles<f32, 1, H>),
    x: Tiles<T, M, N>,
    w: Tiles<T, 1, N>,
    y: TilesMut<'a, T, M, N>,
    eps: f32,
) -> bool {
    let (normed, mut lost) = (w.cols() > 0, false);
    let inverse_width = reciprocal(x.cols() as f32);
    let down = y.rows().div_ceil(M as u32);
    for ((i, j), y) in y {
        let a = cta.fetch(x.tile(i, j));
        let row = position(cta, positions, i.checked_div(down).unwrap_or(0), cos.rows());
        lost |= row == u32::MAX;
        let c = cta.load_row_as::<f32, M, H, ByRows<128, T::HalfChunk>>(cos.tile(row, 0));
        let s = cta.load_row_as::<f32, M, H, ByRows<128, T::HalfChunk>>(sin.tile(row, 0));
        let mut a = a.widen();
        if normed {
            let w = cta.load_row_like(&a, w.tile(0, 0));
            let factors = a.map(|x| x * x).row_sum(cta).map(|sum| rsqrt(sum * inverse_width + eps));
            a = a.map_rows(&factors, |x, s| x * s).zip(&w, |x, w| x * w);
        }
        y.store(cta, &a.turn_pairs(&c, &s));
    }
    lost
}

/// Adjacent elements of a head turn together.
#[kernel(
    grid = one_tile,
    min_blocks = 4,
    faults(NO_POSITION = "a token has a position that the tables do not have"),
    instances([<f16>, <bf16>] x [<16, 128, 64>, <8, 256, 128>], [<f32>] x [<4, 256, 128>])
)]
pub fn pairs<T: Element<Value = f32>, const M: usize, const N: usize, const H: usize>(
    mut cta: Cta<128>,
    positions: Tiles<i32, 1, 1>,
    cos: Tiles<f32, 1, H>,
    sin: Tiles<f32, 1, H>,
    q: Tiles<T, M, N>,
    q_weights: Tiles<T, 1, N>,
    yq: TilesMut<T, M, N>,
    k: Tiles<T, M, N>,
    k_weights: Tiles<T, 1, N>,
    yk: TilesMut<T, M, N>,
    eps: f32,
) {
    let at = (positions, cos, sin);
    let lost = turn_adjacent(&mut cta, at, q, q_weights, yq, eps);
    let lost = turn_adjacent(&mut cta, at, k, k_weights, yk, eps) || lost;
    cta.fault_if(lost, NO_POSITION);
}
