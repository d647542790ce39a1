//! `add_bias` for the fake driver: what its device code does, with every access checked.

use std::ffi::c_void;
use tilewright_core::__private::RawView;
use tilewright_core::args::OutMeta;
use tilewright_core::schedule::Linear;
use tilewright_fake_cuda::{Access, Fake};

/// Gives launches of `add_bias` something to do.
pub fn install(fake: &Fake) {
    let sizes = [8, size_of::<RawView>(), 8, size_of::<OutMeta<Linear>>(), 8, 4];
    // SAFETY: the entry's parameters: each view an address and its metadata, and a scalar likewise.
    unsafe { fake.kernel("tests__add_bias", &sizes, body) };
}

unsafe extern "C" fn body(access: &Access, params: *const *const c_void, _blocks: u32) {
    // SAFETY: as registered; copies of the parameters may lie at any address.
    let (from, source, to, target, bias) = unsafe {
        (
            params.read().cast::<u64>().read_unaligned(),
            params.add(1).read().cast::<RawView>().read_unaligned(),
            params.add(2).read().cast::<u64>().read_unaligned(),
            params.add(3).read().cast::<OutMeta<Linear>>().read_unaligned().raw,
            params.add(5).read().cast::<f32>().read_unaligned(),
        )
    };
    for slab in 0..u64::from(target.slabs) {
        for row in 0..u64::from(target.rows) {
            let at = |base: u64, v: &RawView| base + 4 * (slab * v.slab_stride + row * v.row_stride);
            let (a, b) = (at(from, &source), at(to, &target));
            let bytes = 4 * target.cols as usize;
            if access.check(a, bytes) && access.check(b, bytes) {
                for c in 0..target.cols as usize {
                    // SAFETY: memory that lives, of both extents.
                    unsafe { (b as *mut f32).add(c).write((a as *const f32).add(c).read() + bias) };
                }
            }
        }
    }
}
