//! Programs that must not compile, and evidence that each is refused for its own reason.
//!
//! Every file in `tests/ui` is one wrong program. Its first lines say what is wrong and what the compiler must answer:
//!
//! ```text
//! // wrong: the accumulator is read while products write it
//! // rule: soundness 4
//! // expect: check E0382 "use of moved value: `acc`"
//! ```
//!
//! `check` errors come from `cargo check`; `build` errors only when code is generated (`const` assertions of generic
//! code). The code is `-` for errors that have none; `E0277+E0599` says that the first is followed by errors of the
//! second. Error codes and the phrase are compared, nothing else: the rest of a message differs between compilers.
//!
//! A line that is wrong ends in `//~ right: ...`, with what would be right in its place. The program so corrected must
//! compile: so it is that line that is refused, and nothing else. Programs in `tests/ui/pass` must compile as they are.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::SystemTime;

const WORKERS: usize = 2;

/// Where the library under test is: beside this program.
struct Library {
    deps: PathBuf,
    rlib: PathBuf,
    scratch: PathBuf,
}

struct Case {
    name: String,
    source: String,
    right: Option<String>,
    build: bool,
    code: String,
    phrase: String,
}

/// Whether it compiled, and what the compiler said.
type Answer = (bool, String);

impl Library {
    /// Builds of other days may lie there too: the newest that a small program compiles with.
    fn find() -> Library {
        let deps = std::env::current_exe().unwrap().parent().unwrap().to_path_buf();
        let scratch = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ui");
        std::fs::create_dir_all(&scratch).unwrap();
        let mut found: Vec<(SystemTime, PathBuf)> = std::fs::read_dir(&deps)
            .unwrap()
            .map(|e| e.unwrap().path())
            .filter(|p| {
                let name = p.file_name().unwrap().to_string_lossy().into_owned();
                name.strip_prefix("libtilewright-").is_some_and(|rest| rest.ends_with(".rlib"))
            })
            .map(|p| (p.metadata().unwrap().modified().unwrap(), p))
            .collect();
        found.sort();
        for (_, rlib) in found.into_iter().rev() {
            let library = Library { deps: deps.clone(), rlib, scratch: scratch.clone() };
            if library.compile("probe", "use tilewright::prelude::*;\npub fn f(_: &Tensor<f32, 1>) {}\n", false).0 {
                return library;
            }
        }
        panic!("no library to test in {}", deps.display());
    }

    fn compile(&self, name: &str, source: &str, build: bool) -> Answer {
        let file = self.scratch.join(format!("{name}.rs"));
        std::fs::write(&file, source).unwrap();
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let mut c = Command::new(rustc);
        c.args(["--edition", "2024", "--crate-type", "lib", "--crate-name", "program", "-A", "unused"]);
        c.arg(if build { "--emit=obj" } else { "--emit=metadata" });
        if build {
            // all functions, not only those that somebody calls
            c.arg("-Clink-dead-code");
        }
        c.arg("--extern").arg(format!("tilewright={}", self.rlib.display()));
        c.arg("-L").arg(format!("dependency={}", self.deps.display()));
        c.arg("-o").arg(self.scratch.join(format!("{name}.out"))).arg(&file);
        c.env("CARGO_PKG_NAME", "program").env_remove("RUSTFLAGS").env("RUSTC_BOOTSTRAP", "0");
        let out = c.output().unwrap_or_else(|e| panic!("cannot start rustc: {e}"));
        (out.status.success(), String::from_utf8_lossy(&out.stderr).into_owned())
    }
}

/// The headers of all errors: `E0382: use of moved value`, or `-: unexpected token`.
fn errors(stderr: &str) -> Vec<String> {
    let closing = ["aborting due to", "could not compile"];
    stderr
        .lines()
        .filter_map(|l| match l.strip_prefix("error") {
            Some(rest) if rest.starts_with('[') => Some(rest[1..].replacen(']', "", 1)),
            Some(rest) => rest.strip_prefix(": ").map(|m| format!("-: {m}")),
            None => None,
        })
        .filter(|e| !closing.iter().any(|c| e.starts_with(&format!("-: {c}"))))
        .collect()
}

fn header<'s>(source: &'s str, key: &str) -> Option<&'s str> {
    source
        .lines()
        .take_while(|l| l.starts_with("//"))
        .find_map(|l| l.strip_prefix("// ")?.strip_prefix(key)?.strip_prefix(": "))
}

fn parse(path: &Path) -> Result<Case, String> {
    let name = path.file_stem().unwrap().to_string_lossy().into_owned();
    let source = std::fs::read_to_string(path).unwrap();
    for key in ["wrong", "rule"] {
        header(&source, key).ok_or(format!("{name}: no `// {key}: ...`"))?;
    }
    let expect = header(&source, "expect").ok_or(format!("{name}: no `// expect: ...`"))?;
    let mut words = expect.splitn(3, ' ');
    let (mode, code, phrase) = (words.next().unwrap(), words.next().unwrap_or(""), words.next().unwrap_or(""));
    let build = match mode {
        "check" => false,
        "build" => true,
        _ => return Err(format!("{name}: expect: `check` or `build`, not `{mode}`")),
    };
    let phrase = phrase.trim().trim_matches('"').to_string();
    if phrase.is_empty() {
        return Err(format!("{name}: no phrase of the message"));
    }
    let mut right = String::new();
    let mut corrected = false;
    for line in source.lines() {
        let line = match line.split_once("//~ right:") {
            Some((_, with)) => {
                corrected = true;
                with.trim()
            }
            None => line,
        };
        right += line;
        right += "\n";
    }
    let (code, right) = (code.to_string(), corrected.then_some(right));
    Ok(Case { name, source, right, build, code, phrase })
}

/// What is not as it should be with a program.
fn judge(library: &Library, case: &Case) -> Option<String> {
    let Some(right) = &case.right else {
        return Some("no line says `//~ right:`".into());
    };
    let (compiled, text) = library.compile(&format!("{}_right", case.name), right, case.build);
    if !compiled {
        return Some(format!("the corrected program does not compile:\n{text}"));
    }
    if case.build {
        let (checked, text) = library.compile(&format!("{}_check", case.name), &case.source, false);
        if !checked {
            return Some(format!("expected to be refused by `build` alone, but `check` refuses it:\n{text}"));
        }
    }
    let (compiled, text) = library.compile(&case.name, &case.source, case.build);
    if compiled {
        return Some("COMPILES".into());
    }
    let found = errors(&text);
    let code_of = |e: &String| e.split(':').next().unwrap_or_default().to_string();
    let codes: Vec<&str> = case.code.split('+').collect();
    let first = found.iter().any(|e| code_of(e) == codes[0]);
    if !first || !found.iter().all(|e| codes.contains(&code_of(e).as_str())) {
        return Some(format!("expected only {}, found {found:#?}", case.code));
    }
    // phrases may be broken over lines
    let flat = |s: &str| s.split_whitespace().filter(|w| *w != "|").collect::<Vec<_>>().join(" ");
    (!flat(&text).contains(&flat(&case.phrase))).then(|| format!("expected \"{}\" in:\n{text}", case.phrase))
}

fn files(dir: &str) -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ui").join(dir);
    let mut all: Vec<_> = std::fs::read_dir(dir)
        .map(|d| d.map(|e| e.unwrap().path()).filter(|p| p.extension().is_some_and(|e| e == "rs")).collect())
        .unwrap_or_default();
    all.sort();
    all
}

/// `work` on every item, by several threads; what it found wrong, in order.
fn all<T: Sync>(items: &[T], work: impl Fn(&T) -> Option<String> + Sync) -> Vec<(usize, String)> {
    let (next, found) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|s| {
        for _ in 0..WORKERS {
            s.spawn(|| {
                while let Some((i, item)) =
                    Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|i| Some((i, items.get(i)?)))
                {
                    if let Some(message) = work(item) {
                        found.lock().unwrap().push((i, message));
                    }
                }
            });
        }
    });
    let mut found = found.into_inner().unwrap();
    found.sort();
    found
}

#[test]
fn wrong_programs_are_refused() {
    let library = Library::find();
    let only = std::env::var("UI").unwrap_or_default();
    let mut cases = Vec::new();
    for path in files("").into_iter().filter(|p| p.to_string_lossy().contains(&only)) {
        cases.push(parse(&path).unwrap_or_else(|e| panic!("{e}")));
    }
    let found = all(&cases, |case| judge(&library, case));
    for (i, message) in &found {
        println!(
            "== {}\n   {}\n   {}",
            cases[*i].name,
            header(&cases[*i].source, "wrong").unwrap(),
            message.replace('\n', "\n   ")
        );
    }
    println!("{} programs, {} not as expected", cases.len(), found.len());
    assert!(found.is_empty(), "{} of {} programs are not refused as they should be", found.len(), cases.len());
    assert!(!only.is_empty() || cases.len() >= 60, "programs are missing: {}", cases.len());
}

#[test]
fn right_programs_compile() {
    let library = Library::find();
    let paths = files("pass");
    let found = all(&paths, |p| {
        let name = format!("pass_{}", p.file_stem().unwrap().to_string_lossy());
        let (compiled, text) = library.compile(&name, &std::fs::read_to_string(p).unwrap(), true);
        (!compiled).then_some(text)
    });
    for (i, message) in &found {
        println!("== {}\n{message}", paths[*i].display());
    }
    assert!(found.is_empty() && !paths.is_empty(), "{} of {} right programs do not compile", found.len(), paths.len());
}
