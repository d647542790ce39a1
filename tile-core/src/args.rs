//! How each kind of view travels to a kernel: the [`Arg`]s that are not scalars.

#[cfg(not(target_arch = "nvptx64"))]
use crate::backend;
use crate::element::Element;
#[cfg(not(target_arch = "nvptx64"))]
use crate::kernel::Facts;
use crate::kernel::{Arg, hash};
use crate::owned::{OwnedMeta, OwnedTiles};
use crate::pages::TmaPages;
use crate::row_tiles::{RawRows, RowTiles, RowTilesMut};
use crate::scatter::{ScatterMeta, ScatterRows};
use crate::schedule::Schedule;
use crate::tma::{TmaMeta, TmaTiles, TmaTilesMut};
use crate::view::{RawView, Tiles, TilesMut};

const fn view_signature<T: Element, M>(kind: u64, m: usize, n: usize, schedule: u64) -> u64 {
    assert!(size_of::<T>() <= 4 || m * n == 1, "elements of 64 bits are read one at a time: tiles of 1 x 1");
    hash(&[kind, T::DTYPE as u64, m as u64, n as u64, schedule, size_of::<M>() as u64, align_of::<M>() as u64])
}

// SAFETY: `RawView` is repr(C).
unsafe impl<T: Element, const M: usize, const N: usize> Arg for Tiles<'_, T, M, N> {
    const SIGNATURE: u64 = view_signature::<T, RawView>(2, M, N, 0);
    type Meta = RawView;
    #[cfg(target_arch = "nvptx64")]
    #[inline(always)]
    unsafe fn receive(ptr: *mut u8, meta: RawView, _: u64) -> Self {
        // SAFETY: the caller's.
        unsafe { Self::receive(ptr, meta) }
    }
    #[cfg(not(target_arch = "nvptx64"))]
    fn lower(&self) -> (u64, RawView) {
        (self.base as u64, self.raw)
    }
    #[cfg(not(target_arch = "nvptx64"))]
    fn facts(&self) -> Facts<'_> {
        Facts { provenance: Some(self.provenance), mutable: false, tiles: None }
    }
    #[cfg(not(target_arch = "nvptx64"))]
    unsafe fn at(&self, _: backend::Place) -> Self {
        *self
    }
    #[cfg(not(target_arch = "nvptx64"))]
    fn without_owner(mut self) -> Self {
        self.provenance.owner = None;
        self
    }
}

/// What travels for a [`TilesMut`].
#[doc(hidden)]
#[derive(Clone, Copy)]
#[repr(C)]
pub struct OutMeta<S> {
    pub raw: RawView,
    pub schedule: S,
}

// SAFETY: `OutMeta` is repr(C), and so are the schedules.
unsafe impl<T: Element, const M: usize, const N: usize, S: Schedule> Arg for TilesMut<'_, T, M, N, S> {
    const SIGNATURE: u64 = view_signature::<T, OutMeta<S>>(3, M, N, S::ID);
    type Meta = OutMeta<S>;
    #[cfg(target_arch = "nvptx64")]
    #[inline(always)]
    unsafe fn receive(ptr: *mut u8, meta: OutMeta<S>, _: u64) -> Self {
        // SAFETY: the caller's.
        unsafe { Self::receive(ptr, meta.raw, meta.schedule) }
    }
    #[cfg(not(target_arch = "nvptx64"))]
    fn lower(&self) -> (u64, OutMeta<S>) {
        (self.base as u64, OutMeta { raw: self.raw, schedule: self.schedule })
    }
    #[cfg(not(target_arch = "nvptx64"))]
    fn facts(&self) -> Facts<'_> {
        let across = if S::STRIPS { 1 } else { self.raw.cols.div_ceil(N as u32) };
        let tiles = self.raw.rows.div_ceil(M as u32) as u64 * self.raw.slabs as u64 * across as u64;
        Facts { provenance: Some(self.provenance), mutable: true, tiles: Some(tiles) }
    }
    #[cfg(not(target_arch = "nvptx64"))]
    unsafe fn at(&self, place: backend::Place) -> Self {
        // SAFETY: the caller's.
        unsafe { TilesMut::at(self, place) }
    }
    #[cfg(not(target_arch = "nvptx64"))]
    fn without_owner(mut self) -> Self {
        self.provenance.owner = None;
        self
    }
}

// SAFETY: `RawRows` is repr(C).
unsafe impl<T: Element, const M: usize, const N: usize> Arg for RowTiles<'_, T, M, N> {
    const SIGNATURE: u64 = view_signature::<T, RawRows>(6, M, N, 0);
    type Meta = RawRows;
    #[cfg(target_arch = "nvptx64")]
    #[inline(always)]
    unsafe fn receive(ptr: *mut u8, meta: RawRows, _: u64) -> Self {
        // SAFETY: the caller's.
        unsafe { Self::receive(ptr, meta) }
    }
    #[cfg(not(target_arch = "nvptx64"))]
    fn lower(&self) -> (u64, RawRows) {
        (self.base as u64, self.raw)
    }
    #[cfg(not(target_arch = "nvptx64"))]
    fn facts(&self) -> Facts<'_> {
        Facts { provenance: Some(self.provenance), mutable: false, tiles: None }
    }
    #[cfg(not(target_arch = "nvptx64"))]
    unsafe fn at(&self, _: backend::Place) -> Self {
        *self
    }
    #[cfg(not(target_arch = "nvptx64"))]
    fn without_owner(mut self) -> Self {
        self.provenance.owner = None;
        self
    }
}

// SAFETY: as above.
unsafe impl<T: Element, const M: usize, const N: usize> Arg for RowTilesMut<'_, T, M, N> {
    const SIGNATURE: u64 = view_signature::<T, RawRows>(7, M, N, 0);
    type Meta = RawRows;
    #[cfg(target_arch = "nvptx64")]
    #[inline(always)]
    unsafe fn receive(ptr: *mut u8, meta: RawRows, _: u64) -> Self {
        // SAFETY: the caller's.
        unsafe { Self::receive(ptr, meta) }
    }
    #[cfg(not(target_arch = "nvptx64"))]
    fn lower(&self) -> (u64, RawRows) {
        (self.base as u64, self.raw)
    }
    #[cfg(not(target_arch = "nvptx64"))]
    fn facts(&self) -> Facts<'_> {
        let tiles = if self.raw.cols == 0 { 0 } else { self.raw.tiles(M as u32) };
        Facts { provenance: Some(self.provenance), mutable: true, tiles: Some(tiles.into()) }
    }
    #[cfg(not(target_arch = "nvptx64"))]
    unsafe fn at(&self, place: backend::Place) -> Self {
        // SAFETY: the caller's.
        unsafe { RowTilesMut::at(self, place) }
    }
    #[cfg(not(target_arch = "nvptx64"))]
    fn without_owner(mut self) -> Self {
        self.provenance.owner = None;
        self
    }
}

// SAFETY: `TmaMeta` is repr(C); the map comes first, where the PTX pass aligns it.
unsafe impl<T: Element, const M: usize, const N: usize> Arg for TmaTiles<'_, T, M, N> {
    const SIGNATURE: u64 = view_signature::<T, TmaMeta<()>>(4, M, N, 0);
    type Meta = TmaMeta<()>;
    #[cfg(target_arch = "nvptx64")]
    #[inline(always)]
    unsafe fn receive(ptr: *mut u8, meta: TmaMeta<()>, param: u64) -> Self {
        // SAFETY: the caller's.
        unsafe { Self::receive(ptr, param, meta.raw) }
    }
    #[cfg(not(target_arch = "nvptx64"))]
    fn lower(&self) -> (u64, TmaMeta<()>) {
        (self.base as u64, TmaMeta { map: self.map, raw: self.raw, schedule: () })
    }
    #[cfg(not(target_arch = "nvptx64"))]
    fn facts(&self) -> Facts<'_> {
        Facts { provenance: Some(self.provenance), mutable: false, tiles: None }
    }
    #[cfg(not(target_arch = "nvptx64"))]
    unsafe fn at(&self, _: backend::Place) -> Self {
        *self
    }
    #[cfg(not(target_arch = "nvptx64"))]
    fn without_owner(mut self) -> Self {
        self.provenance.owner = None;
        self
    }
}

// SAFETY: as above.
unsafe impl<T: Element, const BOX: usize, const N: usize> Arg for TmaPages<'_, T, BOX, N> {
    const SIGNATURE: u64 = view_signature::<T, TmaMeta<()>>(6, BOX, N, 0);
    type Meta = TmaMeta<()>;
    #[cfg(target_arch = "nvptx64")]
    #[inline(always)]
    unsafe fn receive(ptr: *mut u8, meta: TmaMeta<()>, param: u64) -> Self {
        // SAFETY: the caller's.
        unsafe { Self::receive(ptr, param, meta.raw) }
    }
    #[cfg(not(target_arch = "nvptx64"))]
    fn lower(&self) -> (u64, TmaMeta<()>) {
        let (base, raw) = self.base_and_raw();
        (base as u64, TmaMeta { map: self.map, raw, schedule: () })
    }
    #[cfg(not(target_arch = "nvptx64"))]
    fn facts(&self) -> Facts<'_> {
        Facts { provenance: Some(self.provenance), mutable: false, tiles: None }
    }
    #[cfg(not(target_arch = "nvptx64"))]
    unsafe fn at(&self, _: backend::Place) -> Self {
        *self
    }
    #[cfg(not(target_arch = "nvptx64"))]
    fn without_owner(mut self) -> Self {
        self.provenance.owner = None;
        self
    }
}

// SAFETY: as above.
unsafe impl<T: Element, const M: usize, const N: usize> Arg for OwnedTiles<'_, T, M, N> {
    const SIGNATURE: u64 = view_signature::<T, OwnedMeta>(7, M, N, 0);
    type Meta = OwnedMeta;
    #[cfg(target_arch = "nvptx64")]
    #[inline(always)]
    unsafe fn receive(ptr: *mut u8, meta: OwnedMeta, _: u64) -> Self {
        // SAFETY: the caller's.
        unsafe { Self::receive(ptr, meta) }
    }
    #[cfg(not(target_arch = "nvptx64"))]
    fn lower(&self) -> (u64, OwnedMeta) {
        (self.base as u64, self.meta())
    }
    #[cfg(not(target_arch = "nvptx64"))]
    fn facts(&self) -> Facts<'_> {
        Facts { provenance: self.provenance[0], mutable: true, tiles: Some(self.meta().tickets as u64) }
    }
    #[cfg(not(target_arch = "nvptx64"))]
    fn also(&self) -> [Option<Facts<'_>>; 2] {
        let [_, rows, owners] = self.provenance;
        [
            rows.map(|p| Facts { provenance: Some(p), mutable: true, tiles: None }),
            owners.map(|p| Facts { provenance: Some(p), mutable: false, tiles: None }),
        ]
    }
    #[cfg(not(target_arch = "nvptx64"))]
    unsafe fn at(&self, place: backend::Place) -> Self {
        // SAFETY: the caller's.
        unsafe { OwnedTiles::at(self, place) }
    }
    #[cfg(not(target_arch = "nvptx64"))]
    fn without_owner(mut self) -> Self {
        for provenance in self.provenance.iter_mut().flatten() {
            provenance.owner = None;
        }
        self
    }
}

// SAFETY: `ScatterMeta` is repr(C).
unsafe impl<T: Element, const N: usize> Arg for ScatterRows<'_, T, N> {
    const SIGNATURE: u64 = view_signature::<T, ScatterMeta>(8, 1, N, 0);
    type Meta = ScatterMeta;
    #[cfg(target_arch = "nvptx64")]
    #[inline(always)]
    unsafe fn receive(ptr: *mut u8, meta: ScatterMeta, _: u64) -> Self {
        // SAFETY: the caller's.
        unsafe { Self::receive(ptr, meta) }
    }
    #[cfg(not(target_arch = "nvptx64"))]
    fn lower(&self) -> (u64, ScatterMeta) {
        self.base_and_meta()
    }
    #[cfg(not(target_arch = "nvptx64"))]
    fn facts(&self) -> Facts<'_> {
        let tiles = Some(self.base_and_meta().1.tickets as u64);
        Facts { provenance: Some(self.provenance), mutable: true, tiles }
    }
    #[cfg(not(target_arch = "nvptx64"))]
    unsafe fn at(&self, place: backend::Place) -> Self {
        // SAFETY: the caller's.
        unsafe { ScatterRows::at(self, place) }
    }
    #[cfg(not(target_arch = "nvptx64"))]
    fn without_owner(mut self) -> Self {
        self.provenance.owner = None;
        self
    }
}

// SAFETY: as above.
unsafe impl<T: Element, const M: usize, const N: usize, S: Schedule> Arg for TmaTilesMut<'_, T, M, N, S> {
    const SIGNATURE: u64 = view_signature::<T, TmaMeta<S>>(5, M, N, S::ID);
    type Meta = TmaMeta<S>;
    #[cfg(target_arch = "nvptx64")]
    #[inline(always)]
    unsafe fn receive(ptr: *mut u8, meta: TmaMeta<S>, param: u64) -> Self {
        // SAFETY: the caller's.
        unsafe { Self::receive(ptr, param, meta.raw, meta.schedule) }
    }
    #[cfg(not(target_arch = "nvptx64"))]
    fn lower(&self) -> (u64, TmaMeta<S>) {
        (self.base as u64, TmaMeta { map: self.map, raw: self.raw, schedule: self.schedule })
    }
    #[cfg(not(target_arch = "nvptx64"))]
    fn facts(&self) -> Facts<'_> {
        let tiles = self.raw.rows.div_ceil(M as u32) as u64 * self.raw.cols.div_ceil(N as u32) as u64;
        Facts { provenance: Some(self.provenance), mutable: true, tiles: Some(tiles) }
    }
    #[cfg(not(target_arch = "nvptx64"))]
    unsafe fn at(&self, place: backend::Place) -> Self {
        // SAFETY: the caller's.
        unsafe { TmaTilesMut::at(self, place) }
    }
    #[cfg(not(target_arch = "nvptx64"))]
    fn without_owner(mut self) -> Self {
        self.provenance.owner = None;
        self
    }
}
