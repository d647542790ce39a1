//! The front door of RMSNorm, `y = x / sqrt(mean(x^2) + eps) w`, and its residual form, which norms `x + r` and leaves
//! the sum in `r`; bf16 rows, f32 weights, checked against f64.
//!
//! ```text
//! cargo run --release --example 03_rmsnorm [-- --device cpu]
//! ```

mod common;

use common::check::{elementwise, relative_rounding};
use tilewright::ops::rmsnorm::{rmsnorm, rmsnorm_residual};
use tilewright::prelude::*;

const EPS: f32 = 1e-5;

/// In f64, of rows of bf16.
fn reference(x: &[bf16], w: &[f32]) -> Vec<f64> {
    let norm = |row: &[bf16]| {
        let squares: f64 = row.iter().map(|v| v.to_f64().powi(2)).sum();
        let factor = 1.0 / (squares / row.len() as f64 + f64::from(EPS)).sqrt();
        row.iter().zip(w).map(|(x, &w)| x.to_f64() * factor * f64::from(w)).collect::<Vec<_>>()
    };
    x.chunks(w.len()).flat_map(norm).collect()
}

fn run() -> common::Outcome {
    let device = common::device_argument()?;
    let stream = device.stream()?;
    println!("device  {device}");

    let (m, n) = (300, 577);
    let (x, r) = (common::random(m, n, 1).to::<bf16>(), common::random(m, n, 2).to::<bf16>());
    let w = common::random(1, n, 3).to_f32();
    let dx = Tensor::<bf16, 2>::from_slice(&stream, [m, n], &x)?;
    let mut dr = Tensor::<bf16, 2>::from_slice(&stream, [m, n], &r)?;
    let dw = Tensor::<f32, 1>::from_slice(&stream, [n], &w)?;
    let mut dy = Tensor::<bf16, 2>::zeros(&stream, [m, n])?;
    // one rounding of the result, and a little for f32
    let allowed = relative_rounding(DType::BF16) + 2f64.powi(-18);

    rmsnorm(&stream, dx.view(), dw.view(), dy.view_mut(), EPS)?;
    let y = common::widened(&dy.to_vec(&stream)?);
    elementwise(&y, reference(&x, &w), allowed).report("rmsnorm(x)")?;

    rmsnorm_residual(&stream, dx.view(), dr.view_mut(), dw.view(), dy.view_mut(), EPS)?;
    let sum: Vec<bf16> = x.iter().zip(&r).map(|(x, r)| bf16::from_f32(x.to_f32() + r.to_f32())).collect();
    common::same("x + r", &dr.to_vec(&stream)?, &sum)?;
    let y = common::widened(&dy.to_vec(&stream)?);
    elementwise(&y, reference(&sum, &w), allowed).report("rmsnorm(x + r)")
}

fn main() -> std::process::ExitCode {
    common::exit(run())
}
