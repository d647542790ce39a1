//! Checks and times the shipped kernels on a GPU, beside cuBLAS (where it can be loaded) and a device copy.
//!
//! ```text
//! cargo bench --bench gpu                         # builds and runs
//! target/release/deps/gpu-* --json results.json   # the built program runs on any CUDA machine
//! ```
//!
//! Every candidate of a shape is recorded in a graph over several sets of buffers (together at least three times the L2
//! cache) and replayed in rounds, one candidate after the other, so that clocks and power treat all alike; the median
//! round counts. Operands are random. Without a GPU it says so and ends with success.

#[path = "../../examples/common/mod.rs"]
mod common;

mod bare;
mod cublas;
mod gemm;
mod launch;
mod mla;
mod mla_cache;
mod report;
mod rmsnorm;
mod rope;
mod rows;
mod scaled;
mod timing;
mod tune;
mod twin;

use std::process::ExitCode;

use report::Report;
use tilewright::prelude::*;

const USAGE: &str = "usage: gpu [--quick] [--check] [--only gemm|scaled|rmsnorm|rows|rope|mla|launch|twin] [--config NAME,..] [--tune FILE] [--json FILE] [--commit HASH]";

#[derive(Default)]
pub struct Options {
    quick: bool,
    check: bool,
    only: Option<String>,
    /// of products, these configurations alone, or `fused`: those that come with an epilogue
    config: Option<String>,
    json: Option<String>,
    tune: Option<String>,
    commit: Option<String>,
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut o = Options::default();
    while let Some(key) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{key} needs a value\n{USAGE}"));
        match key.as_str() {
            "--quick" => o.quick = true,
            "--check" => o.check = true,
            "--only" => o.only = Some(value()?),
            "--config" => o.config = Some(value()?),
            "--tune" => o.tune = Some(value()?),
            "--json" => o.json = Some(value()?),
            "--commit" => o.commit = Some(value()?),
            "--bench" => {} // cargo bench says so
            _ => return Err(format!("unknown option {key}\n{USAGE}")),
        }
    }
    Ok(o)
}

fn run(o: &Options) -> Result<bool, Box<dyn std::error::Error>> {
    let device = Device::best();
    if device.is_cpu() {
        println!("no GPU: nothing to measure ({})", Device::cuda(0).err().map_or_else(String::new, |e| e.to_string()));
        return Ok(true);
    }
    let stream = device.stream()?;
    if let Some(path) = &o.tune {
        tune::tune(&stream, path)?;
        return Ok(true);
    }
    let mut report = Report::new(device, o.commit.as_deref());
    let wanted = |what: &str| o.only.as_deref().is_none_or(|only| only == what);
    let mut right = true;
    if wanted("gemm") {
        right &= gemm::check(&stream, o)?;
    }
    if wanted("scaled") {
        right &= scaled::check(&stream, o)?;
    }
    if wanted("rmsnorm") {
        right &= rmsnorm::check(&stream, o)?;
    }
    if wanted("rows") {
        right &= rows::check(&stream, o)?;
    }
    if wanted("rope") {
        right &= rope::check(&stream, o)?;
    }
    if wanted("mla") {
        right &= mla::check(&stream, o)? & mla_cache::check(&stream)?;
    }
    if right && !o.check {
        if wanted("mla") {
            mla::time(&stream, o, &mut report)?;
            mla_cache::time(&stream, o, &mut report)?;
        }
        if wanted("launch") {
            launch::time(&stream, &mut report)?;
        }
        if wanted("twin") {
            right &= twin::time(&stream, &mut report)?;
        }
        if wanted("rmsnorm") {
            rmsnorm::time(&stream, o, &mut report)?;
        }
        if wanted("rows") {
            rows::time(&stream, o, &mut report)?;
        }
        if wanted("rope") {
            rope::time(&stream, o, &mut report)?;
        }
        if wanted("scaled") {
            scaled::time(&stream, o, &mut report)?;
        }
        if wanted("gemm") {
            gemm::time(&stream, o, &mut report)?;
        }
        report.print();
        if let Some(path) = &o.json {
            report.write(path)?;
        }
    }
    Ok(right)
}

fn main() -> ExitCode {
    let result = parse(std::env::args().skip(1)).map_err(Into::into).and_then(|o| run(&o));
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("gpu: wrong results");
            ExitCode::FAILURE
        }
        Err(e) => {
            eprintln!("gpu: {e}");
            ExitCode::FAILURE
        }
    }
}
