//! Matrices cut into tiles of whole rows, for kernels that work row by row.
//!
//! A [`RowTiles`] is a [`Tiles`](crate::view::Tiles) of one matrix whose rows each fit in one tile. So a tile has one
//! coordinate; and what the host knows of the matrix (how much of each row can be accessed 16 bytes at a time) travels
//! with the view instead of being found out by every thread for every tile. Between the start of a block and its first
//! load stands little more than the multiplication by the stride.

use core::marker::PhantomData;

use crate::backend;
#[cfg(not(target_arch = "nvptx64"))]
use crate::checked::inside;
use crate::element::Element;
use crate::roles::Cta;
use crate::view::{TileMut, TileRef, Window};

#[cfg(not(target_arch = "nvptx64"))]
use crate::view::{Provenance, RawView};

/// Extents and stride of a matrix as they travel to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct RawRows {
    /// Rows.
    pub rows: u32,
    /// Columns.
    pub cols: u32,
    /// How many columns of every row, from its beginning, can be accessed in pieces of 16 bytes.
    pub whole: u32,
    /// Unused, zero.
    pub reserved: u32,
    /// Elements from one row to the next.
    pub stride: u64,
}
// SAFETY: five integers without padding; every bit pattern is valid.
unsafe impl bytemuck::Zeroable for RawRows {}
// SAFETY: as above.
unsafe impl bytemuck::Pod for RawRows {}
const _: () = assert!(size_of::<RawRows>() == 24 && align_of::<RawRows>() == 8);

#[cfg(not(target_arch = "nvptx64"))]
impl RawRows {
    /// Of a matrix of elements of `size` bytes at address `base`; none for a stack of several.
    pub fn of(base: u64, size: usize, raw: &RawView) -> Option<Self> {
        if raw.slabs != 1 {
            return None;
        }
        let step = if raw.rows > 1 { raw.row_stride.wrapping_mul(size as u64) } else { 0 };
        let piece = (16 / size) as u32;
        let whole = if (base | step) % 16 == 0 { raw.cols / piece * piece } else { 0 };
        Some(RawRows { rows: raw.rows, cols: raw.cols, whole, reserved: 0, stride: raw.row_stride })
    }
}

impl RawRows {
    /// Tiles of `m` rows.
    #[inline(always)]
    pub(crate) fn tiles(&self, m: u32) -> u32 {
        self.rows.div_ceil(m)
    }
    #[inline(always)]
    fn window<T>(&self, base: *mut T, i: u32, m: u32) -> Window<T> {
        let at = i as u64 * m as u64;
        let left = if at < self.rows as u64 { self.rows - at as u32 } else { 0 };
        Window {
            // only what is inside is ever touched, so an offset past the end is never followed
            ptr: base.wrapping_add(at.wrapping_mul(self.stride) as usize),
            rows: if left < m { left } else { m },
            cols: self.cols,
            stride: self.stride,
            whole: Some(self.whole),
        }
    }
}

/// A read-only matrix of at most `N` columns cut into tiles of `M` rows. Freely copied.
pub struct RowTiles<'a, T, const M: usize, const N: usize> {
    pub(crate) base: *const T,
    pub(crate) raw: RawRows,
    #[cfg(not(target_arch = "nvptx64"))]
    pub(crate) provenance: Provenance<'a>,
    _p: PhantomData<&'a T>,
}
impl<T, const M: usize, const N: usize> Clone for RowTiles<'_, T, M, N> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}
impl<T, const M: usize, const N: usize> Copy for RowTiles<'_, T, M, N> {}
// SAFETY: as `&[T]`.
unsafe impl<T: Element, const M: usize, const N: usize> Send for RowTiles<'_, T, M, N> {}
// SAFETY: as above.
unsafe impl<T: Element, const M: usize, const N: usize> Sync for RowTiles<'_, T, M, N> {}

impl<'a, T: Element, const M: usize, const N: usize> RowTiles<'a, T, M, N> {
    /// Rows of the matrix.
    #[inline(always)]
    pub fn rows(&self) -> u32 {
        self.raw.rows
    }
    /// Columns of the matrix: at most `N`.
    #[inline(always)]
    pub fn cols(&self) -> u32 {
        self.raw.cols
    }
    /// The `i`th tile. A tile outside is empty: it reads as zeros.
    #[inline(always)]
    pub fn tile(&self, i: u32) -> TileRef<'a, T, M, N> {
        #[cfg(not(target_arch = "nvptx64"))]
        inside("tile", (i, self.raw.tiles(M as u32)), (0, 1));
        TileRef::new(self.raw.window(self.base.cast_mut(), i, M as u32))
    }
    /// The `i`th tile, if all accesses to all of its rows can be of 16 bytes: the address, the stride and the width allow it.
    /// Kernels whose rows fill the registers have none for elements at the edges.
    #[inline(always)]
    pub fn whole_tile(&self, i: u32) -> Option<TileRef<'a, T, M, N>> {
        if self.raw.whole != self.raw.cols {
            return None;
        }
        Some(TileRef::new(self.tile(i).window.all_whole()))
    }
    /// The running block's part of the `i`th tile: `P` of its columns, by the block's number in the cluster.
    #[inline(always)]
    pub fn part<const P: usize, const THREADS: usize, const CLUSTER: usize>(
        &self,
        cta: &Cta<THREADS, CLUSTER>,
        i: u32,
    ) -> TileRef<'a, T, M, P> {
        const { assert!(P * CLUSTER == N, "the blocks of a cluster have equal parts of a tile") };
        TileRef::new(self.tile(i).window.columns(cta.rank() * P as u32, P as u32))
    }
}

/// A writable matrix of at most `N` columns cut into tiles of `M` rows: a launch's claim on its output. Iterating over it
/// in a kernel yields the tiles of the running block with their numbers, each once.
pub struct RowTilesMut<'a, T, const M: usize, const N: usize> {
    pub(crate) base: *mut T,
    pub(crate) raw: RawRows,
    #[cfg(not(target_arch = "nvptx64"))]
    pub(crate) provenance: Provenance<'a>,
    #[cfg(not(target_arch = "nvptx64"))]
    pub(crate) place: backend::Place,
    _p: PhantomData<&'a mut T>,
}
// SAFETY: as `&mut [T]`.
unsafe impl<T: Element, const M: usize, const N: usize> Send for RowTilesMut<'_, T, M, N> {}

#[cfg(not(target_arch = "nvptx64"))]
impl<'a, T: Element, const M: usize, const N: usize> RowTiles<'a, T, M, N> {
    /// Whether [`whole_tile`](Self::whole_tile) has tiles.
    pub fn is_whole(&self) -> bool {
        self.raw.whole == self.raw.cols
    }
    /// # Safety
    /// As for [`Tiles::from_raw`](crate::view::Tiles::from_raw), `raw` being [`RawRows::of`] this base and this view.
    /// There are at most `N` columns.
    #[doc(hidden)]
    pub unsafe fn from_raw(base: *const T, raw: RawRows, provenance: Provenance<'a>) -> Self {
        assert!(raw.cols as usize <= N, "a row fits in a tile");
        RowTiles { base, raw, provenance, _p: PhantomData }
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl<'a, T: Element, const M: usize, const N: usize> RowTilesMut<'a, T, M, N> {
    /// Whether [`single_whole`](Self::single_whole) has a tile.
    pub fn is_whole(&self) -> bool {
        self.raw.whole == self.raw.cols
    }
    /// # Safety
    /// As for [`TilesMut::from_raw`](crate::view::TilesMut::from_raw), `raw` being [`RawRows::of`] this base and this
    /// view. There are at most `N` columns.
    #[doc(hidden)]
    pub unsafe fn from_raw(base: *mut T, raw: RawRows, provenance: Provenance<'a>) -> Self {
        assert!(raw.cols as usize <= N, "a row fits in a tile");
        RowTilesMut { base, raw, provenance, place: backend::Place::NOWHERE, _p: PhantomData }
    }
    /// # Safety
    /// At most once for each worker of a launch.
    pub(crate) unsafe fn at(&self, place: backend::Place) -> Self {
        self.place.must_be_nowhere();
        RowTilesMut { place, _p: PhantomData, ..*self }
    }
}

#[cfg(target_arch = "nvptx64")]
impl<T: Element, const M: usize, const N: usize> RowTiles<'_, T, M, N> {
    /// # Safety
    /// The launcher passed `base` and `raw` for a view of this type.
    #[inline(always)]
    pub(crate) unsafe fn receive(base: *mut u8, raw: RawRows) -> Self {
        RowTiles { base: base as *const T, raw, _p: PhantomData }
    }
}

#[cfg(target_arch = "nvptx64")]
impl<T: Element, const M: usize, const N: usize> RowTilesMut<'_, T, M, N> {
    /// # Safety
    /// The launcher passed `base` and `raw` for a view of this type; once a block.
    #[inline(always)]
    pub(crate) unsafe fn receive(base: *mut u8, raw: RawRows) -> Self {
        RowTilesMut { base: base as *mut T, raw, _p: PhantomData }
    }
}

impl<'a, T: Element, const M: usize, const N: usize> RowTilesMut<'a, T, M, N> {
    /// The running block's tile and its number, for kernels of `grid = one_tile`: there is a block for each tile.
    #[inline(always)]
    pub fn single(self) -> Option<(u32, TileMut<'a, T, M, N>)> {
        let (i, _workers) = self.worker();
        let tiles = self.raw.tiles(M as u32);
        #[cfg(not(target_arch = "nvptx64"))]
        assert!(_workers >= tiles, "fewer blocks than tiles: a kernel that takes a single one has `grid = one_tile`");
        if i >= tiles {
            return None;
        }
        // Workers have numbers of their own, and a tile each.
        Some((i, TileMut::new(self.raw.window(self.base, i, M as u32))))
    }
    /// As [`single`](Self::single), if all accesses to all rows can be of 16 bytes. Else nothing is written.
    #[inline(always)]
    pub fn single_whole(self) -> Option<(u32, TileMut<'a, T, M, N>)> {
        if self.raw.whole != self.raw.cols {
            return None;
        }
        let (i, tile) = self.single()?;
        Some((i, TileMut::new(tile.window.all_whole())))
    }
    #[cfg(target_arch = "nvptx64")]
    #[inline(always)]
    fn worker(&self) -> (u32, u32) {
        backend::worker()
    }
    #[cfg(not(target_arch = "nvptx64"))]
    fn worker(&self) -> (u32, u32) {
        (self.place.worker, self.place.workers)
    }
}

/// The running block's part of a tile that belongs to its cluster, by value: some of its columns.
pub struct PartMut<'a, T, const M: usize, const P: usize> {
    pub(crate) tile: TileMut<'a, T, M, P>,
}

impl<'a, T: Element, const M: usize, const N: usize> TileMut<'a, T, M, N> {
    /// The running block's part of the tile: `P` of its columns, by the block's number in the cluster. The other blocks
    /// have the other columns.
    #[inline(always)]
    pub fn part<const P: usize, const THREADS: usize, const CLUSTER: usize>(
        self,
        cta: &Cta<THREADS, CLUSTER>,
    ) -> PartMut<'a, T, M, P> {
        const { assert!(P * CLUSTER == N, "the blocks of a cluster have equal parts of a tile") };
        PartMut { tile: TileMut::new(self.window.columns(cta.rank() * P as u32, P as u32)) }
    }
}

/// The running block's tiles of a [`RowTilesMut`], with their numbers.
pub struct RowTilesIter<'a, T, const M: usize, const N: usize> {
    tiles: RowTilesMut<'a, T, M, N>,
    next: u32,
    step: u32,
}

impl<'a, T: Element, const M: usize, const N: usize> IntoIterator for RowTilesMut<'a, T, M, N> {
    type Item = (u32, TileMut<'a, T, M, N>);
    type IntoIter = RowTilesIter<'a, T, M, N>;
    #[inline(always)]
    fn into_iter(self) -> Self::IntoIter {
        let (next, step) = self.worker();
        RowTilesIter { tiles: self, next, step }
    }
}

impl<'a, T: Element, const M: usize, const N: usize> Iterator for RowTilesIter<'a, T, M, N> {
    type Item = (u32, TileMut<'a, T, M, N>);
    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        let i = self.next;
        if i >= self.tiles.raw.tiles(M as u32) {
            return None;
        }
        // Tickets of a worker are its number and every `step`th after it: no two workers share one, none comes twice.
        self.next = i.saturating_add(self.step);
        Some((i, TileMut::new(self.tiles.raw.window(self.tiles.base, i, M as u32))))
    }
}
