//! A block of a language model, normed and projected by tilewright's kernels in the middle of candle's graph.
//!
//! `cargo run --release -p tilewright-adapters --features candle --example candle`
//! (on a GPU with `--features candle-cuda`)

use candle_core::{Device, Result, Tensor};
use tilewright_adapters::candle::{Axpy, Linear, RmsNorm};

fn main() -> Result<()> {
    let device = if cfg!(feature = "candle-cuda") { Device::cuda_if_available(0)? } else { Device::Cpu };
    let (tokens, hidden) = (16, 256);
    let x = Tensor::randn(0f32, 1., (2, tokens, hidden), &device)?;
    let weight = Tensor::ones(hidden, candle_core::DType::F32, &device)?;
    let projection = Tensor::eye(hidden, candle_core::DType::F32, &device)?;
    let normed = x.apply_op2_no_bwd(&weight, &RmsNorm { eps: 1e-6 })?;
    let out = normed.apply_op2_no_bwd(&projection, &Linear)?;
    let residual = x.copy()?;
    residual.inplace_op2(&out, &Axpy { a: 1.0 })?;
    let mean_square = normed.sqr()?.mean_all()?.to_scalar::<f32>()?;
    println!("{:?}, mean square after the norm {mean_square} (1 is right)", residual.dims());
    Ok(())
}
