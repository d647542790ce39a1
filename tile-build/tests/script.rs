//! A user's package whose build script compiles its kernels, with and without a compiler for them.
mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

const HERE: &str = env!("CARGO_MANIFEST_DIR");

const MAIN: &str = r#"
static IMAGES: &[tilewright::__private::Image] = include!(concat!(env!("OUT_DIR"), "/tilewright_images.rs"));
fn main() {
    for i in IMAGES {
        assert!(i.ptx.starts_with(".version") && i.cubin.is_none_or(|c| c.1.starts_with(b"\x7fELF")));
        for e in i.entries {
            println!("{} {} {:#x} {} {} {}", i.arch, e.symbol, e.signature, e.shared_bytes, e.threads, e.cluster);
        }
    }
}
"#;

const ENTRIES: &str = "\
sm_80 user__kernels__fill__u32 0x80000000deadbeef 2048 256 1
sm_90a user__kernels__fill__u32 0x80000000deadbeef 2048 256 1
sm_90a user__kernels__pair__u32 0x80000000deadbeef 2048 384 2
";

/// The package, in a folder of its own. `core` may be missing: then only shipped PTX can be had.
fn package(name: &str, core: &Path) -> PathBuf {
    let dir = common::scratch(name);
    let facade = Path::new(HERE).join("tests/fixtures/repo/facade");
    let kernels = Path::new(HERE).join("tests/fixtures/repo/kernels/src/kernels.rs");
    let text = std::fs::read_to_string(kernels).unwrap().replace("fixture__", "user__");
    let write = |file: &str, text: &str| {
        std::fs::create_dir_all(dir.join(file).parent().unwrap()).unwrap();
        std::fs::write(dir.join(file), text).unwrap();
    };
    write("src/kernels.rs", &text);
    write("src/main.rs", MAIN);
    write(
        "build.rs",
        &format!(
            "fn main() -> Result<(), tilewright_build::Error> {{\n    tilewright_build::Kernels::new(\"src/kernels.rs\").dependency(\"tilewright\", \"tilewright-core\", {core:?}).ship(\"ptx\").build()\n}}\n"
        ),
    );
    write(
        "Cargo.toml",
        &format!(
            "[package]\nname = \"user\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[workspace]\n[dependencies]\ntilewright = {{ path = {facade:?} }}\n[build-dependencies]\ntilewright-build = {{ path = {HERE:?} }}\n"
        ),
    );
    dir
}

/// Runs the package; `compiler` as `TILEWRIGHT_RUSTC`. Returns what it printed and what cargo said.
fn run(dir: &Path, compiler: Option<&str>) -> (String, String) {
    let mut c = Command::new(env!("CARGO"));
    c.current_dir(dir).args(["run", "--offline", "--target-dir"]).arg(dir.join("target"));
    match compiler {
        Some(path) => c.env("TILEWRIGHT_RUSTC", path),
        None => c.env_remove("TILEWRIGHT_RUSTC"),
    };
    let out = c.output().unwrap();
    let said = String::from_utf8(out.stderr).unwrap();
    assert!(out.status.success(), "{said}");
    (String::from_utf8(out.stdout).unwrap(), said)
}

/// `core` for the device is by far the longest part of a first build; other tests have made it.
fn lend_core(dir: &Path) {
    let to = dir.join("target/tilewright");
    std::fs::create_dir_all(&to).unwrap();
    // what makes a target folder one
    std::fs::write(dir.join("target/CACHEDIR.TAG"), "Signature: 8a477f597d28d172789f06886806bc55\n").unwrap();
    for e in std::fs::read_dir(common::cache()).into_iter().flatten().filter_map(Result::ok) {
        let done = e.path().join("done").exists();
        if done && e.file_name().to_string_lossy().starts_with("core-") {
            #[cfg(unix)]
            std::os::unix::fs::symlink(e.path(), to.join(e.file_name())).unwrap();
        }
    }
}

#[test]
fn without_a_compiler_it_says_what_to_install() {
    let dir = package("script-none", &Path::new(HERE).join("tests/fixtures/repo/core"));
    let (printed, said) = run(&dir, Some("there-is-none"));
    assert_eq!(printed, "");
    assert!(said.contains("run on the CPU alone") && said.contains("apt-get install rustc-web"), "{said}");
}

#[test]
fn compiled_then_shipped_then_published() {
    if common::compiler().is_none() {
        return;
    }
    let core = common::scratch("script-core").join("core");
    common::copy(&Path::new(HERE).join("tests/fixtures/repo/core"), &core);
    let manifest = std::fs::read_to_string(core.join("Cargo.toml")).unwrap();
    std::fs::write(
        core.join("Cargo.toml"),
        manifest.replace("edition.workspace = true", "edition = \"2024\"\n[workspace]"),
    )
    .unwrap();
    let dir = package("script-compiled", &core);
    lend_core(&dir);

    // nothing shipped: compiled
    let (printed, said) = run(&dir, None);
    assert_eq!(printed, ENTRIES, "{said}");

    // shipped and up to date: no compiler is looked for
    let built = std::fs::read_dir(dir.join("target/debug/build")).unwrap().filter_map(Result::ok);
    let built = built.map(|e| e.path().join("out/ptx")).find(|p| p.join("manifest.toml").exists()).unwrap();
    common::copy(&built, &dir.join("ptx"));
    let (printed, said) = run(&dir, Some("there-is-none"));
    assert_eq!(printed, ENTRIES, "{said}");
    assert!(!said.contains("warning"), "{said}");

    // changed: not used any more, neither silently nor in part
    let file = core.join("src/lib.rs");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.clone() + "\n// changed\n").unwrap();
    let (printed, said) = run(&dir, Some("there-is-none"));
    assert_eq!(printed, "");
    assert!(said.contains("src/lib.rs has changed"), "{said}");
    let (printed, said) = run(&dir, None);
    assert_eq!(printed, ENTRIES, "{said}");
    assert!(said.contains("is not used"), "{said}");

    // published: the vocabulary is another package, wherever that is, and the PTX is taken as it is
    std::fs::remove_dir_all(&core).unwrap();
    std::fs::write(dir.join("Cargo.toml.orig"), "").unwrap();
    let (printed, said) = run(&dir, Some("there-is-none"));
    assert_eq!(printed, ENTRIES, "{said}");
    assert!(!said.contains("warning"), "{said}");
}
