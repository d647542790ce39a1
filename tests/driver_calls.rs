//! A warmed launch allocates nothing, waits for nothing and compiles nothing: shown by counting what it asks of the
//! driver (the fake one, in a process of its own) and of the host's allocator.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use tilewright::element::{bf16, f16};
use tilewright::ops::gemm::{Path, choose, gemm};
use tilewright::ops::rmsnorm::{rmsnorm, rmsnorm_residual};
use tilewright::prelude::*;
use tilewright_fake_cuda::{Fake, Sandbox, in_child};

struct Counting;
thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}
// SAFETY: the system's allocator, counted.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|n| n.set(n.get() + 1));
        // SAFETY: the caller's.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
        // SAFETY: the caller's.
        unsafe { System.dealloc(p, layout) }
    }
}
#[global_allocator]
static COUNTING: Counting = Counting;

/// What a launch may ask of the driver, however often: which context is current. And to enqueue one kernel.
fn only_enqueues(fake: &Fake, what: &str, mut launch: impl FnMut() -> Result<(), Error>) {
    for _ in 0..2 {
        launch().unwrap_or_else(|e| panic!("{what}: {e}"));
    }
    let mut allocations = 0;
    let calls = fake.calls_of(|| {
        let before = ALLOCATIONS.get();
        launch().unwrap_or_else(|e| panic!("{what}: {e}"));
        allocations = ALLOCATIONS.get() - before;
    });
    let others: Vec<_> = calls.iter().filter(|c| *c != "cuCtxGetCurrent").collect();
    assert_eq!(others, ["cuLaunchKernel"], "{what}");
    assert!(calls.len() <= 2, "{what}: {calls:?}");
    assert_eq!(allocations, 0, "{what} allocates on the host");
}

fn on_device(capability: (u32, u32)) {
    let fake = Fake::connect();
    let device = Device::best();
    assert_eq!(device.compute_capability(), Some(capability));
    let stream = device.new_stream().unwrap();
    gemms::<f32>(&fake, &stream);
    gemms::<f16>(&fake, &stream);
    gemms::<bf16>(&fake, &stream);
    for columns in [5, 100, 500, 1000, 2000, 4000, 7168, 8000, 16384, 20000] {
        norms(&fake, &stream, columns);
    }
    assert_eq!(fake.violations(), [""; 0]);
}

fn gemms<T: tilewright::ops::gemm::Factor>(fake: &Fake, stream: &Stream) {
    // bulk copies in and out; an output that the copy engine can not write; operands that it can not read; large
    for [m, n, k] in [[64, 64, 64], [100, 33, 64], [65, 40, 31], [2048, 2048, 64]] {
        let a = Tensor::<T, 2>::zeros(stream, [m, k]).unwrap();
        let b = Tensor::<T, 2>::zeros(stream, [n, k]).unwrap();
        let mut c = Tensor::<T, 2>::zeros(stream, [m, n]).unwrap();
        let path = choose(stream.device(), a.view(), b.view(), c.view_mut());
        let hopper = stream.device().compute_capability() == Some((9, 0)) && k % 8 == 0 && T::DTYPE.size() == 2;
        assert_eq!(path.path() == Path::Hopper, hopper, "{m} x {n} x {k}");
        only_enqueues(fake, &format!("gemm {m} x {n} x {k} of {}", T::DTYPE), || {
            gemm(stream, a.view(), b.view(), c.view_mut())
        });
    }
}

fn norms(fake: &Fake, stream: &Stream, columns: usize) {
    let x = Tensor::<bf16, 2>::zeros(stream, [3, columns]).unwrap();
    let w = Tensor::<f32, 1>::zeros(stream, [columns]).unwrap();
    let mut r = Tensor::<bf16, 2>::zeros(stream, [3, columns]).unwrap();
    let mut y = Tensor::<bf16, 2>::zeros(stream, [3, columns]).unwrap();
    only_enqueues(fake, &format!("rmsnorm of {columns}"), || rmsnorm(stream, x.view(), w.view(), y.view_mut(), 1e-6));
    only_enqueues(fake, &format!("rmsnorm_residual of {columns}"), || {
        rmsnorm_residual(stream, x.view(), r.view_mut(), w.view(), y.view_mut(), 1e-6)
    });
}

#[test]
fn a_warmed_launch_only_enqueues_on_hopper() {
    if in_child() {
        on_device((9, 0));
    } else {
        Sandbox::new().run("a_warmed_launch_only_enqueues_on_hopper");
    }
}

#[test]
fn a_warmed_launch_only_enqueues_on_ampere() {
    if in_child() {
        on_device((8, 0));
    } else {
        Sandbox::new().set("CAPABILITY", 80).run("a_warmed_launch_only_enqueues_on_ampere");
    }
}

/// A device whose machine code is not shipped: the driver compiles each kernel's PTX, once.
#[test]
fn a_warmed_launch_compiles_nothing_where_the_driver_compiles() {
    if in_child() {
        on_device((12, 0));
        let fake = Fake::connect();
        assert!(fake.calls("cuModuleLoadDataEx") > 0 && fake.calls("cuModuleLoadDataEx") < 60);
    } else {
        Sandbox::new().set("CAPABILITY", 120).run("a_warmed_launch_compiles_nothing_where_the_driver_compiles");
    }
}
