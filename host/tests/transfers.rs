//! Copies that do not wait, and copies between devices: on the CPU, and on the fake driver, which runs work as late as it
//! may and checks every access.

use tilewright_fake_cuda::{Fake, Sandbox, child, in_child};
use tilewright_host::{Device, Error, Pinned, Result, Stream, Tensor, Transfer};

fn count(n: usize) -> Vec<f32> {
    (0..n).map(|i| i as f32).collect()
}

/// Up and down, whole and in strided parts.
fn there_and_back(d: &Device) -> Result<()> {
    let (s, t) = (d.new_stream()?, d.new_stream()?);
    let mut x = Tensor::<f32, 2>::zeros(&s, [6, 8])?;
    let up = x.upload(&s, Pinned::from_slice(d, &count(48))?)?;
    let down = x.download(&t, Pinned::zeros(d, 48)?)?;
    assert_eq!(up.wait()?[..], count(48));
    assert_eq!(down.wait()?[..], count(48));
    let mut part = x.view_mut().slice(1, 3..6)?;
    let up = part.upload(&t, Pinned::from_slice(d, &[-1.0; 18])?)?;
    let turned = x.view().transpose().download(&s, Pinned::zeros(d, 48)?)?.wait()?;
    for (i, v) in turned.iter().enumerate() {
        let (c, r) = (i / 6, i % 6);
        assert_eq!(*v, if (3..6).contains(&c) { -1.0 } else { (r * 8 + c) as f32 });
    }
    assert!(up.is_done()?);
    let none = Tensor::<f32, 2>::zeros(&s, [0, 8])?;
    assert!(none.download(&s, Pinned::zeros(d, 0)?)?.wait()?.is_empty());
    Ok(())
}

/// The wrong length, device or moment: an error, and the buffer is freed.
fn refused(d: &Device, other: &Device) -> Result<()> {
    let (s, o) = (d.new_stream()?, other.new_stream()?);
    let mut x = Tensor::<f32, 1>::zeros(&s, [4])?;
    let buffer = |n| Pinned::<f32>::zeros(d, n);
    let e = x.upload(&s, buffer(3)?).unwrap_err();
    assert!(matches!(e, Error::Length { expected: 4, found: 3, .. }), "{e}");
    let e = x.download(&s, buffer(5)?).unwrap_err();
    assert!(matches!(e, Error::Length { expected: 4, found: 5, .. }), "{e}");
    let e = x.upload(&o, buffer(4)?).unwrap_err();
    assert!(matches!(e, Error::Device { .. }), "{e}");
    let e = x.download(&o, buffer(4)?).unwrap_err();
    assert!(matches!(e, Error::Device { .. }), "{e}");
    let buffers = [buffer(4)?, buffer(4)?];
    let _ = s.capture(|s| {
        let [a, b] = buffers;
        let e = x.upload(s, a).unwrap_err();
        assert!(matches!(e, Error::Capturing { .. }), "{e}");
        let e = x.download(s, b).unwrap_err();
        assert!(matches!(e, Error::Capturing { .. }), "{e}");
        Ok(())
    })?;
    let e = Pinned::<f32>::zeros(d, usize::MAX / 2).unwrap_err();
    assert!(matches!(e, Error::OutOfMemory { .. }), "{e}");
    assert_eq!(x.to_vec(&s)?, [0.0; 4]);
    Ok(())
}

#[test]
fn on_the_cpu() -> Result<()> {
    let d = Device::cpu();
    there_and_back(&d)?;
    let s = d.stream()?;
    let mut x = Tensor::<f32, 1>::zeros(&s, [4])?;
    assert!(matches!(x.upload(&s, Pinned::zeros(&d, 3)?), Err(Error::Length { .. })));
    let buffer = Pinned::zeros(&d, 4)?;
    let graph = s.capture(|s| x.upload(s, buffer).map(|_| ()));
    assert!(matches!(graph, Err(Error::Capturing { .. })));
    assert!(matches!(Pinned::<f32>::zeros(&d, usize::MAX / 2), Err(Error::OutOfMemory { .. })));
    assert_eq!(format!("{:?}", Pinned::<f32>::zeros(&d, 3)?), "Pinned<f32>[3], ordinary");
    Ok(())
}

#[test]
fn on_a_driver() {
    child("on_a_driver", |fake| {
        let d = Device::cuda(0).unwrap();
        for seed in 0..20 {
            fake.seed(seed);
            there_and_back(&d).unwrap();
            refused(&d, &Device::cpu()).unwrap();
        }
        // buffers of the CPU's do as well
        let s = d.new_stream().unwrap();
        let mut x = Tensor::<f32, 1>::zeros(&s, [4]).unwrap();
        let up = x.upload(&s, Pinned::from_slice(&Device::cpu(), &count(4)).unwrap()).unwrap();
        assert_eq!(x.to_vec(&s).unwrap(), count(4));
        drop((up, x, s));
        assert_eq!(fake.violations(), [""; 0]);
        assert_eq!((fake.live().memory, fake.live().host, fake.live().events), (0, 0, 0));
    });
}

/// A transfer is under way until its work has run, and whoever drops, forgets or panics in between frees nothing early.
#[test]
fn nothing_is_freed_or_shown_early() {
    child("nothing_is_freed_or_shown_early", |fake| {
        let d = Device::cuda(0).unwrap();
        let s = d.new_stream().unwrap();
        let start = |x: &mut Tensor<f32, 1>| -> [Transfer<f32>; 2] {
            let up = x.upload(&s, Pinned::from_slice(&d, &count(8)).unwrap()).unwrap();
            [up, x.download(&s, Pinned::zeros(&d, 8).unwrap()).unwrap()]
        };
        let new = || Tensor::<f32, 1>::zeros(&s, [8]).unwrap();
        let clean = |live: u64| {
            assert_eq!(fake.violations(), [""; 0]);
            assert_eq!((fake.live().memory, fake.live().host), (0, live));
        };

        let mut x = new();
        let [up, down] = start(&mut x);
        assert!(!up.is_done().unwrap() && !down.is_done().unwrap());
        fake.run();
        assert!(up.is_done().unwrap() && down.is_done().unwrap());
        assert_eq!(down.wait().unwrap()[..], count(8));
        drop((up, x));
        clean(0);

        // dropped: the tensor first, the transfers first
        let mut x = new();
        let transfers = start(&mut x);
        drop(x);
        drop(transfers);
        clean(0);
        let mut x = new();
        drop(start(&mut x));
        drop(x);
        clean(0);

        // forgotten: its buffer is never freed
        let mut x = new();
        start(&mut x).into_iter().for_each(std::mem::forget);
        drop(x);
        clean(2);

        // in a panic
        let panicked = std::panic::catch_unwind(|| {
            let mut x = new();
            let _transfers = start(&mut x);
            panic!("in the middle")
        });
        assert!(panicked.is_err());
        clean(2);

        // a stream that is gone before its work
        let other = d.new_stream().unwrap();
        let mut x = new();
        let up = x.upload(&other, Pinned::from_slice(&d, &count(8)).unwrap()).unwrap();
        drop(other);
        assert_eq!(x.to_vec(&s).unwrap(), count(8));
        drop((up, x));
        clean(2);
    });
}

/// Every call of a transfer fails: an error that names it; nothing is used after it is freed, and nothing leaks unless
/// the driver will not say when the copy is done.
#[test]
fn each_call_fails() {
    child("each_call_fails", |fake| {
        let d = Device::cuda(0).unwrap();
        let s = d.new_stream().unwrap();
        let run = || -> Result<()> {
            let mut x = Tensor::<f32, 2>::zeros(&s, [3, 4])?;
            let mut part = x.view_mut().slice(1, 1..3)?;
            let up = part.upload(&s, Pinned::from_slice(&d, &count(6))?)?;
            let down = x.view().transpose().download(&s, Pinned::zeros(&d, 12)?)?;
            let _ = down.is_done()?;
            down.wait()?;
            up.wait().map(|_| ())
        };
        let calls = fake.calls_of(|| run().unwrap());
        for (i, call) in calls.iter().enumerate() {
            let nth = calls[..=i].iter().filter(|c| *c == call).count() as u64;
            fake.fail_next(call, nth, 719);
            let before = fake.live();
            match run() {
                Err(Error::Driver { call: said, code: 719, .. }) => {
                    assert_eq!(said, call.trim_end_matches("_v2"));
                }
                Err(e) => panic!("{call}: {e}"),
                // in a destructor, or where another call does
                Ok(()) => assert!(
                    ["cuMemFreeAsync", "cuMemFreeHost", "cuEventDestroy_v2", "cuCtxGetCurrent"].contains(&&**call),
                    "{call} failed, and nobody was told"
                ),
            }
            fake.fail("");
            assert_eq!(fake.violations(), [""; 0], "{call}");
            let (now, lost) = (fake.live(), u64::from(call.contains("Free") || call.contains("Destroy")));
            let leaked = now.memory + now.host + now.events - before.memory - before.host - before.events;
            assert!(leaked <= lost, "{call}: {leaked} leaked");
        }
        // neither the event nor the stream can be waited for: the buffer is kept
        let before = fake.live().host;
        let mut x = Tensor::<f32, 1>::zeros(&s, [8]).unwrap();
        let up = x.upload(&s, Pinned::from_slice(&d, &count(8)).unwrap()).unwrap();
        let n = |f: &str, more: u64| fake.calls(f) + more;
        fake.fail(&format!(
            "cuEventSynchronize:{}=719,cuEventSynchronize:{}=719,cuStreamSynchronize:{}=719,cuStreamSynchronize:{}=719",
            n("cuEventSynchronize", 1),
            n("cuEventSynchronize", 2),
            n("cuStreamSynchronize", 1),
            n("cuStreamSynchronize", 2)
        ));
        assert!(matches!(up.wait(), Err(Error::Driver { call: "cuEventSynchronize", .. })));
        fake.fail("");
        drop(x);
        assert_eq!(fake.live().host, before + 1);
        assert_eq!(fake.violations(), [""; 0]);
    });
}

fn two(fake: &Fake, seed: u64) -> ([Device; 2], [Stream; 2]) {
    fake.seed(seed);
    let devices = [0, 1].map(|i| Device::cuda(i).unwrap());
    let streams = [0, 1].map(|i| devices[i].new_stream().unwrap());
    (devices, streams)
}

fn with_two_gpus(test: &str, body: impl FnOnce(Fake)) {
    if in_child() {
        body(Fake::connect());
    } else {
        Sandbox::new().set("DEVICES", 2).run(test);
        Sandbox::new().set("DEVICES", 2).set("POOLS", 0).run(test);
    }
}

/// Work on both GPUs is ordered by the tensors, and memory freed at once is not freed early.
#[test]
fn between_gpus() {
    with_two_gpus("between_gpus", |fake| {
        for seed in 0..50 {
            let (_, [s, t]) = two(&fake, seed);
            let mut x = Tensor::<f32, 2>::from_slice(&s, [4, 6], &count(24)).unwrap();
            let mut y = Tensor::<f32, 2>::full(&t, [4, 6], -1.0).unwrap();
            y.copy_from_peer(&t, x.view()).unwrap();
            x.fill(&s, 9.0).unwrap(); // after the copy
            assert_eq!(y.to_vec(&t).unwrap(), count(24));
            // strided, and back; what was freed on either side was still in use
            let mut z = Tensor::<f32, 2>::zeros(&s, [6, 2]).unwrap();
            z.copy_from_peer(&s, y.view().rows(1..3).unwrap().transpose()).unwrap();
            drop(y);
            let wanted: Vec<f32> = (0..12).map(|i| (6 + i / 2 + 6 * (i % 2)) as f32).collect();
            assert_eq!(z.to_vec(&s).unwrap(), wanted);
            let mut far = Tensor::<f32, 2>::zeros(&t, [6, 2]).unwrap();
            far.copy_from_peer(&t, z.view()).unwrap();
            drop((z, x, s));
            assert_eq!(far.to_vec(&t).unwrap(), wanted);
            drop((far, t));
            assert_eq!(fake.violations(), [""; 0]);
            let live = fake.live();
            assert_eq!((live.memory, live.streams, live.events), (0, 0, 0));
        }
        assert!(fake.calls("cuMemcpyPeerAsync") > 0);
    });
}

/// Threads that copy in both directions while graphs are launched on both: no deadlock.
#[test]
fn between_gpus_from_several_threads() {
    with_two_gpus("between_gpus_from_several_threads", |fake| {
        let (devices, streams) = two(&fake, 0);
        std::thread::scope(|scope| {
            for i in 0..2 {
                let (here, there) = (devices[i], devices[1 - i]);
                let home = &streams[i];
                scope.spawn(move || {
                    let (s, t) = (here.new_stream().unwrap(), there.new_stream().unwrap());
                    let x = Tensor::<f32, 1>::from_slice(&s, [8], &count(8)).unwrap();
                    let mut y = Tensor::<f32, 1>::zeros(&t, [8]).unwrap();
                    for _ in 0..300 {
                        y.copy_from_peer(&t, x.view()).unwrap();
                    }
                    assert_eq!(y.to_vec(&t).unwrap(), count(8));
                });
                scope.spawn(move || {
                    let mut z = Tensor::<f32, 1>::zeros(home, [8]).unwrap();
                    let mut graph = home.capture(|s| z.fill(s, 1.0)).unwrap();
                    for _ in 0..300 {
                        graph.launch(home).unwrap();
                    }
                    assert_eq!(z.to_vec(home).unwrap(), [1.0; 8]);
                });
            }
        });
        drop(streams);
        assert_eq!((fake.violations().len(), fake.live().memory), (0, 0));
    });
}

/// What may be copied where, in which stream's order.
#[test]
fn between_devices_of_all_kinds() {
    with_two_gpus("between_devices_of_all_kinds", |fake| {
        let (_, [s, t]) = two(&fake, 0);
        let host = Device::cpu().stream().unwrap();
        let x = Tensor::<f32, 2>::from_slice(&host, [3, 4], &count(12)).unwrap();
        let turned = [0., 4., 8., 1., 5., 9., 2., 6., 10., 3., 7., 11.];
        let mut near = Tensor::<f32, 2>::zeros(&s, [4, 3]).unwrap();
        let mut far = Tensor::<f32, 2>::zeros(&t, [4, 3]).unwrap();
        let mut back = Tensor::<f32, 2>::zeros(&host, [4, 3]).unwrap();
        near.copy_from_peer(&s, x.view().transpose()).unwrap();
        far.copy_from_peer(&t, near.view()).unwrap();
        back.copy_from_peer(&t, far.view()).unwrap();
        assert_eq!(back.to_vec(&host).unwrap(), turned);
        let mut again = Tensor::<f32, 2>::zeros(&t, [4, 3]).unwrap();
        again.copy_from_peer(&t, far.view()).unwrap(); // on one GPU
        assert_eq!(again.to_vec(&t).unwrap(), turned);
        let mut own = Tensor::<f32, 2>::zeros(&host, [4, 3]).unwrap();
        own.copy_from_peer(&host, back.view()).unwrap();
        assert_eq!(own.to_vec(&host).unwrap(), turned);

        // another device's stream, other extents, a stream that records
        for (from, stream) in [(&near, &s), (&own, &s), (&own, &host)] {
            let e = far.copy_from_peer(stream, from.view()).unwrap_err();
            assert!(matches!(e, Error::Device { arg: "tensor", .. }), "{e}");
        }
        for stream in [&t, &host] {
            let e = own.copy_from_peer(stream, near.view()).unwrap_err();
            assert!(matches!(e, Error::Device { arg: "source", .. }), "{e}");
        }
        let e = far.copy_from_peer(&t, x.view()).unwrap_err();
        assert_eq!(e.to_string(), "source: expected [4, 3], found [3, 4]");
        let calls = fake.calls_of(|| {
            let refused = |stream: &Stream, to: &mut Tensor<f32, 2>, from: &Tensor<f32, 2>| {
                let e = stream.capture(|s| to.copy_from_peer(s, from.view())).map(|_| ()).unwrap_err();
                assert!(matches!(e, Error::Capturing { .. }), "{e}");
            };
            refused(&t, &mut far, &near);
            refused(&s, &mut near, &own);
            refused(&t, &mut own, &again);
        });
        assert!(!calls.iter().any(|c| c.starts_with("cuMemcpy")), "{calls:?}");
        assert_eq!(fake.violations(), [""; 0]);
    });
}

/// Random programs over two GPUs and the CPU: copies of rows and columns between them, fills, new tensors for old ones,
/// at random moments of the work; against a model.
#[test]
fn programs_over_several_devices() {
    use proptest::prelude::*;
    const N: usize = 4;
    with_two_gpus("programs_over_several_devices", |fake| {
        let devices = [Device::cuda(0).unwrap(), Device::cuda(1).unwrap(), Device::cpu()];
        let config = ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() };
        proptest!(config, |(seed in any::<u64>(), steps in prop::collection::vec(any::<[u8; 4]>(), 0..40))| {
            fake.seed(seed % 7);
            let streams = devices.map(|d| d.new_stream().unwrap());
            let new = |d: usize, v: f32| Tensor::<f32, 2>::full(&streams[d], [N, N], v).unwrap();
            let mut tensors = [new(0, 0.0), new(1, 1.0), new(2, 2.0)];
            let mut model = [[0.0f32; N * N], [1.0; N * N], [2.0; N * N]];
            for [what, which, a, b] in steps {
                let (x, y) = (which as usize % 3, (which as usize / 3) % 3);
                let (from, to, n) = (a as usize % N, b as usize % N, 1 + (a / 16) as usize % N);
                let n = n.min(N - from.max(to));
                match what % 5 {
                    0 => {
                        tensors[x].slice_mut(0, to..to + n).unwrap().fill(&streams[x], f32::from(a)).unwrap();
                        model[x][to * N..(to + n) * N].fill(f32::from(a));
                    }
                    1 => {
                        tensors[x] = new(x, f32::from(b));
                        model[x] = [f32::from(b); N * N];
                    }
                    2 => fake.run(),
                    _ if x == y => prop_assert_eq!(tensors[x].to_vec(&streams[x]).unwrap(), model[x].to_vec()),
                    how => {
                        let dim = usize::from(how - 3);
                        let on = if y == 2 { &streams[x] } else { &streams[y] };
                        let [source, target] = tensors.get_disjoint_mut([x, y]).unwrap();
                        let mut part = target.slice_mut(dim, to..to + n).unwrap();
                        part.copy_from_peer(on, source.slice(dim, from..from + n).unwrap()).unwrap();
                        for i in 0..n {
                            for k in 0..N {
                                let at = |i: usize| if dim == 0 { i * N + k } else { k * N + i };
                                model[y][at(to + i)] = model[x][at(from + i)];
                            }
                        }
                    }
                }
            }
            for ((t, m), s) in tensors.iter().zip(&model).zip(&streams) {
                prop_assert_eq!(t.to_vec(s).unwrap(), m.to_vec());
            }
            drop((tensors, streams));
            prop_assert_eq!(fake.violations(), Vec::<String>::new());
            let live = fake.live();
            prop_assert_eq!((live.memory, live.streams, live.events), (0, 0, 0));
        });
        assert!(fake.calls("cuMemcpyPeerAsync") > 100);
    });
}
