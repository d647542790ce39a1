//! Developer commands: `cargo xtask help` lists them.

mod adapters;
mod consumer;
mod expected;
mod images;
mod results;
mod scan;
mod setup;
mod step;
mod tsan;

use std::process::ExitCode;
use step::{Failure, Step, cargo};

const HELP: &str = "\
cargo xtask <command>

  setup          install what is missing: the compiler for kernels (as root; otherwise prints the command and
                 exits with 3) and ptxas, into the folder .tools
  test           setup, then every check there is; `.ci/run` runs this
  test <step>..  only these steps
  ptx            compile the shipped kernels: PTX, machine code and manifest in kernels-device/ptx and examples/ptx
  ptx --bless    the same, and accept changed registers, barriers and counts as what is expected
  ptx --check    compile them elsewhere and compare with what is checked in
  ptxas          assemble every shipped image: no spills, no stack, no warnings, the expected barriers
  scan           look for convergent instructions in the vocabulary's inline assembly
  tsan           run the CPU backend's tests under ThreadSanitizer
  results        make the README's summary, docs/results.md and the plots from benches/results
  adapters       build and test the adapters for cudarc, cust and candle
  consumer       build a package that depends on tilewright, from nothing, time it and run it
";

/// What `test` runs, in this order. To add a check, add a line.
const STEPS: &[Step] = &[
    Step::new("setup", setup::run),
    Step::new("format", |_| cargo(["fmt", "--all", "--check"])),
    Step::new("clippy", |_| {
        cargo(["clippy", "--workspace", "--all-targets", "--release", "--quiet", "--", "-D", "warnings"])
    }),
    Step::new("scan", scan::run),
    Step::new("results", results::check),
    Step::new("ptx", images::check),
    Step::new("ptxas", images::ptxas),
    Step::new("tests", |_| cargo(["test", "--workspace", "--release", "--quiet", "--no-fail-fast"])),
    Step::new("checked", |_| {
        cargo(["test", "-p", "tilewright-host", "--features", "checked", "--test", "checked", "--release", "--quiet"])
    }),
    Step::new("docs", |_| step::doc()),
    Step::new("tsan", tsan::run),
    Step::new("adapters", adapters::run),
    Step::new("consumer", consumer::run),
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let root = step::root();
    let result = match words.as_slice() {
        ["setup"] => setup::run(&root),
        ["test", only @ ..] => step::run_all(STEPS, only, &root),
        ["ptx"] => images::write(&root, false),
        ["ptx", "--bless"] => images::write(&root, true),
        ["ptx", "--check"] => images::check(&root),
        ["ptxas"] => images::ptxas(&root),
        ["scan"] => scan::run(&root),
        ["results"] => results::write(&root),
        ["tsan"] => tsan::run(&root),
        ["adapters"] => adapters::run(&root),
        ["consumer"] => consumer::run(&root),
        ["help" | "--help" | "-h"] => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        _ => Err(Failure::new(format!("not a command\n\n{HELP}"))),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(f) => {
            eprintln!("xtask: {}", f.message);
            ExitCode::from(f.code)
        }
    }
}
