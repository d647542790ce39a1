//! Finds a compiler that can emit PTX, and starts it so that nothing of the surrounding build leaks into it.

use crate::error::{Error, fs};
use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The minor version of the oldest rustc that kernels were compiled and tested with.
const OLDEST: u32 = 96;

/// A rustc with the NVPTX target and the sources of its own `core`, and a cargo to drive it.
#[derive(Clone, Debug)]
pub struct DeviceCompiler {
    rustc: PathBuf,
    cargo: PathBuf,
    version: String,
    /// The folder `library` of its sources.
    library: PathBuf,
    json_target_flag: bool,
}

impl DeviceCompiler {
    /// Finds one: `TILEWRIGHT_RUSTC`, rustup's nightly with `rust-src`, Debian's `rustc-web`.
    pub fn find() -> Result<Self, Error> {
        let mut tried = Vec::new();
        Self::candidates(&mut tried).into_iter().next().ok_or(Error::NoCompiler { tried })
    }

    /// Finds the one whose [`version`](Self::version) is `need`. Only one and the same compiler emits the same PTX.
    pub fn find_pinned(need: &str) -> Result<Self, Error> {
        let mut tried = Vec::new();
        let all = Self::candidates(&mut tried);
        if let Some(found) = all.iter().find(|c| c.version == need) {
            return Ok(found.clone());
        }
        match all.first() {
            None => Err(Error::NoCompiler { tried }),
            Some(other) => Err(Error::WrongCompiler { need: need.to_string(), found: other.version.clone() }),
        }
    }

    /// What `rustc --version` says.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The rustc.
    pub fn rustc_path(&self) -> &Path {
        &self.rustc
    }

    pub(crate) fn library(&self) -> &Path {
        &self.library
    }

    /// Whether its cargo wants to be told that a target may be a file.
    pub(crate) fn json_target_flag(&self) -> bool {
        self.json_target_flag
    }

    fn candidates(tried: &mut Vec<String>) -> Vec<Self> {
        if let Some(named) = env::var_os("TILEWRIGHT_RUSTC") {
            // named outright: nothing else will do
            return Self::probe(Path::new(&named), "TILEWRIGHT_RUSTC", tried).into_iter().collect();
        }
        let mut all = Vec::new();
        match rustup_nightly() {
            Some(rustc) => all.extend(Self::probe(&rustc, "rustup's nightly", tried)),
            None => tried.push("rustup's nightly: not installed".into()),
        }
        let debian = Path::new("/usr/bin/rustc");
        if debian.exists() {
            all.extend(Self::probe(debian, "the distribution's rustc", tried));
        } else {
            tried.push("the distribution's rustc: /usr/bin/rustc is not there".into());
        }
        all
    }

    fn probe(rustc: &Path, whose: &str, tried: &mut Vec<String>) -> Option<Self> {
        let mut missing = |what: &str| {
            tried.push(format!("{whose} ({}): {what}", rustc.display()));
            None
        };
        let ask = |arg: &[&str]| run_text(clean_command(rustc).env("RUSTC_BOOTSTRAP", "1").args(arg)).ok();
        let Some(version) = ask(&["--version"]) else {
            return missing("does not run");
        };
        if minor(&version).is_none_or(|m| m < OLDEST) {
            return missing(&format!("is {}, and 1.{OLDEST} or newer is needed", version.trim()));
        }
        let Some(sysroot) = ask(&["--print", "sysroot"]) else {
            return missing("names no sysroot");
        };
        let library = Path::new(sysroot.trim()).join("lib/rustlib/src/rust/library");
        if !library.join("core/src/lib.rs").exists() {
            return missing("its sources (rust-src) are not installed");
        }
        // Debian puts the sources of every version in one place; those of another version cannot be compiled
        if let Ok(sources) = fs::read_text(&library.join("../src/version")) {
            let number = version.split(' ').nth(1).unwrap_or("");
            if sources.split(' ').next().unwrap_or("").trim() != number {
                return missing("its sources are of another version");
            }
        }
        match ask(&["--print", "target-list"]) {
            Some(list) if list.lines().any(|l| l == "nvptx64-nvidia-cuda") => {}
            _ => return missing("has no NVPTX target"),
        }
        let Some(cargo) = cargo_beside(rustc) else {
            return missing("no cargo beside it (Debian: cargo-web)");
        };
        let flags = run_text(clean_command(&cargo).args(["-Z", "help"]).env("RUSTC_BOOTSTRAP", "1"));
        Some(DeviceCompiler {
            rustc: rustc.to_path_buf(),
            cargo,
            version: version.trim().to_string(),
            library,
            json_target_flag: flags.is_ok_and(|f| f.contains("json-target-spec")),
        })
    }

    /// A command for this rustc, unstable features allowed.
    pub(crate) fn rustc(&self) -> Command {
        let mut c = clean_command(&self.rustc);
        c.env("RUSTC_BOOTSTRAP", "1");
        c
    }

    /// A command for this cargo, with this rustc.
    pub(crate) fn cargo(&self) -> Command {
        let mut c = clean_command(&self.cargo);
        c.env("RUSTC_BOOTSTRAP", "1").env("RUSTC", &self.rustc);
        // a wrapper of the user's configuration knows nothing of this rustc
        c.env("RUSTC_WRAPPER", "").env("RUSTC_WORKSPACE_WRAPPER", "");
        c
    }
}

/// The minor version in what `rustc --version` says.
fn minor(version: &str) -> Option<u32> {
    version.strip_prefix("rustc 1.")?.split('.').next()?.parse().ok()
}

fn rustup_nightly() -> Option<PathBuf> {
    let out = run_text(Command::new("rustup").args(["which", "--toolchain", "nightly", "rustc"]));
    out.ok().map(|p| PathBuf::from(p.trim()))
}

fn cargo_beside(rustc: &Path) -> Option<PathBuf> {
    if let Some(named) = env::var_os("TILEWRIGHT_CARGO") {
        return Some(named.into());
    }
    let beside = rustc.with_file_name(format!("cargo{}", env::consts::EXE_SUFFIX));
    if beside.exists() {
        return Some(beside);
    }
    // a rustc of one's own build: any cargo will do
    which("cargo")
}

/// Finds a program in PATH.
pub(crate) fn which(name: &str) -> Option<PathBuf> {
    let name = format!("{name}{}", env::consts::EXE_SUFFIX);
    env::split_paths(&env::var_os("PATH")?).map(|d| d.join(&name)).find(|p| p.is_file())
}

/// Cargo tells a build script about its own compiler, flags, package and job server in the environment; another cargo
/// must see none of it, or it builds with the wrong compiler. What configures the network and the home stays.
fn keep(name: &str) -> bool {
    const CARGO_KEPT: [&str; 7] = [
        "CARGO_HOME",
        "CARGO_NET_",
        "CARGO_HTTP_",
        "CARGO_REGISTR",
        "CARGO_SOURCE_",
        "CARGO_BUILD_JOBS",
        "CARGO_TERM_",
    ];
    const DROPPED: [&str; 12] = [
        "RUSTUP_TOOLCHAIN",
        "MAKEFLAGS",
        "MFLAGS",
        "OUT_DIR",
        "TARGET",
        "HOST",
        "PROFILE",
        "OPT_LEVEL",
        "DEBUG",
        "NUM_JOBS",
        "LD_LIBRARY_PATH",
        "DYLD_FALLBACK_LIBRARY_PATH",
    ];
    if name.starts_with("CARGO") {
        return CARGO_KEPT.iter().any(|k| name.starts_with(k));
    }
    !name.starts_with("RUSTC")
        && !name.starts_with("RUSTFLAGS")
        && !name.starts_with("RUSTDOC")
        && !name.starts_with("DEP_")
        && !DROPPED.contains(&name)
}

/// A command without the environment of the build that this runs in.
pub(crate) fn clean_command(program: &Path) -> Command {
    let mut c = Command::new(program);
    c.env_clear();
    let kept = env::vars_os().filter(|(k, _): &(OsString, _)| k.to_str().is_none_or(keep));
    c.envs(kept);
    c
}

/// Runs to the end and returns what it printed on standard output.
pub(crate) fn run_text(command: &mut Command) -> Result<String, Error> {
    let out = command.output().map_err(|source| Error::Spawn { program: command.get_program().into(), source })?;
    if !out.status.success() {
        let shown = Path::new(command.get_program()).file_name().unwrap_or_default().to_string_lossy().into_owned();
        return Err(Error::Failed { what: shown, output: String::from_utf8_lossy(&out.stderr).into_owned() });
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::{keep, minor};

    #[test]
    fn versions_are_read() {
        assert_eq!(minor("rustc 1.96.0 (ac68faa20 2026-05-25) (built from a source tarball)\n"), Some(96));
        assert_eq!(minor("rustc 1.85.0"), Some(85));
        assert_eq!(minor("rustc 1.97.0-nightly (0 2026-06-01)"), Some(97));
        assert_eq!(minor("gcc 12.2"), None);
    }

    #[test]
    fn the_outer_build_does_not_leak() {
        for gone in [
            "CARGO",
            "CARGO_MANIFEST_DIR",
            "CARGO_ENCODED_RUSTFLAGS",
            "CARGO_MAKEFLAGS",
            "CARGO_TARGET_DIR",
            "CARGO_BUILD_TARGET",
            "RUSTC",
            "RUSTC_WRAPPER",
            "RUSTFLAGS",
            "RUSTUP_TOOLCHAIN",
            "OUT_DIR",
        ] {
            assert!(!keep(gone), "{gone}");
        }
        for kept in ["PATH", "HOME", "CARGO_HOME", "CARGO_NET_OFFLINE", "RUSTUP_HOME"] {
            assert!(keep(kept), "{kept}");
        }
    }
}
