//! The CPU entry of a kernel, and the split of a block into roles.

use core::sync::atomic::Ordering;
use std::{panic, thread, vec};

use super::monitor::{Monitor, current, wait_until};
use super::run::{Faults, Place, join};
use crate::roles::{WarpGroup, warpgroup};
use crate::supply::{Supplier, supplier};

const CONSUMERS: [&str; 4] = ["first consumer", "second consumer", "third consumer", "fourth consumer"];

/// Splits the block into a producer and consumer warpgroups: see [`Cta::roles`](crate::roles::Cta::roles).
pub(crate) fn roles<P: Send, const THREADS: usize, const CLUSTER: usize>(
    place: Place,
    faults: Faults,
    init: impl FnOnce(),
    producer: impl FnOnce() + Send,
    part: impl Fn(u32, u32) -> P,
    consumer: impl Fn(&mut WarpGroup, P) + Sync,
) {
    let consumers = (THREADS / 128 - 1) as u32;
    let consumer = &consumer;
    split(CLUSTER as u32, init, |s, monitor| {
        let mut roles = vec![s.spawn(move || {
            let _role = monitor.enter("producer");
            producer()
        })];
        for index in 0..consumers {
            let part = part(place.rank, index);
            roles.push(s.spawn(move || {
                let _role = monitor.enter(CONSUMERS[index as usize % 4]);
                // SAFETY: once for each warpgroup.
                consumer(&mut unsafe { warpgroup(index, faults) }, part);
            }));
        }
        roles
    })
}

/// Splits the block into two warpgroups: see [`Cta::pair`](crate::roles::Cta::pair).
pub(crate) fn pair(
    faults: Faults,
    init: impl FnOnce(),
    first: impl FnOnce(&mut WarpGroup) + Send,
    second: impl FnOnce(&mut WarpGroup) + Send,
) {
    split(1, init, |s, monitor| {
        vec![
            s.spawn(move || {
                let _role = monitor.enter("first warpgroup");
                // SAFETY: once for each warpgroup.
                first(&mut unsafe { warpgroup(0, faults) })
            }),
            s.spawn(move || {
                let _role = monitor.enter("second warpgroup");
                // SAFETY: once for each warpgroup.
                second(&mut unsafe { warpgroup(1, faults) })
            }),
        ]
    })
}

/// Splits the block into a supplying warp and two warpgroups: see
/// [`Cta::pair_supplied`](crate::roles::Cta::pair_supplied).
pub(crate) fn pair_supplied<const CLUSTER: usize>(
    faults: Faults,
    init: impl FnOnce(),
    supply: impl FnOnce(&mut Supplier) + Send,
    first: impl FnOnce(&mut WarpGroup) + Send,
    second: impl FnOnce(&mut WarpGroup) + Send,
) {
    split(CLUSTER as u32, init, |s, monitor| {
        vec![
            s.spawn(move || {
                let _role = monitor.enter("supplier");
                // SAFETY: once a block.
                supply(&mut unsafe { supplier(faults) })
            }),
            s.spawn(move || {
                let _role = monitor.enter("first warpgroup");
                // SAFETY: once for each warpgroup.
                first(&mut unsafe { warpgroup(0, faults) })
            }),
            s.spawn(move || {
                let _role = monitor.enter("second warpgroup");
                // SAFETY: once for each warpgroup.
                second(&mut unsafe { warpgroup(1, faults) })
            }),
        ]
    })
}

/// Initialises, meets the cluster, and runs roles until all have ended.
fn split<'env>(
    cluster: u32,
    init: impl FnOnce(),
    spawn: impl for<'s> FnOnce(&'s thread::Scope<'s, 'env>, &'env Monitor) -> vec::Vec<thread::ScopedJoinHandle<'s, ()>>,
) {
    let monitor: &'env Monitor = match current() {
        // SAFETY: the monitor of the cluster that runs this block outlives its roles.
        Some(m) => unsafe { &*m },
        None => panic!("a block runs in a launch"),
    };
    init();
    // All blocks of the cluster have initialised their slots before any is used.
    monitor.ready.fetch_add(1, Ordering::AcqRel);
    wait_until(|| monitor.ready.load(Ordering::Acquire) >= cluster, || "a block waits for its cluster".into());
    thread::scope(|s| {
        let roles = spawn(s, monitor);
        let _waits = Waits::new(monitor);
        join(roles);
    })
}

/// The block's own thread does nothing but wait while its roles run.
struct Waits<'m>(&'m Monitor);
impl<'m> Waits<'m> {
    fn new(m: &'m Monitor) -> Self {
        m.rest(true);
        Waits(m)
    }
}
impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.rest(false)
    }
}

/// The CPU entry of one kernel instance.
#[doc(hidden)]
#[macro_export]
macro_rules! __kernel {
    (
        $image:ident
        kernel { $($kernel:tt)* }
        symbol { $symbol:ident $meta:ident $text:literal }
        name { $name:literal }
        arch { $arch:literal }
        min_blocks { $min_blocks:expr }
        grid { $grid:ident }
        faults { $($sink:ident $($fault:literal)*)? }
        block { $cta:ident : $cta_ty:ty }
        shared { $($s:ident : $s_ty:ty = $s_index:literal),* }
        args { $($a:ident : $a_static:ty, $a_ty:ty = $p:ident $m:ident $m_index:literal $a_name:literal),* }
        images { $($images:tt)* }
        call { $call:expr }
    ) => {
        const _: () = {
            const SHARED: &[(usize, usize)] = &[$((
                <$s_ty as $crate::__private::Shared>::BYTES,
                <$s_ty as $crate::__private::Shared>::TAIL,
            )),*];
            const SHARED_BYTES: usize = $crate::__private::shared_tail(SHARED, SHARED.len());
            const THREADS: usize = <$cta_ty as $crate::__private::Block>::THREADS;
            const CLUSTER: usize = <$cta_ty as $crate::__private::Block>::CLUSTER;
            const _: () = assert!(
                SHARED_BYTES <= $crate::__private::shared_limit($crate::__kernel!(@hopper $image)),
                "the kernel's shared memory exceeds what a block can have",
            );
            // SAFETY: the constants describe what the device build compiles from the same tokens.
            unsafe impl $crate::kernel::Kernel for $($kernel)* {
                type Args<'a> = ($($a_ty,)*);
                const NAME: &'static str = $name;
                const SYMBOL: &'static str = $text;
                const ARG_NAMES: &'static [&'static str] = &[$($a_name),*];
                const ARCH: &'static str = $arch;
                const THREADS: u32 = THREADS as u32;
                const CLUSTER: u32 = CLUSTER as u32;
                const MIN_BLOCKS: u32 = $crate::__private::min_blocks($min_blocks) as u32;
                const SHARED_BYTES: u32 = SHARED_BYTES as u32;
                const FAULTS: &'static [&'static str] = &[$($($fault),*)?];
                const GRID: $crate::kernel::Grid = $crate::kernel::Grid::$grid;
                const SIGNATURE: u64 = $crate::__private::signature(
                    THREADS, CLUSTER, SHARED_BYTES, <Self as $crate::kernel::Kernel>::FAULTS.len(), &[$(<$a_static as $crate::__private::Arg>::SIGNATURE),*],
                );
                fn images() -> &'static [$crate::__private::Image] {
                    $($images)*
                }
                // `inline`: compiled where it is launched, so that a program pays for the kernels it uses alone.
                #[inline]
                fn block(at: &$crate::__private::backend::Block, args: Self::Args<'_>) {
                    let ($($a,)*) = args;
                    // SAFETY: of this block.
                    let scope = unsafe { $crate::__private::BlockScope::new(at.faults()) };
                    // SAFETY: one token a block; its own shared memory for each.
                    let $cta = unsafe { <$cta_ty>::begin(&scope, at.shared_at(0), at.place()) };
                    $(let $s = unsafe {
                        <$s_ty as $crate::__private::Shared>::claim(
                            &scope,
                            at.shared_at(const { $crate::__private::shared_offset(SHARED, $s_index) }),
                            at.shared_at(const { $crate::__private::shared_tail(SHARED, $s_index) }),
                        )
                    };)*
                    $call; // outside `unsafe`: it is the kernel's code
                }
            }
        };
    };
    (@hopper hopper) => { true };
    (@hopper portable) => { false };
}
