//! cust's buffers under tilewright's kernels, on the fake driver; and on a GPU where there is one.

use cust::context::{Context, CurrentContext};
use cust::device::Device as CustDevice;
use cust::memory::{CopyDestination, DeviceBuffer};
use cust::stream::{Stream as CustStream, StreamFlags};
use std::sync::Arc;
use tilewright::element::{bf16, f16};
use tilewright::ops::rmsnorm::rmsnorm;
use tilewright::{Device, Error, Tensor};
use tilewright_adapters::cust::{device, scope, stream};
use tilewright_fake_cuda::{Fake, Sandbox, child, in_child};

fn stream_of(context: &Context) -> Arc<CustStream> {
    CurrentContext::set_current(context).unwrap();
    Arc::new(CustStream::new(StreamFlags::DEFAULT, None).unwrap())
}

fn host(buffer: &DeviceBuffer<f32>) -> Vec<f32> {
    let mut out = vec![0.0; buffer.len()];
    buffer.copy_to(&mut out).unwrap();
    out
}

/// Buffers read as they should, and can be freed, right after a scope, whatever stream worked on them.
#[test]
fn buffers_are_done_with_at_the_end() {
    child("buffers_are_done_with_at_the_end", |fake| {
        let context = cust::quick_init().unwrap();
        let s = stream_of(&context);
        let mine = device(&context).unwrap().new_stream().unwrap();
        for seed in 0..20 {
            fake.seed(seed);
            let x = DeviceBuffer::from_slice(&[2.0f32; 32]).unwrap();
            let mut y = DeviceBuffer::from_slice(&[0.0f32; 48]).unwrap();
            for theirs in [true, false] {
                scope(&context, &s, |s| {
                    let on = if theirs { s.stream() } else { &mine };
                    let mut out = s.view_mut_strided(&mut y, [8, 4], [6, 1])?;
                    out.fill(on, 1.0)?;
                    out.rows(0..2)?.copy_from(on, s.view(&x, [8, 4])?.rows(4..6)?)
                })
                .unwrap();
                for (i, v) in host(&y).into_iter().enumerate() {
                    let wanted = if i % 6 >= 4 {
                        0.0
                    } else if i < 12 {
                        2.0
                    } else {
                        1.0
                    };
                    assert_eq!(v, wanted, "element {i}");
                }
            }
            scope(&context, &s, |s| s.view_mut(&mut y, [48])?.fill(&mine, 3.0)).unwrap();
            drop((x, y));
        }
        assert_eq!(fake.violations(), [""; 0]);
        assert_eq!(fake.live().memory, 0);
    });
}

#[test]
fn halves_and_errors() {
    child("halves_and_errors", |fake| {
        let context = cust::quick_init().unwrap();
        let s = stream_of(&context);
        let mut bits = DeviceBuffer::from_slice(&[0u16; 8]).unwrap();
        scope(&context, &s, |s| s.view_mut::<_, bf16, 1>(&mut bits, [8])?.fill(s.stream(), bf16::ONE)).unwrap();
        let mut out = [0u16; 8];
        bits.copy_to(&mut out).unwrap();
        assert_eq!(out, [bf16::ONE.to_bits(); 8]);
        scope(&context, &s, |s| s.view_mut::<_, f16, 1>(&mut bits, [8])?.fill(s.stream(), f16::ONE)).unwrap();
        bits.copy_to(&mut out).unwrap();
        assert_eq!(out, [f16::ONE.to_bits(); 8]);

        let mut y = DeviceBuffer::from_slice(&[0.0f32; 8]).unwrap();
        let e = scope(&context, &s, |s| s.view(&y, [3, 3]).map(|_| ())).unwrap_err();
        assert_eq!(e.to_string(), "tensor: expected a view within 8 elements, found [3, 3] with strides [3, 1]");
        let e = scope(&context, &s, |s| s.view_mut_strided(&mut y, [2, 2], [1, 1]).map(|_| ())).unwrap_err();
        assert!(matches!(e, Error::Stride { .. }), "{e}");
        let r = scope(&context, &s, |s| -> Result<(), Error> {
            s.view_mut(&mut y, [8])?.fill(s.stream(), 4.0)?;
            Err(Error::NoDevice)
        });
        assert_eq!(r, Err(Error::NoDevice));
        assert_eq!(host(&y), [4.0; 8]);
        assert_eq!(fake.violations(), [""; 0]);
    });
}

#[test]
fn streams_of_other_contexts_are_refused() {
    if !in_child() {
        Sandbox::new().set("DEVICES", 2).run("streams_of_other_contexts_are_refused");
        return;
    }
    let a = cust::quick_init().unwrap();
    let b = Context::new(CustDevice::get_device(1).unwrap()).unwrap();
    let s = stream_of(&b);
    assert_eq!(device(&b).unwrap(), Device::cuda(1).unwrap());
    let e = stream(&a, &s).map(|_| ()).unwrap_err();
    assert!(matches!(e, Error::Device { arg: "stream", .. }), "{e}");
    stream(&b, &s).unwrap();
    let _ = Fake::connect();
}

#[test]
fn streams_are_kept() {
    child("streams_are_kept", |fake| {
        let context = cust::quick_init().unwrap();
        let theirs = stream_of(&context);
        let mine = device(&context).unwrap().new_stream().unwrap();
        let mut t = Tensor::<f32, 1>::zeros(&mine, [32]).unwrap();
        t.fill(&stream(&context, &theirs).unwrap(), 2.0).unwrap();
        drop(theirs);
        assert_eq!(t.to_vec(&mine).unwrap(), [2.0; 32]);
        drop((t, mine));
        assert_eq!(fake.violations(), [""; 0]);
        assert_eq!((fake.live().memory, fake.live().streams), (0, 0));
    });
}

#[test]
fn kernels_on_a_gpu() {
    if in_child() || Device::best().is_cpu() || Device::best().name() == "Fake GPU" {
        println!("no GPU: skipped");
        return;
    }
    let context = cust::quick_init().unwrap();
    let s = stream_of(&context);
    let (x, w) = (DeviceBuffer::from_slice(&[3.0f32, 4.0]).unwrap(), DeviceBuffer::from_slice(&[1.0f32, 1.0]).unwrap());
    let mut y = DeviceBuffer::from_slice(&[0.0f32; 2]).unwrap();
    scope(&context, &s, |s| {
        rmsnorm(s.stream(), s.view(&x, [1, 2])?, s.view(&w, [2])?, s.view_mut(&mut y, [1, 2])?, 0.0)
    })
    .unwrap();
    let rms = 12.5f32.sqrt();
    assert!((host(&y)[0] - 3.0 / rms).abs() < 1e-6 && (host(&y)[1] - 4.0 / rms).abs() < 1e-6);
}
