//! What `#[kernel]` makes of a function: a type that implements [`Kernel`], carrying everything that a launch needs to
//! know, in both directions: the PTX entry, the CPU entry and the arguments' types.

#[cfg(not(target_arch = "nvptx64"))]
use crate::backend;

#[cfg(not(target_arch = "nvptx64"))]
use crate::view::Provenance;

/// How many blocks a launch has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grid {
    /// A block (or cluster) for each tile of the first output.
    PerTile,
    /// The same, and never fewer: the kernel takes a single tile a block.
    OneTile,
    /// As many blocks as run at once, at most one a tile; each works through its share of the tiles.
    Persistent,
}

/// One PTX image, as `tilewright-build` embeds it.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Image {
    /// The architecture it was compiled for: `sm_80`, `sm_90a`.
    pub arch: &'static str,
    /// Its text.
    pub ptx: &'static str,
    /// The same, already compiled for one architecture.
    pub cubin: Option<(&'static str, &'static [u8])>,
    /// The kernels in it.
    pub entries: &'static [Entry],
}

/// One kernel of an image, as the device build saw it.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub symbol: &'static str,
    pub signature: u64,
    pub shared_bytes: u32,
    pub threads: u32,
    pub cluster: u32,
}

/// The first word of the record that the PTX pass reads and removes.
#[doc(hidden)]
pub const META_MAGIC: u64 = 0x7469_6c65_7772_6774;

/// FNV-1a over 64-bit words: equal on host and device, evaluated at compile time on both.
#[doc(hidden)]
pub const fn hash(words: &[u64]) -> u64 {
    let mut h = 0xcbf2_9ce4_8422_2325u64;
    let mut i = 0;
    while i < words.len() {
        let mut b = 0;
        while b < 64 {
            h = (h ^ (words[i] >> b & 0xff)).wrapping_mul(0x100_0000_01b3);
            b += 8;
        }
        i += 1;
    }
    h
}

/// What host and device must agree on, as one number.
#[doc(hidden)]
pub const fn signature(threads: usize, cluster: usize, shared: usize, faults: usize, args: &[u64]) -> u64 {
    let mut words = [0; 20];
    (words[0], words[1], words[2]) = (threads as u64, cluster as u64, shared as u64);
    (words[3], words[4]) = (faults as u64, args.len() as u64);
    let mut i = 0;
    while i < args.len() {
        words[5 + i] = args[i];
        i += 1;
    }
    hash(&words)
}

/// As many blocks as an SM can hold.
#[doc(hidden)]
pub const fn min_blocks(n: usize) -> u64 {
    assert!(n >= 1 && n <= 32, "an SM holds 1 to 32 blocks");
    n as u64
}

/// Shared memory that every block has before any that a kernel asks for: scratch of reductions.
#[doc(hidden)]
pub const SCRATCH_BYTES: usize = 1024;

/// Where each shared parameter's tiles begin, and where the last ends.
#[doc(hidden)]
pub const fn shared_offset(sizes: &[(usize, usize)], index: usize) -> usize {
    let (mut at, mut i) = (SCRATCH_BYTES, 0);
    while i < index {
        at += sizes[i].0.next_multiple_of(1024);
        i += 1;
    }
    at
}

/// Where each shared parameter's tail begins, and where the last ends: behind all tiles, packed.
#[doc(hidden)]
pub const fn shared_tail(sizes: &[(usize, usize)], index: usize) -> usize {
    let (mut at, mut i) = (shared_offset(sizes, sizes.len()), 0);
    while i < index {
        at += sizes[i].1.next_multiple_of(16);
        i += 1;
    }
    at
}

/// Shared memory one block may have in images of an architecture family.
#[doc(hidden)]
pub const fn shared_limit(hopper: bool) -> usize {
    if hopper { 232_448 } else { 101_376 }
}

/// A kernel instance: the type that `#[kernel]` defines beside the function, under the function's name.
///
/// # Safety
/// Implemented by `#[kernel]` alone: its constants describe what the device build compiled.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a kernel that was built",
    label = "no image has this instance",
    note = "a generic kernel is compiled for the instances that its `#[kernel(instances(...))]` lists, and for no others"
)]
#[cfg(not(target_arch = "nvptx64"))]
pub unsafe trait Kernel: Sized + 'static {
    /// The launch arguments, in order.
    type Args<'a>: Args;
    /// `crate::module::kernel::instance`.
    const NAME: &'static str;
    /// The entry's name in the PTX.
    const SYMBOL: &'static str;
    /// The arguments' names, for messages.
    const ARG_NAMES: &'static [&'static str];
    /// The image it is in: `sm_80` or `sm_90a`.
    const ARCH: &'static str;
    /// Threads of a block.
    const THREADS: u32;
    /// Blocks of a cluster.
    const CLUSTER: u32;
    /// Blocks that an SM must be able to hold.
    const MIN_BLOCKS: u32;
    /// Shared memory of a block.
    const SHARED_BYTES: u32;
    /// Blocks of a launch.
    const GRID: Grid;
    /// What it can find wrong, by number: see [`Fault`](crate::fault::Fault).
    const FAULTS: &'static [&'static str] = &[];
    /// The hash of all of the above that host and device must agree on.
    const SIGNATURE: u64;
    /// The images of the crate that defines the kernel.
    #[doc(hidden)]
    fn images() -> &'static [Image];
    /// Runs one block on the CPU.
    #[doc(hidden)]
    fn block(at: &backend::Block, args: Self::Args<'_>);
}

/// A kernel argument: a view or a scalar. It travels as two parameters, a thin pointer (so that the compiler sees a
/// global address) and its metadata.
///
/// # Safety
/// Implemented in this crate alone. `Meta` is `repr(C)` and equal on host and device.
#[diagnostic::on_unimplemented(
    message = "`{Self}` can not be a kernel argument",
    note = "views (`Tiles`, `TilesMut`, `RowTiles`, `RowTilesMut`, `TmaTiles`, `TmaTilesMut`, `TmaPages`, `OwnedTiles`, `ScatterRows`) and the scalars f32, i32, u32 and u64 can"
)]
pub unsafe trait Arg: Sized {
    /// Part of the kernel's signature: kind, element type, tile shape, layout of `Meta`.
    #[doc(hidden)]
    const SIGNATURE: u64;
    /// What travels beside the pointer.
    #[doc(hidden)]
    type Meta: Copy + 'static;
    /// # Safety
    /// The launcher passed all three for an argument of this type; once a block.
    #[doc(hidden)]
    #[cfg(target_arch = "nvptx64")]
    unsafe fn receive(ptr: *mut u8, meta: Self::Meta, param: u64) -> Self;
    /// What travels.
    #[doc(hidden)]
    #[cfg(not(target_arch = "nvptx64"))]
    fn lower(&self) -> (u64, Self::Meta);
    /// What the launcher wants to know.
    #[doc(hidden)]
    #[cfg(not(target_arch = "nvptx64"))]
    fn facts(&self) -> Facts<'_>;
    /// The same of memory that the argument names besides, to read.
    #[doc(hidden)]
    #[cfg(not(target_arch = "nvptx64"))]
    fn also(&self) -> [Option<Facts<'_>>; 2] {
        [None, None]
    }
    /// The argument as one block receives it on the CPU.
    /// # Safety
    /// At most once for each worker of a launch.
    #[doc(hidden)]
    #[cfg(not(target_arch = "nvptx64"))]
    unsafe fn at(&self, place: backend::Place) -> Self;
    /// The same without a reference to its owner: for launches that are kept, whose launcher keeps the owner itself.
    #[doc(hidden)]
    #[cfg(not(target_arch = "nvptx64"))]
    fn without_owner(self) -> Self;
    /// Takes another value, if it is a scalar of that type.
    #[doc(hidden)]
    #[cfg(not(target_arch = "nvptx64"))]
    fn assign(&mut self, _value: &dyn core::any::Any) -> bool {
        false
    }
}

/// What the launcher must know of an argument.
#[doc(hidden)]
#[cfg(not(target_arch = "nvptx64"))]
#[derive(Clone, Copy)]
pub struct Facts<'a> {
    /// None for scalars.
    pub provenance: Option<Provenance<'a>>,
    /// Written by the kernel.
    pub mutable: bool,
    /// For outputs: how many tiles it has.
    pub tiles: Option<u64>,
}

/// A scalar as it travels.
#[doc(hidden)]
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Scalar<T>(pub T);

macro_rules! scalar {
    ($($t:ty, $id:literal;)*) => {$(
        // SAFETY: one plain value.
        unsafe impl Arg for $t {
            const SIGNATURE: u64 = hash(&[1, $id]);
            type Meta = Scalar<$t>;
            #[cfg(target_arch = "nvptx64")]
            #[inline(always)]
            unsafe fn receive(_: *mut u8, meta: Scalar<$t>, _: u64) -> Self {
                meta.0
            }
            #[cfg(not(target_arch = "nvptx64"))]
            fn lower(&self) -> (u64, Scalar<$t>) {
                (0, Scalar(*self))
            }
            #[cfg(not(target_arch = "nvptx64"))]
            fn facts(&self) -> Facts<'_> {
                Facts { provenance: None, mutable: false, tiles: None }
            }
            #[cfg(not(target_arch = "nvptx64"))]
            unsafe fn at(&self, _: backend::Place) -> Self {
                *self
            }
            #[cfg(not(target_arch = "nvptx64"))]
            fn without_owner(self) -> Self {
                self
            }
            #[cfg(not(target_arch = "nvptx64"))]
            fn assign(&mut self, value: &dyn core::any::Any) -> bool {
                value.downcast_ref::<$t>().map(|v| *self = *v).is_some()
            }
        }
    )*};
}
scalar! { f32, 1; i32, 2; u32, 3; u64, 4; }

/// The arguments of a launch: a tuple of [`Arg`].
///
/// # Safety
/// Implemented here for tuples alone.
#[doc(hidden)]
#[cfg(not(target_arch = "nvptx64"))]
pub unsafe trait Args {
    /// Pointers and metadata, at stable addresses while a launch is enqueued.
    type Lowered;
    fn lower(&self) -> Self::Lowered;
    /// Calls `push` with the address of every kernel parameter, in order.
    fn params(lowered: &Self::Lowered, push: &mut dyn FnMut(*const core::ffi::c_void));
    /// Calls `see` for each argument.
    fn facts(&self, see: &mut dyn FnMut(usize, Facts<'_>));
    /// # Safety
    /// At most once for each worker of a launch.
    unsafe fn at(&self, place: backend::Place) -> Self;
    /// The same without references to owners.
    fn without_owners(self) -> Self;
    /// Gives argument `index` another value, if it is a scalar of that type.
    fn assign(&mut self, index: usize, value: &dyn core::any::Any) -> bool;
}

#[cfg(not(target_arch = "nvptx64"))]
macro_rules! args {
    ($($a:ident $i:tt),*) => {
        // SAFETY: argument by argument.
        unsafe impl<$($a: Arg),*> Args for ($($a,)*) {
            type Lowered = ($((u64, $a::Meta),)*);
            fn lower(&self) -> Self::Lowered {
                ($(self.$i.lower(),)*)
            }
            fn params(lowered: &Self::Lowered, push: &mut dyn FnMut(*const core::ffi::c_void)) {
                $(
                    push((&raw const lowered.$i.0).cast());
                    push((&raw const lowered.$i.1).cast());
                )*
            }
            fn facts(&self, see: &mut dyn FnMut(usize, Facts<'_>)) {
                $(
                    see($i, self.$i.facts());
                    for facts in self.$i.also().into_iter().flatten() {
                        see($i, facts);
                    }
                )*
            }
            unsafe fn at(&self, place: backend::Place) -> Self {
                // SAFETY: the caller's.
                unsafe { ($(self.$i.at(place),)*) }
            }
            fn without_owners(self) -> Self {
                ($(self.$i.without_owner(),)*)
            }
            fn assign(&mut self, index: usize, value: &dyn core::any::Any) -> bool {
                match index {
                    $($i => self.$i.assign(value),)*
                    _ => false,
                }
            }
        }
    };
}
#[cfg(not(target_arch = "nvptx64"))]
mod tuples {
    use super::*;
    args!(A 0);
    args!(A 0, B 1);
    args!(A 0, B 1, C 2);
    args!(A 0, B 1, C 2, D 3);
    args!(A 0, B 1, C 2, D 3, E 4);
    args!(A 0, B 1, C 2, D 3, E 4, F 5);
    args!(A 0, B 1, C 2, D 3, E 4, F 5, G 6);
    args!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);
    args!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8);
    args!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9);
    args!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10);
    args!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11);
    args!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11, M 12);
    args!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11, M 12, N 13);
}
