//! Runs the built examples on the CPU: right and wrong input, files read and written.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

#[allow(dead_code, reason = "the examples use the rest")]
#[path = "../examples/common/npy.rs"]
mod npy;

/// Where the examples are: beside this program. They are built if they are missing.
fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let exe = std::env::current_exe().unwrap();
        let profile = exe.ancestors().nth(2).unwrap();
        let folder = profile.join("examples");
        if !NAMES.iter().all(|name| program(&folder, name).exists()) {
            let mut c = Command::new(env!("CARGO"));
            c.current_dir(env!("CARGO_MANIFEST_DIR")).args(["build", "--quiet", "--examples", "--target-dir"]);
            c.arg(profile.parent().unwrap());
            if profile.ends_with("release") {
                c.arg("--release");
            }
            assert!(c.status().unwrap().success());
        }
        folder
    })
}

const NAMES: [&str; 9] = [
    "01_tensors",
    "02_first_kernel",
    "03_rmsnorm",
    "04_epilogue",
    "05_smollm2",
    "06_faults",
    "07_mla_decode",
    "08_mla_layer",
    "gemm",
];

fn program(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}{}", std::env::consts::EXE_SUFFIX))
}

fn run(name: &str, args: &[&str]) -> Output {
    Command::new(program(folder(), name)).args(["--device", "cpu"]).args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What a run that must succeed printed.
fn gemm(args: &[&str]) -> String {
    let out = run("gemm", args);
    assert!(out.status.success(), "{args:?}: {}{}", text(&out.stdout), text(&out.stderr));
    text(&out.stdout)
}

/// An empty folder.
fn scratch(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("examples-{name}"));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

/// The bytes of an `.npy` file, made without the library that reads them.
fn file(descr: &str, fortran: bool, shape: &str, data: &[u8]) -> Vec<u8> {
    let order = if fortran { "True" } else { "False" };
    let mut header = format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}");
    while (10 + header.len() + 1) % 64 != 0 {
        header.push(' ');
    }
    header.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(data);
    bytes
}

/// Small integers, which every type holds exactly.
fn value(i: usize, j: usize, seed: usize) -> f64 {
    ((i * 7 + j * 3 + seed) % 9) as f64 - 4.0
}

fn matrix(descr: &str, fortran: bool, [rows, cols]: [usize; 2], seed: usize) -> Vec<u8> {
    let mut data = Vec::new();
    for at in 0..rows * cols {
        let (i, j) = if fortran { (at % rows, at / rows) } else { (at / cols, at % cols) };
        let v = value(i, j, seed);
        match descr {
            "<f2" => data.extend(half::f16::from_f64(v).to_le_bytes()),
            "<f4" => data.extend((v as f32).to_le_bytes()),
            "<f8" => data.extend(v.to_le_bytes()),
            _ => data.extend((v as i32).to_le_bytes()),
        }
    }
    file(descr, fortran, &format!("({rows}, {cols})"), &data)
}

#[test]
fn numbered() {
    for name in NAMES.iter().filter(|n| **n != "gemm") {
        let out = run(name, &[]);
        assert!(out.status.success(), "{name}: {}", text(&out.stderr));
        assert!(text(&out.stdout).contains("CPU"), "{name}: {}", text(&out.stdout));
    }
    let out = run("01_tensors", &["--bogus"]);
    assert!(!out.status.success() && text(&out.stderr).contains("usage"), "{}", text(&out.stderr));
}

#[test]
fn random_matrices_of_ragged_sizes() {
    let mut state = 12345u64;
    let mut size = |most: u64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (1 + (state >> 33) % most).to_string()
    };
    for element in ["f32", "f16", "bf16"] {
        for most in [3, 40, 200, 330] {
            let (m, n, k) = (size(most), size(most), size(most));
            let said = gemm(&["--m", &m, "--n", &n, "--k", &k, "--type", element, "--runs", "1"]);
            let shape = format!("{m} x {n} x {k}, {element}");
            assert!(said.contains(&shape) && said.contains("; 0 of"), "{shape}: {said}");
        }
    }
    let said = gemm(&["--m", "70", "--n", "90", "--k", "64", "--path", "hopper", "--runs", "1"]);
    assert!(said.contains("hopper") && said.contains("; 0 of 6300"), "{said}");
}

#[test]
fn nothing_to_do() {
    for (m, n, k) in [("0", "5", "7"), ("5", "0", "7"), ("5", "7", "0"), ("0", "0", "0")] {
        for element in ["f32", "f16", "bf16"] {
            let said = gemm(&["--m", m, "--n", n, "--k", k, "--type", element]);
            assert!(said.contains("; 0 of") && !said.contains("NaN") && !said.contains("inf"), "{said}");
        }
    }
    let dir = scratch("empty");
    let path = |name: &str| dir.join(name).to_str().unwrap().to_string();
    std::fs::write(path("a.npy"), matrix("<f4", false, [3, 0], 1)).unwrap();
    std::fs::write(path("b.npy"), matrix("<f8", true, [0, 4], 1)).unwrap();
    gemm(&["--a", &path("a.npy"), "--b", &path("b.npy"), "--out", &path("c.npy")]);
    let c = npy::read(&dir.join("c.npy")).unwrap();
    assert_eq!((c.rows, c.cols, c.data), (3, 4, vec![0.0; 12]));
}

#[test]
fn files_of_every_type_and_order() {
    let dir = scratch("files");
    let path = |name: &str| dir.join(name).to_str().unwrap().to_string();
    let (a, b, c) = (path("a.npy"), path("b.npy"), path("c.npy"));
    let check = |[m, n, k]: [usize; 3], transposed: bool, what: &str| {
        let got = npy::read(Path::new(&c)).unwrap();
        assert_eq!((got.rows, got.cols), (m, n), "{what}");
        for (at, got) in got.data.iter().enumerate() {
            let (i, j) = (at / n, at % n);
            let b = |p| if transposed { value(j, p, 2) } else { value(p, j, 2) };
            let want: f64 = (0..k).map(|p| value(i, p, 1) * b(p)).sum();
            assert_eq!(*got, want, "{what}, [{i}, {j}]");
        }
    };
    let [m, n, k] = [5, 7, 11];
    let kinds = ["<f2", "<f4", "<f8"].into_iter().flat_map(|t| [(t, false), (t, true)]);
    for (i, (ta, fa)) in kinds.clone().enumerate() {
        for (tb, fb) in kinds.clone() {
            let element = ["f32", "f16", "bf16"][i % 3]; // the products are integers that each of them holds
            std::fs::write(&a, matrix(ta, fa, [m, k], 1)).unwrap();
            std::fs::write(&b, matrix(tb, fb, [k, n], 2)).unwrap();
            gemm(&["--a", &a, "--b", &b, "--out", &c, "--type", element, "--runs", "1"]);
            check([m, n, k], false, &format!("{ta} {fa} {tb} {fb} {element}"));
        }
    }
    // B as weights are stored
    std::fs::write(&b, matrix("<f4", true, [n, k], 2)).unwrap();
    gemm(&["--a", &a, "--b", &b, "--transposed-b", "--out", &c, "--type", "f32", "--runs", "1"]);
    check([m, n, k], true, "transposed");
    // a vector is one row; its order is said to be either
    for fortran in [false, true] {
        let data: Vec<u8> = (0..k).flat_map(|p| (value(0, p, 1) as f32).to_le_bytes()).collect();
        std::fs::write(&a, file("<f4", fortran, &format!("({k},)"), &data)).unwrap();
        std::fs::write(&b, matrix("<f8", false, [k, n], 2)).unwrap();
        gemm(&["--a", &a, "--b", &b, "--out", &c, "--type", "f32", "--runs", "1"]);
        check([1, n, k], false, "a vector");
    }
    // what was written is read again
    std::fs::write(&b, matrix("<f4", false, [n, 1], 2)).unwrap();
    gemm(&["--a", &c, "--b", &b, "--out", &path("d.npy"), "--type", "f32", "--runs", "1"]);
    assert_eq!(npy::read(&dir.join("d.npy")).unwrap().data.len(), 1);
}

#[test]
fn wrong_input() {
    let dir = scratch("wrong");
    let path = |name: &str| dir.join(name).to_str().unwrap().to_string();
    let good = path("good.npy");
    std::fs::write(&good, matrix("<f4", false, [4, 6], 1)).unwrap();
    let whole = matrix("<f4", false, [6, 4], 1);
    let data = [0u8; 96];
    let cases: Vec<(&str, Option<Vec<u8>>, &str)> = vec![
        ("missing", None, "No such file"),
        ("empty", Some(Vec::new()), "not an .npy file"),
        ("text", Some(b"1 2 3\n4 5 6\n".to_vec()), "not an .npy file"),
        ("cut in the header", Some(whole[..40].to_vec()), "not an .npy file"),
        ("cut in the data", Some(whole[..whole.len() - 3].to_vec()), "truncated: expected 6 x 4"),
        ("no data", Some(whole[..whole.len() - 96].to_vec()), "truncated: expected 6 x 4"),
        (
            "far too large",
            Some(file("<f4", false, "(1099511627776, 1024)", &data)),
            "truncated: expected 1099511627776",
        ),
        ("i32", Some(matrix("<i4", false, [6, 4], 1)), "expected elements f16, f32 or f64 (little-endian), found <i4"),
        ("big-endian", Some(file(">f4", false, "(6, 4)", &data)), "found >f4"),
        ("complex", Some(file("<c8", false, "(3, 4)", &data)), "found <c8"),
        ("scalar", Some(file("<f4", false, "()", &data[..4])), "expected a matrix or a vector, found 0 dimensions"),
        ("rank 3", Some(file("<f4", false, "(2, 3, 4)", &data)), "expected a matrix or a vector, found 3 dimensions"),
        ("other K", Some(matrix("<f4", false, [5, 4], 1)), "must have K = 6, found 5"),
    ];
    for (what, bytes, expected) in cases {
        let bad = path(&format!("{what}.npy"));
        if let Some(bytes) = bytes {
            std::fs::write(&bad, bytes).unwrap();
        }
        let out = path("out.npy");
        for old in [None, Some("as it was")] {
            match old {
                None => drop(std::fs::remove_file(&out)),
                Some(text) => std::fs::write(&out, text).unwrap(),
            }
            let ran = run("gemm", &["--a", &good, "--b", &bad, "--out", &out, "--runs", "1"]);
            let said = text(&ran.stderr);
            assert_eq!(ran.status.code(), Some(1), "{what}: {said}");
            assert!(said.contains(expected), "{what}: {said}");
            assert!(said.contains(&bad) || what == "other K", "{what}: which file? {said}");
            assert!(ran.stdout.is_empty(), "{what}: {}", text(&ran.stdout));
            assert_eq!(std::fs::read_to_string(&out).ok().as_deref(), old, "{what}");
        }
    }
    // the output can not be written: its folder is missing, or it is a folder
    std::fs::create_dir(path("folder")).unwrap();
    std::fs::write(path("b.npy"), whole).unwrap();
    for out in [path("nowhere/c.npy"), path("folder")] {
        let ran = run("gemm", &["--a", &good, "--b", &path("b.npy"), "--out", &out, "--runs", "1"]);
        assert_eq!(ran.status.code(), Some(1));
        assert!(text(&ran.stderr).contains(&out), "{}", text(&ran.stderr));
    }
    let left: Vec<_> = std::fs::read_dir(&dir).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(!left.iter().any(|n| n.to_string_lossy().contains("partial")), "{left:?}");
}

#[test]
fn wrong_options() {
    for (args, expected) in [
        (&["--bogus"][..], "unknown option --bogus"),
        (&["--m"], "--m needs a value"),
        (&["--m", "-3"], "--m: expected a number, found -3"),
        (&["--type", "i8"], "--type: expected bf16, f16 or f32, found i8"),
        (&["--path", "fast"], "--path: expected hopper or portable"),
        (&["--a", "x.npy"], "--a and --b go together"),
        (&["--a", "x", "--b", "y", "--m", "3"], "the files' own"),
        (&["--device", "best"], "--device: expected cpu or a number, found best"),
        (&["--m", "9", "--n", "9", "--k", "9", "--type", "f32", "--path", "hopper"], "warpgroups"),
    ] {
        let ran = run("gemm", args);
        assert_eq!(ran.status.code(), Some(1), "{args:?}");
        assert!(text(&ran.stderr).contains(expected), "{args:?}: {}", text(&ran.stderr));
    }
}
