//! A kernel of one's own, `y = silu(x) g`, from its source (`kernels/mod.rs`) to the checked result.
//!
//! ```text
//! cargo run --release --example 02_first_kernel [-- --device cpu]
//! ```
//!
//! An output can not be an input too. Launched with `x` in both places,
//!
//! ```text
//! silu_gate::launch(&stream, (x.tiles()?, g.tiles()?, x.tiles_mut()?))?;
//! ```
//!
//! it does not compile:
//!
//! ```text
//! error[E0502]: cannot borrow `x` as mutable because it is also borrowed as immutable
//!    |
//!    |     silu_gate::launch(&stream, (x.tiles()?, g.tiles()?, x.tiles_mut()?))?;
//!    |                                 -                       ^^^^^^^^^^^^^ mutable borrow occurs here
//!    |                                 |
//!    |                                 immutable borrow occurs here
//! ```

mod common;
mod kernels;

use kernels::silu_gate;
use tilewright::prelude::*;

tilewright::images!();

fn run() -> common::Outcome {
    let device = common::device_argument()?;
    let stream = device.stream()?;
    let n = 1_000_003; // no multiple of anything: the last tile is clipped
    let (x, g) = (common::random(1, n, 1).to_f32(), common::random(1, n, 2).to_f32());

    let dx = Tensor::<f32, 1>::from_slice(&stream, [n], &x)?;
    let dg = Tensor::<f32, 1>::from_slice(&stream, [n], &g)?;
    let mut dy = Tensor::<f32, 1>::zeros(&stream, [n])?;
    silu_gate::launch(&stream, (dx.tiles()?, dg.tiles()?, dy.tiles_mut()?))?;
    let y = dy.to_vec(&stream)?;

    println!("device  {device}");
    println!("y[..3]  {:?}", &y[..3]);
    let want = x.iter().zip(&g).map(|(&x, &g)| {
        let x = f64::from(x);
        x / (1.0 + (-x).exp()) * f64::from(g)
    });
    common::check::elementwise(&y, want, 2f64.powi(-20)).report("silu(x) g")
}

fn main() -> std::process::ExitCode {
    common::exit(run())
}
