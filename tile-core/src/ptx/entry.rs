//! The PTX entry of a kernel, and the split of a block into roles.

use core::marker::PhantomData;

use super::barrier::Barrier;
use super::smem::Smem;
use super::sync::*;
use super::tma::wait_stores_read;
use super::wgmma::{Descriptor, MmaElement, SharedFactor, Wgmma, Width, commit, fence, tie_after_wait};
use crate::layout::{k_major_descriptor, mn_major_descriptor};
use crate::mma::Packed;
use crate::roles::{WarpGroup, warpgroup};
use crate::shared::{Major, Right, Rows};
use crate::supply::{Supplier, supplier};
use crate::tma::SPAN;

#[doc(hidden)]
pub use core::arch::asm as __asm;

/// Marks tokens and everything that belongs to one role: neither `Send` nor `Sync`, here as on the CPU.
pub type NotShared = PhantomData<BelongsToItsToken>;
/// Named for the message that the compiler gives when a token would be shared.
pub struct BelongsToItsToken(*mut ());

/// Where the launch's first fault is kept: the address of two words that the host reads, or 0.
#[derive(Clone, Copy)]
pub struct Faults(pub u64);

impl Faults {
    /// The first report stays: its code, and the block.
    #[inline(always)]
    pub(crate) fn report(self, code: u32) {
        if self.0 == 0 {
            return;
        }
        // Of this GPU's scope: the host reads when the kernel is done, and atomics of the whole system need the bus's help.
        // SAFETY: two words of pinned memory.
        unsafe {
            __asm!(
                "{{ .reg .pred p; .reg .b32 was, block;",
                "atom.relaxed.gpu.global.cas.b32 was, [{words}], 0, {code};",
                "setp.eq.u32 p, was, 0;",
                "mov.u32 block, %ctaid.x;",
                "@p st.relaxed.sys.global.b32 [{words}+4], block; }}",
                words = in(reg64) self.0,
                code = in(reg32) code,
                options(nostack),
            )
        }
    }
}

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

/// Splits the block into a producer and consumer warpgroups: see [`Cta::roles`](crate::roles::Cta::roles).
#[inline(always)]
pub(crate) fn roles<P, const THREADS: usize, const CLUSTER: usize>(
    _: Place,
    faults: Faults,
    init: impl FnOnce(),
    producer: impl FnOnce(),
    part: impl Fn(u32, u32) -> P,
    consumer: impl Fn(&mut WarpGroup, P),
) {
    if tid() == 0 {
        init();
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
            producer();
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
        let part = part(cluster_rank_of::<CLUSTER>(), index);
        // SAFETY: once for each warpgroup.
        consumer(&mut unsafe { warpgroup(index, faults) }, part);
        leave();
    }
}

/// Splits the block into two warpgroups: see [`Cta::pair`](crate::roles::Cta::pair).
#[inline(always)]
pub(crate) fn pair(
    faults: Faults,
    init: impl FnOnce(),
    first: impl FnOnce(&mut WarpGroup),
    second: impl FnOnce(&mut WarpGroup),
) {
    if tid() == 0 {
        init();
        Barrier::publish_inits();
    }
    block_barrier();
    // SAFETY: once for each warpgroup.
    unsafe {
        if tid() / 128 == 0 {
            first(&mut warpgroup(0, faults));
            leave();
        } else {
            second(&mut warpgroup(1, faults));
            leave();
        }
    }
}

/// Splits the block into a supplying warp and two warpgroups: see
/// [`Cta::pair_supplied`](crate::roles::Cta::pair_supplied).
#[inline(always)]
pub(crate) fn pair_supplied<const CLUSTER: usize>(
    faults: Faults,
    init: impl FnOnce(),
    supply: impl FnOnce(&mut Supplier),
    first: impl FnOnce(&mut WarpGroup),
    second: impl FnOnce(&mut WarpGroup),
) {
    if tid() == 0 {
        init();
        Barrier::publish_inits();
    }
    if CLUSTER > 1 {
        cluster_barrier();
    } else {
        block_barrier();
    }
    // SAFETY: once for each.
    unsafe {
        match tid() / 128 {
            0 => {
                give_registers::<3>();
                // by a number that the assembler knows to be the warp's: else it keeps what is the warp's in registers of
                // each thread
                if shuffle(tid() / 32, 0) == 0 {
                    supply(&mut supplier(faults));
                }
            }
            1 => {
                take_registers::<3>();
                first(&mut warpgroup(0, faults));
                leave();
            }
            _ => {
                take_registers::<3>();
                second(&mut warpgroup(1, faults));
                leave();
            }
        }
    }
}

/// `f` by one thread of the running warp.
///
/// # Safety
/// By the whole warp.
#[inline(always)]
pub(crate) unsafe fn by_one_lane(f: impl FnOnce()) {
    if elect() {
        f()
    }
    warp_barrier();
}

/// The running warp meets.
#[inline(always)]
pub(crate) fn meet_warp() {
    warp_barrier()
}

/// At the end of a warpgroup's role: waits for what a leaked group left in flight, and for stores that still read this
/// block's memory.
#[inline(always)]
fn leave() {
    super::wait::<0>();
    #[cfg(target_feature = "sm_90a")]
    wait_stores_read::<0>();
}

/// `f` by one thread of the block.
///
/// # Safety
/// By the whole block.
#[inline(always)]
pub(crate) unsafe fn once_a_block(f: impl FnOnce()) {
    if tid() == 0 {
        f()
    }
    warp_barrier();
}

/// `f` by one thread of the running warpgroup.
///
/// # Safety
/// By the whole warpgroup.
#[inline(always)]
pub(crate) unsafe fn by_one_thread(f: impl FnOnce()) {
    if tid() % 128 == 0 {
        f()
    }
    warp_barrier();
}

/// Warpgroup `index`, the running one, meets.
#[inline(always)]
pub(crate) fn meet(index: u32) {
    warpgroup_barrier(index)
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

/// `$body` for each slab of 128 bytes in depth, straight-line.
macro_rules! slabs {
    ($n:expr, |$s:ident| $body:expr) => {
        slabs!(@ $n, $s, $body, 0 1 2 3 4 5 6 7 8)
    };
    (@ $n:expr, $s:ident, $body:expr, $($i:literal)*) => {
        const { assert!($n <= 9, "products are at most 576 deep") };
        $(if $i < const { $n } {
            let $s: usize = $i;
            $body
        })*
    };
}

/// The descriptor of a right operand, and how many bytes its next slab in depth is further.
#[inline(always)]
fn right<T, const N: usize, const K: usize, M: Major>(b: &Right<'_, T, N, K, M>) -> (Descriptor, usize) {
    let base = b.base.here().0;
    if M::TRANSPOSED {
        (Descriptor::new(mn_major_descriptor(base, b.slab as u32)), 64 * SPAN)
    } else {
        (Descriptor::new(k_major_descriptor(base)), b.slab)
    }
}

/// Starts `regs += A B` as one group.
///
/// # Safety
/// By the whole warpgroup; operands stay full until the group has retired.
#[inline(always)]
pub(crate) unsafe fn issue<T: SharedFactor, const N: usize, const K: usize, const H: usize, M: Major>(
    regs: &mut [<Width<N> as Wgmma>::Regs; H],
    _: &mut Pending,
    a: &Rows<'_, T, K, H>,
    b: &Right<'_, T, N, K, M>,
) where
    Width<N>: Wgmma,
{
    let (left, (right, depth)) = (Descriptor::new(k_major_descriptor(a.base.here().0)), right(b));
    fence();
    slabs!(K * size_of::<T>() / SPAN, |slab| {
        let (left, right) = (left.further(slab * a.slab), right.further(slab * depth));
        // SAFETY: the caller's; behind the fence.
        unsafe {
            T::issue::<Width<N>, M>(&mut regs[0], left, right);
            if H > 1 {
                T::issue::<Width<N>, M>(&mut regs[H - 1], left.further(64 * SPAN), right);
            }
        }
    });
    commit();
}

/// As [`issue`], the left operand in registers.
///
/// # Safety
/// As for [`issue`], and nobody touches the registers.
#[inline(always)]
pub(crate) unsafe fn issue_packed<T: MmaElement, const N: usize, const K: usize, M: Major>(
    regs: &mut <Width<N> as Wgmma>::Regs,
    _: &mut Pending,
    a: &Packed<T, K>,
    b: &Right<'_, T, N, K, M>,
) where
    Width<N>: Wgmma,
    Width<K>: Wgmma,
{
    let (right, depth) = right(b);
    fence();
    slabs!(K * 2 / SPAN, |slab| {
        let a = Width::<K>::packed_slab(&a.regs, slab);
        // SAFETY: the caller's; behind the fence.
        unsafe { T::issue_packed::<Width<N>, M>(regs, a, right.further(slab * depth)) };
    });
    commit();
}

/// Waits for everything in flight and orders later uses of `regs` behind it.
#[inline(always)]
pub(crate) fn settle<const N: usize, const H: usize>(regs: &mut [<Width<N> as Wgmma>::Regs; H], _: &mut Pending)
where
    Width<N>: Wgmma,
{
    super::wait::<0>();
    tie_after_wait::<Width<N>>(&mut regs[0]);
    if H > 1 {
        tie_after_wait::<Width<N>>(&mut regs[H - 1]);
    }
}

/// `H` values of `make`, one or two, without a loop.
#[inline(always)]
pub(crate) fn stack<R: Copy, const H: usize>(make: impl Fn() -> R) -> [R; H] {
    let mut all = core::mem::MaybeUninit::<[R; H]>::uninit();
    let to = all.as_mut_ptr() as *mut R;
    // SAFETY: H is one or two (asserted by `Acc::zero`); all are written.
    unsafe {
        to.write(make());
        if H > 1 {
            to.add(1).write(make());
        }
        all.assume_init()
    }
}

/// `f(h, regs[h])` of both, without a loop.
#[inline(always)]
pub(crate) fn map_stack<R: Copy, const H: usize>(mut regs: [R; H], f: impl Fn(u32, R) -> R) -> [R; H] {
    regs[0] = f(0, regs[0]);
    if H > 1 {
        regs[H - 1] = f(1, regs[H - 1]);
    }
    regs
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
            const FAULTS: &[&str] = &[$($($fault),*)?];

            #[unsafe(no_mangle)]
            #[used]
            pub static $meta: [u64; 8] = [
                $crate::__private::META_MAGIC,
                $crate::__private::signature(
                    THREADS, CLUSTER, SHARED_BYTES, FAULTS.len(), &[$(<$a_static as $crate::__private::Arg>::SIGNATURE),*],
                ),
                THREADS as u64,
                $crate::__private::min_blocks($min_blocks),
                CLUSTER as u64,
                SHARED_BYTES as u64,
                0,
                0,
            ];

            #[unsafe(no_mangle)]
            pub extern "ptx-kernel" fn $symbol(
                $($p: *mut u8, $m: <$a_static as $crate::__private::Arg>::Meta,)*
                $($sink: u64)?
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
                // SAFETY: of this block.
                let scope = unsafe { $crate::__private::BlockScope::new($crate::__private::backend::Faults(0 $(+ $sink)?)) };
                // SAFETY: one token a block; its own shared memory for each.
                let $cta = unsafe {
                    <$cta_ty>::begin(
                        &scope,
                        $crate::__private::backend::shared_at(0),
                        $crate::__private::backend::Place,
                    )
                };
                $(let $s = unsafe {
                    <$s_ty as $crate::__private::Shared>::claim(
                        &scope,
                        $crate::__private::backend::shared_at(
                            const { $crate::__private::shared_offset(SHARED, $s_index) },
                        ),
                        $crate::__private::backend::shared_at(
                            const { $crate::__private::shared_tail(SHARED, $s_index) },
                        ),
                    )
                };)*
                $call; // outside `unsafe`: it is the kernel's code
                $crate::__private::backend::finish::<CLUSTER>();
            }
        };
    };
}
