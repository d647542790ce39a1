//! Builds a package that depends on tilewright as a user's does: from nothing, on this stable toolchain, with no
//! compiler for kernels and no CUDA.

use crate::step::{self, Failure, Outcome, cargo_command, target};
use std::path::Path;
use std::time::Instant;

/// The package, outside the workspace.
const PACKAGE: &str = "tests/consumer";

/// What a clean release build may take on two cores.
const LIMIT_SECONDS: f64 = 60.0;

pub fn run(root: &Path) -> Outcome {
    let package = root.join(PACKAGE);
    if !package.join("Cargo.toml").exists() {
        println!("note: there is no {PACKAGE} yet");
        return Ok(());
    }
    let dir = target(root).join("consumer");
    if dir.exists() {
        std::fs::remove_dir_all(&dir).map_err(|e| Failure::new(format!("{}: {e}", dir.display())))?;
    }
    let start = Instant::now();
    let mut c = cargo_command();
    c.current_dir(&package).args(["build", "--quiet", "--release", "--target-dir"]).arg(&dir);
    // as if nothing were installed: shipped PTX must do
    c.env("TILEWRIGHT_RUSTC", "none").env_remove("TILEWRIGHT_REQUIRE_DEVICE");
    step::run(&mut c)?;
    let seconds = start.elapsed().as_secs_f64();
    println!("a clean release build took {seconds:.1} s");
    if seconds > LIMIT_SECONDS {
        return Err(Failure::new(format!("that is more than {LIMIT_SECONDS} s")));
    }
    Ok(())
}
