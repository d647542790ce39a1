//! cudarc's slices under tilewright's kernels, on the fake driver; and on a GPU where there is one.

use cudarc::driver::{CudaContext, CudaSlice, DeviceRepr};
use std::sync::Arc;
use tilewright::ops::gemm::gemm;
use tilewright::ops::rmsnorm::rmsnorm;
use tilewright::{Device, Error, Stream, Tensor};
use tilewright_adapters::cudarc::{device, scope, stream};
use tilewright_fake_cuda::{Fake, Sandbox, in_child};

fn context() -> Arc<CudaContext> {
    CudaContext::new(0).unwrap()
}

/// cudarc counts on what the driver says of memory that is not page-locked: a copy to it is done when the call returns.
fn child(test: &str, body: impl FnOnce(Fake)) {
    if in_child() {
        body(Fake::connect());
    } else {
        Sandbox::new().set("PAGEABLE", 1).run(test);
    }
}

/// Whether slices read as they should after tilewright has written them on other streams, whatever runs when.
#[test]
fn cudarc_and_tilewright_order_each_other() {
    child("cudarc_and_tilewright_order_each_other", |fake| {
        let context = context();
        let device = device(&context).unwrap();
        let (one, two) = (context.new_stream().unwrap(), context.new_stream().unwrap());
        let mine = device.new_stream().unwrap();
        for seed in 0..40 {
            fake.seed(seed);
            let mut x = one.alloc_zeros::<f32>(64).unwrap();
            one.memcpy_htod(&[1.0f32; 64], &mut x).unwrap();
            let mut y = two.alloc_zeros::<f32>(96).unwrap();
            // on cudarc's stream, and on one that cudarc has never seen
            for on in [None, Some(&mine)] {
                scope(&two, |s| {
                    let on = on.unwrap_or(s.stream());
                    let mut out = s.view_mut_strided(&mut y, [8, 8], [12, 1])?;
                    out.fill(on, 3.0)?;
                    out.rows(2..4)?.copy_from(on, s.view(&x, [8, 8])?.rows(0..2)?)
                })
                .unwrap();
                // what cudarc does next comes after it
                one.memcpy_htod(&[5.0f32; 64], &mut x).unwrap();
                let got = one.clone_dtoh(&y).unwrap();
                let first = if on.is_none() { 1.0 } else { 5.0 };
                for (i, v) in got.into_iter().enumerate() {
                    let (row, col) = (i / 12, i % 12);
                    let wanted = match (col < 8, row) {
                        (false, _) => 0.0,
                        (true, 2 | 3) => first,
                        (true, _) => 3.0,
                    };
                    assert_eq!(v, wanted, "element {i}");
                }
            }
            // freed while tilewright's work may still wait
            let mut z = two.alloc_zeros::<f32>(64).unwrap();
            scope(&two, |s| s.view_mut(&mut z, [64])?.fill(&mine, 1.0)).unwrap();
            drop((x, y, z));
        }
        assert_eq!(fake.violations(), [""; 0]);
        drop((one, two));
        assert_eq!(fake.live().memory, 0);
    });
}

/// Errors and panics in the closure leave the slices usable, and their work ordered.
#[test]
fn errors_and_panics() {
    child("errors_and_panics", |fake| {
        let context = context();
        let s = context.new_stream().unwrap();
        let mine = device(&context).unwrap().new_stream().unwrap();
        let mut y = s.alloc_zeros::<f32>(16).unwrap();
        let e = scope(&s, |s| s.view(&y, [4, 5]).map(|_| ())).unwrap_err();
        assert_eq!(e.to_string(), "tensor: expected a view within 16 elements, found [4, 5] with strides [5, 1]");
        let e = scope(&s, |s| s.view_mut_strided(&mut y, [4, 4], [1, 1]).map(|_| ())).unwrap_err();
        assert!(matches!(e, Error::Stride { .. }), "{e}");
        let e = scope(&s, |s| -> Result<(), Error> {
            s.view_mut(&mut y, [16])?.fill(&mine, 2.0)?;
            Err(Error::NoDevice)
        });
        assert_eq!(e, Err(Error::NoDevice));
        assert_eq!(s.clone_dtoh(&y).unwrap(), [2.0; 16]);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            scope(&s, |s| -> Result<(), Error> {
                s.view_mut(&mut y, [16])?.fill(&mine, 4.0)?;
                panic!("on purpose")
            })
        }));
        assert!(panicked.is_err());
        assert_eq!(s.clone_dtoh(&y).unwrap(), [4.0; 16]);
        // lent memory does not get into a graph
        let e = scope(&s, |s| {
            let mut out = s.view_mut(&mut y, [16])?;
            mine.capture(|m| out.fill(m, 1.0)).map(|_| ())
        })
        .unwrap_err();
        assert_eq!(
            e.to_string(),
            "recording the use of memory that is lent is not possible on a stream that is being captured"
        );
        assert_eq!(fake.violations(), [""; 0]);
    });
}

#[test]
fn other_devices_are_refused() {
    if !in_child() {
        Sandbox::new().set("DEVICES", 2).run("other_devices_are_refused");
        return;
    }
    let (a, b) = (context(), CudaContext::new(1).unwrap());
    assert_eq!(device(&b).unwrap(), Device::cuda(1).unwrap());
    let x = b.default_stream().alloc_zeros::<f32>(8).unwrap();
    let e = scope(&a.default_stream(), |s| s.view(&x, [8]).map(|_| ())).unwrap_err();
    assert_eq!(e.to_string(), "slice: expected memory of CUDA device 0, found memory of CUDA device 1");
    assert_eq!(Fake::connect().violations(), [""; 0]);
}

/// A stream that cudarc drops lives on while tilewright may need it.
#[test]
fn streams_are_kept() {
    child("streams_are_kept", |fake| {
        let context = context();
        let theirs = context.new_stream().unwrap();
        let device = device(&context).unwrap();
        let (s, mine): (Stream, Stream) = (stream(&theirs).unwrap(), device.new_stream().unwrap());
        let mut t = Tensor::<f32, 1>::zeros(&mine, [32]).unwrap();
        t.fill(&s, 2.0).unwrap();
        drop((theirs, s));
        assert_eq!(t.to_vec(&mine).unwrap(), [2.0; 32]);
        drop((t, mine));
        assert_eq!(fake.violations(), [""; 0]);
        assert_eq!((fake.live().memory, fake.live().streams), (0, 0));
    });
}

fn upload<T: DeviceRepr + Clone + Default>(s: &Arc<cudarc::driver::CudaStream>, data: &[T]) -> CudaSlice<T> {
    s.clone_htod(data).unwrap()
}

/// The kernels themselves, on a real GPU.
#[test]
fn kernels_on_a_gpu() {
    if in_child() || Device::best().is_cpu() || Device::best().name() == "Fake GPU" {
        println!("no GPU: skipped");
        return;
    }
    let context = context();
    let s = context.new_stream().unwrap();
    let (m, n, k) = (100, 72, 64);
    let a: Vec<f32> = (0..m * k).map(|i| (i % 7) as f32).collect();
    let b: Vec<f32> = (0..n * k).map(|i| (i % 5) as f32).collect();
    let (da, db, w) = (upload(&s, &a), upload(&s, &b), upload(&s, &vec![1.0f32; n]));
    let (mut c, mut y) = (s.alloc_zeros::<f32>(m * n).unwrap(), s.alloc_zeros::<f32>(m * n).unwrap());
    scope(&s, |s| gemm(s.stream(), s.view(&da, [m, k])?, s.view(&db, [n, k])?, s.view_mut(&mut c, [m, n])?)).unwrap();
    scope(&s, |s| rmsnorm(s.stream(), s.view(&c, [m, n])?, s.view(&w, [n])?, s.view_mut(&mut y, [m, n])?, 0.0))
        .unwrap();
    let (c, y) = (s.clone_dtoh(&c).unwrap(), s.clone_dtoh(&y).unwrap());
    for i in 0..m {
        let row: Vec<f32> = (0..n).map(|j| (0..k).map(|p| a[i * k + p] * b[j * k + p]).sum()).collect();
        assert_eq!(&c[i * n..][..n], row);
        let rms = (row.iter().map(|v| v * v).sum::<f32>() / n as f32).sqrt();
        assert!(row.iter().zip(&y[i * n..]).all(|(x, y)| (x / rms - y).abs() < 1e-5 * (1.0 + y.abs())));
    }
}
