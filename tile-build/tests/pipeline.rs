//! The whole way from kernel sources to a shipped folder, on a repository of the tests' own.
mod common;

use std::path::{Path, PathBuf};
use tilewright_build::{Built, Kernels, Manifest, Ptxas};

const REPO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/repo");

fn kernels(repo: &Path) -> Kernels {
    Kernels::new(repo.join("kernels/src/kernels.rs"))
        .in_package(repo.join("kernels"))
        .crate_name("fixture")
        .dependency("tilewright", "tilewright-core", repo.join("core"))
        .arch("sm_80")
        .arch("sm_90a")
        .ship("ptx")
}

fn ptx<'a>(built: &'a Built, arch: &str) -> &'a str {
    &built.images.iter().find(|i| i.arch == arch).unwrap().ptx
}

#[test]
fn from_sources_to_a_shipped_folder() {
    let Some(compiler) = common::compiler() else {
        return;
    };
    let repo = Path::new(REPO);
    let k = kernels(repo);
    let built = k.compile(&compiler, None, &common::cache()).unwrap();

    // entries, each in the images that it is for
    let names = |arch: &str| -> Vec<String> {
        let image = built.images.iter().find(|i| i.arch == arch).unwrap();
        image.entries.iter().map(|e| e.symbol.clone()).collect()
    };
    assert_eq!(names("sm_80"), ["fixture__kernels__fill__u32"]);
    assert_eq!(names("sm_90a"), ["fixture__kernels__fill__u32", "fixture__kernels__pair__u32"]);
    let fill = &built.images[0].entries[0];
    assert_eq!((fill.signature, fill.threads, fill.shared_bytes), (0x8000_0000_dead_beef, 256, 2048));
    assert_eq!(fill.convergent.values().sum::<usize>(), 1);

    // what the pass adds and removes
    let p = ptx(&built, "sm_90a");
    assert!(p.contains(".maxntid 384,1,1\n.minnctapersm 1\n.explicitcluster\n.reqnctapercluster 2,1,1\n"));
    assert!(p.contains(".align 64 .b8 param_1[136]"));
    assert!(!p.contains("__meta") && !p.contains("//") && !p.contains("anon"));

    // what it was made from
    let inputs: Vec<&str> = built.inputs.keys().map(String::as_str).collect();
    assert_eq!(inputs, ["../core/src/lib.rs", "src/kernels.rs"]);

    // the folder, and when it counts as out of date
    let mine = common::scratch("stale");
    common::copy(repo, &mine);
    let ship = mine.join("kernels/ptx");
    built.write(&ship, &k.manifest(&built)).unwrap();
    let manifest = Manifest::read(&ship).unwrap().unwrap();
    let package = mine.join("kernels");
    assert_eq!(manifest.stale(&package, &ship, None), None);
    let file = mine.join("core/src/lib.rs");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.clone() + "\n// more\n").unwrap();
    assert!(manifest.stale(&package, &ship, None).unwrap().contains("../core/src/lib.rs has changed"));
    std::fs::write(&file, text).unwrap();
    std::fs::write(ship.join("fixture.sm_80.ptx"), "nonsense").unwrap();
    assert!(manifest.stale(&package, &ship, None).unwrap().contains("fixture.sm_80.ptx"));
}

/// Two folders, two caches: the same bytes, or nobody but the author could check what is shipped.
#[test]
fn the_same_bytes_from_another_folder() {
    let Some(compiler) = common::compiler() else {
        return;
    };
    let one = kernels(Path::new(REPO)).compile(&compiler, None, &common::cache()).unwrap();
    let other: PathBuf = common::scratch("another folder, with a longer name");
    common::copy(Path::new(REPO), &other);
    let cache = other.join("cache");
    // `core` is by far the longest part, and is keyed by all that goes into it
    std::fs::create_dir_all(&cache).unwrap();
    for e in std::fs::read_dir(common::cache()).unwrap() {
        let e = e.unwrap();
        if e.file_name().to_string_lossy().starts_with("core-") {
            common::copy(&e.path(), &cache.join(e.file_name()));
        }
    }
    let two = kernels(&other).compile(&compiler, None, &cache).unwrap();
    for arch in ["sm_80", "sm_90a"] {
        assert_eq!(ptx(&one, arch), ptx(&two, arch), "{arch}");
    }
    assert_eq!(one.inputs, two.inputs);
}

#[test]
fn ptxas_accepts_what_the_pass_writes() {
    let Some(compiler) = common::compiler() else {
        return;
    };
    let Some(ptxas) = Ptxas::find(Path::new(env!("CARGO_MANIFEST_DIR"))) else {
        assert!(std::env::var_os("TILEWRIGHT_REQUIRE_DEVICE").is_none(), "there is no ptxas");
        return;
    };
    let built = kernels(Path::new(REPO)).compile(&compiler, Some(&ptxas), &common::cache()).unwrap();
    for image in &built.images {
        let report = image.report.as_ref().unwrap();
        assert!(report.notes.is_empty(), "{:?}", report.notes);
        assert_eq!(report.functions.len(), image.entries.len());
        assert!(report.functions.iter().all(|f| f.entry && f.stack == 0 && f.spills == 0 && f.barriers == 1));
        assert!(image.cubin.as_ref().unwrap().code.starts_with(b"\x7fELF"));
    }
}
