//! Graphs: recorded once, replayed with the memory and the order that single launches would have had; scalars of recorded
//! launches changed. On the CPU, and on the fake driver.

#[path = "common/mod.rs"]
mod common;
#[path = "common/on_fake.rs"]
mod on_fake;

use common::{Mapped, add_bias};
use std::sync::atomic::{AtomicBool, Ordering};
use tilewright_fake_cuda::{Fake, Sandbox, child, in_child};
use tilewright_host::{Device, Error, Event, Launch, Result, Tensor};

/// The device under test: the CPU, or in a process of its own the fake.
fn both(test: &str, body: impl Fn(Device)) {
    if !in_child() {
        body(Device::cpu());
    }
    child(test, |fake| {
        on_fake::install(&fake);
        let device = Device::cuda(0).unwrap();
        add_bias::prepare(&device).unwrap();
        let before = fake.live();
        body(device);
        assert_eq!(fake.violations(), [""; 0]);
        let after = fake.live();
        assert_eq!((after.memory, after.execs, after.graphs), (before.memory, 0, 0));
    });
}

#[test]
fn recorded_then_replayed() {
    both("recorded_then_replayed", |device| {
        let run = || -> Result<()> {
            let (s, t) = (device.stream()?, device.new_stream()?);
            let x = Tensor::<f32, 2>::full(&s, [3, 10], 1.0)?;
            let mut y = Tensor::<f32, 2>::zeros(&s, [3, 10])?;
            let mut z = Tensor::<f32, 2>::zeros(&s, [3, 10])?;
            let mut graph = s.capture(|s| {
                add_bias::launch(s, (x.tiles()?, y.tiles_mut()?, 1.0))?;
                y.view_mut().rows(1..2)?.fill(s, 5.0)?;
                z.copy_from(s, y.view())?;
                add_bias::launch(s, (y.view().cols(0..4)?.tiles()?, z.view_mut().cols(6..10)?.tiles_mut()?, 10.0))
            })?;
            assert_eq!(graph.launches(), 2);
            assert_eq!(z.to_vec(&s)?, [0.0; 30], "recorded, not run");
            let row = |v: f32| [[v; 6].as_slice(), [v + 10.0; 4].as_slice()].concat();
            let wanted = [row(2.0), row(5.0), row(2.0)].concat();
            drop(x); // the graph has it
            for i in 0..4 {
                z.fill(&t, f32::NAN)?;
                graph.launch(if i % 2 == 0 { &s } else { &t })?;
                assert_eq!(z.to_vec(&s)?, wanted);
            }
            // dropped while it may still run
            graph.launch(&t)?;
            drop(graph);
            assert_eq!(z.to_vec(&s)?, wanted);
            Ok(())
        };
        run().unwrap();
    });
}

#[test]
fn scalars_are_changed() {
    both("scalars_are_changed", |device| {
        let s = device.new_stream().unwrap();
        let x = Tensor::<f32, 2>::full(&s, [2, 8], 1.0).unwrap();
        let empty = Tensor::<f32, 2>::zeros(&s, [0, 8]).unwrap();
        let mut nothing = Tensor::<f32, 2>::zeros(&s, [0, 8]).unwrap();
        let mut y = Tensor::<f32, 2>::zeros(&s, [2, 8]).unwrap();
        let mut z = Tensor::<f32, 2>::zeros(&s, [2, 8]).unwrap();
        let mut graph = s
            .capture(|s| {
                add_bias::launch(s, (x.tiles()?, y.tiles_mut()?, 1.0))?;
                add_bias::launch(s, (empty.tiles()?, nothing.tiles_mut()?, 1.0))?;
                add_bias::launch(s, (y.tiles()?, z.tiles_mut()?, 1.0))
            })
            .unwrap();
        assert_eq!(graph.launches(), 3);
        let result = |graph: &mut tilewright_host::Graph| {
            graph.launch(&s).unwrap();
            let z = z.to_vec(&s).unwrap();
            assert!(z.iter().all(|v| *v == z[0]));
            z[0]
        };
        assert_eq!(result(&mut graph), 3.0);
        graph.launch(&s).unwrap(); // with the old value, even if it runs later
        graph.set(2, "bias", 10.0f32).unwrap();
        assert_eq!(result(&mut graph), 12.0);
        graph.set(0, "bias", -1.0f32).unwrap();
        assert_eq!(result(&mut graph), 10.0);
        graph.set(1, "bias", 7.0f32).unwrap(); // a launch of nothing

        let message = |r: Result<()>| r.unwrap_err().to_string();
        assert_eq!(message(graph.set(3, "bias", 1.0f32)), "launch 3 of the graph: expected a launch below 3, found 3");
        assert_eq!(
            message(graph.set(0, "eps", 1.0f32)),
            "launch 0 of the graph: expected an argument of `tests::add_bias`: x, y, bias, found `eps` of type f32"
        );
        for e in [graph.set(0, "bias", 1u32), graph.set(0, "bias", 1i32), graph.set(0, "x", 1u64)] {
            let e = e.unwrap_err();
            assert!(matches!(e, Error::Recorded { launch: 0, .. }), "{e}");
        }
        assert_eq!(result(&mut graph), 10.0, "what was refused changed nothing");
    });
}

/// A change that the driver refuses is told, and leaves the value as it was; drivers that can not are told apart.
#[test]
fn scalars_and_the_driver() {
    child("scalars_and_the_driver", |fake| {
        on_fake::install(&fake);
        let device = Device::cuda(0).unwrap();
        add_bias::prepare(&device).unwrap();
        let s = device.stream().unwrap();
        let x = Tensor::<f32, 1>::full(&s, [8], 1.0).unwrap();
        let mut y = Tensor::<f32, 1>::zeros(&s, [8]).unwrap();
        let mut graph = s.capture(|s| add_bias::launch(s, (x.tiles()?, y.tiles_mut()?, 1.0))).unwrap();
        fake.fail_next("cuGraphExecKernelNodeSetParams", 1, 1);
        let e = graph.set(0, "bias", 5.0f32).unwrap_err();
        assert_eq!(e.to_string(), "cuGraphExecKernelNodeSetParams failed: CUDA_ERROR_INVALID_VALUE (1)");
        graph.launch(&s).unwrap();
        assert_eq!(y.to_vec(&s).unwrap(), [2.0; 8]);
        graph.set(0, "bias", 5.0f32).unwrap();
        graph.launch(&s).unwrap();
        assert_eq!(y.to_vec(&s).unwrap(), [6.0; 8]);
        assert_eq!(fake.violations(), [""; 0]);
    });
}

#[test]
fn drivers_that_can_not_change_scalars() {
    if !in_child() {
        for missing in ["cuGraphExecKernelNodeSetParams", "cuStreamGetCaptureInfo_v2"] {
            Sandbox::lacking(&[missing]).run("drivers_that_can_not_change_scalars");
        }
        return;
    }
    on_fake::install(&Fake::connect());
    let device = Device::cuda(0).unwrap();
    add_bias::prepare(&device).unwrap();
    let s = device.stream().unwrap();
    let x = Tensor::<f32, 1>::full(&s, [8], 1.0).unwrap();
    let mut y = Tensor::<f32, 1>::zeros(&s, [8]).unwrap();
    let mut graph = s.capture(|s| add_bias::launch(s, (x.tiles()?, y.tiles_mut()?, 1.0))).unwrap();
    let e = graph.set(0, "bias", 5.0f32).unwrap_err();
    assert_eq!(e.to_string(), "changing a recorded launch is not available on CUDA 0 (Fake GPU, sm_90)");
    graph.launch(&s).unwrap();
    assert_eq!(y.to_vec(&s).unwrap(), [2.0; 8]);
}

/// What can not be had while recording, on the CPU as on a GPU (for which `faults` has the driver's side).
#[test]
fn recording_refuses() {
    both("recording_refuses", |device| {
        let s = device.new_stream().unwrap();
        let x = Tensor::<f32, 2>::full(&s, [2, 8], 1.0).unwrap();
        let mut y = Tensor::<f32, 2>::zeros(&s, [2, 8]).unwrap();
        let mut event = Event::record(&s).unwrap();
        let mut inner = s.capture(|_| Ok(())).unwrap();
        let mut errors = Vec::new();
        let mut graph = s
            .capture(|s| {
                errors.push(Tensor::<f32, 1>::zeros(s, [4]).map(|_| ()).unwrap_err());
                errors.push(Tensor::<f32, 1>::full(s, [4], 1.0).map(|_| ()).unwrap_err());
                errors.push(Tensor::<f32, 1>::from_slice(s, [1], &[1.0]).map(|_| ()).unwrap_err());
                errors.push(x.to_vec(s).unwrap_err());
                errors.push(x.copy_to_slice(s, &mut [0.0; 16]).unwrap_err());
                errors.push(y.copy_from_slice(s, &[0.0; 16]).unwrap_err());
                errors.push(s.synchronize().unwrap_err());
                errors.push(Event::record(s).map(|_| ()).unwrap_err());
                errors.push(event.record_again(s).unwrap_err());
                errors.push(s.wait(&event).unwrap_err());
                errors.push(inner.launch(s).unwrap_err());
                add_bias::launch(s, (x.tiles()?, y.tiles_mut()?, 1.0))
            })
            .unwrap();
        for e in errors {
            assert!(matches!(e, Error::Capturing { .. }), "{e}");
        }
        graph.launch(&s).unwrap();
        assert_eq!(y.to_vec(&s).unwrap(), [2.0; 16]);
        // errors and panics of the closure come out, and the stream is usable
        let e = s.capture(|s| s.synchronize()).map(|_| ()).unwrap_err();
        assert!(matches!(e, Error::Capturing { .. }), "{e}");
        assert!(std::panic::catch_unwind(|| s.capture(|_| panic!("on purpose"))).is_err());
        y.fill(&s, 5.0).unwrap();
        assert_eq!(y.to_vec(&s).unwrap(), [5.0; 16]);
    });
}

/// A kernel that fails in a replay ends it with an error, on the CPU.
#[test]
fn a_failing_replay() {
    let s = Device::cpu().stream().unwrap();
    let x = Tensor::<f32, 1>::full(&s, [8], 1.0).unwrap();
    let mut y = Tensor::<f32, 1>::zeros(&s, [8]).unwrap();
    let mut graph = s.capture(|s| add_bias::launch(s, (x.tiles()?, y.tiles_mut()?, f32::NAN))).unwrap();
    let e = graph.launch(&s).unwrap_err();
    assert!(matches!(e, Error::Kernel { name: "tests::add_bias", block: 0, .. }), "{e}");
    graph.set(0, "bias", 2.0f32).unwrap();
    graph.launch(&s).unwrap();
    assert_eq!(y.to_vec(&s).unwrap(), [3.0; 8]);
    // a graph of one device does not run on another
    Mapped::prepare(&Device::cpu()).unwrap();
}

/// A graph borrows nothing, so it may be replayed while other threads use its tensors: each use sees all of a replay or
/// none of it.
#[test]
fn replays_beside_other_threads() {
    both("replays_beside_other_threads", |device| {
        let (s, t) = (device.new_stream().unwrap(), device.new_stream().unwrap());
        let n = 4096;
        let mut x = Tensor::<f32, 1>::full(&s, [n], 0.0).unwrap();
        let mut y = Tensor::<f32, 1>::full(&s, [n], 0.0).unwrap();
        let mut graph = s
            .capture(|s| {
                add_bias::launch(s, (x.tiles()?, y.tiles_mut()?, 1.0))?;
                x.copy_from(s, y.view())
            })
            .unwrap();
        let rounds = 200;
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..rounds {
                    graph.launch(&s).unwrap();
                }
                done.store(true, Ordering::Release);
            });
            while !done.load(Ordering::Acquire) {
                for tensor in [&x, &y] {
                    let seen = tensor.to_vec(&t).unwrap();
                    assert!(seen.iter().all(|v| *v == seen[0]), "half a replay was seen");
                }
            }
        });
        assert_eq!(x.to_vec(&t).unwrap(), vec![rounds as f32; n]);
    });
}

/// A copy of the recording stream's handle that another thread keeps: what it launches is in the graph, whose memory is
/// kept, or it is not in the graph.
#[test]
fn a_recording_stream_that_got_away() {
    both("a_recording_stream_that_got_away", |device| {
        let s = device.new_stream().unwrap();
        for _ in 0..20 {
            let mut escaped = None;
            let mut graph = std::thread::scope(|scope| {
                s.capture(|r| {
                    let r2 = r.clone();
                    escaped = Some(r.clone());
                    scope.spawn(move || {
                        let other = r2.device().new_stream().unwrap();
                        let x = Tensor::<f32, 1>::full(&other, [8], 1.0).unwrap();
                        let mut y = Tensor::<f32, 1>::zeros(&other, [8]).unwrap();
                        for _ in 0..20 {
                            add_bias::launch(&r2, (x.tiles().unwrap(), y.tiles_mut().unwrap(), 1.0)).unwrap();
                        }
                    });
                    Ok(())
                })
                .unwrap()
            });
            graph.launch(&s).unwrap();
            let escaped = escaped.unwrap();
            let t = Tensor::<f32, 1>::full(&escaped, [8], 3.0).unwrap();
            assert_eq!(t.to_vec(&escaped).unwrap(), [3.0; 8], "an ordinary stream afterwards");
        }
    });
}
