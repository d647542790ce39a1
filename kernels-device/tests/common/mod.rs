//! Matrices with guards, random and poisoned, for kernels on the CPU backend.
#![allow(dead_code)]

use tilewright::__private::RawView;
use tilewright::element::{DType, Element};
use tilewright::prelude::*;

/// What stands around a matrix and between its rows. Finite, and no value that the tests produce.
const GUARD: f32 = -12352.0;

/// A matrix somewhere in a larger buffer.
#[derive(Clone)]
pub struct Matrix<T> {
    pub data: Vec<T>,
    pub rows: usize,
    pub cols: usize,
    pub stride: usize,
    pub offset: usize,
}

/// A source of numbers that is the same everywhere.
pub fn next(seed: &mut u64) -> f32 {
    *seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    (*seed >> 40) as f32 / (1u64 << 23) as f32 - 1.0
}

impl<T: Element<Value = f32>> Matrix<T> {
    /// `extra` more elements from row to row than columns, beginning `offset` elements into the buffer.
    pub fn new(rows: usize, cols: usize, extra: usize, offset: usize, mut f: impl FnMut(usize, usize) -> f32) -> Self {
        let (stride, before) = (cols + extra, 8 + offset);
        let mut m = Matrix {
            data: vec![T::from_value(GUARD); before + rows * stride + 16],
            rows,
            cols,
            stride,
            offset: before,
        };
        for r in 0..rows {
            for c in 0..cols {
                m.data[before + r * stride + c] = T::from_value(f(r, c));
            }
        }
        m
    }
    pub fn random(rows: usize, cols: usize, extra: usize, offset: usize, mut seed: u64) -> Self {
        Self::new(rows, cols, extra, offset, |_, _| next(&mut seed))
    }
    /// An output before the launch.
    pub fn poisoned(rows: usize, cols: usize, extra: usize, offset: usize) -> Self {
        Self::new(rows, cols, extra, offset, |_, _| f32::NAN)
    }
    pub fn at(&self, r: usize, c: usize) -> f32 {
        self.data[self.offset + r * self.stride + c].to_value()
    }
    pub fn raw(&self) -> RawView {
        RawView::matrix(self.rows as u32, self.cols as u32, self.stride as u64)
    }
    pub fn tiles<const M: usize, const N: usize>(&self) -> Tiles<'_, T, M, N> {
        Tiles::in_slice(&self.data[self.offset..], self.raw()).expect("the buffer holds the view")
    }
    pub fn tma<const M: usize, const N: usize>(&self) -> TmaTiles<'_, T, M, N> {
        TmaTiles::in_slice(&self.data[self.offset..], self.raw()).expect("the buffer holds the view")
    }
    pub fn tiles_mut<const M: usize, const N: usize>(&mut self) -> TilesMut<'_, T, M, N> {
        let raw = self.raw();
        TilesMut::in_slice(&mut self.data[self.offset..], raw).expect("the buffer holds the view")
    }
    pub fn tma_mut<const M: usize, const N: usize>(&mut self) -> TmaTilesMut<'_, T, M, N> {
        let raw = self.raw();
        TmaTilesMut::in_slice(&mut self.data[self.offset..], raw).expect("the buffer holds the view")
    }
    /// The bits of the whole buffer, guards included.
    pub fn bits(&self) -> Vec<u32> {
        self.data.iter().map(|x| x.to_value().to_bits()).collect()
    }
    /// Nothing outside the matrix was written.
    pub fn guards_are_untouched(&self) -> bool {
        self.data.iter().enumerate().all(|(i, x)| {
            let inside =
                i.checked_sub(self.offset).is_some_and(|i| i / self.stride < self.rows && i % self.stride < self.cols);
            inside || x.to_value() == T::from_value(GUARD).to_value()
        })
    }
    /// Half a unit in the last place, relative.
    pub fn rounding() -> f64 {
        match T::DTYPE {
            DType::BF16 => 1.0 / 256.0,
            DType::F16 => 1.0 / 2048.0,
            _ => 1.0 / 16_777_216.0,
        }
    }
}

/// How many elements of `c` are not `f(A B^T)` as computed in `f64`. The bound is that of a sum of k products in f32 in any
/// order, and one rounding; NaN and infinities must stand where the oracle has them. `lipschitz` bounds the slope of `f`.
pub fn wrong<T: Element<Value = f32>, O: Element<Value = f32>>(
    a: &Matrix<T>,
    b: &Matrix<T>,
    c: &Matrix<O>,
    f: impl Fn(f64) -> f64,
    lipschitz: f64,
) -> usize {
    let k = a.cols;
    let mut wrong = 0;
    for i in 0..c.rows {
        for j in 0..c.cols {
            let (mut sum, mut size) = (0.0, 0.0);
            for x in 0..k {
                let p = a.at(i, x) as f64 * b.at(j, x) as f64;
                sum += p;
                size += p.abs();
            }
            let (want, got) = (f(sum), c.at(i, j) as f64);
            let bound = lipschitz * size * k as f64 / 16_777_216.0 + want.abs() * Matrix::<O>::rounding() + 1e-7;
            let fine = if want.is_finite() {
                (got - want).abs() <= bound
            } else {
                want.is_nan() && got.is_nan() || want == got
            };
            wrong += !fine as usize;
        }
    }
    wrong
}
