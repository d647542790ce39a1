//! Where packages and folders are.

use std::path::{Path, PathBuf};

/// The folder of another package of this project, when this crate is used from its repository. From a registry, cargo
/// knows better: it has the version that goes with this one.
pub(crate) fn sibling(package: &str, repository_dir: &str) -> Option<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).parent()?.join(repository_dir);
    let text = std::fs::read_to_string(dir.join("Cargo.toml")).ok()?;
    text.contains(&format!("name = \"{package}\"")).then_some(dir)
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
