//! Checks the adapters for other crates: each feature, with what it needs to be built without CUDA.

use crate::step::{self, Failure, Outcome, cargo_command, target};
use std::path::{Path, PathBuf};

/// A folder with the fake driver under the name that crates link with: `lib64/stubs/libcuda.so`.
fn driver(root: &Path) -> Result<PathBuf, Failure> {
    step::run(cargo_command().args(["build", "--release", "--quiet", "-p", "tilewright-fake-driver"]))?;
    let (folder, failed) =
        (target(root).join("cuda"), |e: std::io::Error| Failure::new(format!("the fake driver: {e}")));
    let stubs = folder.join("lib64/stubs");
    std::fs::create_dir_all(&stubs).map_err(failed)?;
    let library = target(root).join("release/libtilewright_fake_driver.so");
    std::fs::copy(library, stubs.join("libcuda.so")).map_err(failed)?;
    Ok(folder)
}

pub fn run(root: &Path) -> Outcome {
    let folder = driver(root)?;
    let cargo = |words: &[&str]| {
        let mut c = cargo_command();
        c.args(words).args(["-p", "tilewright-adapters", "--release", "--quiet"]);
        c
    };
    // candle by itself: it builds most, and knows nothing of the driver here
    for (features, linked) in [("cudarc,cust", true), ("candle", false)] {
        for words in [&["test"][..], &["clippy", "--all-targets"]] {
            let mut c = cargo(words);
            c.args(["--features", features]);
            if linked {
                c.env("CUDA_LIBRARY_PATH", &folder).env("LD_LIBRARY_PATH", folder.join("lib64/stubs"));
            }
            if words[0] == "clippy" {
                c.args(["--", "-D", "warnings"]);
            }
            step::run(&mut c)?;
        }
    }
    step::run(cargo(&["run", "--features", "candle", "--example", "candle"]).env("CUDA_VISIBLE_DEVICES", ""))
}
