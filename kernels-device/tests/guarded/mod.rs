//! Views of vectors for tests on the CPU backend.
#![allow(dead_code)]

use tilewright::__private::RawView;
use tilewright::prelude::*;

/// Data from nowhere in particular, the same every time, between -1 and 1.
pub fn random(n: usize, mut seed: u64) -> Vec<f64> {
    (0..n)
        .map(|_| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 40) as f64 / (1u64 << 23) as f64 - 1.0
        })
        .collect()
}

/// A matrix (or a stack of them) in memory that is larger than it: any stride, any offset from an aligned base.
#[derive(Clone)]
pub struct Matrix<T> {
    memory: Vec<T>,
    /// Elements before the first.
    offset: usize,
    raw: RawView,
}

/// How a matrix lies in memory.
#[derive(Clone, Copy, Debug)]
pub struct Lie {
    /// Elements between the end of a row and the beginning of the next.
    pub gap: usize,
    /// Elements by which the base is misaligned.
    pub shift: usize,
}
/// Everything aligned, if the number of columns is.
pub const DENSE: Lie = Lie { gap: 0, shift: 0 };

const GUARD: usize = 64;

impl<T: Element<Value = f32>> Matrix<T> {
    /// Filled with NaN, guards and gaps included.
    pub fn new(slabs: usize, rows: usize, cols: usize, lie: Lie) -> Self {
        let stride = cols + lie.gap;
        let memory = vec![T::from_value(f32::NAN); slabs * rows * stride + 2 * GUARD + lie.shift];
        // the vector's own alignment is not that of vectors: find an element on a 16-byte boundary
        let to_aligned = memory.as_ptr().align_offset(16);
        let raw = RawView {
            rows: rows as u32,
            cols: cols as u32,
            slabs: slabs as u32,
            reserved: 0,
            row_stride: stride as u64,
            slab_stride: (rows * stride) as u64,
        };
        Matrix { memory, offset: GUARD / 2 + to_aligned + lie.shift, raw }
    }
    pub fn from(slabs: usize, rows: usize, cols: usize, lie: Lie, f: impl Fn(usize, usize) -> f64) -> Self {
        let mut m = Self::new(slabs, rows, cols, lie);
        for r in 0..slabs * rows {
            for c in 0..cols {
                m.set(r, c, f(r, c));
            }
        }
        m
    }
    fn at(&self, r: usize, c: usize) -> usize {
        self.offset + r * self.raw.row_stride as usize + c
    }
    pub fn set(&mut self, r: usize, c: usize, v: f64) {
        let at = self.at(r, c);
        self.memory[at] = T::from_value(v as f32);
    }
    pub fn get(&self, r: usize, c: usize) -> f64 {
        self.memory[self.at(r, c)].to_value() as f64
    }
    /// Rows of all slabs.
    pub fn rows(&self) -> usize {
        (self.raw.rows * self.raw.slabs) as usize
    }
    pub fn cols(&self) -> usize {
        self.raw.cols as usize
    }
    pub fn tiles<const M: usize, const N: usize>(&self) -> Tiles<'_, T, M, N> {
        Tiles::in_slice(&self.memory[self.offset..], self.raw).expect("the memory holds the view")
    }
    pub fn tiles_mut<const M: usize, const N: usize>(&mut self) -> TilesMut<'_, T, M, N> {
        TilesMut::in_slice(&mut self.memory[self.offset..], self.raw).expect("the memory holds the view")
    }
    pub fn row_tiles<const M: usize, const N: usize>(&self) -> RowTiles<'_, T, M, N> {
        RowTiles::in_slice(&self.memory[self.offset..], self.raw).expect("the memory holds one matrix")
    }
    pub fn row_tiles_mut<const M: usize, const N: usize>(&mut self) -> RowTilesMut<'_, T, M, N> {
        RowTilesMut::in_slice(&mut self.memory[self.offset..], self.raw).expect("the memory holds one matrix")
    }
    /// Bits of everything, for comparisons that NaN does not spoil.
    pub fn bits(&self) -> Vec<u8> {
        bytemuck::cast_slice(&self.memory).to_vec()
    }
    /// Panics unless everything outside the matrix is still NaN.
    pub fn assert_guards(&self) {
        let stride = self.raw.row_stride as usize;
        for (i, v) in self.memory.iter().enumerate() {
            let inside =
                i.checked_sub(self.offset).is_some_and(|at| at / stride < self.rows() && at % stride < self.cols());
            assert!(inside || v.to_value().is_nan(), "element {i} is outside, and was written");
        }
    }
}

/// Half a unit in the last place of 1.
pub fn unit<T: Element>() -> f64 {
    match T::DTYPE {
        DType::BF16 => 1.0 / 256.0,
        DType::F16 => 1.0 / 2048.0,
        _ => 1.0 / (1 << 24) as f64,
    }
}

/// The least subnormal, half of which a rounding may be off near zero.
pub fn least<T: Element>() -> f64 {
    match T::DTYPE {
        DType::F16 => 2f64.powi(-24),
        DType::BF16 => 2f64.powi(-133),
        _ => 2f64.powi(-149),
    }
}
