//! Shared memory on the CPU, and the copy engine's work.

use core::marker::PhantomData;
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};

use super::{AccElement, Barrier, RowValues, Wgmma, Width};
use crate::element::Element;
use crate::layout::{swizzle_128b, tile_offset};
use crate::mma::Packed;
use crate::pages::TmaGather;
use crate::roles::WarpGroup;
use crate::rows::AccRows;
use crate::tma::{SPAN, TmaTile};
use crate::view::{RawView, Window};

/// The shared memory of the blocks of one cluster, side by side.
pub(crate) struct Arena {
    ptr: *mut u8,
    layout: Layout,
}

impl Arena {
    /// `bytes` for each of `blocks`. None if there is no memory.
    pub(crate) fn new(bytes: usize, blocks: usize) -> Self {
        let layout =
            Layout::from_size_align(bytes.next_multiple_of(1024) * blocks, 1024).unwrap_or(Layout::new::<u8>());
        // SAFETY: the size is not zero: every block has scratch.
        let ptr = unsafe { alloc(layout) };
        if ptr.is_null() {
            handle_alloc_error(layout)
        }
        Arena { ptr, layout }
    }
    /// All ones: NaN in every floating-point type.
    pub(crate) fn poison(&mut self) {
        // SAFETY: the arena's own bytes, while no block runs.
        unsafe { self.ptr.write_bytes(0xff, self.layout.size()) }
    }
    /// The memory of block `rank` of `blocks`.
    pub(crate) fn of(&self, rank: u32, blocks: u32) -> Smem {
        let stride = self.layout.size() / blocks as usize;
        Smem { ptr: self.ptr.wrapping_add(rank as usize * stride), stride, rank }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.ptr, self.layout) }
    }
}

/// An address in a block's shared memory.
#[derive(Clone, Copy)]
pub struct Smem {
    pub(crate) ptr: *mut u8,
    /// Bytes from one block of the cluster to the next.
    stride: usize,
    pub(crate) rank: u32,
}

impl Smem {
    /// # Safety
    /// The four bytes are the caller's to write.
    pub(crate) unsafe fn store_u32(self, v: u32) {
        // SAFETY: the caller's.
        unsafe { (self.ptr as *mut u32).write(v) }
    }
    /// # Safety
    /// Nobody writes the four bytes at the same time.
    pub(crate) unsafe fn load_u32(self) -> u32 {
        // SAFETY: the caller's.
        unsafe { (self.ptr as *const u32).read() }
    }
    pub(crate) fn add(self, bytes: usize) -> Self {
        Smem { ptr: self.ptr.wrapping_add(bytes), ..self }
    }
    /// The same place in block `rank` of the cluster.
    pub(crate) fn peer(self, rank: u32) -> Self {
        let first = self.ptr.wrapping_sub(self.rank as usize * self.stride);
        Smem { ptr: first.wrapping_add(rank as usize * self.stride), rank, ..self }
    }
}

/// The running block's number in its cluster.
pub(crate) fn rank_of(base: Smem) -> u32 {
    base.rank
}

/// Copies a box as the copy engine does: swizzled, zeros for what lies outside.
///
/// # Safety
/// The box at `dst` is the caller's to write.
pub(crate) unsafe fn load<T: Element, const R: usize, const C: usize>(
    dst: Smem,
    tile: &TmaTile<'_, T, R, C>,
    column: usize,
    row: usize,
    rows: usize,
    _: Barrier,
) {
    let in_chunk = 16 / size_of::<T>();
    let (x, y) = (tile.x as usize + column, tile.y as usize + row);
    for r in 0..rows {
        for chunk in 0..SPAN / 16 {
            let c = x + chunk * in_chunk;
            let inside = if y + r < tile.raw.rows as usize {
                (tile.raw.cols as usize).saturating_sub(c).min(in_chunk)
            } else {
                0
            };
            // SAFETY: `inside` elements lie in the view; the chunk lies in the box.
            unsafe {
                let to = dst.ptr.add(swizzle_128b(r * SPAN + chunk * 16));
                let from = tile.base.wrapping_add((y + r) * tile.raw.row_stride as usize + c);
                core::ptr::copy_nonoverlapping(from as *const u8, to, inside * size_of::<T>());
                to.add(inside * size_of::<T>()).write_bytes(0, 16 - inside * size_of::<T>());
            }
        }
    }
}

/// The device keeps no value in registers that is asked for so.
pub(crate) fn here(value: u32) -> u32 {
    value
}

/// Where the boxes of a gathered source lie: 32 of them, as many as a warp has lanes.
#[derive(Clone, Copy)]
pub(crate) struct Found {
    boxes: [(i32, u32); 32],
    first: usize,
    none: bool,
}

/// Finds the boxes of `high` rows by `locate(row)`.
pub(crate) fn find(locate: impl Fn(u32) -> (i32, u32), high: u32) -> Found {
    Found { boxes: core::array::from_fn(|i| locate(i as u32 * high)), first: 0, none: false }
}

impl Found {
    fn of(&self, i: u32) -> (i32, u32) {
        if self.none { (i32::MAX, 0) } else { self.boxes[self.first + i as usize] }
    }
    /// From box `boxes` on.
    pub(crate) fn skip(self, boxes: u32) -> Self {
        Found { first: self.first + boxes as usize, ..self }
    }
    /// No box exists.
    pub(crate) fn nowhere(self) -> Self {
        Found { none: true, ..self }
    }
    /// Whether any of the first `boxes` boxes has no page.
    pub(crate) fn any_missing(&self, boxes: u32) -> bool {
        (0..boxes).any(|i| self.of(i).0 == i32::MAX)
    }
}

/// A stack of pages that columns on the right of a gathered tile come from.
pub struct Pages<'a, T, const M: usize>(*const T, RawView, PhantomData<&'a T>);

impl<T, const M: usize> Clone for Pages<'_, T, M> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}
impl<T, const M: usize> Copy for Pages<'_, T, M> {}

impl<T, const M: usize> Pages<'_, T, M> {
    pub(crate) const NONE: Self = Pages(core::ptr::null(), RawView::matrix(0, 0, 0), PhantomData);
    pub(crate) fn new(base: *const T, raw: RawView) -> Self {
        Pages(base, raw, PhantomData)
    }
}

/// Copies a tile of `R` rows, wherever their pages lie, to `dst`: `N` columns, and after them `M` of the same rows of `right`.
/// This block does every `K`th slab, into all blocks of the cluster, and arrives at `bar` of all.
///
/// # Safety
/// The tile of `R` x `N + M` at `dst` is the caller's to write, in every block.
pub(crate) unsafe fn gather<T: Element, const R: usize, const N: usize, const M: usize, const K: usize>(
    dst: Smem,
    from: &TmaGather<'_, T, N>,
    right: &Pages<'_, T, M>,
    bar: Barrier,
) {
    let (in_chunk, rank) = (16 / size_of::<T>(), if K > 1 { rank_of(dst) as usize } else { 0 });
    let high = from.high();
    for row in 0..R {
        let (page, y) = from.found.of(row as u32 / high);
        let y = y + row as u32 % high;
        for chunk in (0..(N + M) / in_chunk).filter(|chunk| chunk * 16 / SPAN % K == rank) {
            let column = chunk * in_chunk;
            let (base, raw, c) = if column < N {
                (from.base, &from.raw, from.x as usize + column)
            } else {
                (right.0, &right.1, column - N)
            };
            let inside = if (page as u32) < raw.slabs && y < raw.rows && raw.rows == from.raw.rows {
                (raw.cols as usize).saturating_sub(c).min(in_chunk)
            } else {
                0
            };
            let at = tile_offset(R, row, chunk * 16);
            for peer in 0..K as u32 {
                let dst = if K > 1 { dst.peer(peer) } else { dst };
                // SAFETY: `inside` elements lie in the view; the chunk lies in the tile.
                unsafe {
                    let to = dst.ptr.add(at);
                    let page = base.wrapping_add((page as usize).wrapping_mul(raw.slab_stride as usize));
                    let from = page.wrapping_add(y as usize * raw.row_stride as usize + c);
                    core::ptr::copy_nonoverlapping(from as *const u8, to, inside * size_of::<T>());
                    to.add(inside * size_of::<T>()).write_bytes(0, 16 - inside * size_of::<T>());
                }
            }
        }
    }
    bar.filled(K);
}

/// As [`load`], into all `K` blocks of the cluster.
///
/// # Safety
/// As for [`load`], in all those blocks.
pub(crate) unsafe fn multicast<T: Element, const R: usize, const C: usize, const K: usize>(
    dst: Smem,
    tile: &TmaTile<'_, T, R, C>,
    column: usize,
    row: usize,
    rows: usize,
    bar: Barrier,
) {
    for rank in 0..K as u32 {
        // SAFETY: the caller's.
        unsafe { load(dst.peer(rank), tile, column, row, rows, bar) }
    }
}

/// Rounds and writes the rows of a warpgroup's accumulator, clipped to the window.
///
/// # Safety
/// The window is the caller's alone.
pub(crate) unsafe fn store_rows<T: Element<Value = f32>, const N: usize, const H: usize>(
    w: &Window<T>,
    regs: &[<Width<N> as Wgmma>::Regs; H],
) where
    Width<N>: Wgmma,
{
    for r in 0..(w.rows as usize).min(64 * H) {
        let regs = regs[r / 64].as_ref();
        for c in 0..(w.cols as usize).min(N) {
            // SAFETY: inside the window.
            unsafe { w.ptr.add(r * w.stride as usize + c).write(T::from_value(regs[r % 64 * N + c])) }
        }
    }
}

/// As [`store_rows`].
///
/// # Safety
/// As for [`store_rows`].
pub(crate) unsafe fn store_wide<T: Element<Value = f32>, const N: usize>(
    w: &Window<T>,
    regs: [<Width<N> as Wgmma>::Regs; 1],
) where
    Width<N>: Wgmma,
{
    // SAFETY: the caller's.
    unsafe { store_rows::<T, N, 1>(w, &regs) }
}

/// Rounds and writes 64 rows of an accumulator as columns of the window, clipped to it: of its column groups of 8 those
/// whose number is `rank` modulo `SPLIT`.
///
/// # Safety
/// These elements of the window are the caller's alone.
pub(crate) unsafe fn store_transposed<T: AccElement, const N: usize, const SPLIT: usize>(
    w: &Window<T>,
    rank: u32,
    regs: <Width<N> as Wgmma>::Regs,
) where
    Width<N>: Wgmma,
{
    for c in (0..(w.rows as usize).min(N)).filter(|c| c / 8 % SPLIT == rank as usize) {
        for r in 0..(w.cols as usize).min(64) {
            // SAFETY: inside the window.
            unsafe { w.ptr.add(c * w.stride as usize + r).write(T::from_value(regs.as_ref()[r * N + c])) }
        }
    }
}

/// An address as a pointer: it was made of one by a cast, which exposed it.
pub(crate) fn global<T>(address: u64) -> *mut T {
    core::ptr::with_exposed_provenance_mut(address as usize)
}

/// Element `i` of the table at `base`.
///
/// # Safety
/// It is there, and nobody writes it during the launch.
pub(crate) unsafe fn read_u32(base: u64, i: u32) -> u32 {
    // SAFETY: the caller's.
    unsafe { (base as *const u32).add(i as usize).read() }
}

/// Writes a value a row into the first column of a window, clipped.
///
/// # Safety
/// The window is the caller's alone.
pub(crate) unsafe fn store_column(w: &Window<f32>, values: RowValues) {
    for (r, v) in values.iter().enumerate().take(if w.cols > 0 { w.rows as usize } else { 0 }) {
        // SAFETY: inside the window.
        unsafe { w.ptr.add(r * w.stride as usize).write(*v) }
    }
}

/// Writes a packed operand into a shared tile of 64 rows.
///
/// # Safety
/// The tile at `base` is the caller's to write.
pub(crate) unsafe fn write_packed<T: Element<Value = f32>, const K: usize>(
    _: &mut WarpGroup,
    base: Smem,
    value: &Packed<T, K>,
) where
    Width<K>: Wgmma,
{
    for (i, v) in value.regs.as_ref().iter().enumerate() {
        let at = tile_offset(64, i / K, i % K * size_of::<T>());
        // SAFETY: inside the tile.
        unsafe { (base.ptr.add(at) as *mut T).write(T::from_value(*v)) }
    }
}

/// Reads a shared tile of 64 rows.
///
/// # Safety
/// The tile is full.
pub(crate) unsafe fn read_packed<T: Element<Value = f32>, const K: usize>(_: &mut WarpGroup, base: Smem) -> Packed<T, K>
where
    Width<K>: Wgmma,
{
    let mut values = std::vec![0.0; 64 * K];
    for (i, v) in values.iter_mut().enumerate() {
        let at = tile_offset(64, i / K, i % K * size_of::<T>());
        // SAFETY: inside the tile.
        *v = unsafe { (base.ptr.add(at) as *const T).read() }.to_value();
    }
    Packed::new(Width::<K>::packed(values))
}

/// Writes a value a row.
///
/// # Safety
/// The row at `base` is the caller's to write.
pub(crate) unsafe fn write_row(_: &mut WarpGroup, base: Smem, value: &AccRows) {
    // SAFETY: 64 f32.
    unsafe { (base.ptr as *mut RowValues).write(value.values) }
}

/// Reads a value a row.
///
/// # Safety
/// The row is full.
pub(crate) unsafe fn read_row(_: &mut WarpGroup, base: Smem) -> AccRows {
    // SAFETY: 64 f32.
    AccRows::new(unsafe { (base.ptr as *const RowValues).read() })
}

/// Zeroes rows `from..rows` of a shared tile.
///
/// # Safety
/// The tile is the caller's to write.
pub(crate) unsafe fn zero_rows<T, const THREADS: u32>(base: Smem, rows: usize, cols: usize, from: u32) {
    for slab in 0..cols * size_of::<T>() / SPAN {
        let at = slab * rows * SPAN + from as usize * SPAN;
        // SAFETY: inside the tile.
        unsafe { base.ptr.add(at).write_bytes(0, (rows - from as usize) * SPAN) }
    }
}
