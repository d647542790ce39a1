//! Global memory cut into tiles.
//!
//! A view is an address with extents and strides; it holds no reference, for `&mut` to memory that several threads hold
//! would itself be undefined behaviour. Who may write which tile is in the types: [`Tiles`] is shared and `Copy`,
//! [`TilesMut`] is neither `Copy` nor `Clone` and hands out each of its tiles once, by value, as [`TileMut`].
//!
//! The grid of tiles has `down() x across()` tiles. A view of rank 3 is a stack of matrices (slabs) of one shape; its
//! tile rows run through the slabs one after the other, and a tile never reaches from one slab into the next. Tiles at
//! the edges are clipped: what lies outside the view reads as zero and is not written.

use core::marker::PhantomData;

use crate::backend;
#[cfg(not(target_arch = "nvptx64"))]
use crate::checked::inside;
use crate::element::Element;
use crate::schedule::{Linear, Plan, Schedule, Strips};

/// Extents and strides of a view, as they travel to the device. Strides count elements; columns are adjacent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct RawView {
    /// Rows of one slab.
    pub rows: u32,
    /// Columns of one slab.
    pub cols: u32,
    /// How many slabs are stacked: 1 for a matrix.
    pub slabs: u32,
    /// Unused, zero.
    pub reserved: u32,
    /// Elements from one row to the next.
    pub row_stride: u64,
    /// Elements from one slab to the next.
    pub slab_stride: u64,
}
// SAFETY: six integers without padding; every bit pattern is valid.
unsafe impl bytemuck::Zeroable for RawView {}
// SAFETY: as above.
unsafe impl bytemuck::Pod for RawView {}
const _: () = assert!(size_of::<RawView>() == 32 && align_of::<RawView>() == 8);

impl RawView {
    /// A matrix of `rows` x `cols` with adjacent columns.
    pub const fn matrix(rows: u32, cols: u32, row_stride: u64) -> Self {
        RawView { rows, cols, slabs: 1, reserved: 0, row_stride, slab_stride: 0 }
    }

    /// Tile rows in one slab.
    #[inline(always)]
    pub const fn down_in_slab(&self, m: u32) -> u32 {
        self.rows.div_ceil(m)
    }

    /// Where tile row `i` begins: its first row as (slab, row in the slab). Slab `slabs` is past the end.
    #[inline(always)]
    fn row_of(&self, i: u32, m: u32) -> (u32, u32) {
        let down = self.down_in_slab(m);
        if self.slabs == 1 {
            return if i < down { (0, i * m) } else { (1, 0) };
        }
        let slab = i.checked_div(down).unwrap_or(self.slabs);
        if slab < self.slabs { (slab, (i - slab * down) * m) } else { (self.slabs, 0) }
    }
}

/// Who owns the memory of a view and on which device it lies: for the launcher, which tracks uses. Not on the device.
#[cfg(not(target_arch = "nvptx64"))]
#[derive(Clone, Copy)]
pub struct Provenance<'a> {
    /// The host's storage object, if the memory is the host crate's.
    pub owner: Option<&'a (dyn core::any::Any + Send + Sync)>,
    /// [`Provenance::CPU`], or a CUDA ordinal.
    pub device: u32,
}

#[cfg(not(target_arch = "nvptx64"))]
impl Provenance<'_> {
    /// The device number of host memory.
    pub const CPU: u32 = u32::MAX;
    /// That of a slice, which is borrowed no longer than a launch that is waited for.
    pub const SLICE: u32 = u32::MAX - 1;
    /// Host memory that nobody tracks.
    pub const UNTRACKED_CPU: Provenance<'static> = Provenance { owner: None, device: Self::CPU };
}

/// A window on a view: where one tile lies, and how much of it is inside.
pub(crate) struct Window<T> {
    pub(crate) ptr: *mut T,
    pub(crate) rows: u32,
    pub(crate) cols: u32,
    pub(crate) stride: u64,
    /// How many columns of every row can be accessed in pieces of 16 bytes, if that is known.
    #[cfg_attr(not(target_arch = "nvptx64"), allow(dead_code))]
    pub(crate) whole: Option<u32>,
}
impl<T> Clone for Window<T> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Window<T> {}

impl<T> Window<T> {
    /// Columns `from..from + n` of the window. `from` is a multiple of what 16 bytes hold.
    #[inline(always)]
    pub(crate) fn columns(&self, from: u32, n: u32) -> Self {
        let left = |all: u32| {
            let left = all.saturating_sub(from);
            if left < n { left } else { n }
        };
        Window {
            ptr: self.ptr.wrapping_add(from as usize),
            cols: left(self.cols),
            whole: self.whole.map(left),
            ..*self
        }
    }
    /// The same, known to be accessible in pieces of 16 bytes: for windows of which that is so.
    #[inline(always)]
    pub(crate) fn all_whole(&self) -> Self {
        Window { whole: Some(self.cols), ..*self }
    }
    #[inline(always)]
    fn of(base: *mut T, raw: &RawView, i: u32, j: u32, m: u32, n: u32) -> Self {
        let (slab, row) = raw.row_of(i, m);
        let inside = slab < raw.slabs && j < raw.cols.div_ceil(n);
        let (rows, cols, col) = if inside { (raw.rows - row, raw.cols - j * n, j * n) } else { (0, 0, 0) };
        let offset = slab as u64 * raw.slab_stride + row as u64 * raw.row_stride + col as u64;
        Window {
            // only `rows` x `cols` of it are ever touched, so an offset past the end is never followed
            ptr: base.wrapping_add(offset as usize),
            rows: if rows < m { rows } else { m },
            cols: if cols < n { cols } else { n },
            stride: raw.row_stride,
            whole: None,
        }
    }
}

/// A read-only view cut into tiles of `M` x `N`. Freely copied.
pub struct Tiles<'a, T, const M: usize, const N: usize> {
    pub(crate) base: *const T,
    pub(crate) raw: RawView,
    #[cfg(not(target_arch = "nvptx64"))]
    pub(crate) provenance: Provenance<'a>,
    _p: PhantomData<&'a T>,
}
impl<T, const M: usize, const N: usize> Clone for Tiles<'_, T, M, N> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}
impl<T, const M: usize, const N: usize> Copy for Tiles<'_, T, M, N> {}
// SAFETY: as `&[T]`: elements are Send and Sync, and a view only reads.
unsafe impl<T: Element, const M: usize, const N: usize> Send for Tiles<'_, T, M, N> {}
// SAFETY: as above.
unsafe impl<T: Element, const M: usize, const N: usize> Sync for Tiles<'_, T, M, N> {}

impl<'a, T: Element, const M: usize, const N: usize> Tiles<'a, T, M, N> {
    /// Rows of the view (of one slab).
    #[inline(always)]
    pub fn rows(&self) -> u32 {
        self.raw.rows
    }
    /// Columns of the view.
    #[inline(always)]
    pub fn cols(&self) -> u32 {
        self.raw.cols
    }
    /// Tiles from top to bottom, through all slabs.
    #[inline(always)]
    pub fn down(&self) -> u32 {
        self.raw.down_in_slab(M as u32) * self.raw.slabs
    }
    /// Tiles from left to right.
    #[inline(always)]
    pub fn across(&self) -> u32 {
        self.raw.cols.div_ceil(N as u32)
    }
    /// The tile in row `i` and column `j` of the grid. A tile outside is empty: it reads as zeros.
    #[inline(always)]
    pub fn tile(&self, i: u32, j: u32) -> TileRef<'a, T, M, N> {
        #[cfg(not(target_arch = "nvptx64"))]
        inside("tile", (i, self.down()), (j, self.across()));
        TileRef { window: Window::of(self.base.cast_mut(), &self.raw, i, j, M as u32, N as u32), _p: PhantomData }
    }
    /// The tiles of row `i` of the grid. A loop along a row takes them from here: the row is looked up once.
    #[inline(always)]
    pub fn strip(&self, i: u32) -> Strip<'a, T, M, N> {
        let first = Window::of(self.base.cast_mut(), &self.raw, i, 0, M as u32, N as u32);
        Strip { window: Window { cols: if first.rows > 0 { self.raw.cols } else { 0 }, ..first }, _p: PhantomData }
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl<'a, T: Element, const M: usize, const N: usize> Tiles<'a, T, M, N> {
    /// # Safety
    /// `base` points to memory of `raw`'s extents and strides, readable on the device named and written by nobody
    /// during `'a`, nor while a launch that was given this view is under way.
    #[doc(hidden)]
    pub unsafe fn from_raw(base: *const T, raw: RawView, provenance: Provenance<'a>) -> Self {
        Tiles { base, raw, provenance, _p: PhantomData }
    }
}

#[cfg(target_arch = "nvptx64")]
impl<T: Element, const M: usize, const N: usize> Tiles<'_, T, M, N> {
    /// # Safety
    /// The launcher passed `base` and `raw` for a view of this type.
    #[inline(always)]
    pub(crate) unsafe fn receive(base: *mut u8, raw: RawView) -> Self {
        Tiles { base: base as *const T, raw, _p: PhantomData }
    }
}

/// One tile of a [`Tiles`]: something to load from.
pub struct TileRef<'a, T, const M: usize, const N: usize> {
    pub(crate) window: Window<T>,
    _p: PhantomData<&'a T>,
}
impl<T, const M: usize, const N: usize> Clone for TileRef<'_, T, M, N> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}
impl<T, const M: usize, const N: usize> Copy for TileRef<'_, T, M, N> {}

impl<T, const M: usize, const N: usize> TileRef<'_, T, M, N> {
    #[inline(always)]
    pub(crate) fn new(window: Window<T>) -> Self {
        TileRef { window, _p: PhantomData }
    }
}

/// One row of tiles of a [`Tiles`], from left to right.
pub struct Strip<'a, T, const M: usize, const N: usize> {
    window: Window<T>,
    _p: PhantomData<&'a T>,
}
impl<T, const M: usize, const N: usize> Clone for Strip<'_, T, M, N> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}
impl<T, const M: usize, const N: usize> Copy for Strip<'_, T, M, N> {}

impl<'a, T: Element, const M: usize, const N: usize> Strip<'a, T, M, N> {
    /// Tiles from left to right; none, if the row lies outside.
    #[inline(always)]
    pub fn across(&self) -> u32 {
        self.window.cols.div_ceil(N as u32)
    }
    /// The `count` columns from `first` on, as far as there are that many.
    #[inline(always)]
    pub fn part(&self, first: u32, count: u32) -> Self {
        let w = &self.window;
        let left = w.cols.saturating_sub(first);
        let window = Window {
            ptr: w.ptr.wrapping_add(first as usize),
            cols: if left < count { left } else { count },
            whole: None,
            ..*w
        };
        Strip { window, _p: PhantomData }
    }
    /// All columns.
    #[cfg(target_arch = "nvptx64")]
    #[inline(always)]
    pub(crate) fn window(&self) -> &Window<T> {
        &self.window
    }
    /// The `j`th tile. A tile outside is empty: it reads as zeros.
    #[inline(always)]
    pub fn tile(&self, j: u32) -> TileRef<'a, T, M, N> {
        let w = &self.window;
        #[cfg(not(target_arch = "nvptx64"))]
        inside("tile of a strip", (0, w.rows.min(1)), (j, self.across()));
        let at = j as u64 * N as u64;
        let left = if at < w.cols as u64 { w.cols - at as u32 } else { 0 };
        let window =
            Window { ptr: w.ptr.wrapping_add(at as usize), cols: if left < N as u32 { left } else { N as u32 }, ..*w };
        TileRef { window, _p: PhantomData }
    }
}

impl<'a, T: Element> Tiles<'a, T, 1, 1> {
    /// The element in row `i` and column `j` of a matrix (of a stack: of its first), zero outside of it. All threads read
    /// it, and all read the same. Cheaper than by way of [`tile`](Tiles::tile), which looks for the matrix first.
    #[inline(always)]
    pub fn element(&self, _team: &mut impl crate::roles::Token, i: u32, j: u32) -> T::Value {
        #[cfg(not(target_arch = "nvptx64"))]
        inside("element", (i, self.raw.rows), (j, self.raw.cols));
        if i >= self.raw.rows || j >= self.raw.cols || self.raw.slabs == 0 {
            return T::Value::default();
        }
        let at = i as u64 * self.raw.row_stride + j as u64;
        // SAFETY: inside the view, which nobody writes during the launch.
        unsafe { self.base.wrapping_add(at as usize).read() }.to_value()
    }
    /// Row `i` of a matrix (of a stack: of its first), element by element; empty outside of it.
    #[inline(always)]
    pub fn list(&self, i: u32) -> Strip<'a, T, 1, 1> {
        let raw = &self.raw;
        #[cfg(not(target_arch = "nvptx64"))]
        inside("list", (i, raw.rows), (0, 1));
        let (at, cols) = if i < raw.rows && raw.slabs > 0 { (i as u64 * raw.row_stride, raw.cols) } else { (0, 0) };
        let ptr = self.base.wrapping_add(at as usize).cast_mut();
        Strip { window: Window { ptr, rows: 1, cols, stride: raw.row_stride, whole: None }, _p: PhantomData }
    }
}

impl Tiles<'_, i64, 1, 1> {
    /// Element `i` of a matrix of one column (of a stack: of its first), if it is inside. Each thread may read another.
    #[inline(always)]
    pub(crate) fn index(&self, i: u64) -> Option<i64> {
        if i >= self.raw.rows as u64 || self.raw.cols == 0 || self.raw.slabs == 0 {
            return None;
        }
        // SAFETY: inside the view, which nobody writes during the launch.
        Some(unsafe { self.base.wrapping_add((i * self.raw.row_stride) as usize).read() })
    }
}

impl Strip<'_, i32, 1, 1> {
    /// Element `j`, if it is inside.
    #[inline(always)]
    pub(crate) fn entry(&self, j: u32) -> Option<i32> {
        if self.window.rows == 0 || j >= self.window.cols {
            return None;
        }
        // SAFETY: inside the view, which nobody writes during the launch.
        Some(unsafe { self.window.ptr.wrapping_add(j as usize).read() })
    }
}

impl<T: Element> TileRef<'_, T, 1, 1> {
    /// The one element, zero outside the view. All threads read it, and all read the same: nobody writes to a view
    /// during the launch.
    #[inline(always)]
    pub fn scalar(self, _threads: &mut impl crate::roles::Token) -> T::Value {
        if self.window.rows == 0 || self.window.cols == 0 {
            return T::Value::default();
        }
        // SAFETY: inside the view.
        unsafe { self.window.ptr.read() }.to_value()
    }
}

/// A writable view cut into tiles of `M` x `N`: a launch's claim on its output.
///
/// Iterating over it in a kernel yields the tiles of the running block, in the order of the schedule `S`, each once. The
/// schedule is part of the value, chosen at the launch: were it chosen in the kernel, blocks could choose different
/// ones and overlap.
pub struct TilesMut<'a, T, const M: usize, const N: usize, S = Linear> {
    pub(crate) base: *mut T,
    pub(crate) raw: RawView,
    pub(crate) schedule: S,
    #[cfg(not(target_arch = "nvptx64"))]
    pub(crate) provenance: Provenance<'a>,
    #[cfg(not(target_arch = "nvptx64"))]
    pub(crate) place: backend::Place,
    pub(crate) _p: PhantomData<&'a mut T>,
}
// SAFETY: as `&mut [T]`.
unsafe impl<T: Element, const M: usize, const N: usize, S: Send> Send for TilesMut<'_, T, M, N, S> {}

impl<'a, T: Element, const M: usize, const N: usize, S: Schedule> TilesMut<'a, T, M, N, S> {
    /// Rows of the view (of one slab).
    #[inline(always)]
    pub fn rows(&self) -> u32 {
        self.raw.rows
    }
    /// Columns of the view.
    #[inline(always)]
    pub fn cols(&self) -> u32 {
        self.raw.cols
    }
    /// The coordinates of the running block's tiles, in order.
    #[inline(always)]
    pub fn plan(&self) -> Plan<S> {
        const { assert!(!S::STRIPS, "an output that the launch cuts into strips is taken by `strips`") };
        let (index, workers) = self.worker();
        let down = self.raw.down_in_slab(M as u32) * self.raw.slabs;
        Plan::new(self.schedule, down, self.raw.cols.div_ceil(N as u32), index, workers)
    }
    /// The running block's one tile and its coordinates, for kernels of `grid = one_tile`: there is a block for each tile.
    #[inline(always)]
    pub fn single(self) -> Option<((u32, u32), TileMut<'a, T, M, N>)> {
        #[cfg(not(target_arch = "nvptx64"))]
        {
            let tiles = self.raw.down_in_slab(M as u32) as u64
                * self.raw.slabs as u64
                * self.raw.cols.div_ceil(N as u32) as u64;
            let enough = self.place.workers as u64 >= tiles;
            assert!(enough, "fewer blocks than tiles: a kernel that takes a single one has `grid = one_tile`");
        }
        self.into_iter().next()
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
    /// # Safety
    /// At most one live window on a tile.
    #[inline(always)]
    pub(crate) unsafe fn window(&self, i: u32, j: u32) -> Window<T> {
        Window::of(self.base, &self.raw, i, j, M as u32, N as u32)
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl<'a, T: Element, const M: usize, const N: usize> TilesMut<'a, T, M, N, Linear> {
    /// # Safety
    /// `base` points to memory of `raw`'s extents and strides on the device named; its strides are injective; nobody
    /// else reads or writes it during `'a`, nor while a launch that was given this view is under way.
    #[doc(hidden)]
    pub unsafe fn from_raw(base: *mut T, raw: RawView, provenance: Provenance<'a>) -> Self {
        TilesMut { base, raw, schedule: Linear, provenance, place: backend::Place::NOWHERE, _p: PhantomData }
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl<'a, T: Element, const M: usize, const N: usize, S: Schedule> TilesMut<'a, T, M, N, S> {
    /// The same claim, worked on in another order.
    pub fn schedule<R: Schedule>(self, schedule: R) -> TilesMut<'a, T, M, N, R> {
        self.place.must_be_nowhere();
        TilesMut {
            base: self.base,
            raw: self.raw,
            schedule,
            provenance: self.provenance,
            place: self.place,
            _p: PhantomData,
        }
    }
    /// # Safety
    /// At most once for each worker of a launch.
    pub(crate) unsafe fn at(&self, place: backend::Place) -> Self {
        self.place.must_be_nowhere();
        TilesMut { place, _p: PhantomData, ..*self }
    }
}

#[cfg(target_arch = "nvptx64")]
impl<T: Element, const M: usize, const N: usize, S: Schedule> TilesMut<'_, T, M, N, S> {
    /// # Safety
    /// The launcher passed `base`, `raw` and `schedule` for a view of this type; once a block.
    #[inline(always)]
    pub(crate) unsafe fn receive(base: *mut u8, raw: RawView, schedule: S) -> Self {
        TilesMut { base: base as *mut T, raw, schedule, _p: PhantomData }
    }
}

/// One tile of an output, by value: the running block's exclusive window on global memory.
pub struct TileMut<'a, T, const M: usize, const N: usize> {
    pub(crate) window: Window<T>,
    _p: PhantomData<&'a mut T>,
}

impl<T, const M: usize, const N: usize> TileMut<'_, T, M, N> {
    /// The one window on a tile that is the running block's.
    #[inline(always)]
    pub(crate) fn new(window: Window<T>) -> Self {
        TileMut { window, _p: PhantomData }
    }
}

impl<T: Element> TileMut<'_, T, 1, 1> {
    /// Writes one value, the same for all threads.
    #[inline(always)]
    pub fn set<const THREADS: usize, const CLUSTER: usize>(
        self,
        _cta: &mut crate::roles::Cta<'_, THREADS, CLUSTER>,
        value: T::Value,
    ) {
        const { assert!(CLUSTER == 1, "the tiles of an output belong to a whole cluster: in one, `roles` shares them out") };
        if self.window.rows > 0 && self.window.cols > 0 {
            // SAFETY: inside the window, which is this block's alone; by one of its threads.
            unsafe { backend::once_a_block(|| self.window.ptr.write(T::from_value(value))) }
        }
    }
}

/// `M` whole rows of an output, by value: what the running block owns of it when rows are longer than a tile. Tile `j`
/// of it may be read and written any number of times.
pub struct StripMut<'a, T, const M: usize, const N: usize> {
    base: *mut T,
    raw: RawView,
    row: u32,
    _p: PhantomData<(&'a mut T, backend::NotShared)>,
}

impl<T, const M: usize, const N: usize> StripMut<'_, T, M, N> {
    /// Tiles from left to right.
    #[inline(always)]
    pub fn across(&self) -> u32 {
        self.raw.cols.div_ceil(N as u32)
    }
    #[inline(always)]
    pub(crate) fn window(&self, j: u32) -> Window<T> {
        Window::of(self.base, &self.raw, self.row, j, M as u32, N as u32)
    }
}

/// The running block's strips of a [`TilesMut`], with the tile row of each.
pub struct StripsIter<'a, T, const M: usize, const N: usize, S> {
    tiles: TilesMut<'a, T, M, N, S>,
    plan: Plan<S>,
}

impl<'a, T: Element, const M: usize, const N: usize, S: Schedule> Iterator for StripsIter<'a, T, M, N, S> {
    type Item = (u32, StripMut<'a, T, M, N>);
    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        let (row, _) = self.plan.next()?;
        Some((row, StripMut { base: self.tiles.base, raw: self.tiles.raw, row, _p: PhantomData }))
    }
}

impl<'a, T: Element, const M: usize, const N: usize> TilesMut<'a, T, M, N, Strips> {
    /// Shared out by whole rows of tiles.
    #[inline(always)]
    pub fn strips(self) -> StripsIter<'a, T, M, N, Strips> {
        let (index, workers) = self.worker();
        let down = self.raw.down_in_slab(M as u32) * self.raw.slabs;
        StripsIter { plan: Plan::new(self.schedule, down, 1, index, workers), tiles: self }
    }
}

/// The running block's tiles of a [`TilesMut`], with their coordinates.
pub struct TilesIter<'a, T, const M: usize, const N: usize, S> {
    tiles: TilesMut<'a, T, M, N, S>,
    plan: Plan<S>,
}

impl<'a, T: Element, const M: usize, const N: usize, S: Schedule> Iterator for TilesIter<'a, T, M, N, S> {
    type Item = ((u32, u32), TileMut<'a, T, M, N>);
    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        let (i, j) = self.plan.next()?;
        // SAFETY: a plan yields each tile of its worker once, and workers share none.
        let window = unsafe { self.tiles.window(i, j) };
        Some(((i, j), TileMut { window, _p: PhantomData }))
    }
}

impl<'a, T: Element, const M: usize, const N: usize, S: Schedule> IntoIterator for TilesMut<'a, T, M, N, S> {
    type Item = ((u32, u32), TileMut<'a, T, M, N>);
    type IntoIter = TilesIter<'a, T, M, N, S>;
    #[inline(always)]
    fn into_iter(self) -> Self::IntoIter {
        TilesIter { plan: self.plan(), tiles: self }
    }
}
