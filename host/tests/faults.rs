//! What happens when the driver does not do what it is asked: on the fake driver, in processes of their own.

#[path = "common/mod.rs"]
mod common;
#[path = "common/on_fake.rs"]
mod on_fake;

use common::{Mapped, add_bias};
use tilewright_core::element::{bf16, f16};
use tilewright_fake_cuda::{Fake, Live, Sandbox, child, in_child};
use tilewright_host::{Device, DriverVersion, Error, Event, Launch, Result, Tensor};

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
    assert!(half.tma_tiles::<64, 64>().is_ok() || half.tma_tiles::<64, 64>().is_ok());
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
    // used elsewhere than where it was made, and dropped while that goes on
    let u = device.new_stream()?;
    y.fill(&u, 0.5)?;
    let z = Tensor::<bf16, 1>::zeros(&u, [5])?;
    assert_eq!(z.to_vec(&t)?, [bf16::from_f32(0.0); 5]);
    drop((u, y));
    t.synchronize()?;
    Ok(())
}

const RELEASES: [&str; 6] =
    ["cuMemFreeAsync", "cuMemFree_v2", "cuStreamDestroy_v2", "cuEventDestroy_v2", "cuGraphDestroy", "cuGraphExecDestroy"];

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
    let lost = failed.iter().filter(|f| RELEASES.contains(&f.as_str())).count() as u64;
    assert!(leaked(&live) <= lost, "leaked: {live:?}, with {lost} failed releases");
    match (&result, failed.first()) {
        (Ok(()), None) => {}
        (Ok(()), Some(first)) => {
            assert!(failed.iter().all(|f| survivable(f)), "{first} failed, and nobody was told")
        }
        (Err(e), Some(first)) => {
            let said = e.to_string();
            let names_it = said.contains(first.trim_end_matches("_v2").trim_end_matches("WithFlags"));
            assert!(names_it || expected_instead(first, e), "{first} failed, and the error says: {said}");
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
        || ["cuModuleLoadData", "cuTensorMapEncodeTiled", "cuGetErrorName"].contains(&call)
        // in a destructor: nobody can be told
        || ["cuCtxGetCurrent", "cuCtxSetCurrent", "cuEventRecord", "cuStreamWaitEvent", "cuEventCreate", "cuStreamSynchronize"]
            .contains(&call)
}

/// Errors that say it in other words.
fn expected_instead(call: &str, e: &Error) -> bool {
    match e {
        Error::OutOfMemory { .. } => call.starts_with("cuMemAlloc"),
        Error::NoDriver { .. } => call == "cuInit",
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
    let sandbox = || Sandbox::new().set("POOLS", u8::from(pools));
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
