//! The CPU entry of a kernel, and the split of a block into roles.

use core::sync::atomic::Ordering;
use std::thread;
use std::vec;

use super::monitor::{Monitor, current, wait_until};
use super::run::join;
use crate::pipeline::Channel;
use crate::roles::{Cta, Output, WarpGroup, warpgroup};

/// See [`Cta::roles`].
pub(crate) fn roles<C: Channel, O: Output, const THREADS: usize, const CLUSTER: usize>(
    cta: Cta<THREADS, CLUSTER>,
    channel: C,
    output: O,
    producer: impl for<'p> FnOnce(&mut C::Producer<'p>) + Send,
    consumer: impl for<'p> Fn(&mut WarpGroup, &mut C::Consumer<'p>, O::Part) + Sync,
) where
    O::Part: Send,
{
    let consumers = (THREADS / 128 - 1) as u32;
    let alone = Monitor::default();
    let monitor = match current() {
        // SAFETY: the monitor of the cluster that runs this block.
        Some(m) => unsafe { &*m },
        None => &alone,
    };
    // SAFETY: one thread, before any end exists.
    unsafe { channel.init(consumers) };
    // All blocks of the cluster have initialised their slots before any is used.
    monitor.ready.fetch_add(1, Ordering::AcqRel);
    wait_until(|| monitor.ready.load(Ordering::Acquire) >= CLUSTER as u32, || "a block waits for its cluster".into());
    let (channel, consumer) = (&channel, &consumer);
    thread::scope(|s| {
        let mut roles = vec![s.spawn(move || {
            let _role = monitor.enter("producer");
            let mut end = channel.producer(consumers);
            producer(&mut end);
            C::drain(end);
        })];
        for index in 0..consumers {
            // SAFETY: once for each warpgroup of the cluster.
            let part = unsafe { output.part(cta.place.rank * consumers + index, index) };
            roles.push(s.spawn(move || {
                let _role = monitor.enter(["first consumer", "second consumer", "third consumer"][index as usize % 3]);
                // SAFETY: once for each warpgroup.
                consumer(&mut unsafe { warpgroup(index) }, &mut channel.consumer(), part);
            }));
        }
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
        min_blocks { $min_blocks:literal }
        grid { $grid:ident }
        block { $cta:ident : $cta_ty:ty }
        shared { $($s:ident : $s_ty:ty = $s_index:literal),* }
        args { $($a:ident : $a_static:ty, $a_ty:ty = $p:ident $m:ident $m_index:literal $a_name:literal),* }
        images { $($images:tt)* }
        call { $call:expr }
    ) => {
        const _: () = {
            const SHARED: &[usize] = &[$(<$s_ty as $crate::__private::Shared>::BYTES),*];
            const SHARED_BYTES: usize = $crate::__private::shared_offset(SHARED, SHARED.len());
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
                const MIN_BLOCKS: u32 = $min_blocks;
                const SHARED_BYTES: u32 = SHARED_BYTES as u32;
                const GRID: $crate::kernel::Grid = $crate::kernel::Grid::$grid;
                const SIGNATURE: u64 = $crate::__private::signature(
                    THREADS, CLUSTER, SHARED_BYTES, &[$(<$a_static as $crate::__private::Arg>::SIGNATURE),*],
                );
                fn images() -> &'static [$crate::__private::Image] {
                    $($images)*
                }
                fn block(at: &$crate::__private::backend::Block, args: Self::Args<'_>) {
                    let ($($a,)*) = args;
                    // SAFETY: one token a block; its own shared memory for each.
                    let $cta = unsafe { <$cta_ty>::begin(at.shared_at(0), at.place()) };
                    $(let $s = unsafe {
                        <$s_ty as $crate::__private::Shared>::claim(
                            at.shared_at(const { $crate::__private::shared_offset(SHARED, $s_index) }),
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
