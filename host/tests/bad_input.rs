//! Errors of public functions that `cpu`, `faults` and `graphs` do not meet: together they have one test for each error
//! that a function names.

#[path = "common/mod.rs"]
mod common;

use std::ptr::{dangling_mut, null_mut, without_provenance, without_provenance_mut};
use std::sync::Arc;
use tilewright_core::backend::Block;
use tilewright_core::kernel::{Entry, Grid, Image, Kernel};
use tilewright_core::view::TilesMut;
use tilewright_fake_cuda::child;
use tilewright_host::foreign::{Ending, scope};
use tilewright_host::{Device, Error, Launch, Stream, Tensor, TensorView, TensorViewMut};

#[test]
fn memory_of_others() {
    let cpu = Device::cpu();
    // SAFETY: never followed.
    unsafe {
        let e = Tensor::<f32, 1>::from_raw(&cpu, without_provenance_mut(6), [2]).unwrap_err();
        assert_eq!(e.to_string(), "tensor: address must be a multiple of 4 bytes, found 6");
        let e = Tensor::<f32, 2>::from_raw(&cpu, dangling_mut(), [1 << 40, 1 << 40]).unwrap_err();
        assert!(matches!(e, Error::Shape { .. }), "{e}");
        let e = TensorViewMut::<f32, 2>::from_raw(&cpu, without_provenance_mut(2), [2, 2], [2, 1]).unwrap_err();
        assert!(matches!(e, Error::Alignment { expected: 4, found: 2, .. }), "{e}");
        let e = TensorViewMut::<f32, 2>::from_raw(&cpu, dangling_mut(), [2, 1], [usize::MAX, 1]).unwrap_err();
        assert!(matches!(e, Error::Shape { .. }), "{e}");
        // as many elements as no host has room for, at one address
        let broad = TensorView::<f32, 1>::from_raw(&cpu, without_provenance(64), [1 << 58], [0]).unwrap();
        let e = broad.to_vec(&cpu.stream().unwrap()).unwrap_err();
        assert_eq!(e.to_string(), "out of memory: 1152921504606846976 bytes on the host");
        let far = TensorView::<f32, 2>::from_raw(&cpu, without_provenance(64), [2, 4], [1 << 38, 1]).unwrap();
        let e = far.tma_tiles::<64, 32>().map(|_| ()).unwrap_err();
        assert!(e.to_string().contains("rows less than 2^40 bytes apart"), "{e}");
    }
}

#[test]
fn what_is_lent() {
    let s = Device::cpu().stream().unwrap();
    let memory = [0.0f32; 8];
    // SAFETY: within the array, or never followed.
    let lend = |from: usize, len, extents, strides| {
        scope(&s, Ending::OnHost, |scope| unsafe {
            scope.view::<f32, 2>(memory.as_ptr().byte_add(from), len, extents, strides)?.to_vec(scope.stream())
        })
    };
    assert_eq!(lend(0, 8, [2, 4], [4, 1]), Ok(vec![0.0; 8]));
    let e = lend(0, 7, [2, 4], [4, 1]).unwrap_err();
    assert_eq!(e.to_string(), "tensor: expected a view within 7 elements, found [2, 4] with strides [4, 1]");
    assert!(matches!(lend(1, 4, [2, 2], [2, 1]), Err(Error::Alignment { expected: 4, .. })));
    assert!(matches!(lend(0, 8, [usize::MAX, 2], [2, 1]), Err(Error::Shape { .. })));
    // SAFETY: refused.
    let e = scope(&s, Ending::OnStream, |scope| unsafe {
        scope.view_mut::<f32, 2>(dangling_mut(), 8, [2, 4], [1, 1]).map(|_| ())
    });
    assert!(matches!(e, Err(Error::Stride { .. })));
    // SAFETY: refused before it is looked at.
    let e = unsafe { Stream::from_owner(&Device::cpu(), null_mut(), Arc::new(())) }.unwrap_err();
    assert!(matches!(e, Error::Unsupported { .. }), "{e}");
}

/// A stream that somebody else made, when the driver does not do as it is told.
#[test]
fn streams_of_others() {
    child("streams_of_others", |fake| {
        let device = Device::cuda(0).unwrap();
        let theirs = device.new_stream().unwrap();
        std::thread::scope(|threads| {
            threads.spawn(|| {
                // this thread has no context yet
                fake.fail_next("cuCtxSetCurrent", 1, 201);
                // SAFETY: `theirs` outlives it.
                let e = unsafe { Stream::from_raw(&device, theirs.as_raw()) }.unwrap_err();
                assert_eq!(e.to_string(), "cuCtxSetCurrent failed: CUDA_ERROR_INVALID_CONTEXT (201)");
                // SAFETY: as above.
                let s = unsafe { Stream::from_raw(&device, theirs.as_raw()) }.unwrap();
                assert_eq!(Tensor::<f32, 1>::full(&s, [2], 1.0).unwrap().to_vec(&theirs).unwrap(), [1.0; 2]);
            });
        });
        assert_eq!(fake.violations(), [""; 0]);
    });
}

/// Kernels whose images are not what the host was compiled with.
macro_rules! kernel {
    ($name:ident, $images:expr) => {
        struct $name;
        // SAFETY: does nothing.
        unsafe impl Kernel for $name {
            type Args<'a> = (TilesMut<'a, f32, 2, 8>,);
            const NAME: &'static str = concat!("tests::", stringify!($name));
            const SYMBOL: &'static str = "tests__wrong";
            const ARG_NAMES: &'static [&'static str] = &["y"];
            const ARCH: &'static str = "sm_80";
            const THREADS: u32 = 128;
            const CLUSTER: u32 = 1;
            const MIN_BLOCKS: u32 = 1;
            const SHARED_BYTES: u32 = 1024;
            const GRID: Grid = Grid::PerTile;
            const SIGNATURE: u64 = 7;
            fn images() -> &'static [Image] {
                static IMAGES: &[Image] = $images;
                IMAGES
            }
            fn block(_: &Block, _: Self::Args<'_>) {}
        }
    };
}
const ENTRY: Entry = Entry { symbol: "tests__wrong", signature: 7, shared_bytes: 1024, threads: 128, cluster: 1 };
const OTHER: &str = ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry tests__other()\n{\n\tret;\n}\n";
const IMAGE: Image = Image { arch: "sm_80", ptx: OTHER, cubin: None, entries: &[ENTRY] };
kernel!(Nowhere, &[]);
kernel!(Elsewhere, &[Image { entries: &[], ..IMAGE }]);
kernel!(Outdated, &[Image { entries: &[Entry { signature: 8, ..ENTRY }], ..IMAGE }]);
kernel!(Missing, &[IMAGE]);

#[test]
fn images_that_are_not_right() {
    child("images_that_are_not_right", |fake| {
        let device = Device::cuda(0).unwrap();
        let s = device.stream().unwrap();
        let mut y = Tensor::<f32, 2>::zeros(&s, [2, 8]).unwrap();
        let message = |e: Error| e.to_string();
        let e = Nowhere::prepare(&device).unwrap_err();
        assert_eq!(message(e), "kernel `tests::Nowhere` has no device code: its crate's images are empty");
        let e = Elsewhere::launch(&s, (y.tiles_mut().unwrap(),)).unwrap_err();
        let text =
            "kernel `tests::Elsewhere` has no device code: its crate's images (sm_80) do not contain `tests__wrong`";
        assert_eq!(message(e), text);
        let e = Outdated::launch(&s, (y.tiles_mut().unwrap(),)).unwrap_err();
        assert!(matches!(e, Error::SignatureMismatch { what: "arguments", expected: 7, found: 8, .. }), "{e}");
        let e = Missing::launch(&s, (y.tiles_mut().unwrap(),)).unwrap_err();
        assert!(matches!(e, Error::NotBuilt { symbol: "tests__wrong", .. }), "{e}");
        assert_eq!(fake.calls("cuLaunchKernel"), 0);
        assert_eq!(fake.violations(), [""; 0]);
    });
}
