//! Builds a package that depends on tilewright as a user's does: from nothing, on this stable toolchain, with no
//! compiler for kernels and no CUDA; and once more with the compiler, which must put the package's kernel into an image.

use crate::step::{self, Failure, Outcome, cargo_command, target};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// The package, outside the workspace.
const PACKAGE: &str = "tests/consumer";

/// What a clean release build may take on two cores, and what of it our own crates may.
const LIMIT_SECONDS: f64 = 60.0;
const LIMIT_OWN_SECONDS: f64 = 15.0;

/// Our own crates, of those that a user builds.
const OWN: [&str; 6] =
    ["tilewright", "tilewright-core", "tilewright-macros", "tilewright-kernels", "tilewright-host", "tilewright-build"];

pub fn run(root: &Path) -> Outcome {
    let package = root.join(PACKAGE);
    let bare = target(root).join("consumer");
    if bare.exists() {
        std::fs::remove_dir_all(&bare).map_err(|e| Failure::new(format!("{}: {e}", bare.display())))?;
    }
    let cargo = |dir: &Path, words: &[&str]| {
        let mut c = cargo_command();
        c.current_dir(&package).args(words).arg("--release").arg("--target-dir").arg(dir);
        c.env_remove("TILEWRIGHT_REQUIRE_DEVICE");
        c
    };
    // as if nothing were installed: shipped PTX must do
    let without = |words: &[&str]| {
        let mut c = cargo(&bare, words);
        c.env("TILEWRIGHT_RUSTC", "none");
        c
    };

    let all = timed(&mut without(&["build", "--quiet"]))?;
    let mut clean = without(&["clean", "--quiet"]);
    for own in OWN {
        clean.args(["-p", own]);
    }
    step::run(&mut clean)?;
    let own = timed(&mut without(&["build", "--quiet"]))?;
    println!("a clean release build took {all}; our own crates {own} of it");

    let program = bare.join("release/consumer");
    step::run(Command::new(&program).env("CUDA_VISIBLE_DEVICES", ""))?;
    if all.seconds() > LIMIT_SECONDS || own.seconds() > LIMIT_OWN_SECONDS {
        return Err(Failure::new(format!("that is more than {LIMIT_SECONDS} s, or than {LIMIT_OWN_SECONDS} s")));
    }

    let device = target(root).join("consumer-device");
    step::run(cargo(&device, &["build", "--quiet"]).env("TILEWRIGHT_REQUIRE_DEVICE", "1"))?;
    let mut list = Command::new(device.join("release/consumer"));
    let images = list.arg("--images").output().map_err(|e| Failure::new(format!("consumer: {e}")))?;
    let images = String::from_utf8_lossy(&images.stdout).into_owned();
    if !images.lines().any(|l| l.starts_with("sm_80 ") && l.contains("normalise")) {
        return Err(Failure::new(format!("the package's own kernel is in no image, but:\n{images}")));
    }
    print!("with a compiler for kernels: {images}");
    step::run(&mut Command::new(device.join("release/consumer")))
}

/// How long something took.
struct Time {
    wall: f64,
    /// Processor seconds of all its processes, where the system tells.
    cpu: Option<f64>,
    /// Others were at work on this machine too.
    busy: bool,
}

impl Time {
    /// What two idle processors would have needed: on a busy machine half the processor time, which it can not be below.
    fn seconds(&self) -> f64 {
        match self.cpu {
            Some(cpu) if self.busy => self.wall.min(cpu / 2.0),
            _ => self.wall,
        }
    }
}

impl std::fmt::Display for Time {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.1} s", self.wall)?;
        if let Some(cpu) = self.cpu {
            write!(f, " ({cpu:.1} s of processor time{})", if self.busy { ", on a busy machine" } else { "" })?;
        }
        Ok(())
    }
}

fn timed(command: &mut Command) -> Result<Time, Failure> {
    let load = std::fs::read_to_string("/proc/loadavg").ok();
    let load = load.and_then(|l| l.split(' ').next()?.parse::<f64>().ok());
    let (before, start) = (children_cpu(), Instant::now());
    step::run(command)?;
    let cpu = children_cpu().zip(before).map(|(after, before)| after - before);
    Ok(Time { wall: start.elapsed().as_secs_f64(), cpu, busy: load.is_some_and(|l| l > 1.5) })
}

/// Processor seconds of all processes that we have started and that have ended (`proc(5)`, fields 16 and 17).
fn children_cpu() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let fields: Vec<&str> = stat.rsplit(')').next()?.split_whitespace().collect();
    let ticks = |i: usize| fields.get(i)?.parse::<f64>().ok();
    Some((ticks(13)? + ticks(14)?) / 100.0)
}
