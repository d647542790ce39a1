//! Keys into a paged cache, and page lists as the tables that [`decode`](super::decode) takes.

use super::{KEY, VALUE, extents};
use tilewright_core::element::{Element, bf16, f16};
use tilewright_core::schedule::Strips;
use tilewright_host::{Error, Launch, Named, Result, Stream, TensorView, TensorViewMut};
use tilewright_kernels::mla::cache::{TOKENS, concat_and_cache as kernel, lists};

/// Elements of a key that are not its value's: the rotated ones.
pub const ROPE: usize = KEY - VALUE;

/// A paged cache, to read: `[pages, rows of a page, ...]`.
#[derive(Clone, Copy, Debug)]
pub enum Cache<'a, T: Element> {
    /// One tensor of whole keys: `[pages, rows, 576]`.
    Packed(TensorView<'a, T, 3>),
    /// Two tensors: `[pages, rows, 512]`, the values, and `[pages, rows, 64]`, the rotated parts.
    Split(TensorView<'a, T, 3>, TensorView<'a, T, 3>),
}

/// A paged cache, to write. See [`Cache`].
#[derive(Debug)]
pub enum CacheMut<'a, T: Element> {
    /// One tensor of whole keys: `[pages, rows, 576]`.
    Packed(TensorViewMut<'a, T, 3>),
    /// Two tensors: `[pages, rows, 512]`, the values, and `[pages, rows, 64]`, the rotated parts.
    Split(TensorViewMut<'a, T, 3>, TensorViewMut<'a, T, 3>),
}

/// The queries of a step: `[requests, queries, heads, ...]`, without gaps.
#[derive(Clone, Copy, Debug)]
pub enum Query<'a, T: Element> {
    /// One tensor: `[requests, queries, heads, 576]`.
    Packed(TensorView<'a, T, 4>),
    /// Two tensors: `[requests, queries, heads, 512]`, and `[requests, queries, heads, 64]`, the rotated parts.
    Split(TensorView<'a, T, 4>, TensorView<'a, T, 4>),
}

impl<'a, T: Element> From<TensorView<'a, T, 3>> for Cache<'a, T> {
    fn from(cache: TensorView<'a, T, 3>) -> Self {
        Cache::Packed(cache)
    }
}
impl<'a, T: Element> From<TensorViewMut<'a, T, 3>> for CacheMut<'a, T> {
    fn from(cache: TensorViewMut<'a, T, 3>) -> Self {
        CacheMut::Packed(cache)
    }
}
impl<'a, T: Element> From<TensorView<'a, T, 4>> for Query<'a, T> {
    fn from(q: TensorView<'a, T, 4>) -> Self {
        Query::Packed(q)
    }
}

/// Refuses another cache than one of pages of rows of `columns`.
fn pages(arg: &'static str, columns: usize, found: [usize; 3]) -> Result<()> {
    let [pages, rows, cols] = found;
    if cols == columns {
        return Ok(());
    }
    Err(Error::Shape {
        arg,
        expected: format!("pages of rows of {columns}"),
        found: format!("{pages} x {rows} x {cols}"),
    })
}

impl<'a, T: Element> Cache<'a, T> {
    /// The values and the rotated parts, and what a page is.
    pub(super) fn parts(self) -> Result<(TensorView<'a, T, 3>, TensorView<'a, T, 3>)> {
        match self {
            Cache::Packed(cache) => {
                pages("cache", KEY, cache.extents())?;
                Ok((cache.slice(2, 0..VALUE)?, cache.slice(2, VALUE..KEY)?))
            }
            Cache::Split(latent, rope) => {
                pages("cache", VALUE, latent.extents())?;
                let [count, rows, _] = latent.extents();
                extents("cache", [count, rows, ROPE], rope.extents())?;
                Ok((latent, rope))
            }
        }
    }
}

impl<'a, T: Element> CacheMut<'a, T> {
    fn parts(self) -> Result<(TensorViewMut<'a, T, 3>, TensorViewMut<'a, T, 3>)> {
        match self {
            CacheMut::Packed(cache) => {
                pages("cache", KEY, cache.extents())?;
                cache.split_at(2, VALUE)
            }
            CacheMut::Split(latent, rope) => {
                pages("cache", VALUE, latent.extents())?;
                let [count, rows, _] = latent.extents();
                extents("cache", [count, rows, ROPE], rope.extents())?;
                Ok((latent, rope))
            }
        }
    }
}

impl<'a, T: Element> Query<'a, T> {
    /// Both parts, of the extents that `shape` gives for their columns.
    pub(super) fn parts<const R: usize>(
        self,
        [requests, queries, heads]: [usize; 3],
        shape: impl Fn(usize) -> [usize; R],
    ) -> Result<(TensorView<'a, T, R>, TensorView<'a, T, R>)> {
        let expect = |columns, found| extents("q", [requests, queries, heads, columns], found);
        match self {
            Query::Packed(q) => {
                expect(KEY, q.extents())?;
                let q = q.reshape(shape(KEY)).arg("q")?;
                Ok((q.slice(R - 1, 0..VALUE)?, q.slice(R - 1, VALUE..KEY)?))
            }
            Query::Split(latent, rope) => {
                expect(VALUE, latent.extents())?;
                expect(ROPE, rope.extents())?;
                Ok((latent.reshape(shape(VALUE)).arg("q")?, rope.reshape(shape(ROPE)).arg("q")?))
            }
        }
    }
}

mod sealed {
    pub trait Sealed {}
}

/// An element type of caches: f16 or bf16. Sealed.
pub trait Cached: Element<Value = f32> + sealed::Sealed {
    #[doc(hidden)]
    fn launch(
        stream: &Stream,
        latent: TensorView<'_, Self, 2>,
        rope: TensorView<'_, Self, 2>,
        slots: TensorView<'_, i64, 1>,
        cache: (TensorViewMut<'_, Self, 3>, TensorViewMut<'_, Self, 3>),
    ) -> Result<()>;
}

/// Writes new keys into a cache of either layout: token `t`'s key, `latent[t]` followed by `rope[t]`, becomes row
/// `slots[t] % rows` of page `slots[t] / rows`, bit for bit.
///
/// `latent` is `[tokens, 512]`, `rope` `[tokens, 64]`, both of any row stride and alignment, and so is the cache; pages may
/// have any number of rows. `slots` is `[tokens]`, without gaps. `slots` lies on the device and may hold anything: a negative slot leaves its
/// token out; one that the cache does not have does, too, and is reported as [`Error::Kernel`] by the next wait for the
/// device (on the CPU, by the launch). If a slot is named twice, each element of its row is one of the tokens'.
///
/// # Errors
/// [`Error::Shape`] where extents disagree, [`Error::Stride`] where columns are not adjacent, [`Error::Device`], and what
/// [`Launch::launch`] says.
///
/// Source: the operation of that name in vLLM, for DeepSeek's latent attention.
///
/// ```
/// use tilewright::ops::mla::concat_and_cache;
/// use tilewright::prelude::*;
///
/// let stream = Device::cpu().stream()?;
/// let latent = Tensor::<bf16, 2>::full(&stream, [2, 512], bf16::from_value(1.0))?;
/// let rope = Tensor::<bf16, 2>::full(&stream, [2, 64], bf16::from_value(2.0))?;
/// let slots = Tensor::<i64, 1>::from_slice(&stream, [2], &[17, -1])?;
/// let mut cache = Tensor::<bf16, 3>::zeros(&stream, [2, 16, 576])?;
/// concat_and_cache(&stream, latent.view(), rope.view(), slots.view(), cache.view_mut())?;
/// let cache = cache.to_vec(&stream)?;
/// assert_eq!((cache[17 * 576].to_value(), cache[18 * 576 - 1].to_value(), cache[0].to_value()), (1.0, 2.0, 0.0));
/// # Ok::<(), Error>(())
/// ```
pub fn concat_and_cache<'a, T: Cached>(
    stream: &Stream,
    latent: TensorView<'_, T, 2>,
    rope: TensorView<'_, T, 2>,
    slots: TensorView<'_, i64, 1>,
    cache: impl Into<CacheMut<'a, T>>,
) -> Result<()> {
    let [tokens] = slots.extents();
    extents("latent", [tokens, VALUE], latent.extents())?;
    extents("rope", [tokens, ROPE], rope.extents())?;
    let cache = cache.into().parts()?;
    if tokens == 0 {
        return Ok(());
    }
    T::launch(stream, latent, rope, slots, cache)
}

macro_rules! cached {
    ($($t:ty),*) => {$(
        impl sealed::Sealed for $t {}
        impl Cached for $t {
            #[inline] // a program pays for the types it uses alone
            fn launch(
                stream: &Stream,
                latent: TensorView<'_, $t, 2>,
                rope: TensorView<'_, $t, 2>,
                slots: TensorView<'_, i64, 1>,
                (latent_cache, rope_cache): (TensorViewMut<'_, $t, 3>, TensorViewMut<'_, $t, 3>),
            ) -> Result<()> {
                let [tokens] = slots.extents();
                let tickets = u32::try_from(tokens.div_ceil(TOKENS as usize)).unwrap_or(u32::MAX);
                kernel::<$t>::launch(
                    stream,
                    (
                        latent_cache.scatter_rows(tickets).arg("cache")?,
                        rope_cache.scatter_rows(tickets).arg("cache")?,
                        latent.tiles().arg("latent")?,
                        rope.tiles().arg("rope")?,
                        slots.reshape([tokens, 1]).arg("slots")?.tiles().arg("slots")?,
                    ),
                )
            }
        }
    )*};
}
cached!(f16, bf16);

/// The page lists of a step as FlashInfer has them, all `i32` and on the device.
#[derive(Clone, Copy, Debug)]
pub struct PageLists<'a> {
    /// `[requests + 1]`: where each request's pages begin in `kv_indices`, and where the last one's end.
    pub kv_indptr: TensorView<'a, i32, 1>,
    /// Page numbers.
    pub kv_indices: TensorView<'a, i32, 1>,
    /// `[requests]`: keys in the last page of each request. Of no matter where there are no pages.
    pub kv_last_page_len: TensorView<'a, i32, 1>,
}

/// Makes of page lists what [`plan`](super::plan) and [`decode`](super::decode) take: `table` gets each request's pages
/// (`[requests, pages of a request at most]`), `lengths` its number of keys. Once a step, for all layers; on the device, so
/// that a captured step follows the lists as they change.
///
/// The lists may hold anything. A request whose list does not lie in `kv_indices`, is longer than the table is wide, or
/// whose last page holds less than one key or more than a page has rows, gets no keys, and is reported as
/// [`Error::Kernel`] by the next wait for the device (on the CPU, by the launch).
///
/// # Errors
/// [`Error::Shape`] where extents disagree, [`Error::Stride`], [`Error::Device`], and what [`Launch::launch`] says.
///
/// ```
/// use tilewright::ops::mla::{PageLists, page_table};
/// use tilewright::prelude::*;
///
/// let stream = Device::cpu().stream()?;
/// let list = |l: &[i32]| Tensor::<i32, 1>::from_slice(&stream, [l.len()], l);
/// let (indptr, indices, last) = (list(&[0, 2, 2])?, list(&[7, 5])?, list(&[3, 0])?);
/// let lists =
///     PageLists { kv_indptr: indptr.view(), kv_indices: indices.view(), kv_last_page_len: last.view() };
/// let mut table = Tensor::<i32, 2>::zeros(&stream, [2, 4])?;
/// let mut lengths = Tensor::<i32, 1>::zeros(&stream, [2])?;
/// page_table(&stream, lists, 64, table.view_mut(), lengths.view_mut())?;
/// assert_eq!((table.to_vec(&stream)?[..2].to_vec(), lengths.to_vec(&stream)?), (vec![7, 5], vec![67, 0]));
/// # Ok::<(), Error>(())
/// ```
pub fn page_table(
    stream: &Stream,
    from: PageLists<'_>,
    page_rows: usize,
    table: TensorViewMut<'_, i32, 2>,
    lengths: TensorViewMut<'_, i32, 1>,
) -> Result<()> {
    let [requests] = lengths.extents();
    let [_, columns] = table.extents();
    let [pages] = from.kv_indices.extents();
    extents("table", [requests, columns], table.extents())?;
    extents("kv_indptr", [requests.saturating_add(1)], from.kv_indptr.extents())?;
    extents("kv_last_page_len", [requests], from.kv_last_page_len.extents())?;
    let page_rows = u32::try_from(page_rows).ok().filter(|n| (1..=i32::MAX as u32).contains(n)).ok_or_else(|| {
        Error::Shape { arg: "page_rows", expected: "1 to 2^31 - 1 rows".into(), found: page_rows.to_string() }
    })?;
    lists::launch(
        stream,
        (
            lengths.reshape([requests, 1]).arg("lengths")?.tiles_mut().arg("lengths")?,
            table.tiles_mut().arg("table")?.schedule(Strips),
            from.kv_indptr.reshape([requests + 1, 1]).arg("kv_indptr")?.tiles().arg("kv_indptr")?,
            from.kv_indices.reshape([1, pages]).arg("kv_indices")?.tiles().arg("kv_indices")?,
            from.kv_last_page_len.reshape([requests, 1]).arg("kv_last_page_len")?.tiles().arg("kv_last_page_len")?,
            page_rows,
        ),
    )
}
