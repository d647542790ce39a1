//! What a typed launch costs on the host, beside the bare driver call with the same parameters.

use std::time::Instant;

use tilewright::__private::Args;
use tilewright::Launch as _;
use tilewright::kernels::elementwise::axpy;
use tilewright::prelude::*;

use crate::bare::{Driver, addresses, text_of};
use crate::report::{Report, Row};

const LAUNCHES: usize = 500;
const ROUNDS: usize = 15;

pub fn time(stream: &Stream, report: &mut Report) -> Result<(), Box<dyn std::error::Error>> {
    type K = axpy<f32>;
    K::prepare(&stream.device())?;
    let driver = Driver::open()?;
    let bare_kernel = driver.load::<K>(&text_of::<K>()?)?;
    let n = 2048;
    let x = Tensor::<f32, 1>::full(stream, [n], 1.0)?;
    let mut y = Tensor::<f32, 1>::zeros(stream, [n])?;
    let args: <K as Kernel>::Args<'_> = (0.5, x.tiles()?, y.tiles_mut()?);
    let lowered = args.lower();
    let mut params = addresses::<<K as Kernel>::Args<'_>>(&lowered);
    let (mut typed, mut cached, mut bare) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for _ in 0..LAUNCHES {
            // SAFETY: the parameters are those of the kernel; the tensors are used on this stream alone.
            unsafe { bare_kernel.launch(stream, 1, &mut params) }?;
        }
        bare.push(start.elapsed().as_secs_f64() * 1e6 / LAUNCHES as f64);
        stream.synchronize()?;

        let start = Instant::now();
        for _ in 0..LAUNCHES {
            K::launch(stream, (0.5, x.tiles()?, y.tiles_mut()?))?;
        }
        typed.push(start.elapsed().as_secs_f64() * 1e6 / LAUNCHES as f64);
        stream.synchronize()?;

        let view = x.tiles()?;
        let start = Instant::now();
        for _ in 0..LAUNCHES {
            K::launch(stream, (0.5, view, y.tiles_mut()?))?;
        }
        cached.push(start.elapsed().as_secs_f64() * 1e6 / LAUNCHES as f64);
        stream.synchronize()?;
    }
    let (typed, cached, peer_us) = (median(typed), median(cached), median(bare));
    for (op, ours_us) in [("launch", typed), ("launch_held_view", cached)] {
        let rate = format!("{:+.2} us", ours_us - peer_us);
        let (shape, peer) = ("host".to_string(), "cuLaunchKernel");
        report.add(Row { op, dtype: DType::F32, shape, ours_us, peer, peer_us, rate });
    }
    replays(stream, report, &driver)
}

const NODES: usize = 32;

/// A recorded graph of 32 launches beside one made node by node: on the device and, enqueued alone, on the host.
fn replays(stream: &Stream, report: &mut Report, driver: &Driver) -> Result<(), Box<dyn std::error::Error>> {
    type K = axpy<f32>;
    let n = 1 << 16;
    let x = Tensor::<f32, 1>::full(stream, [n], 1.0)?;
    let mut y = Tensor::<f32, 1>::zeros(stream, [n])?;
    let mut recorded =
        stream.capture(|s| (0..NODES).try_for_each(|_| K::launch(s, (0.5, x.tiles()?, y.tiles_mut()?))))?;
    let function = driver.load::<K>(&text_of::<K>()?)?;
    let args: <K as Kernel>::Args<'_> = (0.5, x.tiles()?, y.tiles_mut()?);
    let lowered = args.lower();
    let params = &mut addresses::<<K as Kernel>::Args<'_>>(&lowered);
    let by_hand = driver.chain(&function, NODES, (n / 2048) as u32, params)?;
    recorded.launch(stream)?;
    // SAFETY: the tensors are used on this stream alone.
    let replay = |s: &Stream| unsafe { by_hand.replay(s) };
    replay(stream)?;
    let expected = 2.0 * NODES as f32 * 0.5;
    if y.to_vec(stream)?.iter().any(|v| *v != expected) {
        return Err("a graph of 32 launches: wrong results".into());
    }
    const REPLAYS: usize = 100;
    let (mut ours, mut peer) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    for round in 0..2 * ROUNDS + 1 {
        for which in [round % 2, 1 - round % 2] {
            let (start, begin) = (Event::record(stream)?, Instant::now());
            for _ in 0..REPLAYS {
                if which == 0 { recorded.launch(stream)? } else { replay(stream)? }
            }
            let host = begin.elapsed().as_secs_f64() * 1e6 / REPLAYS as f64;
            let device = Event::record(stream)?.micros_since(&start)? / REPLAYS as f64;
            let times = if which == 0 { &mut ours } else { &mut peer };
            times[0].push(device);
            times[1].push(host);
        }
    }
    for (i, op) in ["replay_32_nodes", "replay_32_nodes_enqueued"].into_iter().enumerate() {
        let (ours_us, peer_us) = (median(ours[i].clone()), median(peer[i].clone()));
        let rate = format!("{:+.2} %", (ours_us / peer_us - 1.0) * 100.0);
        let (shape, peer) = (n.to_string(), "graph by hand");
        report.add(Row { op, dtype: DType::F32, shape, ours_us, peer, peer_us, rate });
    }
    Ok(())
}

fn median(mut v: Vec<f64>) -> f64 {
    v.sort_by(f64::total_cmp);
    v[v.len() / 2]
}
