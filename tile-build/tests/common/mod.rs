//! The device compiler, for tests that need one.
use std::path::{Path, PathBuf};
use tilewright_build::{DeviceCompiler, INSTALL_HELP};

/// The compiler; `None`, with a word on it, where none is installed. Where tests must not be left out
/// (`TILEWRIGHT_REQUIRE_DEVICE`, which `cargo xtask test` sets, or any CI) its absence is a failure.
pub fn compiler() -> Option<DeviceCompiler> {
    match DeviceCompiler::find() {
        Ok(c) => Some(c),
        Err(e) => {
            let must = ["TILEWRIGHT_REQUIRE_DEVICE", "CI"];
            assert!(must.iter().all(|v| std::env::var_os(v).is_none()), "{e}");
            eprintln!("left out, there is no compiler for kernels: {INSTALL_HELP}");
            None
        }
    }
}

/// The folder that other device builds of this workspace use: `core` is compiled once for all.
pub fn cache() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("tilewright")
}

/// A folder of a test's own, empty.
#[allow(dead_code, reason = "not every test file needs one")]
pub fn scratch(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

/// Copies a folder with all that is in it.
#[allow(dead_code, reason = "not every test file needs one")]
pub fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for e in std::fs::read_dir(from).unwrap() {
        let e = e.unwrap();
        let target = to.join(e.file_name());
        if e.file_type().unwrap().is_dir() {
            copy(&e.path(), &target);
        } else {
            std::fs::copy(e.path(), target).unwrap();
        }
    }
}
