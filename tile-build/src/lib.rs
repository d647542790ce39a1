//! Compiles kernels written with tilewright to PTX, from a build script.
//!
//! A package with kernels of its own in `src/kernels.rs` has this `build.rs`:
//!
//! ```no_run
//! fn main() -> Result<(), tilewright_build::Error> {
//!     tilewright_build::Kernels::new("src/kernels.rs").arch("sm_80").arch("sm_90a").build()
//! }
//! ```
//!
//! and takes the result in with `include!(concat!(env!("OUT_DIR"), "/tilewright_images.rs"))`, an expression of type
//! `&[tilewright::__private::Image]`. Where no compiler for kernels is installed the list is empty, a warning says what
//! to install, and everything runs on the CPU. With [`Kernels::ship`] the PTX is kept in the package, and whoever
//! depends on it needs no such compiler.
//!
//! What is done: the kernels are wrapped in a small package, compiled for each architecture without linking, passed
//! over (launch bounds, clusters, alignment: what rustc cannot say) and linted (no calls, no traps, no local memory, no
//! convergent instruction that the optimiser may have cloned).
#![warn(missing_docs)]
#![allow(clippy::needless_doctest_main, reason = "a build script is a main function")]
#![forbid(unsafe_code)]

mod compiler;
mod device;
mod error;
mod hash;
mod images;
mod layout;
mod manifest;
pub mod ptx;
mod ptxas;
mod recipe;
pub mod testing;

pub use compiler::DeviceCompiler;
pub use error::{Error, INSTALL_HELP};
pub use hash::sha256;
pub use images::{Built, Cubin, Image};
pub use manifest::{CubinRecord, ImageRecord, MANIFEST, Manifest, counts_text, readable};
pub use ptx::EntryMeta;
pub use ptxas::{FunctionReport, Ptxas, Report};

use device::{Dependency, Job, Source};
use error::fs;
use std::env;
use std::path::{Path, PathBuf};

/// The most that an image may have unless said otherwise. A published package may not exceed 10 MB in all.
const DEFAULT_BUDGET: usize = 1_500_000;

/// A crate's kernels, and what is to be made of them.
#[derive(Clone, Debug)]
pub struct Kernels {
    root_file: PathBuf,
    package: PathBuf,
    crate_name: String,
    dependencies: Vec<Dependency>,
    archs: Vec<String>,
    ship: Option<PathBuf>,
    budget: usize,
}

impl Kernels {
    /// The kernels in `root_file`, a path relative to the package. A file named `lib.rs` is a crate; any other is a
    /// module of that name, as it is in the host crate that has it too.
    pub fn new(root_file: impl AsRef<Path>) -> Self {
        let package = env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| PathBuf::from("."), PathBuf::from);
        let name = env::var("CARGO_PKG_NAME").unwrap_or_else(|_| "kernels".into());
        Kernels {
            root_file: package.join(root_file),
            package,
            crate_name: name.replace('-', "_"),
            dependencies: vec![project_crate("tilewright", "tilewright-core", "tile-core")],
            archs: Vec::new(),
            ship: None,
            budget: DEFAULT_BUDGET,
        }
    }

    /// The project's own kernels, whose package is in `dir`.
    pub fn of_tilewright(dir: impl AsRef<Path>) -> Self {
        let dir = dir.as_ref();
        let mut k = Kernels::new("src/lib.rs").crate_name("tilewright_kernels");
        k.package = dir.to_path_buf();
        k.root_file = dir.join("src/lib.rs");
        k.arch("sm_80").arch("sm_90a").ship("ptx").budget(9_000_000)
    }

    /// The kernels' package is in this folder, when it is not the one being built. Paths given before are kept.
    pub fn in_package(mut self, dir: impl AsRef<Path>) -> Self {
        self.package = dir.as_ref().to_path_buf();
        self
    }

    /// The crate's name, which is the first part of every entry's name. The package's own unless set.
    pub fn crate_name(mut self, name: &str) -> Self {
        self.crate_name = name.to_string();
        self
    }

    /// A crate that the kernels use, besides the vocabulary: `name` in the kernels, from a folder.
    pub fn dependency(self, name: &str, package: &str, dir: impl AsRef<Path>) -> Self {
        let source = Source::Path(self.package.join(dir));
        self.depend(name, package, source)
    }

    /// A crate that the kernels use, besides the vocabulary, from the registry in exactly this version.
    pub fn registry_dependency(self, name: &str, version: &str) -> Self {
        let source = Source::Version(version.into());
        self.depend(&name.replace('-', "_"), name, source)
    }

    /// The shipped kernels as a crate, `tilewright_kernels`, to use their device functions.
    pub fn with_tilewright_kernels(mut self) -> Self {
        self.dependencies.push(project_crate("tilewright_kernels", "tilewright-kernels", "kernels-device"));
        self
    }

    /// A later one of the same name replaces an earlier one.
    fn depend(mut self, name: &str, package: &str, source: Source) -> Self {
        self.dependencies.retain(|d| d.name != name);
        self.dependencies.push(Dependency { name: name.into(), package: package.into(), source });
        self
    }

    /// Adds an architecture: `sm_80`, `sm_90a`, ... Without any, both of these.
    pub fn arch(mut self, arch: &str) -> Self {
        self.archs.push(arch.to_string());
        self
    }

    /// Keeps the PTX in this folder of the package, under version control.
    pub fn ship(mut self, dir: &str) -> Self {
        self.ship = Some(PathBuf::from(dir));
        self
    }

    /// The bytes that one image may have.
    pub fn budget(mut self, bytes: usize) -> Self {
        self.budget = bytes;
        self
    }

    /// The folder of shipped PTX, if there is to be one.
    pub fn ship_dir(&self) -> Option<PathBuf> {
        self.ship.as_ref().map(|s| self.package.join(s))
    }

    /// The manifest of a build.
    pub fn manifest(&self, built: &Built) -> Manifest {
        built.manifest(&self.crate_name, self.budget)
    }

    /// Compiles, passes over and lints every image. Everything is built in `cache`, which later builds use again.
    /// With a `ptxas`, machine code is made too.
    pub fn compile(&self, compiler: &DeviceCompiler, ptxas: Option<&Ptxas>, cache: &Path) -> Result<Built, Error> {
        let package = fs::canonical(&self.package)?;
        let lock = layout::lock_file(&package);
        fs::create_dir(cache)?;
        let cache = fs::canonical(cache)?;
        let job = Job {
            crate_name: &self.crate_name,
            root_file: &fs::canonical(&self.root_file)?,
            dependencies: &self.dependencies,
            lock_file: lock.as_deref(),
            cache: &cache,
        };
        let archs =
            if self.archs.is_empty() { vec!["sm_80".to_string(), "sm_90a".to_string()] } else { self.archs.clone() };
        let output = device::compile(compiler, &job, &archs)?;
        let mut images = Vec::new();
        for (arch, raw) in &output.raw {
            let Some(mut image) = images::finish(arch, raw, self.budget)? else {
                continue;
            };
            if let Some(p) = ptxas {
                image.assemble(p, &cache.join(&self.crate_name))?;
            }
            images.push(image);
        }
        let mut built = Built {
            compiler: compiler.version().to_string(),
            images,
            inputs: Default::default(),
            crates: output.crates,
        };
        // how kernels are compiled is in the recipe; kernels that others use depend on this crate, to build
        let builder = fs::canonical(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src")).unwrap_or_default();
        for source in output.sources.iter().filter(|s| builder.as_os_str().is_empty() || !s.starts_with(&builder)) {
            let name = layout::relative(&package, source);
            built.inputs.insert(name, hash::short(&fs::read(source)?));
        }
        Ok(built)
    }

    /// Does what a build script must: writes `tilewright_images.rs` into `OUT_DIR`, using shipped PTX as long as it is
    /// what the sources give, and tells cargo when to run again.
    pub fn build(&self) -> Result<(), Error> {
        let out = env::var_os("OUT_DIR").map(PathBuf::from);
        let out = out.ok_or_else(|| Error::Config("OUT_DIR is not set: call this from a build script".into()))?;
        if env::var("TARGET").is_ok_and(|t| t.starts_with("nvptx64")) {
            // compiled for the device, as a dependency of other kernels: nothing is embedded there
            println!("cargo::rerun-if-changed=build.rs");
            return Ok(());
        }
        for name in ["TILEWRIGHT_RUSTC", "TILEWRIGHT_CARGO", "TILEWRIGHT_PTXAS"] {
            println!("cargo::rerun-if-env-changed={name}");
        }
        let (manifest, dir) = self.images_for_script(&out)?;
        let expression = images::expression(&manifest, &dir);
        fs::write(&out.join("tilewright_images.rs"), expression.as_bytes())
    }

    /// The images to embed, and the folder they are in.
    fn images_for_script(&self, out: &Path) -> Result<(Manifest, PathBuf), Error> {
        let mut reason = None;
        if let Some(dir) = self.ship_dir() {
            // absolute, since the expression names files for a crate elsewhere
            let dir = std::path::absolute(&dir).unwrap_or(dir);
            rerun_if_changed(&dir.join(MANIFEST));
            if let Some(manifest) = Manifest::read(&dir)? {
                manifest.files().for_each(|f| rerun_if_changed(&dir.join(f)));
                manifest.inputs.keys().for_each(|f| rerun_if_changed(&self.package.join(f)));
                reason = self.stale(&manifest, &dir);
                if reason.is_none() {
                    return Ok((manifest, dir));
                }
            } else {
                reason = Some("no PTX is shipped".into());
            }
        }
        rerun_if_changed(&self.root_file);
        let compiler = match DeviceCompiler::find() {
            Ok(c) => c,
            Err(e) => {
                let why = reason.map_or(String::new(), |r| format!(" ({r})"));
                warn(&format!(
                    "the kernels of `{}` are not compiled for the GPU{why}; they run on the CPU alone. {e}",
                    self.crate_name
                ));
                return Ok((Manifest::default(), out.to_path_buf()));
            }
        };
        if let (Some(reason), Some(_)) = (reason, &self.ship) {
            warn(&format!(
                "the shipped PTX of `{}` is not used: {reason}. It is compiled anew, which this build keeps to itself",
                self.crate_name
            ));
        }
        let ptxas = Ptxas::find(&self.package);
        let built = self.compile(&compiler, ptxas.as_ref(), &layout::cache_dir(out))?;
        built.inputs.keys().for_each(|f| rerun_if_changed(&self.package.join(f)));
        let manifest = self.manifest(&built);
        let dir = out.join("ptx");
        built.write(&dir, &manifest)?;
        Ok((manifest, dir))
    }

    /// Why shipped PTX cannot be used.
    fn stale(&self, manifest: &Manifest, dir: &Path) -> Option<String> {
        if layout::published(&self.package) {
            // as published: the sources beside it, here or in other packages, are what it was made from
            return manifest.damaged(dir);
        }
        let lock = layout::lock_file(&self.package).and_then(|l| std::fs::read_to_string(l).ok());
        manifest.stale(&self.package, dir, lock.as_deref())
    }
}

/// A crate of this project: from its folder when there is one nearby, else the registry's of the same version.
fn project_crate(name: &str, package: &str, dir: &str) -> Dependency {
    let source = match layout::sibling(package, dir) {
        Some(dir) => Source::Path(dir),
        None => Source::Version(env!("CARGO_PKG_VERSION").into()),
    };
    Dependency { name: name.into(), package: package.into(), source }
}

fn rerun_if_changed(path: &Path) {
    println!("cargo::rerun-if-changed={}", path.display());
}

/// Each line as a warning of its own: cargo takes one line at a time.
fn warn(message: &str) {
    for line in message.lines() {
        println!("cargo::warning={line}");
    }
}
