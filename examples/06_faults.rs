//! Data can be wrong where the types are right: a kernel that looks up rows by number, and a list that names one which
//! does not exist. The kernel (`kernels/mod.rs`) declares the fault, reports it and goes on; nothing traps, the host gets an
//! error that names the kernel, the block and what was wrong, and the device goes on working.
//!
//! ```text
//! cargo run --release --example 06_faults [-- --device cpu]
//! ```

mod common;
mod kernels;

use kernels::embedding;
use tilewright::prelude::*;

tilewright::images!();

const ROWS: usize = 1000;
const WIDTH: usize = 576;

fn look_up(stream: &Stream, table: &Tensor<f32, 2>, tokens: &[u32]) -> Result<Vec<f32>, Error> {
    let list = Tensor::<u32, 2>::from_slice(stream, [tokens.len(), 1], tokens)?;
    let mut y = Tensor::<f32, 2>::zeros(stream, [tokens.len(), WIDTH])?;
    embedding::launch(stream, (table.tiles()?, list.tiles()?, y.tiles_mut()?))?;
    y.to_vec(stream) // waits: what a kernel on a GPU has found wrong is known from here on
}

fn run() -> common::Outcome {
    let device = common::device_argument()?;
    let stream = device.stream()?;
    let rows = common::random(ROWS, WIDTH, 1).to_f32();
    let table = Tensor::<f32, 2>::from_slice(&stream, [ROWS, WIDTH], &rows)?;
    println!("device  {device}");

    let tokens: Vec<u32> = (0..300).map(|i| i * 7919 % ROWS as u32).collect();
    let mut bad = tokens.clone();
    bad[17] = 2_147_480_000;
    match look_up(&stream, &table, &bad) {
        Err(e @ Error::Kernel { .. }) => println!("bad     {e}"),
        Err(e) => return Err(e.into()),
        Ok(_) => return Err("the bad token was not noticed".into()),
    }

    let y = look_up(&stream, &table, &tokens)?;
    let want: Vec<f32> = tokens.iter().flat_map(|&t| &rows[t as usize * WIDTH..][..WIDTH]).copied().collect();
    common::same("rows", &y, &want)?;
    println!("good    {} rows of {WIDTH} are right", tokens.len());
    Ok(())
}

fn main() -> std::process::ExitCode {
    common::exit(run())
}
