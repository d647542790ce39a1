//! The C program, compiled against the header and the library, and run: without a driver, and with the fake one.

use std::path::{Path, PathBuf};
use std::process::Command;
use tilewright_fake_cuda::{Sandbox, in_child};

fn program() -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    let library = exe.parent().unwrap().join("libtilewright_c.a");
    assert!(library.exists(), "no {}", library.display());
    let (here, out) = (
        Path::new(env!("CARGO_MANIFEST_DIR")),
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("norm-{}", std::process::id())),
    );
    let mut cc = Command::new("cc");
    cc.args(["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-I"]).arg(here.join("include"));
    cc.arg(here.join("examples/norm.c")).arg(library).args(["-lm", "-lpthread", "-ldl", "-o"]).arg(&out);
    let output = cc.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    out
}

fn run() -> String {
    let output = Command::new(program()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

const MESSAGES: &str = "\
1: b: expected 1 x 3, found 1 x 2
1: w_dtype: expected dtype, or f32 (0), found 2
1: x: expected an address, found NULL
1: y: expected strides under which no two indices mean the same element, found [1, 1]
1: dtype: expected f32 (0), f16 (1) or bf16 (2), found 9
1: device: expected a CUDA ordinal, or -1 for the CPU, found -5
";

#[test]
fn without_a_driver() {
    if in_child() {
        assert_eq!(run(), format!("{MESSAGES}2: no CUDA driver: libcuda was not found\n"));
    } else {
        Sandbox::without_driver().run("without_a_driver");
    }
}

#[test]
fn with_a_driver() {
    if in_child() {
        assert_eq!(run(), format!("{MESSAGES}0: enqueued\n"));
    } else {
        Sandbox::new().run("with_a_driver");
    }
}
