//! The flags, in one place. Why each is there is in the comments; each fault that they cure has a test in
//! `tests/faults.rs`.

use crate::compiler::{DeviceCompiler, run_text};
use crate::error::{Error, fs};
use crate::hash;
use crate::ptx;
use std::path::{Path, PathBuf};

/// Name of the target, also of its folder in the sysroot.
pub(crate) const TARGET: &str = "nvptx64-tilewright";

/// Unstable features that the crates of a device build may use, so that kernel crates need no attribute (and no `cfg`).
const FEATURES: &str = "feature(abi_ptx,asm_experimental_arch,stdarch_nvptx)";

/// Flags for every crate of the device side, `core` included.
fn common(arch: &str) -> Vec<String> {
    vec![
        format!("-Ctarget-cpu={arch}"),
        // jump threading copies even convergent calls into both arms of a branch (rust#137086)
        "-Zmir-enable-passes=-JumpThreading".into(),
    ]
}

/// Flags for the crates of a kernel's build. `remap` are folders whose names must not get into the output.
pub(crate) fn crate_flags(arch: &str, sysroot: &Path, remap: &[(PathBuf, &str)]) -> Vec<String> {
    let mut flags = common(arch);
    flags.push(format!("--sysroot={}", sysroot.display()));
    // nothing is linked: the PTX is what LLVM prints
    flags.push("-Clinker=true".into());
    flags.push(format!("-Zcrate-attr={FEATURES}"));
    flags.extend(["-Aunused_features".into(), "-Aduplicate_features".into()]);
    for (from, to) in remap {
        flags.push(format!("--remap-path-prefix={}={to}", from.display()));
    }
    flags
}

/// The profile of a device build.
pub(crate) const PROFILE: &str = "[profile.release]\nopt-level = 3\npanic = \"abort\"\nlto = \"fat\"\ncodegen-units = 1\ndebug = false\nincremental = false\noverflow-checks = false\n";

/// Changes whenever the flags or the PTX pass do, so that shipped PTX made another way counts as out of date.
pub(crate) fn fingerprint() -> String {
    let text = format!("{:?} {FEATURES} {PROFILE} pass {} no atomics", common("ARCH"), ptx::pass_version());
    hash::short(text.as_bytes())
}

/// Writes the target's description: the compiler's own, without atomics. `core::sync::atomic` then does not exist in
/// kernels, so that no closure can hand a lane-dependent value around the types.
pub(crate) fn target_spec(compiler: &DeviceCompiler, dir: &Path) -> Result<PathBuf, Error> {
    let mut ask = compiler.rustc();
    ask.args(["-Zunstable-options", "--print", "target-spec-json"]);
    ask.args(["--target", "nvptx64-nvidia-cuda"]);
    let mut spec = String::new();
    let mut atomics = false;
    for line in run_text(&mut ask)?.lines() {
        let key = line.trim().split(':').next().unwrap_or("");
        match key {
            "\"is-builtin\"" => continue,
            "\"max-atomic-width\"" => {
                atomics = true;
                spec.push_str("  \"max-atomic-width\": 0,");
            }
            _ => spec.push_str(line),
        }
        spec.push('\n');
    }
    if !atomics {
        return Err(Error::Config(format!("{} describes its NVPTX target in an unknown way", compiler.version())));
    }
    let path = dir.join(format!("{TARGET}.json"));
    fs::write(&path, spec.as_bytes())?;
    Ok(path)
}

/// Builds `core` for one architecture, once for each compiler and set of flags, and returns its sysroot.
///
/// Cargo's `-Zbuild-std` would do the same, but it resolves all of std's dependencies over the network, and a kernel
/// needs `core` alone.
pub(crate) fn sysroot(compiler: &DeviceCompiler, arch: &str, spec: &Path, cache: &Path) -> Result<PathBuf, Error> {
    let flags = common(arch);
    let text = format!("{} {} {flags:?} {} 1", compiler.version(), compiler.library().display(), fs::read_text(spec)?);
    let root = cache.join(format!("core-{arch}-{}", &hash::sha256(text.as_bytes())[..12]));
    fs::create_dir(&root)?;
    let _lock = fs::lock(&root.join("lock"))?;
    let done = root.join("done");
    if done.exists() {
        return Ok(root);
    }
    let lib = root.join("lib/rustlib").join(TARGET).join("lib");
    fs::create_dir(&lib)?;
    let build = |name: &str, source: &Path| {
        let mut c = compiler.rustc();
        c.args(["--edition", "2024", "--crate-type", "rlib", "--crate-name", name]);
        c.arg(source).args(&flags).arg("--target").arg(spec);
        // all that is wanted is bitcode for link-time optimisation
        c.args(["-Clinker-plugin-lto", "-Copt-level=3", "-Ccodegen-units=1"]);
        c.args(["-Cpanic=abort", "-Awarnings", "-Cmetadata=tilewright"]);
        c.args(["-Zunstable-options", "-Zforce-unstable-if-unmarked"]);
        c.arg(format!("--remap-path-prefix={}=library", compiler.library().display()));
        c.arg("--sysroot").arg(&root).arg("--out-dir").arg(&lib);
        run_text(&mut c)
    };
    build("core", &compiler.library().join("core/src/lib.rs"))?;
    // rustc wants this crate to exist. What it would hold are library calls, which a kernel may not have.
    let stub = root.join("compiler_builtins.rs");
    fs::write(&stub, b"#![no_std]\n#![feature(compiler_builtins)]\n#![compiler_builtins]\n")?;
    build("compiler_builtins", &stub)?;
    fs::write(&done, b"")?;
    Ok(root)
}
