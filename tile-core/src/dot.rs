//! Block-level products: `C += A B^T` by all threads of a block, from global memory through a ring in shared memory.
//!
//! [`accumulate`](Cta::accumulate) is the whole loop: it keeps several tiles on their way from global memory while it
//! multiplies others, and when it returns nothing is on its way any more and every thread has finished reading. It takes
//! the block's token, so all threads take part; it borrows the ring, so nothing else is in it meanwhile.
//!
//! Operands are plain views of any stride and alignment. Where base and stride are 16-byte aligned, 16 bytes at a time
//! are copied asynchronously; elsewhere less, with the same results. On the device 16-bit elements go through the tensor
//! cores (`mma.sync`, `f32` accumulation); `f32` is multiplied exactly, by fused multiply-adds.

use core::marker::PhantomData;

use crate::backend::{self, BlockProduct, DotElement, NotShared, Smem, Split};
use crate::element::Element;
use crate::roles::{BlockScope, Cta, Within};
use crate::shared::Shared;
use crate::view::{TileMut, TileRef};

/// Shared memory for [`accumulate`](Cta::accumulate): a ring of `STAGES` pairs of an `M` x `K` and an `N` x `K` tile. A
/// `#[shared]` parameter of a kernel.
pub struct Stages<'b, T, const M: usize, const N: usize, const K: usize, const STAGES: usize> {
    base: Smem,
    _p: PhantomData<(T, NotShared, Within<'b>)>,
}

impl<T: Element, const M: usize, const N: usize, const K: usize, const STAGES: usize> Stages<'_, T, M, N, K, STAGES> {
    /// Bytes of a row of a tile.
    pub(crate) const ROW: usize = {
        let bytes = K * size_of::<T>();
        assert!(bytes == 64 || bytes == 128, "a row of an operand tile has 64 or 128 bytes");
        bytes
    };
    /// Bytes of a stage. A's tile comes first; both are multiples of 1024 bytes, where the swizzles begin anew.
    pub(crate) const STAGE: usize = {
        assert!(M % 16 == 0 && N % 16 == 0, "an operand tile has a multiple of 16 rows");
        (M + N) * Self::ROW
    };
}

// SAFETY: STAGES stages.
unsafe impl<'b, T: Element, const M: usize, const N: usize, const K: usize, const STAGES: usize> Shared<'b>
    for Stages<'b, T, M, N, K, STAGES>
{
    const BYTES: usize = {
        assert!(STAGES >= 2, "one stage is filled while another is read");
        STAGES * Self::STAGE
    };
    #[inline(always)]
    unsafe fn claim(_: &'b BlockScope, base: Smem, _: Smem) -> Self {
        Stages { base, _p: PhantomData }
    }
}

/// A block's accumulator: `M` x `N` of `f32`, spread over its warps. A value.
pub struct BlockAcc<const M: usize, const N: usize, const THREADS: usize>
where
    Split<M, N, THREADS>: BlockProduct,
{
    regs: <Split<M, N, THREADS> as BlockProduct>::Regs,
}

impl<const M: usize, const N: usize, const THREADS: usize> BlockAcc<M, N, THREADS>
where
    Split<M, N, THREADS>: BlockProduct,
{
    /// All zero.
    #[inline(always)]
    pub fn zero() -> Self {
        BlockAcc { regs: Split::<M, N, THREADS>::zero() }
    }
    /// `f` of every element.
    #[inline(always)]
    pub fn map(self, f: impl Fn(f32) -> f32 + Sync) -> Self {
        self.map_at(
            #[inline(always)]
            |_, _, x| f(x),
        )
    }
    /// `f(row, column, element)` of every element; row and column count from the accumulator's corner.
    #[inline(always)]
    pub fn map_at(self, f: impl Fn(u32, u32, f32) -> f32 + Sync) -> Self {
        BlockAcc { regs: Split::<M, N, THREADS>::map(self.regs, f) }
    }
}

impl<const THREADS: usize, const CLUSTER: usize> Cta<'_, THREADS, CLUSTER> {
    /// `acc + A(0) B(0)^T + A(1) B(1)^T + ...`, over `steps` pairs of tiles that `operands` names. What lies outside a
    /// view counts as zero.
    #[inline(always)]
    pub fn accumulate<'a, T: DotElement, const M: usize, const N: usize, const K: usize, const STAGES: usize>(
        &mut self,
        stages: &mut Stages<T, M, N, K, STAGES>,
        steps: u32,
        operands: impl Fn(u32) -> (TileRef<'a, T, M, K>, TileRef<'a, T, N, K>),
        mut acc: BlockAcc<M, N, THREADS>,
    ) -> BlockAcc<M, N, THREADS>
    where
        Split<M, N, THREADS>: BlockProduct,
    {
        // SAFETY: by the whole block, which has the ring to itself; it is idle now, and idle again afterwards.
        unsafe { backend::dot::<T, M, N, K, STAGES, THREADS>(&mut acc.regs, stages.base, steps, operands) };
        acc
    }
}

impl<T: DotElement, const M: usize, const N: usize> TileMut<'_, T, M, N> {
    /// Rounds once and writes, clipped to the view.
    #[inline(always)]
    pub fn store_acc<const THREADS: usize, const CLUSTER: usize>(
        self,
        _cta: &mut Cta<THREADS, CLUSTER>,
        acc: BlockAcc<M, N, THREADS>,
    ) where
        Split<M, N, THREADS>: BlockProduct,
    {
        const { assert!(CLUSTER == 1, "the tiles of an output belong to a whole cluster: in one, `roles` shares them out") };
        // SAFETY: by the whole block, whose window it is.
        unsafe { backend::store_block::<T, M, N, THREADS>(&self.window, &acc.regs) }
    }
}
