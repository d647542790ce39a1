//! What happens when the driver does not do what it is asked: on the fake driver, in processes of their own.

#[path = "common/mod.rs"]
mod common;
#[path = "common/on_fake.rs"]
mod on_fake;

use common::{Mapped, add_bias};
use tilewright_core::element::{bf16, f16};
use tilewright_fake_cuda::{Fake, Live, Sandbox, child, in_child};
use tilewright_host::{Device, DriverVersion, Error, Event, Launch, Pinned, Result, Tensor};

/// A device, uploads, launches on several streams, copies of all kinds, events, a graph, and drops in between.
fn scenario() -> Result<()> {
    let device = Device::cuda(0)?;
    let (s, t) = (device.stream()?, device.new_stream()?);
    let x = Tensor::<f32, 2>::from_slice(&s, [3, 8], &[1.0; 24])?;
    let mut y = Tensor::<f32, 2>::zeros(&t, [3, 8])?;
    add_bias::prepare(&device)?;
    add_bias::launch(&t, (x.tiles()?, y.tiles_mut()?, 1.0))?;
    let (left, mut right) = y.view_mut().split_at(1, 4)?;
    right.fill(&s, 5.0)?;
    right.copy_from(&t, x.view().cols(0..4)?)?;
    assert_eq!(left.view().to_vec(&s)?, [2.0; 12]);
    right.copy_from_slice(&s, &[7.0; 12])?;
    assert_eq!(y.view().cols(4..8)?.to_vec(&t)?, [7.0; 12]);
    let transposed = x.view().transpose().to_vec(&t)?;
    assert_eq!(transposed, [1.0; 24]);
    let half = Tensor::<f16, 2>::full(&t, [64, 64], f16::from_f32(1.0))?;
    half.tma_tiles::<64, 64>()?;
    let bytes = Tensor::<u8, 1>::full(&s, [3], 9)?;
    let start = Event::record(&s)?;
    t.wait(&start)?;
    let end = Event::record(&t)?;
    let _ = end.micros_since(&start)?;

    let mut graph = s.capture(|s| {
        add_bias::launch(s, (x.tiles()?, y.tiles_mut()?, 2.0))?;
        y.view_mut().rows(0..1)?.fill(s, 4.0)
    })?;
    graph.launch(&s)?;
    graph.launch(&t)?;
    drop(x); // the graph has it
    assert_eq!(y.view().rows(1..2)?.to_vec(&s)?, [3.0; 8]);
    graph.launch(&t)?;
    drop((bytes, graph));
    // copies that do not wait: waited for, dropped
    let uploading = y.upload(&t, Pinned::from_slice(&device, &[6.0; 24])?)?;
    let downloading = y.download(&s, Pinned::zeros(&device, 24)?)?;
    let _ = y.view().transpose().download(&t, uploading.wait()?)?;
    assert_eq!(downloading.wait()?[..], [6.0; 24]);
    // to another GPU, and back
    let second = Device::cuda(1)?;
    let v = second.new_stream()?;
    let mut far = Tensor::<f32, 2>::zeros(&v, [3, 8])?;
    far.copy_from_peer(&v, y.view())?;
    y.fill(&s, 1.0)?;
    y.view_mut().cols(2..5)?.copy_from_peer(&t, far.view().cols(5..8)?)?;
    drop((far, v));
    assert_eq!(y.view().cols(1..3)?.to_vec(&s)?, [1.0, 6.0, 1.0, 6.0, 1.0, 6.0]);
    // used elsewhere than where it was made, and dropped while that goes on
    let u = device.new_stream()?;
    y.fill(&u, 0.5)?;
    let z = Tensor::<bf16, 1>::zeros(&u, [5])?;
    assert_eq!(z.to_vec(&t)?, [bf16::from_f32(0.0); 5]);
    drop((u, y));
    t.synchronize()?;
    Ok(())
}

const RELEASES: [&str; 7] = [
    "cuMemFreeAsync",
    "cuMemFreeHost",
    "cuMemFree_v2",
    "cuStreamDestroy_v2",
    "cuEventDestroy_v2",
    "cuGraphDestroy",
    "cuGraphExecDestroy",
];

/// What exists though nobody has it any more: the default stream and its event are kept on purpose.
fn leaked(live: &Live) -> u64 {
    live.memory + live.host + live.graphs + live.execs + live.streams.saturating_sub(1) + live.events.saturating_sub(1)
}

/// One run with whatever faults this process was started with; then one without.
#[test]
fn scenario_in_a_child() {
    if !in_child() {
        return;
    }
    let fake = Fake::connect();
    on_fake::install(&fake);
    let result = scenario();
    let (failed, violations, live) = (fake.failed(), fake.violations(), fake.live());
    println!("calls {}\nfailed {failed:?}\nresult {result:?}\nlive {live:?}", fake.calls("*"));
    assert_eq!(violations, [""; 0], "the driver was misused");
    // what a lost context had is lost; otherwise what could not be given back
    let sticky = std::env::var("FAKE_CUDA_FAIL").is_ok_and(|f| f.contains('+'));
    // (a destructor that can not make its GPU's context current gives nothing back either)
    let keeps = |f: &&String| RELEASES.contains(&f.as_str()) || *f == "cuCtxSetCurrent";
    let lost = failed.iter().filter(keeps).count() as u64;
    let lost = if sticky { leaked(&live) } else { lost };
    assert!(leaked(&live) <= lost, "leaked: {live:?}, with {lost} failed releases");
    match (&result, failed.first()) {
        (Ok(()), None) => {}
        (Ok(()), Some(first)) => {
            assert!(failed.iter().all(|f| survivable(f)), "{first} failed, and nobody was told")
        }
        (Err(e), Some(_)) => {
            // the first that failed, and that there was a caller to tell
            let told = failed.iter().find(|f| !survivable(f) || names(e, f));
            assert!(told.is_some_and(|f| names(e, f)), "{failed:?} failed, and the error says: {e}");
        }
        (Err(e), None) => panic!("{e}"),
    }
    // nothing is spoilt: without faults everything works
    fake.fail("");
    scenario().unwrap_or_else(|e| panic!("afterwards: {e}"));
    assert_eq!(fake.violations(), [""; 0]);
    assert!(leaked(&fake.live()) <= lost);
}

/// Failures after which there is nothing to tell, or another way.
fn survivable(call: &str) -> bool {
    RELEASES.contains(&call)
        || ["cuModuleLoadData", "cuGetErrorName", "cuStreamGetCaptureInfo_v2"].contains(&call)
        // in a destructor: nobody can be told
        || ["cuCtxGetCurrent", "cuCtxSetCurrent", "cuEventRecord", "cuStreamWaitEvent", "cuEventCreate", "cuStreamSynchronize", "cuEventSynchronize"]
            .contains(&call)
}

/// Whether an error is about a call.
fn names(e: &Error, call: &str) -> bool {
    match e {
        Error::OutOfMemory { .. } => call.starts_with("cuMemAlloc") || call == "cuMemHostAlloc",
        Error::NoDriver { reason } => reason.contains(call),
        Error::Driver { name, .. } if !name.starts_with("CUDA_ERROR_") => false,
        Error::Driver { call: said, .. } => call.trim_end_matches("_v2").trim_end_matches("WithFlags") == *said,
        _ => false,
    }
}

fn calls_of_a_run(sandbox: &Sandbox) -> u64 {
    let text = sandbox.run("scenario_in_a_child");
    let number = text.split_once("calls ").and_then(|(_, rest)| rest.lines().next()).unwrap_or_default();
    number.parse().unwrap_or_else(|_| panic!("no count in:\n{text}"))
}

/// Every call fails once, alone and with all that come after it.
fn sweep(pools: bool, code: i32) {
    let sandbox = || Sandbox::new().set("POOLS", u8::from(pools)).set("DEVICES", 2);
    let calls = calls_of_a_run(&sandbox());
    assert!(calls > 100, "the scenario makes {calls} calls alone");
    let wrong = std::sync::Mutex::new(Vec::new());
    let next = std::sync::atomic::AtomicU64::new(1);
    std::thread::scope(|s| {
        for _ in 0..2 {
            s.spawn(|| {
                loop {
                    let n = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    if n > calls {
                        return;
                    }
                    for fault in [format!("*:{n}={code}"), format!("*:{n}+={code}")] {
                        let out = sandbox().set("FAIL", &fault).output("scenario_in_a_child");
                        if !out.status.success() {
                            let text = String::from_utf8_lossy(&out.stdout).into_owned();
                            let error = String::from_utf8_lossy(&out.stderr).into_owned();
                            wrong.lock().unwrap().push(format!("== {fault} ({})\n{text}\n{error}", out.status));
                        }
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    for w in wrong.iter().take(if std::env::var_os("ALL").is_some() { 1000 } else { 3 }) {
        println!("{w}");
    }
    assert!(wrong.is_empty(), "{} of {} runs went wrong", wrong.len(), 2 * calls);
}

/// What a run calls, each function once.
fn functions_of_a_run() -> Vec<String> {
    let text = Sandbox::new().set("DEVICES", 2).run("functions_in_a_child");
    text.lines().filter_map(|l| l.strip_prefix("calls ").map(str::to_string)).collect()
}

#[test]
fn functions_in_a_child() {
    if in_child() {
        let fake = Fake::connect();
        on_fake::install(&fake);
        let mut calls = fake.calls_of(|| scenario().unwrap());
        calls.sort();
        calls.dedup();
        println!();
        calls.iter().for_each(|c| println!("calls {c}"));
    }
}

/// A driver that lacks a function is refused, by name, or what needs the function is.
#[test]
fn each_function_is_missing_in_turn() {
    if in_child() {
        on_fake::install(&Fake::connect());
        let missing = std::env::var("MISSING").unwrap();
        let result = scenario();
        if missing == "cuStreamGetCaptureInfo_v2" {
            return result.unwrap(); // for changing recorded launches alone
        }
        let e = result.unwrap_err();
        let said = e.to_string();
        match missing.as_str() {
            "cuTensorMapEncodeTiled" => assert!(matches!(e, Error::DriverTooOld { .. }), "{e}"),
            "cuEventElapsedTime" => assert!(matches!(e, Error::Unsupported { .. }), "{e}"),
            _ => {
                assert_eq!(said, format!("no CUDA driver: libcuda has no `{missing}`"));
                assert!(Device::best().is_cpu() && Device::all().len() == 1);
            }
        }
        return;
    }
    let functions = functions_of_a_run();
    assert!(functions.len() > 30, "{functions:?}");
    for f in functions {
        Sandbox::lacking(&[&f]).set("DEVICES", 2).variable("MISSING", &f).run("each_function_is_missing_in_turn");
    }
    // what nobody calls may be missing
    let sandbox = Sandbox::lacking(&["cuMemcpyDtoD_v2", "cuCtxSynchronize", "cuStreamQuery"]).set("DEVICES", 2);
    sandbox.run("scenario_in_a_child");
}

#[test]
fn no_driver() {
    if !in_child() {
        Sandbox::without_driver().run("no_driver");
        return;
    }
    for _ in 0..2 {
        let e = Device::cuda(0).unwrap_err();
        assert_eq!(e.to_string(), "no CUDA driver: libcuda was not found");
        assert!(matches!(e, Error::NoDriver { .. }));
        assert_eq!((Device::best(), Device::all()), (Device::cpu(), vec![Device::cpu()]));
    }
}

#[test]
fn a_driver_too_old() {
    if !in_child() {
        Sandbox::new().set("VERSION", 11030).run("a_driver_too_old");
        return;
    }
    let e = Device::cuda(0).unwrap_err();
    assert_eq!(e.to_string(), "the CUDA driver is too old: it supports CUDA 11.3, tilewright needs 11.4");
    assert!(Device::best().is_cpu());
    assert_eq!(Fake::connect().calls("cuInit"), 0);
}

/// The driver does, the kernel's PTX is newer than it.
#[test]
fn a_driver_too_old_for_a_kernel() {
    if !in_child() {
        Sandbox::new().set("VERSION", 11080).run("a_driver_too_old_for_a_kernel");
        return;
    }
    let device = Device::cuda(0).unwrap();
    assert_eq!(device.driver_version(), Some(DriverVersion { major: 11, minor: 8 }));
    let e = Mapped::prepare(&device).unwrap_err();
    assert_eq!(e.to_string(), "the CUDA driver is too old: it supports CUDA 11.8, kernel `tests::mapped` needs 12.0");
    add_bias::prepare(&device).unwrap();
}

#[test]
fn no_gpu() {
    if !in_child() {
        Sandbox::new().set("DEVICES", 0).run("no_gpu");
        return;
    }
    assert_eq!(Device::cuda(0).unwrap_err(), Error::NoDevice);
    assert!(Device::best().is_cpu());
}

#[test]
fn gpus_that_no_image_is_for() {
    if !in_child() {
        Sandbox::new().set("CAPABILITY", 75).run("gpus_that_no_image_is_for");
        return;
    }
    assert!(Device::best().is_cpu(), "it is not chosen");
    let device = Device::cuda(0).unwrap();
    assert_eq!(device.compute_capability(), Some((7, 5)));
    let e = add_bias::prepare(&device).unwrap_err();
    let text = "kernel `tests::add_bias` needs sm_80; CUDA device 0 (Fake GPU) is sm_75; there are images for sm_80";
    assert_eq!(e.to_string(), text);
}

/// The driver's compiler says why, and the error repeats it.
#[test]
fn the_compilers_log_is_in_the_error() {
    child("the_compilers_log_is_in_the_error", |fake| {
        let device = Device::best();
        assert_eq!(device.to_string(), "CUDA 0 (Fake GPU, sm_90)");
        let e = Mapped::prepare(&device).unwrap_err();
        let Error::Driver { call: "cuModuleLoadDataEx", code: 218, name, log } = &e else { panic!("{e}") };
        assert_eq!(name, "CUDA_ERROR_INVALID_PTX");
        assert!(log.contains("Parsing error near 'nonsense'"), "{log}");
        fake.fail_next("cuModuleLoadDataEx", 1, 2);
        let e = add_bias::prepare(&device).unwrap_err();
        assert!(e.to_string().ends_with("CUDA_ERROR_OUT_OF_MEMORY (2)\nptxas fatal: made to fail"), "{e}");
        add_bias::prepare(&device).unwrap();
    });
}

/// Two devices: what is of one is refused by the other, before the driver is asked.
#[test]
fn devices_are_not_mixed() {
    if !in_child() {
        Sandbox::new().set("DEVICES", 2).run("devices_are_not_mixed");
        return;
    }
    let fake = Fake::connect();
    on_fake::install(&fake);
    let [a, b] = [0, 1].map(|i| Device::cuda(i).unwrap());
    assert!(a != b && Device::all().len() == 3);
    assert_eq!(Device::cuda(2).unwrap_err(), Error::NoSuchDevice { ordinal: 2, have: 2 });
    let (s, t) = (a.stream().unwrap(), b.stream().unwrap());
    let x = Tensor::<f32, 2>::full(&s, [2, 8], 1.0).unwrap();
    let mut y = Tensor::<f32, 2>::zeros(&t, [2, 8]).unwrap();
    let mut graph = s.capture(|_| Ok(())).unwrap();
    let mut event = Event::record(&s).unwrap();
    for d in [&a, &b] {
        add_bias::prepare(d).unwrap();
    }
    let mut errors = Vec::new();
    let calls = fake.calls_of(|| {
        errors.push(x.to_vec(&t).unwrap_err());
        errors.push(x.copy_to_slice(&t, &mut [0.0; 16]).unwrap_err());
        errors.push(y.copy_from_slice(&s, &[0.0; 16]).unwrap_err());
        errors.push(y.fill(&s, 1.0).unwrap_err());
        errors.push(y.copy_from(&t, x.view()).unwrap_err());
        errors.push(y.copy_from(&s, x.view()).unwrap_err());
        errors.push(add_bias::launch(&s, (x.tiles().unwrap(), y.tiles_mut().unwrap(), 1.0)).unwrap_err());
        errors.push(add_bias::launch(&t, (x.tiles().unwrap(), y.tiles_mut().unwrap(), 1.0)).unwrap_err());
        errors.push(graph.launch(&t).unwrap_err());
        errors.push(event.record_again(&t).unwrap_err());
        errors.push(t.wait(&event).unwrap_err());
    });
    assert_eq!(calls, [""; 0]);
    let expected = [
        "tensor: expected memory of CUDA device 1, found memory of CUDA device 0",
        "tensor: expected memory of CUDA device 1, found memory of CUDA device 0",
        "tensor: expected memory of CUDA device 0, found memory of CUDA device 1",
        "tensor: expected memory of CUDA device 0, found memory of CUDA device 1",
        "source: expected memory of CUDA device 1, found memory of CUDA device 0",
        "tensor: expected memory of CUDA device 0, found memory of CUDA device 1",
        "y: expected memory of CUDA device 0, found memory of CUDA device 1",
        "x: expected memory of CUDA device 1, found memory of CUDA device 0",
        "graph: expected memory of CUDA device 1, found memory of CUDA device 0",
        "event: expected memory of CUDA device 1, found memory of CUDA device 0",
        "event: expected memory of CUDA device 1, found memory of CUDA device 0",
    ];
    assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>(), expected);
    let other = Event::record(&t).unwrap();
    assert!(matches!(other.micros_since(&event), Err(Error::Device { arg: "event", .. })));
    // each device works for itself, whichever context is current
    add_bias::launch(&t, (y.view().tiles().unwrap(), Tensor::zeros(&t, [2, 8]).unwrap().tiles_mut().unwrap(), 1.0))
        .unwrap();
    drop((x, y, graph, event, other));
    assert_eq!(fake.violations(), [""; 0]);
    assert_eq!(leaked(&fake.live()), 1); // the second device's stream
}

/// What can not be had while recording is refused before the driver hears of it, and spoils nothing.
#[test]
fn recording_refuses_what_waits_allocates_or_compiles() {
    child("recording_refuses_what_waits_allocates_or_compiles", |fake| {
        on_fake::install(&fake);
        let device = Device::cuda(0).unwrap();
        let s = device.stream().unwrap();
        let x = Tensor::<f32, 2>::full(&s, [2, 8], 1.0).unwrap();
        let mut y = Tensor::<f32, 2>::zeros(&s, [2, 8]).unwrap();
        let mut event = Event::record(&s).unwrap();
        let mut inner = s.capture(|_| Ok(())).unwrap();
        add_bias::prepare(&device).unwrap();
        let o = Tensor::<f32, 2>::zeros(&s, [64, 32]).unwrap();
        let mut p = Tensor::<f32, 2>::zeros(&s, [64, 32]).unwrap();
        let (source, target) = (o.tma_tiles().unwrap(), p.tma_tiles_mut().unwrap());
        let mut errors = Vec::new();
        let mut graph = s
            .capture(|s| {
                let calls = fake.calls_of(|| {
                    errors.push(Tensor::<f32, 1>::zeros(s, [4]).map(|_| ()).unwrap_err());
                    errors.push(Tensor::<f32, 1>::from_slice(s, [1], &[1.0]).map(|_| ()).unwrap_err());
                    errors.push(x.to_vec(s).unwrap_err());
                    errors.push(y.copy_from_slice(s, &[0.0; 16]).unwrap_err());
                    errors.push(s.synchronize().unwrap_err());
                    errors.push(Event::record(s).map(|_| ()).unwrap_err());
                    errors.push(event.record_again(s).unwrap_err());
                    errors.push(s.wait(&event).unwrap_err());
                    errors.push(inner.launch(s).unwrap_err());
                    errors.push(Mapped::launch(s, (source, target)).unwrap_err());
                });
                // which context is current may be asked; an event that then can not be recorded may be made and destroyed
                let harmless = ["cuCtxGetCurrent", "cuCtxSetCurrent", "cuEventCreate", "cuEventDestroy_v2"];
                assert!(calls.iter().all(|c| harmless.contains(&c.as_str())), "{calls:?}");
                add_bias::launch(s, (x.tiles()?, y.tiles_mut()?, 1.0))
            })
            .unwrap();
        for e in &errors[..9] {
            assert!(matches!(e, Error::Capturing { .. }), "{e}");
        }
        assert_eq!(errors[9], Error::NotLoaded { kernel: "tests::mapped" });
        graph.launch(&s).unwrap();
        assert_eq!(y.to_vec(&s).unwrap(), [2.0; 16]);
        drop((x, y, o, p, event, inner, graph));
        assert_eq!(fake.violations(), [""; 0]);
        assert_eq!(leaked(&fake.live()), 0);
    });
}

/// Forgetting frees nothing, and harms nothing; a panic on the way gives everything back.
#[test]
#[expect(clippy::forget_non_drop, reason = "today these have no destructor")]
fn forgetting_and_panicking() {
    child("forgetting_and_panicking", |fake| {
        on_fake::install(&fake);
        let device = Device::cuda(0).unwrap();
        let (s, t) = (device.stream().unwrap(), device.new_stream().unwrap());
        let x = Tensor::<f32, 2>::full(&s, [2, 8], 1.0).unwrap();
        let mut y = Tensor::<f32, 2>::zeros(&s, [2, 8]).unwrap();
        add_bias::prepare(&device).unwrap();
        std::mem::forget(y.view_mut());
        std::mem::forget(y.tiles_mut::<2, 8>().unwrap());
        std::mem::forget(Event::record(&t).unwrap());
        let mut graph = t.capture(|s| add_bias::launch(s, (x.tiles()?, y.tiles_mut()?, 1.0))).unwrap();
        graph.launch(&t).unwrap();
        std::mem::forget(graph); // keeps x and y
        std::mem::forget(t.clone());
        drop(x);
        assert_eq!(y.to_vec(&s).unwrap(), [2.0; 16]);
        drop((y, t));
        assert_eq!(fake.violations(), [""; 0]);
        let live = fake.live();
        assert_eq!((live.memory, live.execs, live.graphs), (2, 1, 1), "what the forgotten graph has");

        let panicked = std::panic::catch_unwind(|| {
            let x = Tensor::<f32, 2>::full(&s, [2, 8], 1.0).unwrap();
            let mut y = Tensor::<f32, 2>::zeros(&s, [2, 8]).unwrap();
            let u = device.new_stream().unwrap();
            add_bias::launch(&u, (x.tiles().unwrap(), y.tiles_mut().unwrap(), 1.0)).unwrap();
            let _event = Event::record(&u).unwrap();
            let _ = s.capture(|s| {
                add_bias::launch(s, (x.tiles()?, y.tiles_mut()?, 1.0))?;
                panic!("in the middle")
            });
        });
        assert!(panicked.is_err());
        assert_eq!(fake.violations(), [""; 0]);
        assert_eq!(leaked(&fake.live()), leaked(&live));
        // and everything goes on
        assert_eq!(Tensor::<f32, 1>::full(&s, [3], 2.0).unwrap().to_vec(&s).unwrap(), [2.0; 3]);
    });
}

#[test]
fn memory_that_is_not_there() {
    child("memory_that_is_not_there", |fake| {
        let s = Device::cuda(0).unwrap().stream().unwrap();
        let e = Tensor::<u8, 1>::zeros(&s, [1 << 31]).map(|_| ()).unwrap_err();
        assert_eq!(e.to_string(), "out of memory: 2147483648 bytes on CUDA 0 (Fake GPU, sm_90)");
        let e = Tensor::<f32, 2>::full(&s, [usize::MAX, 2], 1.0).map(|_| ()).unwrap_err();
        assert!(matches!(e, Error::OutOfMemory { .. }), "{e}");
        assert_eq!((fake.violations().len(), fake.live().memory), (0, 0));
    });
}

#[test]
fn every_call_fails_in_turn() {
    if !in_child() {
        sweep(true, 719);
    }
}

#[test]
fn every_call_fails_in_turn_without_pools() {
    if !in_child() {
        sweep(false, 2);
    }
}
