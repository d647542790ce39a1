//! Kernels made by hand, so that these tests need neither the attribute nor a device compiler.
#![allow(dead_code)]

use tilewright_core::backend::Block;
use tilewright_core::kernel::{Arg, Entry, Grid, Image, Kernel};
use tilewright_core::schedule::Linear;
use tilewright_core::tma::{TmaTiles, TmaTilesMut};
use tilewright_core::view::{Tiles, TilesMut};

/// `y = x + bias`, rows of any length.
#[allow(non_camel_case_types)]
pub struct add_bias;

// SAFETY: the block writes its own tiles alone.
unsafe impl Kernel for add_bias {
    type Args<'a> = (Tiles<'a, f32, 2, 8>, TilesMut<'a, f32, 2, 8, Linear>, f32);
    const NAME: &'static str = "tests::add_bias";
    const SYMBOL: &'static str = "tests__add_bias";
    const ARG_NAMES: &'static [&'static str] = &["x", "y", "bias"];
    const ARCH: &'static str = "sm_80";
    const THREADS: u32 = 128;
    const CLUSTER: u32 = 1;
    const MIN_BLOCKS: u32 = 1;
    const SHARED_BYTES: u32 = 1024;
    const GRID: Grid = Grid::PerTile;
    const SIGNATURE: u64 = 7;
    fn images() -> &'static [Image] {
        &ADD_BIAS
    }
    fn block(_: &Block, (x, y, bias): Self::Args<'_>) {
        if bias.is_nan() {
            panic!("the bias is not a number");
        }
        let ((from, source), (to, target)) = (x.lower(), y.lower());
        let target = target.raw;
        let (from, to) = (from as *const f32, to as *mut f32);
        let down = target.rows.div_ceil(2);
        for (i, j) in y.plan() {
            let (slab, i) = (i / down, i % down);
            for r in 2 * i..target.rows.min(2 * i + 2) {
                for c in 8 * j..target.cols.min(8 * j + 8) {
                    let at = |v: &tilewright_core::view::RawView| {
                        (slab as u64 * v.slab_stride + r as u64 * v.row_stride + c as u64) as usize
                    };
                    // SAFETY: within the extents; the tile is this block's.
                    unsafe { *to.add(at(&target)) = *from.add(at(&source)) + bias };
                }
            }
        }
    }
}

static ADD_BIAS: [Image; 1] = [Image {
    arch: "sm_80",
    ptx: include_str!("add_bias.ptx"),
    cubin: None,
    entries: &[Entry { symbol: "tests__add_bias", signature: 7, shared_bytes: 1024, threads: 128, cluster: 1 }],
}];

/// Takes views behind tensor maps; does nothing.
pub struct Mapped;

/// What its images say; the device code does not exist.
pub static IMAGES: [Image; 2] = [
    Image { arch: "sm_80", ptx: ".version 7.0\n.target sm_80\n", cubin: None, entries: &[] },
    Image {
        arch: "sm_90a",
        // not PTX: the driver says so
        ptx: ".version 8.0\n.target sm_90a\n nonsense\n",
        cubin: None,
        entries: &[Entry { symbol: "tests__mapped", signature: 8, shared_bytes: 1024, threads: 128, cluster: 2 }],
    },
];

// SAFETY: does nothing.
unsafe impl Kernel for Mapped {
    type Args<'a> = (TmaTiles<'a, f32, 64, 32>, TmaTilesMut<'a, f32, 64, 32, Linear>);
    const NAME: &'static str = "tests::mapped";
    const SYMBOL: &'static str = "tests__mapped";
    const ARG_NAMES: &'static [&'static str] = &["a", "d"];
    const ARCH: &'static str = "sm_90a";
    const THREADS: u32 = 128;
    const CLUSTER: u32 = 2;
    const MIN_BLOCKS: u32 = 1;
    const SHARED_BYTES: u32 = 1024;
    const GRID: Grid = Grid::Persistent;
    const SIGNATURE: u64 = 8;
    fn images() -> &'static [Image] {
        &IMAGES
    }
    fn block(_: &Block, _: Self::Args<'_>) {}
}
