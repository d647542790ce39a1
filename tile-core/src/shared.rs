//! Shared memory: tiles in it, and what a pipeline's slot holds.

use core::marker::PhantomData;
use core::ops::Deref;

use crate::backend::{self, Barrier, Pack16, Smem, Wgmma, Width};
use crate::element::Element;
use crate::mma::Packed;
use crate::roles::{BlockScope, WarpGroup, Within};
use crate::rows::AccRows;
use crate::tma::{SPAN, TmaTile, box_rows};

/// Something that a kernel asks for in shared memory: a `#[shared]` parameter of the kernel function. Its size is known
/// from its type, so that the compiler adds them up. It lives no longer than its block, `'b`.
///
/// # Safety
/// `claim` uses at most `BYTES` bytes from `base` and `TAIL` from `tail`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` can not live in shared memory",
    note = "a `#[shared]` parameter is a `Pipeline`, `Staging`, `Stages`, `Turns`, `ClusterSum` or `ColumnScratch`; other parameters are launch arguments"
)]
pub unsafe trait Shared<'b>: Sized {
    /// Bytes of it that must begin at a multiple of 1024: tiles.
    const BYTES: usize;
    /// Bytes of it that need not: barriers, rows of scalars. They lie behind the tiles of all parameters, packed.
    const TAIL: usize = 0;
    /// # Safety
    /// Once a block, with memory of its own; `base` is 1024-byte aligned, `tail` 16-byte.
    #[doc(hidden)]
    unsafe fn claim(block: &'b BlockScope, base: Smem, tail: Smem) -> Self;
}

/// What one slot of a [`Pipeline`](crate::pipeline::Pipeline) holds: shared tiles or rows, filled all at once.
///
/// # Safety
/// A slot takes `BYTES` bytes from a multiple of `ALIGN`.
pub unsafe trait Stage: 'static {
    /// Bytes of a slot: a multiple of `ALIGN`.
    const BYTES: usize;
    /// 1024 for tiles, 16 for rows.
    const ALIGN: usize = 1024;
    /// How many blocks of a cluster fill each other's slots: 1 without multicast.
    const CLUSTER: usize;
    /// # Safety
    /// The slot at `base`.
    #[doc(hidden)]
    unsafe fn at(base: Smem) -> Self;
}

/// A stage that the copy engine fills, every tile of it from a global tile of its own shape.
///
/// # Safety
/// `load` brings exactly `BYTES` bytes to every block of the cluster that takes part.
#[diagnostic::on_unimplemented(message = "the copy engine can not fill `{Self}`", label = "not a tile")]
pub unsafe trait Load: Stage {
    /// Where a slot is filled from.
    type Source<'a>;
    /// # Safety
    /// By one thread; the slot is free and `bar` expects `BYTES` bytes.
    #[doc(hidden)]
    unsafe fn load(&self, source: Self::Source<'_>, bar: Barrier);
}

/// A stage that a warpgroup fills from a `V` in its registers: `Packed` into a tile, `AccRows` into a row.
///
/// # Safety
/// `store` writes the whole slot, so that it can be read, once the warpgroup has met, by products and by threads.
#[diagnostic::on_unimplemented(
    message = "`{Self}` can not be filled from `{V}`",
    note = "a `SharedTile<T, 64, C>` takes a `Packed<T, C>`, `SharedRow` a `AccRows`, a pair a pair"
)]
pub unsafe trait Store<V>: Stage {
    /// # Safety
    /// By the whole warpgroup; the slot is free.
    #[doc(hidden)]
    unsafe fn store(&self, wg: &mut WarpGroup, value: &V);
}

/// `R` x `C` elements in shared memory: slabs of 128-byte rows, 128-byte swizzle, as the copy engine writes and the
/// tensor cores read them. Not `Copy`: it lives in a slot.
pub struct SharedTile<T, const R: usize, const C: usize> {
    pub(crate) base: Smem,
    _p: PhantomData<T>,
}

impl<T: Element, const R: usize, const C: usize> SharedTile<T, R, C> {
    const SIZE: usize = {
        assert!(C * size_of::<T>() % SPAN == 0, "a shared tile is a multiple of 128 bytes wide");
        assert!(R % 8 == 0 && R <= 256, "a shared tile has a multiple of 8 rows, 256 at most");
        R * C * size_of::<T>()
    };
    /// Columns of one slab.
    const SLAB: usize = SPAN / size_of::<T>();

    /// The 64 rows that belong to a warpgroup, as the left operand of a product.
    #[inline(always)]
    pub fn rows_of(&self, wg: &WarpGroup) -> Rows<'_, T, C> {
        const { assert!(R % 64 == 0, "a warpgroup multiplies 64 rows") };
        // A warpgroup beyond the tile's rows (more consumers than R / 64) wraps: it repeats another's rows.
        let first = wg.index() % (R as u32 / 64) * 64;
        Rows { base: self.base.add(first as usize * SPAN), slab: R * SPAN, _p: PhantomData }
    }

    /// All rows, as the left operand of a product: `H` times 64.
    #[inline(always)]
    pub fn rows<const H: usize>(&self) -> Rows<'_, T, C, H> {
        self.columns::<0, C>().rows()
    }

    /// The whole tile, as the right operand of a product: `R` columns of the result, `C` of depth.
    #[inline(always)]
    pub fn all(&self) -> Right<'_, T, R, C> {
        self.columns::<0, C>().all()
    }

    /// The transposed tile, as the right operand of a product: `C` columns of the result, `R` of depth.
    #[inline(always)]
    pub fn t(&self) -> Right<'_, T, C, R, MnMajor> {
        self.columns::<0, C>().t()
    }

    /// Columns `FROM..FROM + LEN` of the tile, whole slabs.
    #[inline(always)]
    pub fn columns<const FROM: usize, const LEN: usize>(&self) -> Columns<'_, T, R, LEN> {
        const {
            assert!(FROM % Self::SLAB == 0 && LEN % Self::SLAB == 0, "a column range is made of slabs of 128 bytes");
            assert!(FROM + LEN <= C, "a column range lies in its tile");
        }
        Columns { base: self.base.add(FROM / Self::SLAB * R * SPAN), _p: PhantomData }
    }
}

impl<T: Pack16, const C: usize> SharedTile<T, 64, C>
where
    Width<C>: Wgmma,
{
    /// Reads the tile into registers, as a left operand. Ordinary loads.
    #[inline(always)]
    pub fn read(&self, wg: &mut WarpGroup) -> Packed<T, C> {
        // SAFETY: the tile's slot is held full.
        unsafe { backend::read_packed(wg, self.base) }
    }
}

// SAFETY: 64 rows of C elements.
unsafe impl<T: Pack16, const C: usize> Store<Packed<T, C>> for SharedTile<T, 64, C>
where
    Width<C>: Wgmma,
{
    #[inline(always)]
    unsafe fn store(&self, wg: &mut WarpGroup, value: &Packed<T, C>) {
        // SAFETY: the caller's.
        unsafe { backend::write_packed(wg, self.base, value) }
    }
}

/// A range of a shared tile's columns, borrowed from its slot.
pub struct Columns<'s, T, const R: usize, const C: usize> {
    base: Smem,
    _p: PhantomData<&'s T>,
}

impl<'s, T: Element, const R: usize, const C: usize> Columns<'s, T, R, C> {
    /// As the left operand of a product: `H` times 64 rows.
    #[inline(always)]
    pub fn rows<const H: usize>(&self) -> Rows<'s, T, C, H> {
        const { assert!(R == 64 * H, "an accumulator has as many rows as its left operand") };
        Rows { base: self.base, slab: R * SPAN, _p: PhantomData }
    }
    /// As the right operand of a product: `R` columns of the result, `C` of depth.
    #[inline(always)]
    pub fn all(&self) -> Right<'s, T, R, C> {
        Right { base: self.base, slab: R * SPAN, _p: PhantomData }
    }
    /// Transposed, as the right operand of a product: `C` columns of the result, `R` of depth.
    #[inline(always)]
    pub fn t(&self) -> Right<'s, T, C, R, MnMajor> {
        const { assert!(R % 64 == 0, "products are 64 deep") };
        Right { base: self.base, slab: R * SPAN, _p: PhantomData }
    }
}

/// `H` times 64 rows of a shared tile, borrowed from its slot: a left operand.
pub struct Rows<'s, T, const C: usize, const H: usize = 1> {
    pub(crate) base: Smem,
    /// Bytes from one slab to the next.
    pub(crate) slab: usize,
    _p: PhantomData<&'s T>,
}

/// A right operand: `N` columns of the result, `K` of depth, in a shared tile, borrowed from its slot.
pub struct Right<'s, T, const N: usize, const K: usize, M = KMajor> {
    pub(crate) base: Smem,
    /// Bytes from one slab to the next.
    pub(crate) slab: usize,
    _p: PhantomData<(&'s T, M)>,
}

/// Of a right operand: rows of the tile are columns of the result, depth is adjacent.
pub enum KMajor {}
/// Of a right operand: rows of the tile are the depth, columns of the result are adjacent (attention's V).
pub enum MnMajor {}

/// How a right operand lies in its tile. Sealed.
pub trait Major: sealed::Sealed {
    /// Columns of the result are adjacent.
    #[doc(hidden)]
    const TRANSPOSED: bool;
}
mod sealed {
    pub trait Sealed {}
    impl Sealed for super::KMajor {}
    impl Sealed for super::MnMajor {}
}
impl Major for KMajor {
    const TRANSPOSED: bool = false;
}
impl Major for MnMajor {
    const TRANSPOSED: bool = true;
}

/// One `f32` for each of 64 rows, in shared memory: how warpgroups exchange a [`AccRows`].
pub struct SharedRow {
    pub(crate) base: Smem,
}

impl SharedRow {
    /// Reads it. Ordinary loads.
    #[inline(always)]
    pub fn read(&self, wg: &mut WarpGroup) -> AccRows {
        // SAFETY: the row's slot is held full.
        unsafe { backend::read_row(wg, self.base) }
    }
}

// SAFETY: 64 f32.
unsafe impl Stage for SharedRow {
    const BYTES: usize = 256;
    const ALIGN: usize = 16;
    const CLUSTER: usize = 1;
    #[inline(always)]
    unsafe fn at(base: Smem) -> Self {
        SharedRow { base }
    }
}

// SAFETY: all 64.
unsafe impl Store<AccRows> for SharedRow {
    #[inline(always)]
    unsafe fn store(&self, wg: &mut WarpGroup, value: &AccRows) {
        // SAFETY: the caller's.
        unsafe { backend::write_row(wg, self.base, value) }
    }
}

// SAFETY: R x C elements.
unsafe impl<T: Element, const R: usize, const C: usize> Stage for SharedTile<T, R, C> {
    const BYTES: usize = Self::SIZE;
    const CLUSTER: usize = 1;
    #[inline(always)]
    unsafe fn at(base: Smem) -> Self {
        SharedTile { base, _p: PhantomData }
    }
}

// SAFETY: every box of every slab is loaded once; together R x C elements.
unsafe impl<T: Element, const R: usize, const C: usize> Load for SharedTile<T, R, C> {
    type Source<'a> = TmaTile<'a, T, R, C>;
    #[inline(always)]
    unsafe fn load(&self, source: TmaTile<'_, T, R, C>, bar: Barrier) {
        let high = const { box_rows(R) };
        let mut slab = 0;
        while slab < C / Self::SLAB {
            let mut row = 0;
            while row < R {
                let dst = self.base.add(slab * R * SPAN + row * SPAN);
                // SAFETY: the caller's; the box lies in this slot.
                unsafe { backend::load::<T, R, C>(dst, &source, slab * Self::SLAB, row, high, bar) };
                row += high;
            }
            slab += 1;
        }
    }
}

/// A shared tile that the `K` blocks of a cluster have in common: each loads its share and sends it to all.
/// All of them must name the same source tile.
pub struct Multicast<S, const K: usize>(S);

impl<S, const K: usize> Deref for Multicast<S, K> {
    type Target = S;
    #[inline(always)]
    fn deref(&self) -> &S {
        &self.0
    }
}

// SAFETY: as the tile.
unsafe impl<T: Element, const R: usize, const C: usize, const K: usize> Stage for Multicast<SharedTile<T, R, C>, K> {
    const BYTES: usize = SharedTile::<T, R, C>::SIZE;
    const CLUSTER: usize = K;
    #[inline(always)]
    unsafe fn at(base: Smem) -> Self {
        // SAFETY: the caller's.
        Multicast(unsafe { SharedTile::at(base) })
    }
}

// SAFETY: of all boxes, slab by slab, block r loads r, r + K, ...: together every box once, into every block.
unsafe impl<T: Element, const R: usize, const C: usize, const K: usize> Load for Multicast<SharedTile<T, R, C>, K> {
    type Source<'a> = TmaTile<'a, T, R, C>;
    #[inline(always)]
    unsafe fn load(&self, source: TmaTile<'_, T, R, C>, bar: Barrier) {
        let high = const {
            let boxes = R / box_rows(R) * (C / SharedTile::<T, R, C>::SLAB);
            assert!(boxes % K == 0, "a multicast tile has as many boxes for each block of the cluster");
            box_rows(R)
        };
        let rank = backend::rank_of(self.0.base) as usize;
        let (slab_boxes, boxes) = (R / high, R / high * (C / SharedTile::<T, R, C>::SLAB));
        let mut first = 0;
        while first < boxes {
            let number = first + rank;
            let (slab, row) = (number / slab_boxes, number % slab_boxes * high);
            let dst = self.0.base.add(slab * R * SPAN + row * SPAN);
            let column = slab * SharedTile::<T, R, C>::SLAB;
            // SAFETY: the caller's, in every block of the cluster.
            unsafe { backend::multicast::<T, R, C, K>(dst, &source, column, row, high, bar) };
            first += K;
        }
    }
}

// SAFETY: one after the other.
unsafe impl<A: Stage, B: Stage> Stage for (A, B) {
    const BYTES: usize = {
        assert!(A::BYTES % B::ALIGN == 0, "in a slot, tiles come before rows");
        A::BYTES + B::BYTES
    };
    const ALIGN: usize = if A::ALIGN > B::ALIGN { A::ALIGN } else { B::ALIGN };
    const CLUSTER: usize = if A::CLUSTER > B::CLUSTER { A::CLUSTER } else { B::CLUSTER };
    #[inline(always)]
    unsafe fn at(base: Smem) -> Self {
        // SAFETY: the caller's.
        unsafe { (A::at(base), B::at(base.add(A::BYTES))) }
    }
}

// SAFETY: each its own bytes.
unsafe impl<A: Load, B: Load> Load for (A, B) {
    type Source<'a> = (A::Source<'a>, B::Source<'a>);
    #[inline(always)]
    unsafe fn load(&self, source: Self::Source<'_>, bar: Barrier) {
        // SAFETY: the caller's.
        unsafe {
            self.0.load(source.0, bar);
            self.1.load(source.1, bar);
        }
    }
}

// SAFETY: each its own bytes.
unsafe impl<U, V, A: Store<U>, B: Store<V>> Store<(U, V)> for (A, B) {
    #[inline(always)]
    unsafe fn store(&self, wg: &mut WarpGroup, value: &(U, V)) {
        // SAFETY: the caller's.
        unsafe {
            self.0.store(wg, &value.0);
            self.1.store(wg, &value.1);
        }
    }
}

/// Buffers that tiles pass through on their way to global memory by the copy engine: `BUFFERS` of 64 rows of 128 bytes
/// for each of `WARPGROUPS` warpgroups. See [`TmaTilesMut::through`](crate::tma::TmaTilesMut::through).
pub struct Staging<'b, const WARPGROUPS: usize, const BUFFERS: usize> {
    pub(crate) base: Smem,
    /// A barrier for each warpgroup, and behind it how often its buffers were filled: see [`over`](crate::over).
    pub(crate) state: Smem,
    _p: Within<'b>,
}
// SAFETY: BYTES are those buffers, and the tail has 16 bytes for each warpgroup.
unsafe impl<'b, const WARPGROUPS: usize, const BUFFERS: usize> Shared<'b> for Staging<'b, WARPGROUPS, BUFFERS> {
    const BYTES: usize = WARPGROUPS * BUFFERS * 64 * SPAN;
    const TAIL: usize = WARPGROUPS * 16;
    #[inline(always)]
    unsafe fn claim(_: &'b BlockScope, base: Smem, state: Smem) -> Self {
        Staging { base, state, _p: PhantomData }
    }
}
