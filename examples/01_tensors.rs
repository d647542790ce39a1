//! Devices, streams, tensors, views and events.
//!
//! ```text
//! cargo run --release --example 01_tensors [-- --device cpu]
//! ```

mod common;

use tilewright::prelude::*;

fn run() -> common::Outcome {
    for device in Device::all() {
        println!("found   {device}");
    }
    let device = common::device_argument()?; // `Device::best()` unless the command line names one
    let stream = device.stream()?;
    println!("using   {device}");

    // A tensor owns memory of the device. Rank and element type are types, extents are not.
    let numbers: Vec<f32> = (0..24).map(|i| i as f32).collect();
    let mut x = Tensor::<f32, 2>::from_slice(&stream, [4, 6], &numbers)?;
    println!("x       {:?}, strides {:?}", x.extents(), x.strides());

    // A view borrows a part of it. Reading back waits for what wrote it.
    let corner = x.view().rows(1..3)?.cols(4..6)?.to_vec(&stream)?;
    println!("corner  {corner:?}");
    common::same("the corner", &corner, &[10., 11., 16., 17.])?;

    // Split, both halves may be written: they do not overlap.
    let (mut left, mut right) = x.view_mut().split_at(1, 3)?;
    left.fill(&stream, -1.0)?;
    right.fill(&stream, 1.0)?;
    println!("row     {:?}", x.view().rows(2..3)?.to_vec(&stream)?);
    common::same("a row", &x.view().rows(2..3)?.to_vec(&stream)?, &[-1., -1., -1., 1., 1., 1.])?;

    // Events mark points in a stream's work; the time between them is the device's own.
    let mut y = Tensor::<f32, 2>::zeros(&stream, [4, 6])?;
    let start = Event::record(&stream)?;
    y.copy_from(&stream, x.view())?;
    let end = Event::record(&stream)?;
    println!("copied  in {:.1} us", end.micros_since(&start)?);

    // Streams may overlap. What one writes and the other reads is put in order by the tensor itself.
    let other = device.new_stream()?;
    y.fill(&other, 2.0)?;
    x.copy_from(&stream, y.view())?;
    common::same("what the other stream wrote", &x.to_vec(&stream)?, &[2.0; 24])?;

    // A mistake that types can not show is an error that says what was expected.
    match x.view().rows(3..9) {
        Err(e) => println!("rows 3..9 of x: {e}"),
        Ok(_) => return Err("rows 3..9 of 4 rows were given out".into()),
    }
    println!("all as expected");
    Ok(())
}

fn main() -> std::process::ExitCode {
    common::exit(run())
}
