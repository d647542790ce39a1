//! Multiplies two matrices, on the GPU if there is one and on the CPU otherwise, and checks every element against f64.
//!
//! ```text
//! cargo run --release --example gemm                                    # random matrices
//! cargo run --release --example gemm -- --m 1000 --n 777 --k 333 --type f16
//! cargo run --release --example gemm -- --a A.npy --b B.npy --out C.npy # C = A B
//! ```

mod common;

use std::path::PathBuf;
use std::process::ExitCode;

use common::check::Reference;
use common::npy::{self, Matrix};
use tilewright::ops::gemm::{self, Path};
use tilewright::prelude::*;

const USAGE: &str = "\
usage: gemm [options]
  --a A.npy --b B.npy   operands, A of M x K and B of K x N; without them, random ones are made
  --transposed-b        B is given as N x K, as weights usually are
  --out C.npy           write the product, as f32
  --m M --n N --k K     extents of random operands (4096 each on a GPU, 1024 on the CPU)
  --type T              bf16 (default), f16 or f32: what is multiplied; sums are f32 always
  --device D            cpu, or a GPU's number; the best by default
  --path P              hopper or portable; the best by default
  --runs R              timed runs, of which the median counts (20 on a GPU, 3 on the CPU)";

#[derive(Default)]
struct Options {
    a: Option<PathBuf>,
    b: Option<PathBuf>,
    out: Option<PathBuf>,
    transposed_b: bool,
    extents: [Option<usize>; 3],
    element: Option<String>,
    device: Option<String>,
    path: Option<Path>,
    runs: Option<usize>,
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut o = Options::default();
    while let Some(key) = args.next() {
        if key == "--transposed-b" {
            o.transposed_b = true;
            continue;
        }
        if key == "--help" || key == "-h" {
            println!("{USAGE}");
            std::process::exit(0);
        }
        let known = ["--a", "--b", "--out", "--m", "--n", "--k", "--type", "--device", "--path", "--runs"];
        if !known.contains(&key.as_str()) {
            return Err(format!("unknown option {key}\n{USAGE}"));
        }
        let value = args.next().ok_or_else(|| format!("{key} needs a value\n{USAGE}"))?;
        let number = || value.parse().map_err(|_| format!("{key}: expected a number, found {value}"));
        match key.as_str() {
            "--a" => o.a = Some(value.into()),
            "--b" => o.b = Some(value.into()),
            "--out" => o.out = Some(value.into()),
            "--m" => o.extents[0] = Some(number()?),
            "--n" => o.extents[1] = Some(number()?),
            "--k" => o.extents[2] = Some(number()?),
            "--runs" => o.runs = Some(number()?),
            "--type" => o.element = Some(value),
            "--device" => o.device = Some(value),
            _ => {
                o.path = Some(match value.as_str() {
                    "hopper" => Path::Hopper,
                    "portable" => Path::Portable,
                    _ => return Err(format!("--path: expected hopper or portable, found {value}")),
                })
            }
        }
    }
    if o.a.is_some() != o.b.is_some() {
        return Err(format!("--a and --b go together\n{USAGE}"));
    }
    if o.a.is_some() && o.extents.iter().any(Option::is_some) {
        return Err("--m, --n and --k are the files' own when --a and --b are given".into());
    }
    Ok(o)
}

/// A as M x K and B as N x K.
fn operands(o: &Options, size: usize) -> Result<(Matrix, Matrix), String> {
    let (a, b) = match (&o.a, &o.b) {
        (Some(a), Some(b)) => {
            let (a, b) = (npy::read(a)?, npy::read(b)?);
            (a, if o.transposed_b { b } else { b.transposed() })
        }
        _ => {
            let [m, n, k] = o.extents.map(|e| e.unwrap_or(size));
            (common::random(m, k, 1), common::random(n, k, 2))
        }
    };
    if a.cols != b.cols {
        let order = if o.transposed_b { "N x K" } else { "K x N" };
        return Err(format!("A is {} x {}, so B ({order}) must have K = {}, found {}", a.rows, a.cols, a.cols, b.cols));
    }
    Ok((a, b))
}

fn run<T: gemm::Factor>(o: &Options, device: Device) -> Result<(), String> {
    let (size, runs) = if device.is_cpu() { (1024, 3) } else { (4096, 20) };
    let (a, b) = operands(o, size)?;
    let (m, n, k) = (a.rows, b.rows, a.cols);
    let product = multiply::<T>(o, device, &a, &b, o.runs.unwrap_or(runs).max(1)).map_err(|e| e.to_string())?;

    // nothing to do takes no time
    let seconds = (product.micros * 1e-6).max(1e-9);
    println!("device  {device}");
    println!("shape   {m} x {n} x {k}, {} ({})", T::DTYPE, product.path);
    println!("time    {:.1} us, {:.3} TFLOP/s", product.micros, 2e-12 * (m * n * k) as f64 / seconds);
    let worst = Reference::product(&product.a, &product.b, m, n, k).check(&product.c, T::DTYPE, k);
    println!("error   {worst}");
    if worst.outside > 0 {
        return Err(format!("the product is wrong in {} elements", worst.outside));
    }
    if let Some(out) = &o.out {
        npy::write(out, m, n, &product.c)?;
        println!("wrote   {}", out.display());
    }
    Ok(())
}

struct Product {
    /// The operands as they were multiplied: rounded to the element type.
    a: Vec<f64>,
    b: Vec<f64>,
    c: Vec<f32>,
    micros: f64,
    path: Path,
}

fn multiply<T: gemm::Factor>(
    o: &Options,
    device: Device,
    a: &Matrix,
    b: &Matrix,
    runs: usize,
) -> Result<Product, Error> {
    let (m, n, k) = (a.rows, b.rows, a.cols);
    let stream = device.stream()?;
    let (a, b) = (a.to::<T>(), b.to::<T>());
    let da = Tensor::<T, 2>::from_slice(&stream, [m, k], &a)?;
    let db = Tensor::<T, 2>::from_slice(&stream, [n, k], &b)?;
    let mut dc = Tensor::<T, 2>::full(&stream, [m, n], T::from_value(f32::NAN))?;
    let path = match o.path {
        Some(path) => path,
        None => gemm::choose(device, da.view(), db.view(), dc.view_mut()).path(),
    };
    gemm::gemm_by(path, &stream, da.view(), db.view(), dc.view_mut())?;
    let mut times = Vec::new();
    for _ in 0..runs {
        let start = Event::record(&stream)?;
        gemm::gemm_by(path, &stream, da.view(), db.view(), dc.view_mut())?;
        let end = Event::record(&stream)?;
        end.synchronize()?;
        times.push(end.micros_since(&start)?);
    }
    times.sort_by(f64::total_cmp);
    let c = common::widened(&dc.to_vec(&stream)?);
    Ok(Product { a: common::wide(&a), b: common::wide(&b), c, micros: times[times.len() / 2], path })
}

fn main() -> ExitCode {
    let result = parse(std::env::args().skip(1)).and_then(|o| {
        let device = common::device(o.device.as_deref())?;
        match o.element.as_deref().unwrap_or("bf16") {
            "bf16" => run::<bf16>(&o, device),
            "f16" => run::<f16>(&o, device),
            "f32" => run::<f32>(&o, device),
            other => Err(format!("--type: expected bf16, f16 or f32, found {other}")),
        }
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("gemm: {message}");
            ExitCode::FAILURE
        }
    }
}
