//! The same on a GPU, and what only happens there. Without one, each test says so and passes.

mod common;

use common::{Mapped, add_bias};
use tilewright_core::element::{bf16, f16};
use tilewright_host::{Device, Error, Event, Launch, Pinned, Result, Tensor};

fn gpu() -> Option<Device> {
    match Device::best() {
        d if d.is_cpu() => {
            eprintln!("no GPU: skipped");
            None
        }
        d => Some(d),
    }
}

fn count(n: usize) -> Vec<f32> {
    (0..n).map(|i| i as f32).collect()
}

#[test]
fn device() -> Result<()> {
    let Some(d) = gpu() else { return Ok(()) };
    println!("{d}, driver {:?}, {:?} bytes", d.driver_version(), d.memory());
    assert!(d.multiprocessors() > 0 && d.memory() > Some(1 << 30) && d.driver_version().is_some());
    assert_eq!(Device::cuda(d.ordinal().unwrap_or(99))?, d);
    assert!(matches!(Device::cuda(999), Err(Error::NoSuchDevice { .. })));
    Ok(())
}

#[test]
fn copies() -> Result<()> {
    let Some(d) = gpu() else { return Ok(()) };
    let (s, host) = (d.new_stream()?, Device::cpu().stream()?);
    let mut t = Tensor::<f32, 3>::from_slice(&s, [5, 6, 7], &count(210))?;
    let same = Tensor::<f32, 3>::from_slice(&host, [5, 6, 7], &count(210))?;
    assert_eq!(t.to_vec(&s)?, count(210));
    for (dim, range) in [(0, 1..3), (1, 2..6), (2, 3..4), (2, 1..7), (1, 0..0)] {
        let (a, b) = (t.slice(dim, range.clone())?, same.slice(dim, range)?);
        assert_eq!(a.to_vec(&s)?, b.to_vec(&host)?);
    }
    let m = t.view().slab(2)?.transpose();
    assert_eq!(m.to_vec(&s)?, same.view().slab(2)?.transpose().to_vec(&host)?);
    t.slice_mut(2, 1..3)?.copy_from_slice(&s, &[-1.0; 60])?;
    t.slice_mut(1, 5..6)?.fill(&s, 2.0)?;
    let copy = {
        let mut c = Tensor::<f32, 3>::zeros(&s, [5, 6, 2])?;
        c.copy_from(&s, t.slice(2, 2..4)?)?;
        c.to_vec(&s)?
    };
    assert_eq!(copy, t.slice(2, 2..4)?.to_vec(&s)?);
    for (i, v) in t.to_vec(&s)?.into_iter().enumerate() {
        let (j, k) = (i / 7 % 6, i % 7);
        assert_eq!(
            v,
            if j == 5 {
                2.0
            } else if k == 1 || k == 2 {
                -1.0
            } else {
                i as f32
            }
        );
    }
    assert_eq!(Tensor::<bf16, 1>::full(&s, [9], bf16::from_f32(1.5))?.to_vec(&s)?, [bf16::from_f32(1.5); 9]);
    assert_eq!(Tensor::<f16, 1>::zeros(&s, [9])?.to_vec(&s)?, [f16::from_f32(0.0); 9]);
    assert_eq!(Tensor::<i8, 1>::full(&s, [9], -3)?.to_vec(&s)?, [-3; 9]);
    assert_eq!(Tensor::<u32, 2>::zeros(&s, [0, 9])?.to_vec(&s)?, []);
    let e = Tensor::<u8, 1>::zeros(&s, [1 << 45]).unwrap_err();
    assert!(matches!(e, Error::OutOfMemory { .. }), "{e}");
    let e = t.to_vec(&host).unwrap_err();
    assert!(matches!(e, Error::Device { .. }), "{e}");
    Ok(())
}

#[test]
fn launches() -> Result<()> {
    let Some(d) = gpu() else { return Ok(()) };
    let s = d.stream()?;
    add_bias::prepare(&d)?;
    for (rows, cols) in [(1, 1), (5, 13), (333, 70), (0, 4)] {
        let x = Tensor::<f32, 2>::from_slice(&s, [rows, cols], &count(rows * cols))?;
        let mut y = Tensor::<f32, 2>::full(&s, [rows, cols], f32::NAN)?;
        add_bias::launch(&s, (x.tiles()?, y.tiles_mut()?, 0.5))?;
        assert_eq!(y.to_vec(&s)?, count(rows * cols).iter().map(|v| v + 0.5).collect::<Vec<_>>());
    }
    let x = Tensor::<f32, 2>::from_slice(&s, [6, 40], &count(240))?;
    let mut y = Tensor::<f32, 2>::full(&s, [6, 40], -1.0)?;
    let output = y.view_mut().rows(1..5)?.cols(3..20)?;
    add_bias::launch(&s, (x.view().rows(2..6)?.cols(5..22)?.tiles()?, output.tiles_mut()?, 1.0))?;
    for (i, v) in y.to_vec(&s)?.into_iter().enumerate() {
        let (r, c) = (i / 40, i % 40);
        let inside = (1..5).contains(&r) && (3..20).contains(&c);
        assert_eq!(v, if inside { ((r + 1) * 40 + c + 2) as f32 + 1.0 } else { -1.0 });
    }
    let host = Tensor::<f32, 2>::zeros(&Device::cpu().stream()?, [6, 40])?;
    let e = add_bias::launch(&s, (host.tiles()?, y.tiles_mut()?, 1.0)).unwrap_err();
    assert!(matches!(e, Error::Device { arg: "x", .. }), "{e}");
    Ok(())
}

/// Large enough that work is still running when the next call is made.
const LARGE: usize = 1 << 25;

#[test]
fn streams_are_ordered_by_tensors() -> Result<()> {
    let Some(d) = gpu() else { return Ok(()) };
    let streams = [d.stream()?, d.new_stream()?, d.new_stream()?];
    let mut a = Tensor::<f32, 1>::zeros(&streams[0], [LARGE])?;
    let mut b = Tensor::<f32, 1>::zeros(&streams[1], [LARGE])?;
    for i in 0..60 {
        let (one, two) = (&streams[i % 3], &streams[(i + 1) % 3]);
        add_bias::launch(one, (a.tiles()?, b.tiles_mut()?, 1.0))?;
        add_bias::launch(two, (b.tiles()?, a.tiles_mut()?, 1.0))?;
    }
    assert!(a.to_vec(&streams[2])?.iter().all(|&v| v == 120.0));
    Ok(())
}

#[test]
fn dropping_in_flight_frees_nothing_early() -> Result<()> {
    let Some(d) = gpu() else { return Ok(()) };
    let x = Tensor::<f32, 1>::full(&d.stream()?, [LARGE], 1.0)?;
    for i in 0..20 {
        // the tensor's home is one stream; the kernel runs on another, which is dropped too
        let mut y = Tensor::<f32, 1>::zeros(&d.stream()?, [LARGE])?;
        let other = d.new_stream()?;
        for _ in 0..8 {
            add_bias::launch(&other, (x.tiles()?, y.tiles_mut()?, 1.0))?;
        }
        drop((y, other));
        // takes the memory just freed, if the order of streams does not forbid it
        let z = Tensor::<f32, 1>::full(&d.stream()?, [LARGE], i as f32 + 10.0)?;
        assert!(z.to_vec(&d.stream()?)?.iter().all(|&v| v == i as f32 + 10.0));
    }
    Ok(())
}

#[test]
fn graphs() -> Result<()> {
    let Some(d) = gpu() else { return Ok(()) };
    let (s, other) = (d.stream()?, d.new_stream()?);
    add_bias::prepare(&d)?;
    let x = Tensor::<f32, 1>::full(&s, [LARGE], 1.0)?;
    let mut y = Tensor::<f32, 1>::zeros(&s, [LARGE])?;
    let mut z = Tensor::<f32, 1>::zeros(&s, [LARGE])?;
    let mut graph = s.capture(|s| {
        add_bias::launch(s, (x.tiles()?, y.tiles_mut()?, 1.0))?;
        add_bias::launch(s, (y.tiles()?, z.tiles_mut()?, 1.0))?;
        let e = Tensor::<f32, 1>::zeros(s, [4]).unwrap_err();
        assert!(matches!(e, Error::Capturing { .. }), "{e}");
        let e = y.to_vec(s).unwrap_err();
        assert!(matches!(e, Error::Capturing { .. }), "{e}");
        Ok(())
    })?;
    assert!(z.to_vec(&s)?.iter().all(|&v| v == 0.0)); // recorded, not run
    drop((x, y)); // the graph keeps them
    for i in 0..10 {
        z.fill(&other, f32::NAN)?;
        graph.launch(if i % 2 == 0 { &s } else { &other })?;
        assert!(z.to_vec(&s)?.iter().all(|&v| v == 3.0));
    }
    graph.launch(&s)?;
    drop(graph);
    // errors of the closure come out, and the stream is usable
    let e = s.capture(|s| s.synchronize()).map(|_| ()).unwrap_err();
    assert!(matches!(e, Error::Capturing { .. }), "{e}");
    assert!(std::panic::catch_unwind(|| s.capture(|_| panic!("on purpose"))).is_err());
    z.fill(&s, 5.0)?;
    assert_eq!(z.slice(0, 0..3)?.to_vec(&s)?, [5.0; 3]);
    Ok(())
}

#[test]
fn scalars_of_recorded_launches() -> Result<()> {
    let Some(d) = gpu() else { return Ok(()) };
    let s = d.new_stream()?;
    add_bias::prepare(&d)?;
    let x = Tensor::<f32, 1>::full(&s, [LARGE], 1.0)?;
    let mut y = Tensor::<f32, 1>::zeros(&s, [LARGE])?;
    let mut z = Tensor::<f32, 1>::zeros(&s, [LARGE])?;
    let mut graph = s.capture(|s| {
        add_bias::launch(s, (x.tiles()?, y.tiles_mut()?, 1.0))?;
        y.slice_mut(0, 0..LARGE)?.copy_from(s, x.view())?;
        add_bias::launch(s, (y.tiles()?, z.tiles_mut()?, 1.0))
    })?;
    for (bias, total) in [(1.0f32, 2.0), (10.0, 11.0), (-1.0, 0.0)] {
        graph.set(1, "bias", bias)?;
        graph.launch(&s)?;
        assert!(z.to_vec(&s)?.iter().all(|&v| v == total), "{bias}");
    }
    graph.launch(&s)?; // under way with the old value
    graph.set(1, "bias", 5.0f32)?;
    assert!(z.to_vec(&s)?.iter().all(|&v| v == 0.0));
    assert!(matches!(graph.set(1, "bias", 5u32), Err(Error::Recorded { .. })));
    Ok(())
}

#[test]
fn memory_that_is_lent() -> Result<()> {
    let Some(d) = gpu() else { return Ok(()) };
    use tilewright_host::foreign::{Ending, scope};
    let (home, other) = (d.new_stream()?, d.new_stream()?);
    // "somebody else's": another tensor's memory, used here by address alone
    let mut owner = Tensor::<f32, 1>::zeros(&home, [LARGE])?;
    let (address, x) = (owner.as_mut_ptr(), Tensor::<f32, 1>::full(&other, [LARGE], 1.0)?);
    for i in 0..20 {
        scope(&home, Ending::OnStream, |scope| {
            // SAFETY: the tensor is not used until the scope has ended.
            let y = unsafe { scope.view_mut(address, LARGE, [LARGE], [1]) }?;
            add_bias::launch(&other, (x.tiles()?, y.tiles_mut()?, i as f32))
        })?;
        assert!(owner.to_vec(&home)?.iter().all(|&v| v == 1.0 + i as f32));
    }
    Ok(())
}

#[test]
fn first_use_in_a_capture_is_refused() -> Result<()> {
    let Some(d) = gpu() else { return Ok(()) };
    let s = d.stream()?;
    let a = Tensor::<f32, 2>::zeros(&s, [128, 64])?;
    let mut o = Tensor::<f32, 2>::zeros(&s, [128, 64])?;
    let e = s.capture(|s| Mapped::launch(s, (a.tma_tiles()?, o.tma_tiles_mut()?))).map(|_| ()).unwrap_err();
    assert_eq!(e, Error::NotLoaded { kernel: "tests::mapped" });
    let e = Mapped::prepare(&d).unwrap_err();
    match d.compute_capability() {
        Some((9, 0)) => {
            assert!(matches!(&e, Error::Driver { call: "cuModuleLoadDataEx", log, .. } if !log.is_empty()), "{e}")
        }
        _ => assert!(matches!(e, Error::NoImageFor { .. }), "{e}"),
    }
    Ok(())
}

#[test]
fn tensor_maps() -> Result<()> {
    let Some(d) = gpu() else { return Ok(()) };
    let s = d.stream()?;
    let t = Tensor::<bf16, 2>::zeros(&s, [300, 72])?;
    assert!(t.tma_tiles::<128, 64>().is_ok());
    assert!(t.view().rows(3..200)?.tma_tiles::<128, 64>().is_ok());
    let e = t.view().cols(1..9)?.tma_tiles::<128, 64>().map(|_| ()).unwrap_err();
    assert!(matches!(e, Error::Alignment { .. }), "{e}");
    for extents in [[0, 64], [64, 0], [1, 3], [1, 64]] {
        let t = Tensor::<f16, 2>::zeros(&s, extents)?;
        assert!(t.tma_tiles::<64, 64>().is_ok(), "{extents:?}");
    }
    assert!(Tensor::<i8, 2>::zeros(&s, [64, 128])?.tma_tiles::<64, 128>().is_ok());
    Ok(())
}

#[test]
fn threads() -> Result<()> {
    let Some(d) = gpu() else { return Ok(()) };
    let s = d.stream()?;
    let mut t = Tensor::<f32, 1>::zeros(&s, [4 << 20])?;
    let x = Tensor::<f32, 1>::full(&s, [2 << 20], 1.0)?;
    for i in 0..20 {
        let (low, high) = t.view_mut().split_at(0, 2 << 20)?;
        std::thread::scope(|scope| {
            for (part, bias) in [(low, i as f32), (high, i as f32 + 0.5)] {
                let x = &x;
                scope.spawn(move || {
                    let s = d.new_stream().unwrap();
                    add_bias::launch(&s, (x.tiles().unwrap(), part.tiles_mut().unwrap(), bias)).unwrap();
                });
            }
        });
        let out = t.to_vec(&s)?;
        assert!(out[..2 << 20].iter().all(|&v| v == i as f32 + 1.0));
        assert!(out[2 << 20..].iter().all(|&v| v == i as f32 + 1.5));
    }
    Ok(())
}

#[test]
fn events() -> Result<()> {
    let Some(d) = gpu() else { return Ok(()) };
    let s = d.stream()?;
    let x = Tensor::<f32, 1>::full(&s, [LARGE], 1.0)?;
    let mut y = Tensor::<f32, 1>::zeros(&s, [LARGE])?;
    let start = Event::record(&s)?;
    add_bias::launch(&s, (x.tiles()?, y.tiles_mut()?, 1.0))?;
    let end = Event::record(&s)?;
    d.new_stream()?.wait(&end)?;
    let us = end.micros_since(&start)?;
    assert!(us > 10.0 && us < 1e6, "{us}");
    let cpu = Event::record(&Device::cpu().stream()?)?;
    assert!(matches!(end.micros_since(&cpu), Err(Error::Device { .. })));
    Ok(())
}

/// Copies that do not wait: under way when the call returns, right when they are waited for, dropped or left behind.
#[test]
fn transfers() -> Result<()> {
    let Some(d) = gpu() else { return Ok(()) };
    let (s, t) = (d.new_stream()?, d.new_stream()?);
    add_bias::prepare(&d)?;
    let mut x = Tensor::<f32, 1>::zeros(&s, [LARGE])?;
    let mut y = Tensor::<f32, 1>::zeros(&s, [LARGE])?;
    let mut buffer = Pinned::<f32>::zeros(&d, LARGE)?;
    buffer.iter_mut().enumerate().for_each(|(i, v)| *v = (i % 1000) as f32);
    let back = Pinned::<f32>::zeros(&d, LARGE)?;
    s.synchronize()?;
    let start = std::time::Instant::now();
    let up = x.upload(&s, buffer)?;
    add_bias::launch(&t, (x.tiles()?, y.tiles_mut()?, 1.0))?;
    let down = y.download(&s, back)?;
    let (enqueued, under_way) = (start.elapsed(), !down.is_done()?);
    let back = down.wait()?;
    println!("{LARGE} f32 up, through a kernel and down: enqueued in {enqueued:?}, done after {:?}", start.elapsed());
    assert!(under_way, "nothing waited");
    assert!(back.iter().enumerate().all(|(i, v)| *v == (i % 1000) as f32 + 1.0));
    let buffer = up.wait()?;
    // strided, to rows of a matrix and back
    let mut m = Tensor::<f32, 2>::zeros(&s, [1024, 1024])?;
    let part = Pinned::from_slice(&d, &buffer[..512 * 1024])?;
    let part = m.view_mut().cols(256..768)?.upload(&t, part)?.wait()?;
    let read = m.view().cols(256..768)?.download(&s, Pinned::zeros(&d, 512 * 1024)?)?.wait()?;
    assert!(part[..] == read[..]);
    assert!(m.view().cols(0..256)?.to_vec(&s)?.iter().all(|&v| v == 0.0));
    // dropped and forgotten under way; the memory that they used is used again at once
    for i in 0..20 {
        let mut z = Tensor::<f32, 1>::zeros(&s, [LARGE / 8])?;
        let up = z.upload(&s, Pinned::from_slice(&d, &buffer[..LARGE / 8])?)?;
        let down = z.download(&t, Pinned::zeros(&d, LARGE / 8)?)?;
        drop(z);
        if i == 7 {
            std::mem::forget(down);
            continue;
        }
        drop(up);
        assert!(down.wait()?[..] == buffer[..LARGE / 8]);
    }
    Ok(())
}

/// Between the host and a GPU, and on one GPU; between two where there are two.
#[test]
fn copies_between_devices() -> Result<()> {
    let Some(d) = gpu() else { return Ok(()) };
    let (s, host) = (d.new_stream()?, Device::cpu().stream()?);
    let x = Tensor::<f32, 2>::from_slice(&host, [300, 70], &count(21_000))?;
    let mut near = Tensor::<f32, 2>::zeros(&s, [70, 300])?;
    near.copy_from_peer(&s, x.view().transpose())?;
    assert_eq!(near.to_vec(&s)?, x.view().transpose().to_vec(&host)?);
    let mut again = Tensor::<f32, 2>::zeros(&s, [70, 300])?;
    again.copy_from_peer(&s, near.view())?;
    let mut back = Tensor::<f32, 2>::zeros(&host, [300, 70])?;
    back.copy_from_peer(&s, again.view().transpose())?;
    assert_eq!(back.to_vec(&host)?, count(21_000));
    let all = Device::all();
    let Some(other) = all.iter().find(|o| !o.is_cpu() && **o != d) else {
        eprintln!("one GPU: copies between two were not tried");
        return Ok(());
    };
    let t = other.new_stream()?;
    for _ in 0..20 {
        let mut x = Tensor::<f32, 1>::full(&s, [LARGE], 1.0)?;
        let mut y = Tensor::<f32, 1>::zeros(&t, [LARGE])?;
        y.copy_from_peer(&t, x.view())?;
        x.fill(&s, 2.0)?; // after the copy
        let mut z = Tensor::<f32, 1>::zeros(&s, [LARGE])?;
        z.copy_from_peer(&s, y.view())?;
        drop((x, y));
        assert!(z.to_vec(&s)?.iter().all(|&v| v == 1.0));
    }
    let mut far = Tensor::<f32, 2>::zeros(&t, [70, 100])?;
    far.copy_from_peer(&t, near.view().cols(100..200)?)?;
    assert_eq!(far.to_vec(&t)?, near.view().cols(100..200)?.to_vec(&s)?);
    Ok(())
}
