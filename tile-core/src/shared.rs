//! Shared memory: tiles in it, and what a pipeline's slot holds.

use core::marker::PhantomData;
use core::ops::Deref;

use crate::backend::{self, Barrier, Smem};
use crate::element::Element;
use crate::tma::{SPAN, TmaTile, box_rows};

/// Something that a kernel asks for in shared memory: a `#[shared]` parameter of the kernel function. Its size is known
/// from its type, so that the compiler adds them up.
///
/// # Safety
/// `claim` uses at most `BYTES` bytes from `base`.
pub unsafe trait Shared: Sized {
    /// Bytes it takes.
    const BYTES: usize;
    /// # Safety
    /// Once a block, with memory of its own, 1024-byte aligned.
    #[doc(hidden)]
    unsafe fn claim(base: Smem) -> Self;
}

/// What one slot of a [`Pipeline`](crate::pipeline::Pipeline) holds: shared tiles, each filled from a global tile of its
/// own shape, all of them at once.
///
/// # Safety
/// `load` brings exactly `BYTES` bytes to every block of the cluster that takes part.
pub unsafe trait Stage {
    /// Where a slot is filled from.
    type Source<'a>;
    /// Bytes of a slot: a multiple of 1024.
    const BYTES: usize;
    /// How many blocks of a cluster fill each other's slots: 1 without multicast.
    const CLUSTER: usize;
    /// # Safety
    /// The slot at `base`.
    #[doc(hidden)]
    unsafe fn at(base: Smem) -> Self;
    /// # Safety
    /// By one thread; the slot is free and `bar` expects `BYTES` bytes.
    #[doc(hidden)]
    unsafe fn load(&self, source: Self::Source<'_>, bar: Barrier);
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
    pub fn rows_of(&self, wg: &crate::roles::WarpGroup) -> Rows<'_, T, C> {
        const { assert!(R % 64 == 0, "a warpgroup multiplies 64 rows") };
        // A warpgroup beyond the tile's rows (more consumers than R / 64) wraps: it repeats another's rows.
        let first = wg.index() % (R as u32 / 64) * 64;
        Rows { base: self.base.add(first as usize * SPAN), slab: R * SPAN, _p: PhantomData }
    }

    /// The whole tile, as the right operand of a product: `R` columns of the result, `C` of depth.
    #[inline(always)]
    pub fn all(&self) -> All<'_, T, R, C> {
        All { base: self.base, _p: PhantomData }
    }
}

/// 64 rows of a shared tile, borrowed from its slot.
pub struct Rows<'s, T, const C: usize> {
    pub(crate) base: Smem,
    pub(crate) slab: usize,
    _p: PhantomData<&'s T>,
}

/// A whole shared tile, borrowed from its slot.
pub struct All<'s, T, const R: usize, const C: usize> {
    pub(crate) base: Smem,
    _p: PhantomData<&'s T>,
}

// SAFETY: every box of every slab is loaded once; together R x C elements.
unsafe impl<T: Element, const R: usize, const C: usize> Stage for SharedTile<T, R, C> {
    type Source<'a> = TmaTile<'a, T, R, C>;
    const BYTES: usize = Self::SIZE;
    const CLUSTER: usize = 1;
    #[inline(always)]
    unsafe fn at(base: Smem) -> Self {
        SharedTile { base, _p: PhantomData }
    }
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

// SAFETY: of each slab's boxes, block r loads r, r + K, ...: together every box once, into every block.
unsafe impl<T: Element, const R: usize, const C: usize, const K: usize> Stage for Multicast<SharedTile<T, R, C>, K> {
    type Source<'a> = TmaTile<'a, T, R, C>;
    const BYTES: usize = SharedTile::<T, R, C>::SIZE;
    const CLUSTER: usize = K;
    #[inline(always)]
    unsafe fn at(base: Smem) -> Self {
        // SAFETY: the caller's.
        Multicast(unsafe { SharedTile::at(base) })
    }
    #[inline(always)]
    unsafe fn load(&self, source: TmaTile<'_, T, R, C>, bar: Barrier) {
        let high = const {
            assert!(R / box_rows(R) % K == 0, "a multicast tile has as many boxes for each block of the cluster");
            box_rows(R)
        };
        let rank = backend::rank_of(self.0.base);
        let mut slab = 0;
        while slab < C / SharedTile::<T, R, C>::SLAB {
            let mut part = 0;
            while part < R / high / K {
                let row = (part * K + rank as usize) * high;
                let dst = self.0.base.add(slab * R * SPAN + row * SPAN);
                let column = slab * SharedTile::<T, R, C>::SLAB;
                // SAFETY: the caller's, in every block of the cluster.
                unsafe { backend::multicast::<T, R, C, K>(dst, &source, column, row, high, bar) };
                part += 1;
            }
            slab += 1;
        }
    }
}

// SAFETY: one after the other. 1024-byte alignment: the sizes are multiples of 8 rows of 128 bytes.
unsafe impl<A: Stage, B: Stage> Stage for (A, B) {
    type Source<'a> = (A::Source<'a>, B::Source<'a>);
    const BYTES: usize = A::BYTES + B::BYTES;
    const CLUSTER: usize = if A::CLUSTER > B::CLUSTER { A::CLUSTER } else { B::CLUSTER };
    #[inline(always)]
    unsafe fn at(base: Smem) -> Self {
        // SAFETY: the caller's.
        unsafe { (A::at(base), B::at(base.add(A::BYTES))) }
    }
    #[inline(always)]
    unsafe fn load(&self, source: Self::Source<'_>, bar: Barrier) {
        // SAFETY: the caller's.
        unsafe {
            self.0.load(source.0, bar);
            self.1.load(source.1, bar);
        }
    }
}

/// Buffers that tiles pass through on their way to global memory by the copy engine: `BUFFERS` of 64 rows of 128 bytes
/// for each of `WARPGROUPS` warpgroups. See [`TmaTilesMut::through`](crate::tma::TmaTilesMut::through).
pub struct Staging<const WARPGROUPS: usize, const BUFFERS: usize> {
    pub(crate) base: Smem,
}
// SAFETY: BYTES are those buffers.
unsafe impl<const WARPGROUPS: usize, const BUFFERS: usize> Shared for Staging<WARPGROUPS, BUFFERS> {
    const BYTES: usize = WARPGROUPS * BUFFERS * 64 * SPAN;
    #[inline(always)]
    unsafe fn claim(base: Smem) -> Self {
        Staging { base }
    }
}
