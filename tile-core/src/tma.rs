//! Views behind a tensor map: global memory that the bulk copy engine (TMA; PTX ISA, `cp.async.bulk.tensor`) moves.
//!
//! A tensor map describes a whole matrix and the box that one instruction moves. Boxes here are one swizzle span wide
//! (128 bytes) and at most 128 rows high, so a tile takes several; see [`box_rows`]. Outside the matrix, loads give
//! zeros and stores write nothing.

use core::marker::PhantomData;

use crate::backend;
#[cfg(not(target_arch = "nvptx64"))]
use crate::checked::inside;
use crate::element::Element;
use crate::schedule::{Linear, Plan, Schedule};
#[cfg(not(target_arch = "nvptx64"))]
use crate::view::Provenance;
use crate::view::RawView;

/// Bytes of one row of a box: the span of the 128-byte swizzle.
pub const SPAN: usize = 128;

/// Rows of the box that loads a tile of `m` rows: 128 for taller tiles, 64 where that divides, else the whole tile.
/// A tile taller than one box can be shared out among the blocks of a cluster, box by box.
pub const fn box_rows(m: usize) -> usize {
    if m > 128 && m % 128 == 0 {
        128
    } else if m % 64 == 0 {
        64
    } else {
        m
    }
}

/// Rows of the box that stores a tile: what one warpgroup's accumulator is high.
pub const STORE_ROWS: usize = 64;

/// The 128 opaque bytes of a `CUtensorMap`. Aligned to 8 here and to 64 in the PTX (the compiler refuses more).
#[derive(Clone, Copy)]
#[repr(C)]
pub struct TensorMap(pub [u64; 16]);

/// What the host must encode for a view, and cache.
#[cfg(not(target_arch = "nvptx64"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorMapRequest {
    /// The element type.
    pub dtype: crate::element::DType,
    /// Columns and rows of the matrix.
    pub dims: [u64; 2],
    /// Bytes from row to row.
    pub row_bytes: u64,
    /// Columns and rows of the box. 128-byte swizzle, zero fill.
    pub block: [u32; 2],
    /// Of a stack of matrices behind one map: how many, and bytes from one to the next.
    pub pages: Option<(u64, u64)>,
}

/// What travels to the device for a view behind a map.
#[doc(hidden)]
#[derive(Clone, Copy)]
#[repr(C)]
pub struct TmaMeta<S> {
    pub map: TensorMap,
    pub raw: RawView,
    pub schedule: S,
}

/// A read-only matrix cut into tiles of `M` x `N`, for the bulk copy engine. Freely copied.
pub struct TmaTiles<'a, T, const M: usize, const N: usize> {
    pub(crate) base: *const T,
    pub(crate) raw: RawView,
    /// On the device: the address of the map among the kernel's parameters.
    #[cfg(target_arch = "nvptx64")]
    pub(crate) map: u64,
    #[cfg(not(target_arch = "nvptx64"))]
    pub(crate) map: TensorMap,
    #[cfg(not(target_arch = "nvptx64"))]
    pub(crate) provenance: Provenance<'a>,
    _p: PhantomData<&'a T>,
}
impl<T, const M: usize, const N: usize> Clone for TmaTiles<'_, T, M, N> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}
impl<T, const M: usize, const N: usize> Copy for TmaTiles<'_, T, M, N> {}
// SAFETY: as `&[T]`.
unsafe impl<T: Element, const M: usize, const N: usize> Send for TmaTiles<'_, T, M, N> {}
// SAFETY: as above.
unsafe impl<T: Element, const M: usize, const N: usize> Sync for TmaTiles<'_, T, M, N> {}

impl<'a, T: Element, const M: usize, const N: usize> TmaTiles<'a, T, M, N> {
    const VALID: () = {
        assert!(N * size_of::<T>() % SPAN == 0, "a tile behind a tensor map is a multiple of 128 bytes wide");
        assert!(M % 8 == 0 && M <= 256, "a tile behind a tensor map has a multiple of 8 rows, 256 at most");
    };
    /// Rows of the matrix.
    #[inline(always)]
    pub fn rows(&self) -> u32 {
        self.raw.rows
    }
    /// Columns of the matrix.
    #[inline(always)]
    pub fn cols(&self) -> u32 {
        self.raw.cols
    }
    /// Tiles from top to bottom.
    #[inline(always)]
    pub fn down(&self) -> u32 {
        self.raw.rows.div_ceil(M as u32)
    }
    /// Tiles from left to right.
    #[inline(always)]
    pub fn across(&self) -> u32 {
        self.raw.cols.div_ceil(N as u32)
    }
    /// The tile in row `i` and column `j` of the grid. What lies outside reads as zero.
    #[inline(always)]
    pub fn tile(&self, i: u32, j: u32) -> TmaTile<'a, T, M, N> {
        let () = Self::VALID;
        #[cfg(not(target_arch = "nvptx64"))]
        inside("tile", (i, self.down()), (j, self.across()));
        // Clamped, so that a coordinate can not wrap round into the matrix: 2^31 - 1 is outside of every map.
        let at = |t: u32, size: u32, extent: u32| if t < extent.div_ceil(size) { t * size } else { i32::MAX as u32 };
        TmaTile {
            #[cfg(not(target_arch = "nvptx64"))]
            base: self.base,
            #[cfg(not(target_arch = "nvptx64"))]
            raw: self.raw,
            #[cfg(target_arch = "nvptx64")]
            map: self.map,
            x: at(j, N as u32, self.raw.cols),
            y: at(i, M as u32, self.raw.rows),
            _p: PhantomData,
        }
    }
}

impl<'a, T: Element, const M: usize, const N: usize> TmaTiles<'a, T, M, N> {
    /// `M` rows from row `row` on, of the first `N` columns. What lies outside reads as zero.
    #[inline(always)]
    pub fn rows_from(&self, row: u32) -> TmaTile<'a, T, M, N> {
        let row = if row < self.raw.rows { row } else { i32::MAX as u32 };
        TmaTile { y: row, ..self.tile(0, 0) }
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl<'a, T: Element, const M: usize, const N: usize> TmaTiles<'a, T, M, N> {
    /// What the map of a view with these extents must say.
    #[doc(hidden)]
    pub fn map_request(raw: &RawView) -> TensorMapRequest {
        let () = Self::VALID;
        map_request::<T>(raw, box_rows(M))
    }
    /// # Safety
    /// As [`Tiles::from_raw`](crate::view::Tiles::from_raw), for a matrix; on a CUDA device `map` is what
    /// [`map_request`](Self::map_request) asks for at `base`.
    #[doc(hidden)]
    pub unsafe fn from_raw(base: *const T, raw: RawView, map: TensorMap, provenance: Provenance<'a>) -> Self {
        TmaTiles { base, raw, map, provenance, _p: PhantomData }
    }
}

#[cfg(target_arch = "nvptx64")]
impl<T: Element, const M: usize, const N: usize> TmaTiles<'_, T, M, N> {
    /// # Safety
    /// The launcher passed a map and `raw` for a view of this type.
    #[inline(always)]
    pub(crate) unsafe fn receive(base: *mut u8, map: u64, raw: RawView) -> Self {
        TmaTiles { base: base as *const T, raw, map, _p: PhantomData }
    }
}

#[cfg(not(target_arch = "nvptx64"))]
fn map_request<T: Element>(raw: &RawView, rows: usize) -> TensorMapRequest {
    TensorMapRequest {
        dtype: T::DTYPE,
        dims: [raw.cols as u64, raw.rows as u64],
        row_bytes: raw.row_stride.saturating_mul(size_of::<T>() as u64),
        block: [(SPAN / size_of::<T>()) as u32, rows as u32],
        pages: None,
    }
}

/// One tile of a [`TmaTiles`]: a source for a pipeline's slot.
pub struct TmaTile<'a, T, const M: usize, const N: usize> {
    #[cfg(not(target_arch = "nvptx64"))]
    pub(crate) base: *const T,
    #[cfg(not(target_arch = "nvptx64"))]
    pub(crate) raw: RawView,
    #[cfg(target_arch = "nvptx64")]
    pub(crate) map: u64,
    pub(crate) x: u32,
    pub(crate) y: u32,
    _p: PhantomData<&'a T>,
}

impl<T: Element, const M: usize, const N: usize> Clone for TmaTile<'_, T, M, N> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}
impl<T: Element, const M: usize, const N: usize> Copy for TmaTile<'_, T, M, N> {}

impl<'a, T: Element, const M: usize, const N: usize> TmaTile<'a, T, M, N> {
    /// Columns `FROM..FROM + LEN` of the tile.
    #[inline(always)]
    pub fn columns<const FROM: usize, const LEN: usize>(self) -> TmaTile<'a, T, M, LEN> {
        const {
            assert!(FROM * size_of::<T>() % SPAN == 0 && LEN * size_of::<T>() % SPAN == 0, "boxes are 128 bytes wide");
            assert!(FROM + LEN <= N, "a column range lies in its tile");
        }
        TmaTile {
            #[cfg(not(target_arch = "nvptx64"))]
            base: self.base,
            #[cfg(not(target_arch = "nvptx64"))]
            raw: self.raw,
            #[cfg(target_arch = "nvptx64")]
            map: self.map,
            // past the end stays past the end: 2^31 - 1 and a little is negative for the copy engine, and outside
            x: self.x + FROM as u32,
            y: self.y,
            _p: PhantomData,
        }
    }
}

/// A writable matrix cut into tiles of `M` x `N`, written by the bulk copy engine. Its tiles are handed out as those of
/// [`TilesMut`](crate::view::TilesMut) are: in the order of the launch's schedule, each once.
pub struct TmaTilesMut<'a, T, const M: usize, const N: usize, S = Linear> {
    pub(crate) base: *mut T,
    pub(crate) raw: RawView,
    pub(crate) schedule: S,
    #[cfg(target_arch = "nvptx64")]
    pub(crate) map: u64,
    #[cfg(not(target_arch = "nvptx64"))]
    pub(crate) map: TensorMap,
    #[cfg(not(target_arch = "nvptx64"))]
    pub(crate) provenance: Provenance<'a>,
    #[cfg(not(target_arch = "nvptx64"))]
    pub(crate) place: backend::Place,
    pub(crate) _p: PhantomData<&'a mut T>,
}
// SAFETY: as `&mut [T]`.
unsafe impl<T: Element, const M: usize, const N: usize, S: Send> Send for TmaTilesMut<'_, T, M, N, S> {}

impl<'a, T: Element, const M: usize, const N: usize, S: Schedule> TmaTilesMut<'a, T, M, N, S> {
    /// Rows of the matrix.
    #[inline(always)]
    pub fn rows(&self) -> u32 {
        self.raw.rows
    }
    /// Columns of the matrix.
    #[inline(always)]
    pub fn cols(&self) -> u32 {
        self.raw.cols
    }
    /// The coordinates of the running block's (or cluster's) tiles, in order.
    #[inline(always)]
    pub fn plan(&self) -> Plan<S> {
        const { assert!(!S::STRIPS, "an output that the launch cuts into strips is taken by `strips`") };
        #[cfg(target_arch = "nvptx64")]
        let (index, workers) = backend::worker();
        #[cfg(not(target_arch = "nvptx64"))]
        let (index, workers) = (self.place.worker, self.place.workers);
        Plan::new(self.schedule, self.raw.rows.div_ceil(M as u32), self.raw.cols.div_ceil(N as u32), index, workers)
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl<'a, T: Element, const M: usize, const N: usize> TmaTilesMut<'a, T, M, N, Linear> {
    /// What the map of a view with these extents must say.
    #[doc(hidden)]
    pub fn map_request(raw: &RawView) -> TensorMapRequest {
        map_request::<T>(raw, STORE_ROWS)
    }
    /// # Safety
    /// As [`TilesMut::from_raw`](crate::view::TilesMut::from_raw), for a matrix; on a CUDA device `map` is what
    /// [`map_request`](Self::map_request) asks for at `base`.
    #[doc(hidden)]
    pub unsafe fn from_raw(base: *mut T, raw: RawView, map: TensorMap, provenance: Provenance<'a>) -> Self {
        let place = backend::Place::NOWHERE;
        TmaTilesMut { base, raw, schedule: Linear, map, provenance, place, _p: PhantomData }
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl<'a, T: Element, const M: usize, const N: usize, S: Schedule> TmaTilesMut<'a, T, M, N, S> {
    /// The same claim, worked on in another order.
    pub fn schedule<R: Schedule>(self, schedule: R) -> TmaTilesMut<'a, T, M, N, R> {
        self.place.must_be_nowhere();
        TmaTilesMut {
            base: self.base,
            raw: self.raw,
            schedule,
            map: self.map,
            provenance: self.provenance,
            place: self.place,
            _p: PhantomData,
        }
    }
    /// # Safety
    /// At most once for each worker of a launch.
    pub(crate) unsafe fn at(&self, place: backend::Place) -> Self {
        self.place.must_be_nowhere();
        TmaTilesMut { place, _p: PhantomData, ..*self }
    }
}

#[cfg(target_arch = "nvptx64")]
impl<T: Element, const M: usize, const N: usize, S: Schedule> TmaTilesMut<'_, T, M, N, S> {
    /// # Safety
    /// The launcher passed `base`, a map, `raw` and `schedule` for a view of this type; once a block.
    #[inline(always)]
    pub(crate) unsafe fn receive(base: *mut u8, map: u64, raw: RawView, schedule: S) -> Self {
        TmaTilesMut { base: base as *mut T, raw, schedule, map, _p: PhantomData }
    }
}
