//! Launches a kernel of this package on the best device there is, and checks what comes back.
#![forbid(unsafe_code)]

use tilewright::prelude::*;

mod kernels;

tilewright::images!();

const ROWS: usize = 37;
const COLS: usize = 1000; // the last tile of a row is not full

fn main() -> Result<(), Box<dyn std::error::Error>> {
    if std::env::args().any(|a| a == "--images") {
        return list();
    }
    let device = if __TILEWRIGHT_IMAGES.is_empty() { Device::cpu() } else { Device::best() };
    let stream = device.stream()?;
    let data: Vec<f32> = (0..ROWS * COLS).map(|i| (i % 89) as f32 / 16.0 - 2.5).collect();
    let x = Tensor::from_slice(&stream, [ROWS, COLS], &data)?;
    let mut y = Tensor::zeros(&stream, [ROWS, COLS])?;
    kernels::normalise::launch(&stream, (x.tiles()?, y.tiles_mut()?, 0.25))?;
    let mut worst = 0.0f64;
    for (x, y) in data.chunks(COLS).zip(y.to_vec(&stream)?.chunks(COLS)) {
        let length = x.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>().sqrt();
        for (&x, &y) in x.iter().zip(y) {
            worst = worst.max((f64::from(y) - f64::from(x) / length - 0.25).abs());
        }
    }
    println!("{ROWS} rows of {COLS} on {device}: worst error {worst:.1e}");
    if worst < 1e-5 { Ok(()) } else { Err("that is wrong".into()) }
}

/// The kernels that were compiled for GPUs.
fn list() -> Result<(), Box<dyn std::error::Error>> {
    for image in __TILEWRIGHT_IMAGES {
        for entry in image.entries {
            println!("{} {}", image.arch, entry.symbol);
        }
    }
    Ok(())
}
