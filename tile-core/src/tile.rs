//! Register tiles at block level: values spread over the threads of a block.
//!
//! A [`Tile`] is loaded from global memory, computed with element by element, reduced along its rows or columns, and
//! stored. What lies outside the view reads as zero, does not take part in reductions, and is not written; a tile
//! remembers how much of it is inside.
//!
//! Element closures are `Fn + Sync`: they see one element at a time, and can carry nothing from one to the next.
//! Barriers can not be reached from inside them, for tokens are not `Sync`.
//!
//! Which thread holds which element is the tile's [`Layout`], a type. Threads run at their own pace between barriers,
//! so a tile of the output may be read and then written without a barrier only if the same thread does both: tiles read
//! from an output have the layout of its element type ([`Cta::load_mut`]), and a store of another layout begins with a
//! barrier.

use core::marker::PhantomData;

use crate::backend::{self, PerLine, Spread, Words};
use crate::element::{Element, Value};
use crate::layout::{ByColumns, ByRows, Chunks, Layout};
use crate::roles::Cta;
use crate::tile_load::repeated;
use crate::view::TileRef;

/// `M` x `N` values, spread over the threads of a block as `L` says.
pub struct Tile<V: Value, const M: usize, const N: usize, L: Layout<M, N>> {
    pub(crate) values: Spread<V>,
    /// How many rows and columns are inside.
    pub(crate) rows: u32,
    pub(crate) cols: u32,
    /// What is outside is known to be zero. A constant, once all is inlined.
    pub(crate) zero: bool,
    pub(crate) _p: PhantomData<L>,
}

/// The elements of a tile as memory holds them, spread over the threads of a block as `L` says: what a tile comes from
/// and goes to. Elements of 16 bits take half the registers of their values, so that this is how a kernel holds the tile
/// that it will need next, or again. One that was fetched may still be on its way: only its use waits.
pub struct Fetched<T: Element, const M: usize, const N: usize, L: Layout<M, N>> {
    pub(crate) words: Words<T>,
    pub(crate) rows: u32,
    pub(crate) cols: u32,
    pub(crate) zero: bool,
    pub(crate) _p: PhantomData<L>,
}

/// One value for each row of a tile, known to every thread of that row.
pub struct PerRow<V: Value, const M: usize, const THREADS: usize> {
    pub(crate) values: PerLine<V>,
}

/// One value for each column of a tile, known to every thread of that column.
pub struct PerColumn<V: Value, const N: usize, L> {
    values: PerLine<V>,
    _p: PhantomData<L>,
}

/// What a reduction joins values with: associative and commutative (but for rounding), so that the order, which is
/// always the same, is the layout's.
pub(crate) trait Fold<V> {
    /// Joined with any value, gives that value.
    const START: V;
    fn join(a: V, b: V) -> V;
}
pub(crate) struct Sum;
pub(crate) struct Greatest;
pub(crate) struct Least;
impl<V: Value> Fold<V> for Sum {
    const START: V = V::ZERO;
    #[inline(always)]
    fn join(a: V, b: V) -> V {
        a.plus(b)
    }
}
impl<V: Value> Fold<V> for Greatest {
    const START: V = V::LEAST;
    #[inline(always)]
    fn join(a: V, b: V) -> V {
        a.greater(b)
    }
}
impl<V: Value> Fold<V> for Least {
    const START: V = V::GREATEST;
    #[inline(always)]
    fn join(a: V, b: V) -> V {
        a.less(b)
    }
}

impl<V: Value, const M: usize, const N: usize, L: Layout<M, N>> Tile<V, M, N, L> {
    /// `f` of every element.
    #[inline(always)]
    pub fn map<U: Value>(&self, f: impl Fn(V) -> U + Sync) -> Tile<U, M, N, L> {
        let zero = self.zero && is_zero(f(V::ZERO));
        self.with(self.values.map::<U, L, M, N>(f), self.rows, self.cols, zero)
    }

    /// `f` of every element and its counterpart in `other`.
    #[inline(always)]
    pub fn zip<W: Value, U: Value>(&self, other: &Tile<W, M, N, L>, f: impl Fn(V, W) -> U + Sync) -> Tile<U, M, N, L> {
        let (rows, cols) = (least(self.rows, other.rows), least(self.cols, other.cols));
        let zero = self.zero && other.zero && is_zero(f(V::ZERO, W::ZERO));
        self.with(self.values.zip::<W, U, L, M, N>(&other.values, f), rows, cols, zero)
    }

    /// The elements nearest to the values.
    #[inline(always)]
    pub fn round<T: Element<Value = V>>(&self) -> Fetched<T, M, N, L> {
        let words = backend::pack::<T, L, M, N>(&self.values);
        Fetched { words, rows: self.rows, cols: self.cols, zero: self.zero, _p: PhantomData }
    }

    #[inline(always)]
    fn with<U: Value>(&self, values: Spread<U>, rows: u32, cols: u32, zero: bool) -> Tile<U, M, N, L> {
        Tile { values, rows, cols, zero, _p: PhantomData }
    }
}

#[inline(always)]
fn is_zero<V: Value>(v: V) -> bool {
    v.to_bits32() == 0
}

impl<T: Element, const M: usize, const N: usize, L: Layout<M, N>> Fetched<T, M, N, L> {
    /// The values. Made anew each time: between two uses the elements alone take up registers.
    #[inline(always)]
    pub fn widen(&self) -> Tile<T::Value, M, N, L> {
        let values = backend::unpack_anew::<T, L, M, N>(&self.words);
        Tile { values, rows: self.rows, cols: self.cols, zero: self.zero, _p: PhantomData }
    }
}

impl<T: Element, const M: usize, const N: usize, const THREADS: usize, C: Chunks> Fetched<T, M, N, ByRows<THREADS, C>> {
    /// `f` of every element, its counterpart in `other` and the value of its row, rounded; values are not held.
    #[inline(always)]
    pub fn combine<W: Element, P: Value>(
        &self,
        other: &Fetched<W, M, N, ByRows<THREADS, C>>,
        per_row: &PerRow<P, M, THREADS>,
        f: impl Fn(T::Value, W::Value, P) -> T::Value + Sync,
    ) -> Self {
        let words = backend::combine::<T, W, P, ByRows<THREADS, C>, M, N>(
            &self.words,
            &other.words,
            &per_row.values,
            self.cols,
            f,
        );
        let (rows, cols) = (least(self.rows, other.rows), least(self.cols, other.cols));
        Fetched { words, rows, cols, zero: false, _p: PhantomData }
    }

    /// As [`combine`](Self::combine) with a row that is the same for all rows of the tile: its elements are read where they
    /// are needed, and kept in the L1 cache.
    #[inline(always)]
    pub fn combine_row<W: Element, P: Value, const CLUSTER: usize>(
        &self,
        _cta: &mut Cta<THREADS, CLUSTER>,
        row: TileRef<'_, W, 1, N>,
        per_row: &PerRow<P, M, THREADS>,
        f: impl Fn(T::Value, W::Value, P) -> T::Value + Sync,
    ) -> Self {
        let row = repeated::<W, M, N>(&row);
        // SAFETY: the row is a shared view's.
        let words = unsafe {
            backend::combine_row::<T, W, P, ByRows<THREADS, C>, M, N>(&self.words, &row, &per_row.values, self.cols, f)
        };
        let (rows, cols) = (least(self.rows, row.rows), least(self.cols, row.cols));
        Fetched { words, rows, cols, zero: false, _p: PhantomData }
    }

    /// As [`combine`](Self::combine), with two counterparts and two values for each row of the tile.
    #[inline(always)]
    #[allow(clippy::type_complexity)] // a pair, as the two values of a row are
    pub fn combine_two<W: Element, P: Value>(
        &self,
        others: (&Fetched<W, M, N, ByRows<THREADS, C>>, &Fetched<W, M, N, ByRows<THREADS, C>>),
        per_row: (&PerRow<P, M, THREADS>, &PerRow<P, M, THREADS>),
        f: impl Fn(T::Value, (W::Value, W::Value), (P, P)) -> T::Value + Sync,
    ) -> Self {
        let (others, per_row) = ((&others.0.words, &others.1.words), (&per_row.0.values, &per_row.1.values));
        let words = backend::combine_two::<T, W, P, ByRows<THREADS, C>, M, N>(&self.words, others, per_row, f);
        Fetched { words, rows: self.rows, cols: self.cols, zero: false, _p: PhantomData }
    }

    /// As [`combine_row`](Self::combine_row), with two rows and two values for each row of the tile.
    #[inline(always)]
    pub fn combine_rows<W: Element, P: Value, const CLUSTER: usize>(
        &self,
        _cta: &mut Cta<THREADS, CLUSTER>,
        rows: (TileRef<'_, W, 1, N>, TileRef<'_, W, 1, N>),
        per_row: (&PerRow<P, M, THREADS>, &PerRow<P, M, THREADS>),
        f: impl Fn(T::Value, (W::Value, W::Value), (P, P)) -> T::Value + Sync,
    ) -> Self {
        let rows = (repeated::<W, M, N>(&rows.0), repeated::<W, M, N>(&rows.1));
        let per_row = (&per_row.0.values, &per_row.1.values);
        // SAFETY: the rows are shared views'.
        let words = unsafe {
            backend::combine_rows::<T, W, P, ByRows<THREADS, C>, M, N>(&self.words, (&rows.0, &rows.1), per_row, f)
        };
        Fetched { words, rows: self.rows, cols: self.cols, zero: false, _p: PhantomData }
    }

    /// `f` of every element and two values of its row, rounded; values are not held.
    #[inline(always)]
    pub fn map_rows<P: Value>(
        &self,
        per_row: (&PerRow<P, M, THREADS>, &PerRow<P, M, THREADS>),
        f: impl Fn(T::Value, (P, P)) -> T::Value + Sync,
    ) -> Self {
        let per_row = (&per_row.0.values, &per_row.1.values);
        let words = backend::map_words::<T, P, ByRows<THREADS, C>, M, N>(&self.words, per_row, f);
        Fetched { words, rows: self.rows, cols: self.cols, zero: false, _p: PhantomData }
    }

    /// The sum of `f` of each row's values, as `widen().map(f).row_sum(cta)`; the values are not held.
    #[inline(always)]
    pub fn row_sum_of<V: Value, const CLUSTER: usize>(
        &self,
        cta: &mut Cta<THREADS, CLUSTER>,
        f: impl Fn(T::Value) -> V + Sync,
    ) -> PerRow<V, M, THREADS> {
        let all = self.counts_for_nothing::<Sum, V>(f(T::Value::ZERO));
        self.fold_rows::<Sum, u32, V, CLUSTER>(
            cta,
            &PerRow::splat(0),
            all,
            #[inline(always)]
            |x, _| f(x),
        )
    }

    /// The greatest of `f` of each row's values; NaN if one is.
    #[inline(always)]
    pub fn row_max_of<V: Value, const CLUSTER: usize>(
        &self,
        cta: &mut Cta<THREADS, CLUSTER>,
        f: impl Fn(T::Value) -> V + Sync,
    ) -> PerRow<V, M, THREADS> {
        let all = self.counts_for_nothing::<Greatest, V>(f(T::Value::ZERO));
        self.fold_rows::<Greatest, u32, V, CLUSTER>(
            cta,
            &PerRow::splat(0),
            all,
            #[inline(always)]
            |x, _| f(x),
        )
    }

    /// The sum of `f` of each row's values and the value of their row.
    #[inline(always)]
    pub fn row_sum_with<P: Value, V: Value, const CLUSTER: usize>(
        &self,
        cta: &mut Cta<THREADS, CLUSTER>,
        per_row: &PerRow<P, M, THREADS>,
        f: impl Fn(T::Value, P) -> V + Sync,
    ) -> PerRow<V, M, THREADS> {
        self.fold_rows::<Sum, P, V, CLUSTER>(cta, per_row, false, f)
    }

    /// Whether elements outside need not be left out: they are zero, of which `f` has made what a reduction starts with.
    #[inline(always)]
    fn counts_for_nothing<F: Fold<V>, V: Value>(&self, f_of_zero: V) -> bool {
        self.zero && f_of_zero.to_bits32() == F::START.to_bits32()
    }

    #[inline(always)]
    fn fold_rows<F: Fold<V>, P: Value, V: Value, const CLUSTER: usize>(
        &self,
        cta: &mut Cta<THREADS, CLUSTER>,
        per_row: &PerRow<P, M, THREADS>,
        all: bool,
        f: impl Fn(T::Value, P) -> V,
    ) -> PerRow<V, M, THREADS> {
        // SAFETY: the whole block is here: its token is borrowed exclusively.
        let values = unsafe {
            backend::fold_words::<F, T, P, V, THREADS, C, M, N>(
                &mut cta.scratch,
                &self.words,
                &per_row.values,
                all,
                self.cols,
                f,
            )
        };
        PerRow { values }
    }
}

#[inline(always)]
fn least(a: u32, b: u32) -> u32 {
    if a < b { a } else { b }
}

impl<V: Value, const M: usize, const N: usize, const THREADS: usize, C: Chunks> Tile<V, M, N, ByRows<THREADS, C>> {
    /// The sum of each row. In one order, always the same.
    #[inline(always)]
    pub fn row_sum<const CLUSTER: usize>(&self, cta: &mut Cta<THREADS, CLUSTER>) -> PerRow<V, M, THREADS> {
        self.fold_rows::<Sum, CLUSTER>(cta)
    }
    /// The greatest value of each row; NaN if one is.
    #[inline(always)]
    pub fn row_max<const CLUSTER: usize>(&self, cta: &mut Cta<THREADS, CLUSTER>) -> PerRow<V, M, THREADS> {
        self.fold_rows::<Greatest, CLUSTER>(cta)
    }
    /// The least value of each row; NaN if one is.
    #[inline(always)]
    pub fn row_min<const CLUSTER: usize>(&self, cta: &mut Cta<THREADS, CLUSTER>) -> PerRow<V, M, THREADS> {
        self.fold_rows::<Least, CLUSTER>(cta)
    }
    #[inline(always)]
    fn fold_rows<F: Fold<V>, const CLUSTER: usize>(&self, cta: &mut Cta<THREADS, CLUSTER>) -> PerRow<V, M, THREADS> {
        // SAFETY: the whole block is here: its token is borrowed exclusively.
        let values = unsafe { backend::fold_rows::<F, V, THREADS, C, M, N>(&mut cta.scratch, &self.values, self.cols) };
        PerRow { values }
    }

    /// `f` of every element and the value of its row.
    #[inline(always)]
    pub fn map_rows<P: Value, U: Value>(
        &self,
        per_row: &PerRow<P, M, THREADS>,
        f: impl Fn(V, P) -> U + Sync,
    ) -> Tile<U, M, N, ByRows<THREADS, C>> {
        let values = self.values.map_rows::<P, U, ByRows<THREADS, C>, M, N>(&per_row.values, f);
        self.with(values, self.rows, self.cols, false)
    }
}

impl<const M: usize, const N: usize, const THREADS: usize, C: Chunks> Tile<f32, M, N, ByRows<THREADS, C>> {
    /// Turns each two adjacent values of a row, `(x, y)` to `(x c - y s, y c + x s)`, by the angles whose cosines and sines are
    /// given: one for each two.
    #[inline(always)]
    pub fn turn_pairs<const H: usize, D: Chunks>(
        &self,
        cos: &Tile<f32, M, H, ByRows<THREADS, D>>,
        sin: &Tile<f32, M, H, ByRows<THREADS, D>>,
    ) -> Self {
        const { assert!(H * 2 == N && D::LEN * 2 == C::LEN, "an angle for each two values, in the threads that hold them") };
        let values = self.values.turn_pairs::<ByRows<THREADS, C>, M, N>(&cos.values, &sin.values);
        self.with(values, self.rows, self.cols, false)
    }
}

impl<V: Value, const M: usize, const N: usize, const THREADS: usize, C: Chunks> Tile<V, M, N, ByColumns<THREADS, C>> {
    /// The sum of each column. In one order, always the same.
    #[inline(always)]
    pub fn column_sum<const CLUSTER: usize>(
        &self,
        cta: &mut Cta<THREADS, CLUSTER>,
    ) -> PerColumn<V, N, ByColumns<THREADS, C>> {
        self.fold_columns::<Sum, CLUSTER>(cta)
    }
    /// The greatest value of each column; NaN if one is.
    #[inline(always)]
    pub fn column_max<const CLUSTER: usize>(
        &self,
        cta: &mut Cta<THREADS, CLUSTER>,
    ) -> PerColumn<V, N, ByColumns<THREADS, C>> {
        self.fold_columns::<Greatest, CLUSTER>(cta)
    }
    /// The least value of each column; NaN if one is.
    #[inline(always)]
    pub fn column_min<const CLUSTER: usize>(
        &self,
        cta: &mut Cta<THREADS, CLUSTER>,
    ) -> PerColumn<V, N, ByColumns<THREADS, C>> {
        self.fold_columns::<Least, CLUSTER>(cta)
    }
    #[inline(always)]
    fn fold_columns<F: Fold<V>, const CLUSTER: usize>(
        &self,
        cta: &mut Cta<THREADS, CLUSTER>,
    ) -> PerColumn<V, N, ByColumns<THREADS, C>> {
        const { assert!(CLUSTER == 1, "reductions over rows use the memory in which clusters exchange values") };
        // SAFETY: the whole block is here: its token is borrowed exclusively.
        let values =
            unsafe { backend::fold_columns::<F, V, THREADS, C, M, N>(&mut cta.scratch, &self.values, self.rows) };
        PerColumn { values, _p: PhantomData }
    }

    /// `f` of every element and the value of its column.
    #[inline(always)]
    pub fn map_columns<P: Value, U: Value>(
        &self,
        per_column: &PerColumn<P, N, ByColumns<THREADS, C>>,
        f: impl Fn(V, P) -> U + Sync,
    ) -> Tile<U, M, N, ByColumns<THREADS, C>> {
        let values = self.values.map_columns::<P, U, ByColumns<THREADS, C>, M, N>(&per_column.values, f);
        self.with(values, self.rows, self.cols, false)
    }
}

impl<V: Value, const M: usize, const THREADS: usize> PerRow<V, M, THREADS> {
    /// The same value for every row.
    #[inline(always)]
    pub fn splat(value: V) -> Self {
        PerRow { values: PerLine::splat(value, M) }
    }
    /// `f` of every row's value.
    #[inline(always)]
    pub fn map<U: Value>(&self, f: impl Fn(V) -> U + Sync) -> PerRow<U, M, THREADS> {
        PerRow { values: self.values.map(f) }
    }
    /// `f` of every row's value and its counterpart in `other`.
    #[inline(always)]
    pub fn zip<W: Value, U: Value>(
        &self,
        other: &PerRow<W, M, THREADS>,
        f: impl Fn(V, W) -> U + Sync,
    ) -> PerRow<U, M, THREADS> {
        PerRow { values: self.values.zip(&other.values, f) }
    }
}

impl<V: Value, const THREADS: usize> PerRow<V, 1, THREADS> {
    /// The sum of what the blocks of the cluster have for the row, in the order of their numbers. All of them meet.
    #[inline(always)]
    pub fn cluster_sum<const CLUSTER: usize>(&self, cta: &mut Cta<THREADS, CLUSTER>) -> Self {
        self.join_cluster::<Sum, CLUSTER>(cta)
    }
    /// The greatest of what the blocks of the cluster have for the row; NaN if one is. All of them meet.
    #[inline(always)]
    pub fn cluster_max<const CLUSTER: usize>(&self, cta: &mut Cta<THREADS, CLUSTER>) -> Self {
        self.join_cluster::<Greatest, CLUSTER>(cta)
    }
    #[inline(always)]
    fn join_cluster<F: Fold<V>, const CLUSTER: usize>(&self, cta: &mut Cta<THREADS, CLUSTER>) -> Self {
        // SAFETY: the whole block is here, its token being borrowed exclusively, and so are the others of the cluster:
        // what steers a kernel is equal in all of them.
        let values =
            unsafe { backend::join_cluster::<F, V, CLUSTER>(cta.scratch, cta.place, cta.exchanges, &self.values) };
        cta.exchanges += 1;
        PerRow { values }
    }
}

impl<V: Value, const N: usize, L> PerColumn<V, N, L> {
    #[inline(always)]
    pub(crate) fn of(values: PerLine<V>) -> Self {
        PerColumn { values, _p: PhantomData }
    }
    #[inline(always)]
    pub(crate) fn values(&self) -> &PerLine<V> {
        &self.values
    }
    /// The same value for every column.
    #[inline(always)]
    pub fn splat(value: V) -> Self {
        PerColumn { values: PerLine::splat(value, N), _p: PhantomData }
    }
    /// `f` of every column's value.
    #[inline(always)]
    pub fn map<U: Value>(&self, f: impl Fn(V) -> U + Sync) -> PerColumn<U, N, L> {
        PerColumn { values: self.values.map(f), _p: PhantomData }
    }
    /// `f` of every column's value and its counterpart in `other`.
    #[inline(always)]
    pub fn zip<W: Value, U: Value>(
        &self,
        other: &PerColumn<W, N, L>,
        f: impl Fn(V, W) -> U + Sync,
    ) -> PerColumn<U, N, L> {
        PerColumn { values: self.values.zip(&other.values, f), _p: PhantomData }
    }
}
