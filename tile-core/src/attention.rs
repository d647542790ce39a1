//! Block-level attention over latent keys in pages: `softmax(scale q K^T) V`, where a key has 512 + 64 elements and its
//! value is the first 512.
//!
//! [`attend`](Cta::attend) is the whole loop, as [`accumulate`](Cta::accumulate) is that of a product: it keeps the next
//! keys on their way from global memory while it works on these, and when it returns nothing is on its way any more and
//! every thread has finished reading. It takes the block's token, so all threads take part; it borrows its shared memory,
//! so nothing else is in it meanwhile.
//!
//! Queries and keys are plain views of any stride and alignment. Where base and strides are 16-byte aligned, 16 bytes at a
//! time are copied asynchronously; elsewhere less, with the same results. Page numbers are data, and may be anything: one
//! that is no page's reads as zeros.

use core::marker::PhantomData;

use crate::backend::{self, AttentionElement, NotShared, Smem};
use crate::element::Element;
use crate::owned::OwnedTile;
use crate::roles::{BlockScope, Cta, Within};
use crate::shared::Shared;
use crate::view::{Strip, TileRef, Tiles};

/// Rows of queries that a block works on.
pub const QUERIES: usize = 32;
/// Elements of a value.
pub const VALUE: usize = 512;
/// Elements of a key that are not its value's.
pub const ROPE: usize = 64;
/// Keys that a block works on at a time.
pub(crate) const KEYS: usize = 16;
/// Below every logit in use, and above every masked one.
pub(crate) const LOW: f32 = -1e30;
/// The logit of a key that a row does not see.
pub(crate) const MASKED: f32 = -1e33;

/// Shared memory for [`attend`](Cta::attend): 32 queries, two times 16 keys, the probabilities of 16, and what the warps
/// tell each other of the rows. A `#[shared]` parameter of a kernel.
pub struct Attention<'b, T> {
    base: Smem,
    _p: PhantomData<(T, NotShared, Within<'b>)>,
}

// SAFETY: what `backend::attend` uses.
unsafe impl<'b, T: AttentionElement> Shared<'b> for Attention<'b, T> {
    const BYTES: usize = (QUERIES + 2 * KEYS) * 2 * (VALUE + ROPE) + 3072;
    #[inline(always)]
    unsafe fn claim(_: &'b BlockScope, base: Smem, _: Smem) -> Self {
        Attention { base, _p: PhantomData }
    }
}

/// The keys of a request: rows that a list of page numbers names, key `k` in page `list[k / rows of a page]`. Freely copied.
pub struct LatentKeys<'a, T> {
    pub(crate) latent: Tiles<'a, T, 1, VALUE>,
    pub(crate) rope: Tiles<'a, T, 1, ROPE>,
    list: Strip<'a, i32, 1, 1>,
    pages: u32,
}
impl<T> Clone for LatentKeys<'_, T> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for LatentKeys<'_, T> {}

impl<'a, T: Element> LatentKeys<'a, T> {
    /// Keys that lie in two stacks of pages, which may be columns of one. If the stacks are not of one size, or narrower
    /// than a key's parts, there are no pages.
    #[inline(always)]
    pub fn new(latent: Tiles<'a, T, 1, VALUE>, rope: Tiles<'a, T, 1, ROPE>, list: Strip<'a, i32, 1, 1>) -> Self {
        let (l, r) = (&latent.raw, &rope.raw);
        let alike = l.cols == VALUE as u32 && r.cols == ROPE as u32 && l.rows == r.rows && l.slabs == r.slabs;
        LatentKeys { latent, rope, list, pages: if alike { l.slabs } else { 0 } }
    }
    /// Whether any of the keys `first..stop` lies in a page that does not exist.
    #[inline(always)]
    pub fn lack(&self, first: u32, stop: u32) -> bool {
        let rows = self.latent.raw.rows;
        let (mut key, mut lack) = (first, false);
        while key < stop {
            lack |= self.at(key).is_none();
            // the next page's first
            key = (key - key.checked_rem(rows).unwrap_or(0)).saturating_add(if rows > 0 { rows } else { u32::MAX });
        }
        lack
    }
    /// Where key `k` lies: its value, and its other part.
    #[inline(always)]
    pub(crate) fn at(&self, key: u32) -> Option<(*const T, *const T)> {
        let (l, r) = (&self.latent, &self.rope);
        let entry = key.checked_div(l.raw.rows)?;
        let page = self.list.entry(entry)? as u32;
        // as an unsigned number, a negative one is no page's either
        if page >= self.pages {
            return None;
        }
        let (page, row) = (page as u64, (key - entry * l.raw.rows) as u64);
        let latent = l.base.wrapping_add((page * l.raw.slab_stride + row * l.raw.row_stride) as usize);
        Some((latent, r.base.wrapping_add((page * r.raw.slab_stride + row * r.raw.row_stride) as usize)))
    }
}

/// What [`attend`](Cta::attend) gives for 32 rows: values weighed by probabilities, and each row's logarithm, to base 2, of
/// its sum of powers of two. A row that saw no keys has zeros, and minus infinity.
pub struct Attended {
    values: backend::Attended,
}

impl Cta<'_, 128> {
    /// Attention of 32 rows of queries (their first 512 elements, and their other 64) to the keys `first..stop`, of which
    /// row `r` sees those before `limit(r)`. `scale` includes log2(e).
    #[inline(always)]
    pub fn attend<T: AttentionElement>(
        &mut self,
        memory: &mut Attention<T>,
        q: (TileRef<'_, T, QUERIES, VALUE>, TileRef<'_, T, QUERIES, ROPE>),
        keys: LatentKeys<'_, T>,
        (first, stop): (u32, u32),
        limit: impl Fn(u32) -> u32 + Sync,
        scale: f32,
    ) -> Attended {
        // SAFETY: by the whole block, which has the memory to itself; it is idle now, and idle again afterwards.
        let values =
            unsafe { backend::attend::<T>(memory.base, (&q.0.window, &q.1.window), &keys, first, stop, limit, scale) };
        Attended { values }
    }
}

impl Attended {
    /// Rounds once and writes, clipped to the view; and `f` of each row's logarithm.
    #[inline(always)]
    pub fn store<T: backend::AccElement>(
        self,
        _cta: &mut Cta<128>,
        to: OwnedTile<'_, T, QUERIES, VALUE>,
        f: impl Fn(f32) -> f32 + Sync,
    ) {
        // SAFETY: the windows are this block's alone; every element is always written by the same thread.
        unsafe { backend::store_attended::<T>(&to.window, &to.rows, &self.values, f) }
    }
}
