//! The PTX entry of a kernel, and the split of a block into roles.

use core::marker::PhantomData;

use super::barrier::Barrier;
use super::smem::Smem;
use super::sync::*;
use super::tma::wait_stores_read;
use super::wgmma::{MmaElement, Wgmma, Width, commit, fence, tie_after_wait};
use crate::layout::k_major_descriptor;
use crate::pipeline::Channel;
use crate::roles::{Cta, Output, WarpGroup, warpgroup};
use crate::shared::{All, Rows};
use crate::tma::SPAN;

#[doc(hidden)]
pub use core::arch::asm as __asm;

/// Marks tokens and everything that belongs to one role: neither `Send` nor `Sync`, here as on the CPU.
pub type NotShared = PhantomData<BelongsToItsToken>;
/// Named for the message that the compiler gives when a token would be shared.
pub struct BelongsToItsToken(*mut ());

/// Where a block stands among the blocks: special registers tell on the device.
#[derive(Clone, Copy)]
pub struct Place;

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    // SAFETY: no kernel that is shipped reaches it: the PTX lint refuses `trap`.
    unsafe { core::arch::nvptx::trap() }
}

/// The block's shared memory from `offset` on.
#[doc(hidden)]
#[inline(always)]
pub fn shared_at(offset: usize) -> Smem {
    Smem::base().add(offset)
}

/// After the kernel function: no block of a cluster leaves while its peers may still write to it.
#[doc(hidden)]
#[inline(always)]
pub fn finish<const CLUSTER: usize>() {
    if CLUSTER > 1 {
        cluster_barrier();
    }
}

/// See [`Cta::roles`].
#[inline(always)]
pub(crate) fn roles<C: Channel, O: Output, const THREADS: usize, const CLUSTER: usize>(
    _cta: Cta<THREADS, CLUSTER>,
    channel: C,
    output: O,
    producer: impl for<'p> FnOnce(&mut C::Producer<'p>) + Send,
    consumer: impl for<'p> Fn(&mut WarpGroup, &mut C::Consumer<'p>, O::Part) + Sync,
) {
    let consumers = (THREADS / 128 - 1) as u32;
    if tid() == 0 {
        // SAFETY: one thread, before any end exists.
        unsafe { channel.init(consumers) };
        Barrier::publish_inits();
    }
    if CLUSTER > 1 {
        cluster_barrier();
    } else {
        block_barrier();
    }
    let group = tid() / 128;
    if group == 0 {
        match THREADS {
            384 => give_registers::<3>(),
            512 => give_registers::<4>(),
            _ => {}
        }
        if tid() == 0 {
            let mut end = channel.producer(consumers);
            producer(&mut end);
            C::drain(end);
        }
        if tid() < 32 {
            warp_barrier();
        }
    } else {
        match THREADS {
            384 => take_registers::<3>(),
            512 => take_registers::<4>(),
            _ => {}
        }
        let index = group - 1;
        // SAFETY: once for each warpgroup.
        let (mut wg, part) =
            unsafe { (warpgroup(index), output.part(cluster_rank_of::<CLUSTER>() * consumers + index, index)) };
        consumer(&mut wg, &mut channel.consumer(), part);
        // What a leaked group left in flight, and stores that still read this block's memory.
        super::wait::<0>();
        #[cfg(target_feature = "sm_90a")]
        wait_stores_read::<0>();
    }
}

#[inline(always)]
fn cluster_rank_of<const CLUSTER: usize>() -> u32 {
    if CLUSTER > 1 { cluster_rank() } else { 0 }
}

/// Nothing is put off on the device: the products are in flight.
pub(crate) struct Pending;
impl Pending {
    #[inline(always)]
    pub(crate) fn none() -> Self {
        Pending
    }
}

/// Starts `regs += A B^T` as one group.
///
/// # Safety
/// By the whole warpgroup; operands stay full until the group has retired.
#[inline(always)]
pub(crate) unsafe fn issue<T: MmaElement, const N: usize, const C: usize>(
    regs: &mut <Width<N> as Wgmma>::Regs,
    _: &mut Pending,
    a: &Rows<'_, T, C>,
    b: &All<'_, T, N, C>,
) where
    Width<N>: Wgmma,
{
    fence();
    let mut slab = 0;
    while slab < C * 2 / SPAN {
        let (da, db) =
            (k_major_descriptor(a.base.add(slab * a.slab).0), k_major_descriptor(b.base.add(slab * N * SPAN).0));
        // SAFETY: the caller's; behind the fence.
        unsafe { T::issue::<Width<N>>(regs, da, db) };
        slab += 1;
    }
    commit();
}

/// Waits for everything in flight and orders later uses of `regs` behind it.
#[inline(always)]
pub(crate) fn settle<const N: usize>(regs: &mut <Width<N> as Wgmma>::Regs, _: &mut Pending)
where
    Width<N>: Wgmma,
{
    super::wait::<0>();
    tie_after_wait::<Width<N>>(regs);
}

/// The PTX entry of one kernel instance, with the record for the PTX pass.
#[doc(hidden)]
#[macro_export]
macro_rules! __kernel {
    (hopper $($rest:tt)*) => {
        #[cfg(all(tilewright_entries, target_feature = "sm_90a"))]
        $crate::__kernel! { @emit $($rest)* }
    };
    (portable $($rest:tt)*) => {
        #[cfg(all(tilewright_entries, not(target_feature = "sm_90a")))]
        $crate::__kernel! { @emit $($rest)* }
    };
    (
        @emit
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

            #[unsafe(no_mangle)]
            #[used]
            pub static $meta: [u64; 8] = [
                $crate::__private::META_MAGIC,
                $crate::__private::signature(
                    THREADS, CLUSTER, SHARED_BYTES, &[$(<$a_static as $crate::__private::Arg>::SIGNATURE),*],
                ),
                THREADS as u64,
                $min_blocks,
                CLUSTER as u64,
                SHARED_BYTES as u64,
                0,
                0,
            ];

            #[unsafe(no_mangle)]
            pub extern "ptx-kernel" fn $symbol(
                $($p: *mut u8, $m: <$a_static as $crate::__private::Arg>::Meta),*
            ) {
                // SAFETY: the launcher passes what the types say. A parameter's address can only be had by its name.
                $(let $a = unsafe {
                    let param: u64;
                    $crate::__private::backend::__asm!(
                        concat!("{{ .reg .b64 t; mov.b64 t, ", $text, "_param_", $m_index, "; cvta.param.u64 {0}, t; }}"),
                        out(reg64) param,
                        options(pure, nomem, nostack),
                    );
                    <$a_static as $crate::__private::Arg>::receive($p, $m, param)
                };)*
                // SAFETY: one token a block; its own shared memory for each.
                let $cta = unsafe {
                    <$cta_ty>::begin(
                        $crate::__private::backend::shared_at(0),
                        $crate::__private::backend::Place,
                    )
                };
                $(let $s = unsafe {
                    <$s_ty as $crate::__private::Shared>::claim($crate::__private::backend::shared_at(
                        const { $crate::__private::shared_offset(SHARED, $s_index) },
                    ))
                };)*
                $call; // outside `unsafe`: it is the kernel's code
                $crate::__private::backend::finish::<CLUSTER>();
            }
        };
    };
}
