//! Warpgroup products and who owns what while they are in flight.
//!
//! Products run asynchronously. While they do, the accumulator they write and everything they read belong to the group
//! ([`Mma`]), by value: slots, and left operands in registers ([`Packed`]). They come back from [`wait`](Mma::wait) and
//! [`wait_with`](Mma::wait_with), and from nothing else. Leaking a group loses what it owns; nothing is freed early, and
//! the role ends with a wait for whatever is still in flight. Dropping a group waits first.
//!
//! Groups share one counter a warpgroup, and groups retire in order: waiting until at most one is in flight retires
//! every older one, whichever accumulator it belongs to. So two groups in flight are safe, if they wait a little longer:
//! a step waits until only the newest commit is pending, and that is its own; every other wait is for none at all.

use crate::backend::{self, MmaElement, NotShared, Pack16, SharedFactor, Wgmma, Width};
use crate::pipeline::{FullSlot, Release};
use crate::roles::WarpGroup;
use crate::shared::{Major, Right, Rows, Stage};
use core::marker::PhantomData;
use core::mem::ManuallyDrop;

/// A warpgroup's accumulator of `H` times 64 x `N` `f32`, `H` one or two: a value.
pub struct Acc<const N: usize, const H: usize = 1>
where
    Width<N>: Wgmma,
{
    pub(crate) regs: [<Width<N> as Wgmma>::Regs; H],
}

impl<const N: usize, const H: usize> Acc<N, H>
where
    Width<N>: Wgmma,
{
    /// All zero.
    #[inline(always)]
    pub fn zero() -> Self {
        const { assert!(H == 1 || H == 2, "an accumulator is 64 or 128 rows high") };
        Acc { regs: backend::stack(Width::<N>::zero) }
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
        let regs = backend::map_stack(
            self.regs,
            #[inline(always)]
            |h, regs| {
                Width::<N>::map(
                    regs,
                    #[inline(always)]
                    |row, column, x| f(64 * h + row, column, x),
                )
            },
        );
        Acc { regs }
    }
}

impl<const N: usize> Acc<N>
where
    Width<N>: Wgmma,
{
    /// Rounds to `T`: the left operand of a further product. No element moves to another thread.
    #[inline(always)]
    pub fn pack<T: Pack16>(&self) -> Packed<T, N> {
        Packed::new(Width::<N>::pack::<T>(&self.regs[0]))
    }
}

/// 64 x `K` elements in a warpgroup's registers: a left operand.
pub struct Packed<T, const K: usize>
where
    Width<K>: Wgmma,
{
    pub(crate) regs: <Width<K> as Wgmma>::Packed,
    _p: PhantomData<(T, NotShared)>,
}

impl<T, const K: usize> Packed<T, K>
where
    Width<K>: Wgmma,
{
    #[inline(always)]
    pub(crate) fn new(regs: <Width<K> as Wgmma>::Packed) -> Self {
        Packed { regs, _p: PhantomData }
    }
}

/// What a group may own while its products read it: full slots and packed operands, by value. Not references: a borrow
/// ends when the group is leaked, and the products do not.
///
/// # Safety
/// Leaked, it stays as it is. Dropped, it may be overwritten.
#[diagnostic::on_unimplemented(
    message = "a group in flight must own what its products read",
    label = "`{Self}` is not owned",
    note = "give the group the `FullSlot` or `Packed` itself, not a reference to it: `wait_with` gives it back"
)]
pub unsafe trait Resident: Sized {
    /// Lets go of it right behind a wait for the products that read it. The warpgroup has waited together, so slots are
    /// released without a barrier, as by [`Mma::step`].
    #[doc(hidden)]
    #[inline(always)]
    fn retire(self) {}
}
// SAFETY: nothing.
unsafe impl Resident for () {}
// SAFETY: a leaked slot is never released.
unsafe impl<S: Stage, const STAGES: usize> Resident for FullSlot<'_, S, STAGES> {
    #[inline(always)]
    fn retire(self) {
        ManuallyDrop::new(self.release).sign()
    }
}
// SAFETY: registers.
unsafe impl<T, const K: usize> Resident for Packed<T, K> where Width<K>: Wgmma {}
// SAFETY: both.
unsafe impl<A: Resident, B: Resident> Resident for (A, B) {
    #[inline(always)]
    fn retire(self) {
        self.0.retire();
        self.1.retire();
    }
}
// SAFETY: all three.
unsafe impl<A: Resident, B: Resident, C: Resident> Resident for (A, B, C) {
    #[inline(always)]
    fn retire(self) {
        self.0.retire();
        self.1.retire();
        self.2.retire();
    }
}

/// Products in flight: they own the accumulator they write, the last slot they read, and what else they read (`R`).
///
/// ```compile_fail,E0382
/// use tilewright_core::prelude::*;
/// fn reads_a_slot_in_flight(wg: &mut WarpGroup, tile: FullSlot<'_, SharedTile<bf16, 64, 64>, 1>) {
///     let group = wg.mma_with(Acc::<64>::zero(), tile);
///     tile.read(wg);
/// }
/// ```
///
/// ```compile_fail,E0277
/// use tilewright_core::prelude::*;
/// fn only_borrows(wg: &mut WarpGroup, p: Packed<bf16, 64>) {
///     let group = wg.mma_with(Acc::<64>::zero(), &p);
/// }
/// ```
///
/// ```compile_fail,E0597
/// use tilewright_core::prelude::*;
/// // operands can only be taken from what the group owns
/// fn names_another_slot(
///     wg: &mut WarpGroup,
///     k: FullSlot<'_, SharedTile<bf16, 64, 64>, 1>,
///     other: FullSlot<'_, SharedTile<bf16, 64, 64>, 1>,
/// ) {
///     let mut group = wg.mma_with(Acc::<64>::zero(), k);
///     group.multiply(|k| (k.rows(), other.all()));
/// }
/// ```
///
/// ```compile_fail,E0597
/// use tilewright_core::prelude::*;
/// // not even by way of an end that is held by value
/// fn names_another_slot(wg: &mut WarpGroup, baton: &mut Baton<'_, SharedTile<bf16, 64, 64>, 2>) {
///     let mut ring = baton.take(wg);
///     let (k, other) = (ring.next(), ring.next());
///     let mut group = wg.mma_with(Acc::<64>::zero(), k);
///     group.multiply(|k| (k.rows(), other.all()));
/// }
/// ```
pub struct Mma<'p, const N: usize, const H: usize = 1, R: Resident = ()>
where
    Width<N>: Wgmma,
{
    acc: Acc<N, H>,
    // These two are dropped before `resident`: they wait for the products that read it.
    held: Option<Held<'p>>,
    flying: Flying,
    pending: backend::Pending,
    resident: R,
    _p: NotShared,
}

/// A slot that products in flight still read. Dropped before its time, it waits first.
struct Held<'p>(ManuallyDrop<Release<'p>>);

impl Drop for Held<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        backend::wait::<0>();
        self.0.sign()
    }
}

impl Held<'_> {
    /// # Safety
    /// The products that read the slot have retired. They are the warpgroup's together, so no barrier is needed.
    #[inline(always)]
    unsafe fn retired(self) {
        ManuallyDrop::new(self).0.sign()
    }
}

/// Dropped, it waits for all products.
struct Flying;

impl Drop for Flying {
    #[inline(always)]
    fn drop(&mut self) {
        backend::wait::<0>()
    }
}

impl WarpGroup {
    /// Opens a group of products onto `acc`.
    #[inline(always)]
    pub fn mma<'p, const N: usize, const H: usize>(&mut self, acc: Acc<N, H>) -> Mma<'p, N, H>
    where
        Width<N>: Wgmma,
    {
        self.mma_with(acc, ())
    }
    /// Opens a group of products onto `acc` that reads `resident`: slots and packed operands, held until they retire.
    #[inline(always)]
    pub fn mma_with<'p, const N: usize, const H: usize, R: Resident>(
        &mut self,
        acc: Acc<N, H>,
        resident: R,
    ) -> Mma<'p, N, H, R>
    where
        Width<N>: Wgmma,
    {
        Mma { acc, held: None, flying: Flying, pending: backend::Pending::none(), resident, _p: PhantomData }
    }
}

impl<'p, const N: usize, const H: usize> Mma<'p, N, H>
where
    Width<N>: Wgmma,
{
    /// Starts `acc += A B` on tiles of `slot`, and releases the slot of the step before, whose products have retired.
    /// `pick` chooses the operands; it can name tiles of this slot alone.
    #[inline(always)]
    pub fn step<T: SharedFactor, S: Stage, const STAGES: usize, const K: usize, M: Major>(
        &mut self,
        slot: FullSlot<'p, S, STAGES>,
        pick: impl for<'s> FnOnce(&'s S) -> (Rows<'s, T, K, H>, Right<'s, T, N, K, M>),
    ) {
        self.step_with(
            slot,
            #[inline(always)]
            |_, s| pick(s),
        )
    }
}

impl<'p, const N: usize, const H: usize, R: Resident> Mma<'p, N, H, R>
where
    Width<N>: Wgmma,
{
    /// As [`step`](Mma::step), on tiles of the resident slots and of `slot`.
    #[inline(always)]
    pub fn step_with<T: SharedFactor, S: Stage, const STAGES: usize, const K: usize, M: Major>(
        &mut self,
        slot: FullSlot<'p, S, STAGES>,
        pick: impl for<'s> FnOnce(&'s R, &'s S) -> (Rows<'s, T, K, H>, Right<'s, T, N, K, M>),
    ) {
        let (a, b) = pick(&self.resident, &slot.stage);
        // SAFETY: the slot is full and stays so: the group owns it until these products have retired.
        unsafe { backend::issue::<T, N, K, H, M>(&mut self.acc.regs, &mut self.pending, &a, &b) };
        let held = Held(ManuallyDrop::new(slot.release));
        if cfg!(tilewright_fault = "release") {
            // planted for the race detector: the slot goes back while its products are in flight
            // SAFETY: none; this is the fault.
            return unsafe { held.retired() };
        }
        if const { STAGES > 1 } {
            backend::wait::<1>();
            if let Some(before) = self.held.replace(held) {
                // SAFETY: only the newest group is in flight.
                unsafe { before.retired() }
            }
        } else {
            backend::settle::<N, H>(&mut self.acc.regs, &mut self.pending);
            drop(held)
        }
    }
    /// Starts `acc += A B` on tiles of the resident slots.
    #[inline(always)]
    pub fn multiply<T: SharedFactor, const K: usize, M: Major>(
        &mut self,
        pick: impl for<'s> FnOnce(&'s R) -> (Rows<'s, T, K, H>, Right<'s, T, N, K, M>),
    ) {
        let (a, b) = pick(&self.resident);
        // SAFETY: what is resident stays so until these products have retired.
        unsafe { backend::issue::<T, N, K, H, M>(&mut self.acc.regs, &mut self.pending, &a, &b) }
    }
    /// Takes more into the group, for the products that follow.
    #[inline(always)]
    pub fn with<Q: Resident>(self, more: Q) -> Mma<'p, N, H, (R, Q)> {
        let Mma { acc, held, flying, pending, resident, _p } = self;
        Mma { acc, held, flying, pending, resident: (resident, more), _p }
    }
    /// Waits for all products, and gives back the accumulator and what `split` keeps of what was resident; the rest is let
    /// go of.
    #[inline(always)]
    pub fn wait_split<G, D: Resident>(self, split: impl FnOnce(R) -> (G, D) + Copy + 'static) -> (Acc<N, H>, G) {
        let (acc, resident) = self.wait_with();
        let (kept, done) = split(resident);
        done.retire();
        (acc, kept)
    }
    /// Waits for all products, and gives back the accumulator and what was resident.
    #[inline(always)]
    pub fn wait_with(self) -> (Acc<N, H>, R) {
        let Mma { mut acc, held, flying, mut pending, resident, .. } = self;
        backend::settle::<N, H>(&mut acc.regs, &mut pending);
        core::mem::forget(flying);
        if let Some(held) = held {
            // SAFETY: nothing is in flight.
            unsafe { held.retired() }
        }
        (acc, resident)
    }
    /// Waits for all products, gives the accumulator back, and lets go of what was resident.
    #[inline(always)]
    pub fn wait(self) -> Acc<N, H> {
        let (acc, resident) = self.wait_with();
        resident.retire();
        acc
    }
}

impl<const N: usize, R: Resident> Mma<'_, N, 1, R>
where
    Width<N>: Wgmma,
{
    /// As [`multiply`](Mma::multiply), the left operand being resident in registers.
    #[inline(always)]
    pub fn multiply_packed<T: MmaElement, const K: usize, M: Major>(
        &mut self,
        pick: impl for<'s> FnOnce(&'s R) -> (&'s Packed<T, K>, Right<'s, T, N, K, M>),
    ) where
        Width<K>: Wgmma,
    {
        let (a, b) = pick(&self.resident);
        // SAFETY: as above, registers included.
        unsafe { backend::issue_packed::<T, N, K, M>(&mut self.acc.regs[0], &mut self.pending, a, &b) }
    }
}
