//! ThreadSanitizer over the CPU backend.

use crate::step::{self, Failure, Outcome, cargo_command, shown, target};
use std::path::Path;
use std::process::Command;

/// What a run must end with.
#[derive(Clone, Copy, PartialEq)]
pub enum Expect {
    Clean,
    /// A fault is planted, and must be reported.
    Caught,
}

/// One test program under the sanitizer.
pub struct Job {
    pub package: &'static str,
    /// An integration test; it must have `harness = false`, since the standard test runner is not instrumented.
    pub test: &'static str,
    /// Which of its checks; all if empty.
    pub only: &'static str,
    /// Extra `--cfg`, which plants the fault.
    pub cfg: Option<&'static str>,
    pub expect: Expect,
}

const fn clean(package: &'static str, test: &'static str) -> Job {
    Job { package, test, only: "", cfg: None, expect: Expect::Clean }
}

const fn planted(cfg: &'static str, only: &'static str) -> Job {
    Job { package: "tilewright-kernels", test: "race", only, cfg: Some(cfg), expect: Expect::Caught }
}

/// What is run. To add a test, add a line.
const JOBS: &[Job] = &[
    clean("tilewright-kernels", "race"),
    // a consumer does not wait for its slot to be full
    planted("tilewright_fault=\"full\"", "hopper_products"),
    // the producer does not wait for a slot to be empty
    planted("tilewright_fault=\"empty\"", "hopper_products"),
    // a slot goes back while products read it
    planted("tilewright_fault=\"release\"", "hopper_products"),
    // two warpgroups get the same rows
    planted("tilewright_fault=\"rows\"", "hopper_rows"),
];

/// What says that a fault was seen: the sanitizer, or the CPU backend's count of a slot's fills.
const CAUGHT: [&str; 2] = ["WARNING: ThreadSanitizer: data race", "a slot was filled again before it was released"];

const TRIPLE: &str = "x86_64-unknown-linux-gnu";

fn run_job(root: &Path, job: &Job, toolchain: Option<&str>) -> Outcome {
    let mut flags = String::from("-Zsanitizer=thread\u{1f}-Cunsafe-allow-abi-mismatch=sanitizer");
    if let Some(cfg) = job.cfg {
        flags.push_str(&format!("\u{1f}--cfg\u{1f}{cfg}"));
    }
    let mut c = match toolchain {
        // rustup's own cargo, so that the name of a toolchain is understood
        Some(t) => {
            let mut c = Command::new("cargo");
            c.arg(format!("+{t}"))
                .current_dir(root)
                .env_remove("RUSTUP_TOOLCHAIN")
                .env_remove("CARGO")
                .env_remove("RUSTC");
            c
        }
        None => cargo_command(),
    };
    c.args(["test", "--quiet", "--release", "--target", TRIPLE, "-p", job.package, "--test", job.test]);
    c.arg("--target-dir").arg(target(root).join("tsan"));
    if !job.only.is_empty() {
        c.args(["--", job.only]);
    }
    // quotes in a `--cfg` would not survive RUSTFLAGS
    c.env("CARGO_ENCODED_RUSTFLAGS", flags).env_remove("RUSTFLAGS").env("RUSTC_BOOTSTRAP", "1");
    // nothing here runs on a GPU
    c.env("TILEWRIGHT_RUSTC", "none").env_remove("TILEWRIGHT_REQUIRE_DEVICE");
    // a race must not pass because the program ended well
    c.env("TSAN_OPTIONS", "exitcode=66 halt_on_error=0");
    if job.expect == Expect::Clean {
        return step::run(&mut c);
    }
    let line = shown(&c);
    let out = c.output().map_err(|e| Failure::new(format!("cannot start `{line}`: {e}")))?;
    let text = String::from_utf8_lossy(&out.stderr).into_owned() + &String::from_utf8_lossy(&out.stdout);
    let ran = !text.contains("error: could not compile");
    match CAUGHT.iter().find(|c| text.contains(**c)) {
        Some(how) if ran && !out.status.success() => {
            println!("  caught: {how}");
            Ok(())
        }
        _ => Err(Failure::new(format!("`{line}`: the planted fault was not reported:\n{text}"))),
    }
}

pub fn run(root: &Path) -> Outcome {
    let toolchain = toolchain()?;
    for job in JOBS {
        let what = job.cfg.map_or("as it is".to_string(), |c| format!("with {c}"));
        println!("{} --test {} {what}", job.package, job.test);
        run_job(root, job, toolchain)?;
    }
    Ok(())
}

/// The toolchain that has the sanitizer's runtime: the one in use, or nightly.
fn toolchain() -> Result<Option<&'static str>, Failure> {
    let has = |args: &[&str]| {
        let out = Command::new("rustc").args(args).args(["--print", "sysroot"]).output();
        let sysroot =
            out.ok().filter(|o| o.status.success()).map(|o| String::from_utf8_lossy(&o.stdout).trim().to_string());
        let lib = sysroot.map(|s| Path::new(&s).join("lib/rustlib").join(TRIPLE).join("lib"));
        let files = lib.and_then(|l| std::fs::read_dir(l).ok()).into_iter().flatten().filter_map(Result::ok);
        files.into_iter().any(|f| f.file_name().to_string_lossy().ends_with("_rt.tsan.a"))
    };
    if has(&[]) {
        Ok(None)
    } else if has(&["+nightly"]) {
        Ok(Some("nightly"))
    } else {
        Err(Failure::new("no toolchain has ThreadSanitizer's runtime; `rustup toolchain install nightly`"))
    }
}
