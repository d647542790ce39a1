//! Steps of `test`, and starting programs.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// Why a command stopped.
#[derive(Debug)]
pub struct Failure {
    pub message: String,
    pub code: u8,
}

/// Exit code when something must be installed that this user may not install.
pub const NEEDS_INSTALLATION: u8 = 3;

impl Failure {
    pub fn new(message: impl Into<String>) -> Self {
        Failure { message: message.into(), code: 1 }
    }
}

impl From<tilewright_build::Error> for Failure {
    fn from(e: tilewright_build::Error) -> Self {
        let code = match e {
            tilewright_build::Error::NoCompiler { .. } | tilewright_build::Error::NoPtxas => NEEDS_INSTALLATION,
            _ => 1,
        };
        Failure { message: e.to_string(), code }
    }
}

pub type Outcome = Result<(), Failure>;

/// One check.
pub struct Step {
    name: &'static str,
    run: fn(&Path) -> Outcome,
}

impl Step {
    pub const fn new(name: &'static str, run: fn(&Path) -> Outcome) -> Self {
        Step { name, run }
    }
}

/// Runs all steps, or those named, and sums up. After a failure the others still run, so that one look shows all that
/// is wrong; without what `setup` installs they could not.
pub fn run_all(steps: &[Step], only: &[&str], root: &Path) -> Outcome {
    if let Some(unknown) = only.iter().find(|o| !steps.iter().any(|s| s.name == **o)) {
        let all: Vec<_> = steps.iter().map(|s| s.name).collect();
        return Err(Failure::new(format!("no step `{unknown}`; there are: {}", all.join(", "))));
    }
    let chosen: Vec<_> = steps.iter().filter(|s| only.is_empty() || only.contains(&s.name)).collect();
    let begin = Instant::now();
    let mut summary = Vec::new();
    let mut failed = 0;
    for (i, step) in chosen.iter().enumerate() {
        println!("== {}/{} {}", i + 1, chosen.len(), step.name);
        let start = Instant::now();
        let result = (step.run)(root);
        let seconds = start.elapsed().as_secs_f64();
        let word = if result.is_ok() { "ok" } else { "FAILED" };
        summary.push(format!("{:<10} {word:<7} {seconds:7.1} s", step.name));
        if let Err(f) = result {
            eprintln!("xtask: {}: {}", step.name, f.message);
            if step.name == "setup" {
                return Err(f);
            }
            failed += 1;
        }
    }
    println!("== summary");
    summary.iter().for_each(|l| println!("{l}"));
    println!("{:<18} {:7.1} s", "total", begin.elapsed().as_secs_f64());
    match failed {
        0 => Ok(()),
        n => Err(Failure::new(format!("{n} of {} steps failed", chosen.len()))),
    }
}

/// The repository.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// The folder of built things.
pub fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |t| root.join(t))
}

/// Runs a program to the end, its output going where ours does.
pub fn run(command: &mut Command) -> Outcome {
    let shown = shown(command);
    match command.status() {
        Ok(s) if s.success() => Ok(()),
        Ok(s) => Err(Failure::new(format!("`{shown}` failed ({s})"))),
        Err(e) => Err(Failure::new(format!("cannot start `{shown}`: {e}"))),
    }
}

/// The command line, for messages.
pub fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}

/// The cargo that runs us, in the repository. Tests of kernels must not be left out.
pub fn cargo_command() -> Command {
    let mut c = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    c.current_dir(root()).env("TILEWRIGHT_REQUIRE_DEVICE", "1");
    c
}

/// Runs cargo.
pub fn cargo<const N: usize>(args: [&str; N]) -> Outcome {
    run(cargo_command().args(args))
}

/// Documentation, in which a broken link is an error.
pub fn doc() -> Outcome {
    run(cargo_command().args(["doc", "--workspace", "--no-deps", "--quiet"]).env("RUSTDOCFLAGS", "-D warnings"))
}
