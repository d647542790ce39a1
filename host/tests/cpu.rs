//! Everything that needs no GPU, through the public interface.

mod common;

use common::{Mapped, add_bias};
use tilewright_core::__private::RawView;
use tilewright_core::element::{bf16, f16};
use tilewright_core::view::TilesMut;
use tilewright_host::{Device, Error, Event, Launch, Named, Result, Stream, Tensor, TensorView, TensorViewMut};

fn cpu() -> Stream {
    Device::cpu().stream().unwrap()
}

fn count(n: usize) -> Vec<f32> {
    (0..n).map(|i| i as f32).collect()
}

#[test]
fn devices() {
    let cpu = Device::cpu();
    assert!(cpu.is_cpu() && cpu.ordinal().is_none() && cpu.compute_capability().is_none());
    assert!(cpu.driver_version().is_none() && cpu.memory().is_none() && cpu.multiprocessors() >= 1);
    assert_eq!(cpu.name(), "CPU");
    assert!(cpu.to_string().starts_with("CPU ("));
    let all = Device::all();
    assert_eq!(all.last(), Some(&cpu));
    assert!(all.contains(&Device::best()));
    assert!(add_bias::prepare(&cpu).is_ok());
    match Device::cuda(0) {
        Ok(d) => {
            assert_eq!(d.ordinal(), Some(0));
            assert!(matches!(Device::cuda(999), Err(Error::NoSuchDevice { ordinal: 999, .. })));
        }
        Err(Error::NoDriver { reason }) => {
            assert!(!reason.is_empty());
            assert_eq!(Device::best(), cpu);
            assert_eq!(all.len(), 1);
        }
        Err(Error::NoDevice | Error::DriverTooOld { .. }) => assert_eq!(Device::best(), cpu),
        Err(e) => panic!("{e}"),
    }
}

#[test]
fn uploads_and_reads_back() -> Result<()> {
    let s = cpu();
    let data = count(24);
    let mut t = Tensor::<f32, 3>::from_slice(&s, [2, 3, 4], &data)?;
    assert_eq!((t.extents(), t.strides(), t.len()), ([2, 3, 4], [12, 4, 1], 24));
    assert_eq!(t.to_vec(&s)?, data);
    assert_eq!(format!("{t:?}"), format!("Tensor<f32>[2, 3, 4] on {}", Device::cpu()));
    t.fill(&s, 2.5)?;
    let mut out = vec![0.0; 24];
    t.copy_to_slice(&s, &mut out)?;
    assert_eq!(out, [2.5; 24]);
    t.copy_from_slice(&s, &data)?;
    let t = t.reshape([6, 4])?;
    assert_eq!(t.view().rows(2..4)?.to_vec(&s)?, count(16)[8..]);
    assert_eq!(Tensor::<bf16, 1>::full(&s, [3], bf16::from_f32(1.5))?.to_vec(&s)?, [bf16::from_f32(1.5); 3]);
    assert_eq!(Tensor::<f16, 2>::zeros(&s, [0, 5])?.to_vec(&s)?, []);
    assert_eq!(Tensor::<u8, 1>::from_slice(&s, [2], &[1, 255])?.to_vec(&s)?, [1, 255]);
    Ok(())
}

#[test]
fn views_cut_split_transpose() -> Result<()> {
    let s = cpu();
    let mut t = Tensor::<f32, 2>::from_slice(&s, [3, 4], &count(12))?;
    let v = t.view();
    assert_eq!(v.cols(1..3)?.to_vec(&s)?, [1., 2., 5., 6., 9., 10.]);
    assert_eq!(v.transpose().to_vec(&s)?, [0., 4., 8., 1., 5., 9., 2., 6., 10., 3., 7., 11.]);
    assert_eq!(v.transpose().rows(1..2)?.to_vec(&s)?, [1., 5., 9.]);
    assert_eq!(v.rows(3..3)?.to_vec(&s)?, []);
    assert!(v.rows(1..2)?.is_contiguous() && !v.cols(0..2)?.is_contiguous());
    assert_eq!(v.reshape([2, 6])?.extents(), [2, 6]);

    let (mut left, mut right) = t.view_mut().split_at(1, 1)?;
    left.fill(&s, -1.0)?;
    right.copy_from_slice(&s, &[9.0; 9])?;
    right.reborrow().rows(1..2)?.fill(&s, 7.0)?;
    assert_eq!(t.to_vec(&s)?, [-1., 9., 9., 9., -1., 7., 7., 7., -1., 9., 9., 9.]);

    let source = Tensor::<f32, 2>::from_slice(&s, [4, 3], &count(12))?;
    t.copy_from(&s, source.view().transpose())?;
    assert_eq!(t.to_vec(&s)?, source.view().transpose().to_vec(&s)?);

    let stack = Tensor::<f32, 3>::from_slice(&s, [2, 2, 3], &count(12))?;
    assert_eq!(stack.view().slab(1)?.to_vec(&s)?, count(12)[6..]);
    assert!(matches!(stack.view().slab(usize::MAX), Err(Error::Shape { .. })));
    Ok(())
}

#[test]
fn launches() -> Result<()> {
    let s = cpu();
    for (rows, cols) in [(1, 1), (2, 8), (5, 13), (33, 70)] {
        let x = Tensor::<f32, 2>::from_slice(&s, [rows, cols], &count(rows * cols))?;
        let mut y = Tensor::<f32, 2>::full(&s, [rows, cols], f32::NAN)?;
        add_bias::launch(&s, (x.tiles()?, y.tiles_mut()?, 0.5))?;
        let wanted: Vec<_> = count(rows * cols).iter().map(|v| v + 0.5).collect();
        assert_eq!(y.to_vec(&s)?, wanted);
    }
    // parts of larger tensors, at odd offsets; what is around the output stays
    let x = Tensor::<f32, 2>::from_slice(&s, [6, 40], &count(240))?;
    let mut y = Tensor::<f32, 2>::full(&s, [6, 40], -1.0)?;
    let output = y.view_mut().rows(1..5)?.cols(3..20)?;
    add_bias::launch(&s, (x.view().rows(2..6)?.cols(5..22)?.tiles()?, output.tiles_mut()?, 1.0))?;
    for (i, v) in y.to_vec(&s)?.into_iter().enumerate() {
        let (r, c) = (i / 40, i % 40);
        let inside = (1..5).contains(&r) && (3..20).contains(&c);
        assert_eq!(v, if inside { ((r + 1) * 40 + c + 2) as f32 + 1.0 } else { -1.0 });
    }
    // ranks 1 and 3
    let x = Tensor::<f32, 1>::from_slice(&s, [19], &count(19))?;
    let mut y = Tensor::<f32, 1>::zeros(&s, [19])?;
    add_bias::launch(&s, (x.tiles()?, y.tiles_mut()?, 0.0))?;
    assert_eq!(y.to_vec(&s)?, count(19));
    let x = Tensor::<f32, 3>::from_slice(&s, [2, 3, 9], &count(54))?;
    let mut y = Tensor::<f32, 3>::zeros(&s, [2, 3, 9])?;
    add_bias::launch(&s, (x.tiles()?, y.tiles_mut()?, 0.0))?;
    assert_eq!(y.to_vec(&s)?, count(54));
    Ok(())
}

#[test]
fn nothing_to_do_is_fine() -> Result<()> {
    let s = cpu();
    for extents in [[0, 5], [5, 0], [0, 0]] {
        let x = Tensor::<f32, 2>::zeros(&s, extents)?;
        let mut y = Tensor::<f32, 2>::zeros(&s, extents)?;
        add_bias::launch(&s, (x.tiles()?, y.tiles_mut()?, f32::NAN))?; // would panic in a block
        Mapped::launch(&s, (x.tma_tiles()?, y.tma_tiles_mut()?))?;
    }
    Ok(())
}

/// A view of a slice ends with the slice, of which a stream or a graph knows nothing.
#[test]
fn views_of_slices_are_refused() -> Result<()> {
    let s = cpu();
    let x = Tensor::<f32, 2>::zeros(&s, [1, 8])?;
    let mut slice = [0.0f32; 8];
    let mut launch = |s: &Stream| {
        let y = TilesMut::in_slice(&mut slice, RawView::matrix(1, 8, 8)).expect("the slice holds the row");
        add_bias::launch(s, (x.tiles()?, y, 1.0))
    };
    assert!(matches!(launch(&s), Err(Error::Device { .. })));
    assert!(matches!(s.capture(|s| launch(s)), Err(Error::Device { .. })));
    assert_eq!(slice, [0.0; 8]);
    Ok(())
}

/// The copy engine writes 16 bytes at a time, past the end of a row that ends within them.
#[test]
fn claims_for_the_copy_engine_end_at_its_grain() -> Result<()> {
    let s = cpu();
    let mut y = Tensor::<f32, 2>::zeros(&s, [3, 16])?;
    for columns in 1..=16 {
        let claim = y.view_mut().cols(0..columns)?.tma_tiles_mut::<64, 32>().map(|_| ());
        match claim {
            Ok(()) => assert_eq!(columns % 4, 0),
            Err(Error::Alignment { expected: 16, found, .. }) => assert_eq!(found, 4 * columns as u64),
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

#[test]
fn a_failing_kernel_is_a_value() -> Result<()> {
    let s = cpu();
    let x = Tensor::<f32, 1>::zeros(&s, [8])?;
    let mut y = Tensor::<f32, 1>::zeros(&s, [8])?;
    let e = add_bias::launch(&s, (x.tiles()?, y.tiles_mut()?, f32::NAN)).unwrap_err();
    assert_eq!(e.to_string(), "kernel `tests::add_bias` failed in block 0: the bias is not a number");
    add_bias::launch(&s, (x.tiles()?, y.tiles_mut()?, 1.0))?;
    assert_eq!(y.to_vec(&s)?, [1.0; 8]);
    Ok(())
}

/// Each error, by what it says.
#[test]
fn errors_name_argument_expected_and_found() -> Result<()> {
    let s = cpu();
    let message = |e: Error| e.to_string();
    let t = Tensor::<f32, 2>::zeros(&s, [4, 6])?;
    let big = usize::MAX / 2;

    let e = Tensor::<f32, 2>::from_slice(&s, [2, 2], &[0.0; 3]).arg("a").unwrap_err();
    assert_eq!(message(e), "a: expected 4 elements, found 3");
    let e = t.copy_to_slice(&s, &mut [0.0; 2]).unwrap_err();
    assert_eq!(message(e), "tensor: expected 24 elements, found 2");
    let e = Tensor::<f32, 2>::zeros(&s, [big, 9]).unwrap_err();
    assert!(matches!(e, Error::OutOfMemory { .. }), "{e}");
    let e = Tensor::<f32, 1>::zeros(&s, [1 << 60]).unwrap_err();
    assert!(matches!(e, Error::OutOfMemory { .. }), "{e}");
    let e = Tensor::<f32, 1>::from_slice(&s, [big], &[]).unwrap_err();
    assert!(matches!(e, Error::Length { .. }), "{e}");

    let e = t.slice(0, 2..5).arg("x").unwrap_err();
    assert_eq!(message(e), "x: expected a range within 0..4 of dimension 0, found 2..5");
    #[allow(clippy::reversed_empty_ranges)]
    let e = t.slice(1, 3..2).unwrap_err();
    assert!(matches!(e, Error::Shape { .. }), "{e}");
    let e = t.slice(2, 0..1).unwrap_err();
    assert_eq!(message(e), "tensor: expected a dimension below 2, found 2");
    assert!(matches!(t.view().split_at(0, 5), Err(Error::Shape { .. })));
    assert!(matches!(t.view().split_at(7, 0), Err(Error::Shape { .. })));
    let e = t.view().reshape([5, 5]).unwrap_err();
    assert_eq!(message(e), "tensor: expected 24 elements, found [5, 5]");
    let e = t.view().cols(0..2)?.reshape([8]).unwrap_err();
    assert_eq!(message(e), "tensor: expected a view without gaps, to reshape it, found [6, 1]");
    let e = Tensor::<f32, 1>::zeros(&s, [4])?.reshape([3]).unwrap_err();
    assert!(matches!(e, Error::Shape { .. }), "{e}");
    let e = Tensor::<f32, 2>::zeros(&s, [4, 5])?.copy_from(&s, t.view()).unwrap_err();
    assert_eq!(message(e), "source: expected [4, 5], found [4, 6]");

    let e = t.view().transpose().tiles::<1, 8>().arg("x").map(|_| ()).unwrap_err();
    assert_eq!(message(e), "x: expected adjacent columns (a last stride of 1), found [1, 6]");
    let e = t.tma_tiles::<64, 32>().arg("a").map(|_| ()).unwrap_err();
    assert_eq!(message(e), "a: row length must be a multiple of 16 bytes, found 24");
    let wide = Tensor::<f32, 2>::zeros(&s, [4, 8])?;
    assert!(wide.tma_tiles::<64, 32>().is_ok());
    let e = wide.view().cols(1..8)?.tma_tiles::<64, 32>().map(|_| ()).unwrap_err();
    assert!(matches!(e, Error::Alignment { what: "address", expected: 16, .. }), "{e}");
    assert!(wide.view().cols(4..7)?.tma_tiles::<64, 32>().is_ok());
    // one row may have any length: there is no next one
    assert!(t.view().rows(0..1)?.tma_tiles::<64, 32>().is_ok());
    Ok(())
}

#[test]
fn foreign_memory() -> Result<()> {
    let (s, cpu) = (cpu(), Device::cpu());
    let mut memory = count(40);
    let address = memory.as_mut_ptr();
    // SAFETY: the vector outlives the views, and is not touched meanwhile.
    unsafe {
        let v = TensorView::<f32, 2>::from_raw(&cpu, address, [3, 2], [10, 3])?;
        assert_eq!(v.to_vec(&s)?, [0., 3., 10., 13., 20., 23.]);
        // broadcasting is for reading
        assert_eq!(TensorView::<f32, 2>::from_raw(&cpu, address, [2, 2], [0, 1])?.to_vec(&s)?, [0., 1., 0., 1.]);
        let e = TensorViewMut::<f32, 2>::from_raw(&cpu, address, [2, 2], [0, 1]).unwrap_err();
        assert!(matches!(e, Error::Stride { .. }), "{e}");
        let e = TensorViewMut::<f32, 2>::from_raw(&cpu, address, [3, 4], [3, 1]).unwrap_err();
        assert!(matches!(e, Error::Stride { .. }), "{e}");
        let e = TensorView::<f32, 1>::from_raw(&cpu, address.byte_add(2), [2], [1]).unwrap_err();
        assert!(matches!(e, Error::Alignment { expected: 4, .. }), "{e}");
        let e = TensorView::<f32, 2>::from_raw(&cpu, address, [2, 2], [usize::MAX / 2, 1]).unwrap_err();
        assert!(matches!(e, Error::Shape { .. }), "{e}");
        // extents and tile counts that do not fit the kernels' 32 bits
        let huge = TensorView::<f32, 2>::from_raw(&cpu, address, [1 << 32, 8], [0, 1])?;
        assert!(matches!(huge.tiles::<1024, 8>(), Err(Error::Shape { .. })));
        let many = TensorView::<f32, 2>::from_raw(&cpu, address, [1 << 20, 1 << 13], [0, 1])?;
        assert!(matches!(many.tiles::<1, 1>(), Err(Error::Shape { .. })));
        let tall = TensorView::<f32, 2>::from_raw(&cpu, address, [1 << 31, 4], [0, 1])?;
        assert!(tall.tiles::<64, 32>().is_ok());
        let e = tall.tma_tiles::<64, 32>().map(|_| ()).unwrap_err();
        assert!(e.to_string().contains("extents below 2^31"), "{e}");

        let x = TensorView::<f32, 2>::from_raw(&cpu, address, [2, 9], [10, 1])?;
        let mut t = Tensor::<f32, 2>::from_raw(&cpu, address.add(20), [2, 9])?;
        add_bias::launch(&s, (x.tiles()?, t.tiles_mut()?, 100.0))?;
        drop(t); // frees nothing
    }
    assert_eq!(memory[20..24], [100., 101., 102., 103.]);
    assert_eq!(memory[29..31], [110., 111.]);
    assert_eq!(memory[38..], [38., 39.]);
    Ok(())
}

#[test]
fn streams_and_events() -> Result<()> {
    let s = Device::cpu().new_stream()?;
    assert!(s.device().is_cpu() && s.as_raw().is_null());
    let mut start = Event::record(&s)?;
    s.synchronize()?;
    let end = Event::record(&s)?;
    assert!(end.micros_since(&start)? >= 0.0);
    assert_eq!(start.micros_since(&end)?, 0.0);
    start.record_again(&s)?;
    start.synchronize()?;
    s.wait(&end)?;
    // SAFETY: refused before it is looked at.
    let e = unsafe { Stream::from_raw(&Device::cpu(), std::ptr::null_mut()) }.unwrap_err();
    assert!(matches!(e, Error::Unsupported { .. }), "{e}");
    Ok(())
}

#[test]
fn everything_travels_between_threads() {
    fn shared<T: Send + Sync>() {}
    fn sent<T: Send>() {}
    shared::<Device>();
    shared::<Stream>();
    shared::<Event>();
    shared::<Error>();
    shared::<Tensor<bf16, 2>>();
    shared::<TensorView<'_, bf16, 2>>();
    shared::<TensorViewMut<'_, bf16, 2>>();
    sent::<tilewright_host::Graph>();
    let s = cpu();
    let mut t = Tensor::<f32, 1>::zeros(&s, [64]).unwrap();
    let x = Tensor::<f32, 1>::full(&s, [32], 1.0).unwrap();
    let (low, high) = t.view_mut().split_at(0, 32).unwrap();
    std::thread::scope(|scope| {
        for (part, bias) in [(low, 1.0), (high, 2.0)] {
            let (s, x) = (&s, &x);
            scope.spawn(move || add_bias::launch(s, (x.tiles().unwrap(), part.tiles_mut().unwrap(), bias)).unwrap());
        }
    });
    let out = t.to_vec(&s).unwrap();
    assert!(out[..32].iter().all(|&v| v == 2.0) && out[32..].iter().all(|&v| v == 3.0));
}

/// What a view of another device says. There may be no other device here, so the view claims to be of one.
#[test]
fn arguments_of_another_device() {
    use tilewright_core::__private::{Provenance, RawView};
    use tilewright_core::view::Tiles;
    let s = cpu();
    let mut y = Tensor::<f32, 2>::zeros(&s, [1, 8]).unwrap();
    let provenance = Provenance { owner: None, device: 1 };
    // SAFETY: never followed: the launch refuses it.
    let x = unsafe { Tiles::from_raw(std::ptr::dangling(), RawView::matrix(1, 8, 8), provenance) };
    let e = add_bias::launch(&s, (x, y.tiles_mut().unwrap(), 1.0)).unwrap_err();
    assert_eq!(e.to_string(), "x: expected memory of the CPU, found memory of CUDA device 1");
}
