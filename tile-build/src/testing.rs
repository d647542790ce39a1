//! For tests: one source file straight through the device compiler, with the flags of a real build.

use crate::compiler::{DeviceCompiler, run_text};
use crate::error::{Error, fs};
use crate::recipe;
use std::path::{Path, PathBuf};

/// Compiles single files.
#[derive(Debug)]
pub struct Bench {
    compiler: DeviceCompiler,
    cache: PathBuf,
}

impl Bench {
    /// Uses `cache` for what is built.
    pub fn new(compiler: DeviceCompiler, cache: &Path) -> Result<Self, Error> {
        fs::create_dir(cache)?;
        Ok(Bench { compiler, cache: fs::canonical(cache)? })
    }

    /// The compiler's PTX of a `no_std` source text. `without` leaves flags out that contain this text, to see what
    /// they are for.
    pub fn ptx(&self, name: &str, source: &str, arch: &str, without: Option<&str>) -> Result<String, Error> {
        let dir = self.cache.join("single").join(name).join(arch);
        fs::create_dir(&dir)?;
        let spec = recipe::target_spec(&self.compiler, &dir)?;
        let sysroot = recipe::sysroot(&self.compiler, arch, &spec, &self.cache)?;
        let root = dir.join("lib.rs");
        fs::write(&root, source.as_bytes())?;
        let mut c = self.compiler.rustc();
        c.current_dir(&dir);
        c.args(["--edition", "2024", "--crate-type", "cdylib", "--crate-name", name]);
        c.args(["-Copt-level=3", "-Cpanic=abort", "-Clto=fat", "-Ccodegen-units=1", "-Awarnings"]);
        let flags = recipe::crate_flags(arch, &sysroot, &[]);
        c.args(flags.iter().filter(|f| without.is_none_or(|w| !f.contains(w))));
        c.args(["-Zunstable-options", "--emit=asm", "--cfg", "tilewright_entries"]);
        c.arg("--target").arg(&spec).arg("--out-dir").arg(&dir).arg(&root);
        run_text(&mut c)?;
        fs::read_text(&dir.join(format!("{name}.s")))
    }
}
