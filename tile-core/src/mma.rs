//! Warpgroup products and who owns what while they are in flight.
//!
//! Products run asynchronously. While they do, the accumulator they write and the slots they read belong to the group
//! ([`Mma`]), by value: the accumulator comes back from [`wait`](Mma::wait) and from nothing else, a slot is released
//! when the products that read it have retired. Leaking a group loses both; nothing is freed early, and the role ends
//! with a wait for whatever is still in flight.
//!
//! Groups share one counter a warpgroup, and groups retire in order: waiting until at most one is in flight retires
//! every older one, whichever accumulator it belongs to. So two groups in flight are safe, if they wait a little longer.

use crate::backend::{self, MmaElement, NotShared, Wgmma, Width};
use crate::pipeline::{FullSlot, Release};
use crate::roles::WarpGroup;
use crate::shared::{All, Rows, Stage};
use core::marker::PhantomData;
use core::mem::ManuallyDrop;

/// A warpgroup's accumulator of 64 x `N` `f32`: a value.
pub struct Acc<const N: usize>
where
    Width<N>: Wgmma,
{
    pub(crate) regs: <Width<N> as Wgmma>::Regs,
}

impl<const N: usize> Acc<N>
where
    Width<N>: Wgmma,
{
    /// All zero.
    #[inline(always)]
    pub fn zero() -> Self {
        Acc { regs: Width::<N>::zero() }
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
        Acc { regs: Width::<N>::map(self.regs, f) }
    }
}

/// What a group may own while its products read it: full slots, by value. Not references: a borrow ends when the group
/// is leaked, and the products do not.
///
/// # Safety
/// Leaked, it stays full.
#[diagnostic::on_unimplemented(
    message = "a group in flight must own what its products read",
    label = "`{Self}` is not owned",
    note = "give the group the `FullSlot` itself, not a reference to it: `wait` gives it back"
)]
pub unsafe trait Resident {}
// SAFETY: nothing.
unsafe impl Resident for () {}
// SAFETY: a leaked slot is never released.
unsafe impl<S: Stage, const STAGES: usize> Resident for FullSlot<'_, S, STAGES> {}

/// Products in flight: they own the accumulator they write, the last slot they read, and what else they read (`R`).
pub struct Mma<'p, const N: usize, R: Resident = ()>
where
    Width<N>: Wgmma,
{
    acc: Acc<N>,
    /// Dropped before `resident`: it waits for the products that read both.
    held: Option<Held<'p>>,
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

impl WarpGroup {
    /// Opens a group of products onto `acc`.
    #[inline(always)]
    pub fn mma<'p, const N: usize>(&mut self, acc: Acc<N>) -> Mma<'p, N>
    where
        Width<N>: Wgmma,
    {
        self.mma_with(acc, ())
    }
    /// Opens a group of products onto `acc` that also reads `resident`, a slot held throughout (attention's Q).
    #[inline(always)]
    pub fn mma_with<'p, const N: usize, R: Resident>(&mut self, acc: Acc<N>, resident: R) -> Mma<'p, N, R>
    where
        Width<N>: Wgmma,
    {
        Mma { acc, held: None, pending: backend::Pending::none(), resident, _p: PhantomData }
    }
}

impl<'p, const N: usize> Mma<'p, N>
where
    Width<N>: Wgmma,
{
    /// Starts `acc += A B^T` on tiles of `slot`, and releases the slot of the step before, whose products have retired.
    /// `pick` chooses the operands; it can name tiles of this slot alone.
    #[inline(always)]
    pub fn step<T: MmaElement, S: Stage, const STAGES: usize, const C: usize>(
        &mut self,
        slot: FullSlot<'p, S, STAGES>,
        pick: impl for<'s> FnOnce(&'s S) -> (Rows<'s, T, C>, All<'s, T, N, C>),
    ) {
        self.step_with(
            slot,
            #[inline(always)]
            |_, s| pick(s),
        )
    }
    /// Waits for all products, and gives the accumulator back.
    #[inline(always)]
    pub fn wait(self) -> Acc<N> {
        self.wait_with().0
    }
}

impl<'p, const N: usize, R: Resident> Mma<'p, N, R>
where
    Width<N>: Wgmma,
{
    /// As [`step`](Mma::step), on tiles of the resident slot and of `slot`.
    #[inline(always)]
    pub fn step_with<T: MmaElement, S: Stage, const STAGES: usize, const C: usize>(
        &mut self,
        slot: FullSlot<'p, S, STAGES>,
        pick: impl for<'s> FnOnce(&'s R, &'s S) -> (Rows<'s, T, C>, All<'s, T, N, C>),
    ) {
        let (a, b) = pick(&self.resident, &slot.stage);
        // SAFETY: the slot is full and stays so: the group owns it until these products have retired.
        unsafe { backend::issue::<T, N, C>(&mut self.acc.regs, &mut self.pending, &a, &b) };
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
            backend::settle::<N>(&mut self.acc.regs, &mut self.pending);
            drop(held)
        }
    }
    /// Waits for all products, and gives back the accumulator and what was resident.
    #[inline(always)]
    pub fn wait_with(mut self) -> (Acc<N>, R) {
        backend::settle::<N>(&mut self.acc.regs, &mut self.pending);
        if let Some(held) = self.held {
            // SAFETY: nothing is in flight.
            unsafe { held.retired() }
        }
        (self.acc, self.resident)
    }
}
