//! Decoding with multi-head latent attention (DeepSeek V2 and V3, absorbed form): `softmax(scale q K^T) V`, where a key has
//! 576 elements and its value is the first 512 of them, over a paged cache.
//!
//! What a step needs beside its tensors is a plan ([`plan`]), made on the device from the lengths that lie there, once for
//! all layers, and a workspace. Both are the caller's memory, of sizes that [`Problem`] says; a launch allocates nothing.
//! All of it can be captured in a graph: replayed, it makes a new plan from what the lengths are then.

mod cache;

pub use cache::{Cache, CacheMut, Cached, PageLists, Query, ROPE, concat_and_cache, page_table};

pub use super::gemm::Path;
use tilewright_core::element::{Element, bf16, f16};
use tilewright_host::{Device, Error, Launch, Named, Result, Stream, TensorView, TensorViewMut};
use tilewright_kernels::mla::plan::{combine, plan as make_plan};
use tilewright_kernels::mla::{CUT_WORDS, PART_WORDS, ROWS, decode as hopper, portable};

/// Elements of a key.
pub const KEY: usize = 576;
/// Elements of a value: the first of a key.
pub const VALUE: usize = 512;

/// The extents of a step, and among how many parts its work is shared out.
///
/// ```
/// use tilewright::ops::mla::Problem;
/// use tilewright::prelude::*;
///
/// let problem = Problem::on(&Device::cpu(), 3, 128, 1)?;
/// assert!(problem.workspace_bytes() > 0 && problem.plan_words() > 3);
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Problem {
    requests: usize,
    heads: usize,
    queries: usize,
    parts: usize,
}

impl Problem {
    /// A step of `requests`, each of `queries` positions (1 to 4, the last of the request) with `heads` heads (1 to 128),
    /// shared out so that it fills `device`.
    ///
    /// # Errors
    /// [`Error::Shape`] for other numbers.
    pub fn on(device: &Device, requests: usize, heads: usize, queries: usize) -> Result<Self> {
        let blocks = (heads * queries.min(4)).div_ceil(ROWS as usize).max(1);
        Self::with_parts(requests, heads, queries, (device.multiprocessors() as usize / blocks).max(1))
    }
    /// The same, shared out among `parts` (1 to 4096).
    ///
    /// # Errors
    /// As for [`on`](Self::on).
    pub fn with_parts(requests: usize, heads: usize, queries: usize, parts: usize) -> Result<Self> {
        let wrong = |arg, expected: &str, found: usize| {
            Err(Error::Shape { arg, expected: expected.into(), found: found.to_string() })
        };
        if !(1..=128).contains(&heads) {
            return wrong("heads", "1 to 128 heads", heads);
        }
        if !(1..=4).contains(&queries) {
            return wrong("queries", "1 to 4 query positions", queries);
        }
        if !(1..=4096).contains(&parts) {
            return wrong("parts", "1 to 4096 parts", parts);
        }
        if requests > 1 << 20 {
            return wrong("requests", "at most 2^20 requests", requests);
        }
        Ok(Problem { requests, heads, queries, parts })
    }
    fn rows(&self) -> usize {
        self.heads * self.queries
    }
    fn row_blocks(&self) -> usize {
        self.rows().div_ceil(ROWS as usize)
    }
    fn tickets(&self) -> usize {
        self.parts * self.row_blocks()
    }
    /// Elements of a plan.
    #[must_use]
    pub fn plan_words(&self) -> usize {
        2 + (PART_WORDS + CUT_WORDS) as usize * self.parts + 2 * self.requests
    }
    /// Elements of a workspace: two tiles for each part and 64 rows, and their statistics.
    #[must_use]
    pub fn workspace_len(&self) -> usize {
        2 * self.tickets() * ROWS as usize * (VALUE + 1)
    }
    /// Bytes of a workspace.
    #[must_use]
    pub fn workspace_bytes(&self) -> usize {
        4 * self.workspace_len()
    }
}

/// The tables of a plan.
struct Tables<V> {
    summary: V,
    cut_count: V,
    parts: V,
    owners: V,
    joins: V,
    cuts: V,
}

macro_rules! tables {
    ($problem:expr, $plan:expr) => {{
        let (summary, rest) = $plan.split_at(0, 1)?;
        let (cut_count, rest) = rest.split_at(0, 1)?;
        let (parts, rest) = rest.split_at(0, PART_WORDS as usize * $problem.parts)?;
        let (owners, rest) = rest.split_at(0, $problem.requests)?;
        let (joins, cuts) = rest.split_at(0, $problem.requests)?;
        Tables { summary, cut_count, parts, owners, joins, cuts }
    }};
}

fn extents<const R: usize>(arg: &'static str, expected: [usize; R], found: [usize; R]) -> Result<()> {
    if expected == found {
        return Ok(());
    }
    Err(Error::Shape { arg, expected: format!("{expected:?}"), found: format!("{found:?}") })
}

/// Shares out the work of a step, for [`decode`] of any number of layers. `lengths` says how many keys each request has:
/// those beyond `capacity`, the most that a row of the page table names, do not count, and fewer than none are none.
///
/// # Errors
/// [`Error::Shape`] where extents disagree, [`Error::Device`], and what [`Launch::launch`] says.
pub fn plan(
    stream: &Stream,
    problem: &Problem,
    lengths: TensorView<'_, i32, 1>,
    capacity: usize,
    plan: TensorViewMut<'_, u32, 1>,
) -> Result<()> {
    extents("lengths", [problem.requests], lengths.extents())?;
    extents("plan", [problem.plan_words()], plan.extents())?;
    let Tables { summary, cut_count, parts, owners, joins, cuts } = tables!(problem, plan);
    let capacity = u32::try_from(capacity.min(i32::MAX as usize)).unwrap_or(i32::MAX as u32);
    make_plan::launch(
        stream,
        (
            summary.reshape([1, 1])?.tiles_mut().arg("plan")?,
            cut_count.reshape([1, 1])?.tiles_mut().arg("plan")?,
            parts.reshape([problem.parts, PART_WORDS as usize])?.tiles_mut().arg("plan")?,
            owners.reshape([problem.requests, 1])?.tiles_mut().arg("plan")?,
            joins.reshape([problem.requests, 1])?.tiles_mut().arg("plan")?,
            cuts.reshape([problem.parts, CUT_WORDS as usize])?.tiles_mut().arg("plan")?,
            lengths.reshape([problem.requests, 1])?.tiles().arg("lengths")?,
            capacity,
        ),
    )
}

mod sealed {
    pub trait Sealed {}
}

/// An element type of queries and cache: f16 or bf16. Sealed.
pub trait Latent: Element<Value = f32> + sealed::Sealed {
    #[doc(hidden)]
    fn launch(stream: &Stream, problem: &Problem, a: Args<'_, Self>, path: Path) -> Result<()>;
}

/// The tensors of a step of one layer.
pub struct Args<'a, T: Element> {
    /// `[requests, queries, heads, 576]`, without gaps, or in two parts.
    pub q: Query<'a, T>,
    /// `[pages, rows of a page, 576]`, or in two parts: a page has a multiple of 16 rows.
    pub cache: Cache<'a, T>,
    /// `[requests, pages of a request at most]`: the numbers of each request's pages. Entries past a request's end may be
    /// anything; one in use that is not a page's number reads as zeros and is reported as [`Error::Kernel`] by the next
    /// wait for the device (on the CPU, by the launch).
    pub table: TensorView<'a, i32, 2>,
    /// `[requests]`: keys of each request.
    pub lengths: TensorView<'a, i32, 1>,
    /// What logits are multiplied by.
    pub scale: f32,
    /// What [`plan`] made of these lengths.
    pub plan: TensorView<'a, u32, 1>,
    /// Scratch: [`Problem::workspace_len`] elements. What it holds before and after is of no matter.
    pub workspace: TensorViewMut<'a, f32, 1>,
    /// `[requests, queries, heads, 512]`, without gaps.
    pub out: TensorViewMut<'a, T, 4>,
    /// `[requests, queries, heads]`, without gaps: the natural logarithm of each sum of exponentials.
    pub lse: TensorViewMut<'a, f32, 3>,
}

/// One step of one layer: for query position `t` of a request with `n` keys, over its first `n - queries + 1 + t` keys.
/// Without keys, `out` is 0 and `lse` minus infinity. Sums are f32; the same inputs and plan give the same bits.
///
/// By the kernel for Hopper on GPUs of compute capability 9.0 and on the CPU, elsewhere by the portable one; see
/// [`decode_by`].
///
/// The lengths must be those that the plan was made of. If they are not, the result is that of neither, but nothing is
/// read or written outside these tensors.
///
/// # Errors
/// [`Error::Shape`] where extents disagree, [`Error::Stride`], [`Error::Alignment`] where the copy engine can not read `q`
/// or `cache`, [`Error::Device`], and what [`Launch::launch`] says.
///
/// ```
/// use tilewright::ops::mla::{Args, Problem, decode, plan};
/// use tilewright::prelude::*;
///
/// let stream = Device::cpu().stream()?;
/// let problem = Problem::on(&stream.device(), 1, 2, 1)?;
/// // one request of one key, in page 1 of 2: its value is the result
/// let q = Tensor::<bf16, 4>::zeros(&stream, [1, 1, 2, 576])?;
/// let cache = Tensor::<bf16, 3>::full(&stream, [2, 16, 576], bf16::from_value(3.0))?;
/// let table = Tensor::<i32, 2>::from_slice(&stream, [1, 1], &[1])?;
/// let lengths = Tensor::<i32, 1>::from_slice(&stream, [1], &[1])?;
/// let mut words = Tensor::<u32, 1>::zeros(&stream, [problem.plan_words()])?;
/// let mut workspace = Tensor::<f32, 1>::zeros(&stream, [problem.workspace_len()])?;
/// let mut out = Tensor::<bf16, 4>::zeros(&stream, [1, 1, 2, 512])?;
/// let mut lse = Tensor::<f32, 3>::zeros(&stream, [1, 1, 2])?;
/// plan(&stream, &problem, lengths.view(), 16, words.view_mut())?;
/// let args = Args {
///     q: q.view().into(),
///     cache: cache.view().into(),
///     table: table.view(),
///     lengths: lengths.view(),
///     scale: 1.0,
///     plan: words.view(),
///     workspace: workspace.view_mut(),
///     out: out.view_mut(),
///     lse: lse.view_mut(),
/// };
/// decode(&stream, &problem, args)?;
/// assert!(out.to_vec(&stream)?.iter().all(|x| x.to_value() == 3.0));
/// # Ok::<(), Error>(())
/// ```
pub fn decode<T: Latent>(stream: &Stream, problem: &Problem, args: Args<'_, T>) -> Result<()> {
    let device = stream.device();
    let hopper = device.compute_capability().is_none_or(|c| c == (9, 0));
    decode_by(if hopper { Path::Hopper } else { Path::Portable }, stream, problem, args)
}

/// As [`decode`], by the kernels of a given path. [`Path::Portable`] runs on every GPU from compute capability 8.0 up, and
/// takes queries and caches of any alignment.
///
/// # Errors
/// As for [`decode`]; [`Error::NoImageFor`] for [`Path::Hopper`] on a GPU that is not of compute capability 9.0.
pub fn decode_by<T: Latent>(path: Path, stream: &Stream, problem: &Problem, args: Args<'_, T>) -> Result<()> {
    let Problem { requests, heads, queries, .. } = *problem;
    extents("lengths", [requests], args.lengths.extents())?;
    extents("plan", [problem.plan_words()], args.plan.extents())?;
    extents("workspace", [problem.workspace_len()], args.workspace.extents())?;
    extents("out", [requests, queries, heads, VALUE], args.out.extents())?;
    extents("lse", [requests, queries, heads], args.lse.extents())?;
    args.q.parts([requests, queries, heads], |columns| [requests, queries, heads, columns])?;
    let (latent, _) = args.cache.parts()?;
    let [pages, page_rows, _] = latent.extents();
    if page_rows == 0 || page_rows % 16 != 0 {
        return Err(Error::Shape {
            arg: "cache",
            expected: "pages of a multiple of 16 rows".into(),
            found: format!("{pages} pages of {page_rows} rows"),
        });
    }
    let [table_rows, columns] = args.table.extents();
    extents("table", [requests, columns], [table_rows, columns])?;
    if requests == 0 {
        return Ok(());
    }
    T::launch(stream, problem, args, path)
}

macro_rules! latent {
    ($t:ty) => {
        impl sealed::Sealed for $t {}
        impl Latent for $t {
            #[inline] // a program pays for the types it uses alone
            fn launch(stream: &Stream, problem: &Problem, mut a: Args<'_, $t>, path: Path) -> Result<()> {
                let Problem { requests, heads, queries, .. } = *problem;
                let rows = problem.rows();
                // rows of a tile, tiles of a request, and tickets
                let height = if path == Path::Hopper { ROWS } else { portable::ROWS } as usize;
                let group = rows.div_ceil(height);
                let tickets = problem.parts * group;
                let Tables { cut_count, parts: plan, owners, joins, cuts, .. } = tables!(problem, a.plan);
                let (mut parts, rest) = a.workspace.split_at(0, 2 * tickets * height * VALUE)?;
                let (mut part_lse, _) = rest.split_at(0, 2 * tickets * height)?;
                let (kv, k_rope) = a.cache.parts()?;
                let [_, page_rows, _] = kv.extents();
                let [_, columns] = a.table.extents();
                let capacity =
                    u32::try_from(columns.saturating_mul(page_rows)).unwrap_or(u32::MAX).min(i32::MAX as u32);
                let owners = owners.reshape([requests, 1])?.tiles().arg("plan")?;
                let (blocks, count) = (group as u32, tickets as u32);
                // the arguments that differ in their types alone
                macro_rules! launch {
                    ($kernel:path, $q:expr, $q_rope:expr, $kv:expr, $k_rope:expr) => {
                        <$kernel>::launch(
                            stream,
                            (
                                parts.reborrow().reshape([2 * tickets * height, VALUE])?.tiles_mut()?.in_runs(
                                    part_lse.reborrow().reshape([2 * tickets * height, 1])?.tiles_mut()?,
                                    2,
                                    count,
                                ),
                                a.out.reborrow().reshape([requests, rows, VALUE]).arg("out")?.tiles_mut()?.owned_by(
                                    a.lse.reborrow().reshape([requests, rows, 1]).arg("lse")?.tiles_mut()?,
                                    owners,
                                    blocks,
                                    count,
                                ),
                                $q,
                                $q_rope,
                                $kv,
                                $k_rope,
                                a.table.tiles().arg("table")?,
                                a.lengths.reshape([requests, 1])?.tiles().arg("lengths")?,
                                plan.reshape([problem.parts, PART_WORDS as usize])?.tiles()?,
                                blocks,
                                capacity,
                                heads as u32,
                                queries as u32,
                                a.scale * std::f32::consts::LOG2_E,
                            ),
                        )?
                    };
                }
                let each = [requests, queries, heads];
                match path {
                    Path::Hopper => {
                        let (q, q_rope) = a.q.parts(each, |columns| [requests * rows, columns])?;
                        let (q, q_rope) = (q.tma_tiles().arg("q")?, q_rope.tma_tiles().arg("q")?);
                        let (kv, k_rope) = (kv.tma_pages().arg("cache")?, k_rope.tma_pages().arg("cache")?);
                        // two blocks of rows read the same keys: a cluster of two brings them once
                        if group % 2 == 0 {
                            launch!(hopper::paged<$t, 2>, q, q_rope, kv, k_rope)
                        } else {
                            launch!(hopper::paged<$t, 1>, q, q_rope, kv, k_rope)
                        }
                    }
                    Path::Portable => {
                        let (q, q_rope) = a.q.parts(each, |columns| [requests, rows, columns])?;
                        launch!(
                            portable::paged<$t>,
                            q.tiles().arg("q")?,
                            q_rope.tiles().arg("q")?,
                            kv.tiles().arg("cache")?,
                            k_rope.tiles().arg("cache")?
                        )
                    }
                }
                combine::<$t>::launch(
                    stream,
                    (
                        a.out.reshape([requests, rows, VALUE])?.tiles_mut().arg("out")?.owned_by(
                            a.lse.reshape([requests, rows, 1])?.tiles_mut().arg("lse")?,
                            joins.reshape([requests, 1])?.tiles()?,
                            rows as u32,
                            (problem.parts * rows) as u32,
                        ),
                        parts.view().reshape([2 * tickets * height, VALUE])?.tiles()?,
                        part_lse.view().reshape([2 * tickets * height, 1])?.tiles()?,
                        cut_count.reshape([1, 1])?.tiles()?,
                        cuts.reshape([problem.parts, CUT_WORDS as usize])?.tiles()?,
                        rows as u32,
                        height as u32,
                    ),
                )
            }
        }
    };
}
latent!(f16);
latent!(bf16);
