//! Where packages and folders are: in this repository, in a registry's folder, in a vendored tree.

use std::env;
use std::path::{Path, PathBuf};

/// The folder of another package of this project, as seen by the running build script.
///
/// First what the package says of itself (`links` and `cargo::metadata=dir=..`, which cargo hands on as
/// `DEP_<LINKS>_DIR`), then `repository_dir` in the same repository, then its neighbour in a registry or vendored tree.
pub fn package_dir(package: &str, repository_dir: &str) -> Option<PathBuf> {
    let key = format!("DEP_{}_DIR", package.replace('-', "_").to_uppercase());
    if let Some(dir) = env::var_os(key) {
        return Some(dir.into());
    }
    let here = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from)?;
    near(&here, package, repository_dir)
}

/// The folder of a package near this crate's own source. `None` when only cargo knows.
pub(crate) fn sibling(package: &str, repository_dir: &str) -> Option<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    near(here.parent()?, package, repository_dir)
}

fn near(here: &Path, package: &str, repository_dir: &str) -> Option<PathBuf> {
    let named = |dir: PathBuf| {
        let text = std::fs::read_to_string(dir.join("Cargo.toml")).ok()?;
        text.contains(&format!("name = \"{package}\"")).then_some(dir)
    };
    let version = env!("CARGO_PKG_VERSION");
    named(here.join(repository_dir))
        .or_else(|| named(here.parent()?.join(format!("{package}-{version}"))))
        .or_else(|| named(here.parent()?.join(package)))
}

/// Whether a package comes from a registry or a vendored tree: it is as it was published, and so is its PTX.
pub(crate) fn published(package: &Path) -> bool {
    ["Cargo.toml.orig", ".cargo-checksum.json", ".cargo-ok"].iter().any(|f| package.join(f).exists())
}

/// The lock file that a package is built with.
pub(crate) fn lock_file(package: &Path) -> Option<PathBuf> {
    let at = package.ancestors().map(|d| d.join("Cargo.lock"));
    at.into_iter().find(|p| p.exists())
}

/// A folder for what is built, shared by all profiles: the target folder that `out` is in, or `out` itself.
pub(crate) fn cache_dir(out: &Path) -> PathBuf {
    let target = out.ancestors().filter(|d| d.join("CACHEDIR.TAG").exists()).last();
    target.unwrap_or(out).join("tilewright")
}

/// `to` as seen from the folder `from`, with forward slashes; both absolute.
pub(crate) fn relative(from: &Path, to: &Path) -> String {
    let common = from.iter().zip(to.iter()).take_while(|(a, b)| a == b).count();
    let up = from.iter().skip(common).map(|_| "..".into());
    let down = to.iter().skip(common).map(|p| p.to_string_lossy().into_owned());
    up.chain(down).collect::<Vec<String>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_paths() {
        let r = |a: &str, b: &str| relative(Path::new(a), Path::new(b));
        assert_eq!(r("/a/k", "/a/k/src/lib.rs"), "src/lib.rs");
        assert_eq!(r("/a/k", "/a/core/src/lib.rs"), "../core/src/lib.rs");
    }
}
