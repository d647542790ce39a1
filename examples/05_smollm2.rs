//! Two steps of a real model, SmolLM2-135M: RMSNorm of 64 token embeddings, then the first layer's up projection, in
//! f16 from the files in `data/smollm2`. Must agree with numpy's result in f64.
//!
//! ```text
//! cargo run --release --example 05_smollm2 [-- --device cpu]
//! ```

mod common;

use common::smollm2::{Layer, TOLERANCE};
use tilewright::prelude::*;

fn run() -> common::Outcome {
    let device = common::device_argument()?;
    let layer = Layer::read()?;
    let [m, n, k] = layer.extents();
    println!("device  {device}");
    println!("shape   rmsnorm {m} x {k}, product {m} x {n} x {k}, f16");
    layer.run::<f16>(device)?; // loads the kernels
    let result = layer.run::<f16>(device)?;
    println!("time    rmsnorm {:.1} us, product {:.1} us", result.norm_micros, result.product_micros);
    println!("allowed {TOLERANCE}");
    result.worst.report("error")
}

fn main() -> std::process::ExitCode {
    common::exit(run())
}
