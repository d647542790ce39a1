//! A matrix product with an epilogue of one's own, `C = silu(A B^T)`: ten lines in `kernels/mod.rs` over the shipped
//! portable product. C is rounded once, after the epilogue, and memory sees it once.
//!
//! ```text
//! cargo run --release --example 04_epilogue [-- --device cpu]
//! ```

mod common;
mod kernels;

use common::check::Reference;
use kernels::linear_silu;
use tilewright::prelude::*;

tilewright::images!();

fn run() -> common::Outcome {
    let device = common::device_argument()?;
    let stream = device.stream()?;
    let (m, n, k) = (500, 333, 200);
    let (a, b) = (common::random(m, k, 1).to::<f16>(), common::random(n, k, 2).to::<f16>());

    let da = Tensor::<f16, 2>::from_slice(&stream, [m, k], &a)?;
    let db = Tensor::<f16, 2>::from_slice(&stream, [n, k], &b)?;
    let mut dc = Tensor::<f16, 2>::zeros(&stream, [m, n])?;
    linear_silu::prepare(&device)?; // loads the kernel, which the first launch would otherwise do
    let start = Event::record(&stream)?;
    linear_silu::launch(&stream, (da.tiles()?, db.tiles()?, dc.tiles_mut()?.schedule(Grouped::<8>)))?;
    let end = Event::record(&stream)?;

    println!("device  {device}");
    println!("time    {:.1} us for {m} x {n} x {k}", end.micros_since(&start)?);
    let silu = |x: f64| x / (1.0 + (-x).exp());
    // the slope of silu is 1.1 at most
    Reference::product(&common::wide(&a), &common::wide(&b), m, n, k)
        .map(silu, 1.1)
        .check(&common::widened(&dc.to_vec(&stream)?), DType::F16, k)
        .report("silu(A B^T)")
}

fn main() -> std::process::ExitCode {
    common::exit(run())
}
