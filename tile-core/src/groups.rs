//! Scales of quantised rows: the greatest value of each group of adjacent columns, and columns of an output that hold one value
//! for each row, or group.

use core::marker::PhantomData;

use crate::backend;
use crate::element::{Element, Value};
use crate::layout::{ByRows, Chunks};
use crate::roles::Cta;
use crate::tile::{PerRow, Tile};
use crate::view::TileMut;

impl<V: Value, const M: usize, const N: usize, const THREADS: usize, C: Chunks> Tile<V, M, N, ByRows<THREADS, C>> {
    /// Every value replaced by the greatest of its group: `G` adjacent columns, from the first on, as many as tile rows' threads
    /// hold in one piece each. NaN if one is. What is outside counts as what it is: zero, unless a map has made more of it.
    #[inline(always)]
    pub fn group_max<const G: usize>(&self, _cta: &mut Cta<THREADS>) -> Self {
        const { assert!(N % G == 0 && G % C::LEN == 0, "groups are of whole pieces, and fill the tile") };
        const {
            assert!(
                G / C::LEN <= 32 && ByRows::<THREADS, C>::threads_of_row(M) % (G / C::LEN) == 0,
                "a group's threads are adjacent"
            )
        };
        const { assert!((G / C::LEN).is_power_of_two(), "a group has a power of two of threads") };
        let values = backend::group_max::<V, THREADS, C, M, N, G>(&self.values);
        Tile { values, rows: self.rows, cols: self.cols, zero: false, _p: PhantomData }
    }
}

impl<T: Element, const M: usize> TileMut<'_, T, M, 1> {
    /// Writes a value for each row, rounded, clipped to the view.
    #[inline(always)]
    pub fn put_rows<const THREADS: usize, C: Chunks>(
        self,
        _cta: &mut Cta<THREADS>,
        values: &PerRow<T::Value, M, THREADS>,
    ) {
        // SAFETY: the window is this block's alone.
        unsafe { backend::store_rows_of::<T, THREADS, C, M>(&self.window, &values.values) }
    }
}

impl<T: Element, const M: usize, const K: usize> TileMut<'_, T, M, K> {
    /// Writes the first value of each group of `G` columns, rounded, clipped to the view.
    #[inline(always)]
    pub fn put_groups<const N: usize, const G: usize, const THREADS: usize, C: Chunks>(
        self,
        _cta: &mut Cta<THREADS>,
        tile: &Tile<T::Value, M, N, ByRows<THREADS, C>>,
    ) {
        const { assert!(K * G == N && G % C::LEN == 0, "a value for each group of columns") };
        // SAFETY: the window is this block's alone.
        unsafe { backend::store_groups::<T, THREADS, C, M, N, G>(&self.window, &tile.values) }
    }
}
