//! Shared memory: 32-bit addresses in the shared window.

use core::arch::{asm, global_asm};

global_asm!(".extern .shared .align 1024 .b8 tilewright_shared[];");

/// An address in the block's shared memory.
#[derive(Clone, Copy)]
pub struct Smem(pub(crate) u32);

impl Smem {
    /// Where the block's dynamic shared memory begins: 1024-byte aligned.
    #[inline(always)]
    pub(crate) fn base() -> Self {
        let r: u32;
        // SAFETY: an address.
        unsafe { asm!("mov.u32 {0}, tilewright_shared;", out(reg32) r, options(pure, nomem, nostack)) }
        Smem(r)
    }
    /// `bytes` further.
    #[inline(always)]
    pub(crate) fn add(self, bytes: usize) -> Self {
        Smem(self.0 + bytes as u32)
    }
    /// See [`here`].
    #[inline(always)]
    pub(crate) fn here(self) -> Self {
        Smem(here(self.0))
    }
    /// The same place in block `rank` of the cluster.
    #[inline(always)]
    pub(crate) fn peer(self, rank: u32) -> u32 {
        let r: u32;
        // SAFETY: an address.
        unsafe {
            asm!("mapa.shared::cluster.u32 {0}, {1}, {2};", out(reg32) r, in(reg32) self.0, in(reg32) rank, options(pure, nomem, nostack))
        }
        r
    }
    /// As a generic address. Not `pure`, so that it is made where it is used and not shared between basic blocks: the
    /// build's PTX pass knows this very text, and has `ldmatrix` and `stmatrix` use the 32-bit address after all.
    #[inline(always)]
    pub(crate) fn generic(self) -> *mut u8 {
        let r: u64;
        // SAFETY: an address.
        unsafe {
            asm!("{{ .reg .b64 t; cvt.u64.u32 t, {1}; cvta.shared.u64 {0}, t; }}", out(reg64) r, in(reg32) self.0, options(nomem, nostack))
        }
        r as *mut u8
    }
    /// # Safety
    /// The four bytes are the caller's to write.
    #[inline(always)]
    pub(crate) unsafe fn store_u32(self, v: u32) {
        // SAFETY: the caller's.
        unsafe { asm!("st.shared.b32 [{0}], {1};", in(reg32) self.0, in(reg32) v, options(nostack)) }
    }
    /// As [`store_u32`](Self::store_u32) if `condition`. Predicated, not branched.
    ///
    /// # Safety
    /// If `condition`, the four bytes are the caller's to write.
    #[inline(always)]
    pub(crate) unsafe fn store_u32_if(self, v: u32, condition: bool) {
        // SAFETY: the caller's.
        unsafe {
            asm!("{{ .reg .pred p; setp.ne.u32 p, {2}, 0; @p st.shared.b32 [{0}], {1}; }}",
                in(reg32) self.0, in(reg32) v, in(reg32) condition as u32, options(nostack))
        }
    }
    /// Thread `i` writes `v` to this place in block `i` of the cluster, for the first `peers` threads.
    ///
    /// # Safety
    /// By all threads of the block. The four bytes are its to write, in every block of the cluster, and all have begun.
    #[inline(always)]
    pub(crate) unsafe fn store_u32_to_peers(self, v: u32, peers: u32) {
        // SAFETY: the caller's.
        unsafe {
            asm!("{{ .reg .pred p; .reg .b32 a; setp.lt.u32 p, {2}, {3}; @p mapa.shared::cluster.u32 a, {0}, {2}; \
                @p st.shared::cluster.b32 [a], {1}; }}",
                in(reg32) self.0, in(reg32) v, in(reg32) super::sync::tid(), in(reg32) peers, options(nostack))
        }
    }
    /// # Safety
    /// Nobody writes the four bytes at the same time.
    #[inline(always)]
    pub(crate) unsafe fn load_u32(self) -> u32 {
        let v: u32;
        // SAFETY: the caller's.
        unsafe { asm!("ld.shared.b32 {0}, [{1}];", out(reg32) v, in(reg32) self.0, options(nostack)) }
        v
    }
}

/// The same value, of which the compiler does not know that it is the same: what is computed from it stays where it is
/// used. Without this the descriptors of fixed slots, and addresses that depend on the thread alone, are all hoisted out
/// of the loops, and fill the registers.
#[inline(always)]
pub(crate) fn here(value: u32) -> u32 {
    let r: u32;
    // SAFETY: a copy.
    unsafe { asm!("mov.b32 {0}, {1};", out(reg32) r, in(reg32) value, options(nostack)) }
    r
}
