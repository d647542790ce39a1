//! One device build: a small package around the kernels' root file, compiled by cargo to the PTX of each architecture.

use crate::compiler::{DeviceCompiler, run_text};
use crate::error::{Error, fs};
use crate::{hash, recipe};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Where a dependency of the kernels comes from.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    Path(PathBuf),
    Version(String),
}

/// A crate that kernels use.
#[derive(Clone, Debug)]
pub(crate) struct Dependency {
    /// The name that the kernels use.
    pub name: String,
    pub package: String,
    pub source: Source,
}

/// What to compile.
#[derive(Debug)]
pub(crate) struct Job<'a> {
    pub crate_name: &'a str,
    /// Absolute.
    pub root_file: &'a Path,
    pub dependencies: &'a [Dependency],
    /// Its versions are kept.
    pub lock_file: Option<&'a Path>,
    /// For all that is built, kept between builds.
    pub cache: &'a Path,
}

/// What came out.
#[derive(Debug, Default)]
pub(crate) struct Output {
    /// The compiler's PTX of each architecture.
    pub raw: Vec<(String, String)>,
    /// Every source file that was compiled, absolute.
    pub sources: BTreeSet<PathBuf>,
    /// Every crate from a registry, by name.
    pub crates: BTreeMap<String, String>,
}

/// The package's folder. Everything is reached through links inside it: cargo hashes the path of a package relative to
/// the workspace, so that builds in different folders come out the same to the byte.
struct Workspace {
    dir: PathBuf,
    /// Real folders, in the order of their links `r0`, `r1`, ...
    roots: Vec<PathBuf>,
}

impl Workspace {
    /// The path of `target` through a link.
    fn link(&mut self, target: &Path) -> Result<String, Error> {
        let target = fs::canonical(target)?;
        let at = self.roots.iter().position(|r| target.starts_with(r));
        let at = match at {
            Some(at) => at,
            None => {
                let root = workspace_root(&target);
                let name = self.dir.join(format!("r{}", self.roots.len()));
                if !std::fs::read_link(&name).is_ok_and(|old| old == root) {
                    fs::remove(&name)?;
                    symlink(&root, &name)?;
                }
                self.roots.push(root);
                self.roots.len() - 1
            }
        };
        let rest = target.strip_prefix(&self.roots[at]).unwrap_or(&target);
        let mut text = format!("r{at}");
        for part in rest.iter() {
            text.push('/');
            text.push_str(&part.to_string_lossy());
        }
        Ok(text)
    }

    /// The real file behind a path through a link.
    fn real(&self, file: &Path) -> Option<PathBuf> {
        let inside = file.strip_prefix(&self.dir).unwrap_or(file);
        let link = inside.iter().next()?.to_str()?;
        let root = self.roots.get(link.strip_prefix('r')?.parse::<usize>().ok()?)?;
        Some(root.join(inside.strip_prefix(link).ok()?))
    }
}

/// The outermost thing to link: the workspace that a package inherits from, or the package itself.
fn workspace_root(target: &Path) -> PathBuf {
    let manifest = |d: &&Path| d.join("Cargo.toml").exists();
    let package = target.ancestors().find(manifest);
    let workspace = target.ancestors().filter(manifest).find(|d| {
        std::fs::read_to_string(d.join("Cargo.toml"))
            .is_ok_and(|t| t.lines().any(|l| l.trim_start().starts_with("[workspace")))
    });
    workspace.or(package).or(target.parent()).unwrap_or(target).to_path_buf()
}

fn symlink(to: &Path, at: &Path) -> Result<(), Error> {
    #[cfg(unix)]
    let result = std::os::unix::fs::symlink(to, at);
    #[cfg(windows)]
    let result = std::os::windows::fs::symlink_dir(to, at);
    #[cfg(not(any(unix, windows)))]
    let result: std::io::Result<()> = Err(std::io::ErrorKind::Unsupported.into());
    result.map_err(|source| Error::Io { path: at.to_path_buf(), source })
}

/// Compiles the job for each architecture.
pub(crate) fn compile(compiler: &DeviceCompiler, job: &Job, archs: &[String]) -> Result<Output, Error> {
    let mut key = job.root_file.display().to_string();
    for d in job.dependencies {
        let _ = write!(key, " {d:?}");
    }
    let base = job.cache.join(format!("{}-{}", job.crate_name, &hash::sha256(key.as_bytes())[..8]));
    let dir = base.join("ws");
    fs::create_dir(&dir)?;
    let _lock = fs::lock(&base.join("lock"))?;
    // the real path: cargo reports files by it
    let mut ws = Workspace { dir: fs::canonical(&dir)?, roots: Vec::new() };
    write_package(&mut ws, job)?;
    let spec = recipe::target_spec(compiler, &ws.dir)?;
    let one = |arch: &str| {
        let sysroot = recipe::sysroot(compiler, arch, &spec, job.cache)?;
        // a cdylib's files have no hash in their names: a folder for each architecture keeps them apart
        let target = base.join(arch);
        cargo(compiler, job, &ws, arch, &sysroot, &spec, &target)
    };
    // all at the same time: much of a build waits for one crate
    let built: Result<Vec<_>, Error> = std::thread::scope(|s| {
        let started: Vec<_> = archs.iter().map(|a| s.spawn(|| one(a))).collect();
        let finished = started.into_iter().map(|t| t.join());
        finished.map(|r| r.unwrap_or_else(|_| Err(Error::Config("a build panicked".into())))).collect()
    });
    let mut output = Output::default();
    for (arch, built) in archs.iter().zip(built?) {
        output.raw.push((arch.clone(), built.raw));
        output.sources.extend(built.sources);
        output.crates.extend(built.crates);
    }
    Ok(output)
}

fn write_package(ws: &mut Workspace, job: &Job) -> Result<(), Error> {
    let root = ws_relative_root(ws, job)?;
    let mut toml = String::from("# Generated: the kernels as a package for the device.\n");
    let name = job.crate_name;
    let _ = write!(
        toml,
        "[package]\nname = \"{name}\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[lib]\nname = \"{name}\"\npath = \"{root}\"\ncrate-type = [\"cdylib\"]\n\n[dependencies]\n"
    );
    for d in job.dependencies {
        let Dependency { name, package, source } = d;
        let from = match source {
            Source::Path(p) => format!("path = \"{}\"", ws.link(p)?),
            Source::Version(v) => format!("version = \"={v}\""),
        };
        let _ = writeln!(toml, "{name} = {{ package = \"{package}\", {from} }}");
    }
    // the folders behind the links have workspaces of their own
    let links: Vec<String> = (0..ws.roots.len()).map(|i| format!("\"r{i}\"")).collect();
    let _ = write!(
        toml,
        "\n[workspace]\nresolver = \"3\"\nexclude = [{}]\n\n[lints.rust]\nunexpected_cfgs = {{ level = \"warn\", check-cfg = ['cfg(tilewright_entries)'] }}\n\n{}",
        links.join(", "),
        recipe::PROFILE
    );
    fs::write(&ws.dir.join("Cargo.toml"), toml.as_bytes())?;
    let lock = ws.dir.join("Cargo.lock");
    match job.lock_file {
        Some(file) => fs::write(&lock, &fs::read(file)?),
        None => Ok(()),
    }
}

/// A root named `lib.rs` is the crate. Any other is a module of a host crate as well, and stays a module of the same
/// name, so that paths through `crate::` mean the same in both builds.
fn ws_relative_root(ws: &mut Workspace, job: &Job) -> Result<String, Error> {
    let linked = ws.link(job.root_file)?;
    let stem = job.root_file.file_stem().unwrap_or_default().to_string_lossy();
    if stem == "lib" {
        return Ok(linked);
    }
    let module = if stem == "mod" {
        let parent = job.root_file.parent().and_then(Path::file_name);
        parent.unwrap_or_default().to_string_lossy()
    } else {
        stem
    };
    let text = format!("#![no_std]\n#[path = \"{linked}\"]\npub mod {module};\n");
    fs::write(&ws.dir.join("lib.rs"), text.as_bytes())?;
    Ok("lib.rs".into())
}

/// What one architecture's build gives.
struct Built {
    raw: String,
    sources: BTreeSet<PathBuf>,
    crates: BTreeMap<String, String>,
}

fn cargo(
    compiler: &DeviceCompiler,
    job: &Job,
    ws: &Workspace,
    arch: &str,
    sysroot: &Path,
    spec: &Path,
    target: &Path,
) -> Result<Built, Error> {
    let mut remap = vec![(ws.dir.clone(), ".")];
    if let Some(home) = std::env::var_os("CARGO_HOME") {
        remap.push((home.into(), "cargo"));
    } else if let Some(home) = std::env::home_dir() {
        remap.push((home.join(".cargo"), "cargo"));
    }
    let flags = recipe::crate_flags(arch, sysroot, &remap);
    let mut c = compiler.cargo();
    c.current_dir(&ws.dir);
    c.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"));
    c.args(["rustc", "--quiet", "--release", "--lib", "--message-format"]);
    c.arg("json-render-diagnostics");
    if compiler.json_target_flag() {
        c.arg("-Zjson-target-spec");
    }
    c.arg("--target").arg(spec).arg("--target-dir").arg(target);
    // entries are generated in the image's own crate, not again for each of its dependencies
    c.args(["--", "--emit=asm", "--cfg", "tilewright_entries"]);
    let messages = run_text(&mut c).map_err(|e| match e {
        Error::Failed { output, .. } => {
            Error::Failed { what: format!("compiling the kernels of `{}` for {arch}", job.crate_name), output }
        }
        other => other,
    })?;
    let built = target.join(recipe::TARGET).join("release");
    let depinfo = fs::read_text(&built.join(format!("{}.d", job.crate_name)))?;
    Ok(Built {
        raw: fs::read_text(&built.join("deps").join(format!("{}.s", job.crate_name)))?,
        sources: dep_files(&depinfo).filter_map(|f| ws.real(&f)).collect(),
        crates: registry_crates(&messages),
    })
}

/// Name and version of each crate from a registry that cargo's messages name.
fn registry_crates(messages: &str) -> BTreeMap<String, String> {
    let ids = messages.split("\"package_id\":\"registry+").skip(1);
    ids.filter_map(|id| {
        let id = id.split('"').next()?;
        let (name, version) = id.rsplit('#').next()?.split_once('@')?;
        Some((name.to_string(), version.to_string()))
    })
    .collect()
}

/// Files of a makefile rule `target: a b c`, where a space in a name is written `\ `.
fn dep_files(text: &str) -> impl Iterator<Item = PathBuf> {
    let list = text.split_once(": ").map_or("", |(_, l)| l);
    let list = list.lines().next().unwrap_or("").replace("\\ ", "\u{0}");
    let files: Vec<_> = list.split(' ').map(|f| f.replace('\u{0}', " ")).collect();
    files.into_iter().filter(|f| !f.is_empty()).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_dep_info() {
        let files: Vec<_> = dep_files("/a b/c.ptx: /x/lib.rs /y\\ z/k.rs\n").collect();
        // the target's own name may hold spaces too, but it ends at the first ": "
        assert_eq!(files, [PathBuf::from("/x/lib.rs"), PathBuf::from("/y z/k.rs")]);
    }
}
