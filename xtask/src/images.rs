//! The shipped images: made, compared, assembled.

use crate::expected::{self, Expected, Figures};
use crate::step::{Failure, Outcome, target};
use std::path::{Path, PathBuf};
use tilewright_build::{
    Built, DeviceCompiler, EntryMeta, Error, Kernels, Manifest, Ptxas, Report, counts_text, readable,
};

/// Kernels whose images are checked in, and where.
struct Set {
    kernels: Kernels,
    shipped: PathBuf,
}

/// The shipped kernels and those of the examples; the latter as the root's `build.rs` has them.
fn sets(root: &Path) -> [Set; 2] {
    let examples = Kernels::new(root.join("examples/kernels/mod.rs")).in_package(root).crate_name("tilewright");
    [
        Set { kernels: Kernels::of_tilewright(root.join("kernels-device")), shipped: root.join("kernels-device/ptx") },
        Set {
            kernels: examples.with_tilewright_kernels().arch("sm_80").ship("examples/ptx"),
            shipped: root.join("examples/ptx"),
        },
    ]
}

/// All of them, or the first failure.
fn each(root: &Path, f: impl Fn(&Path, &Set) -> Outcome) -> Outcome {
    sets(root).iter().try_for_each(|set| f(root, set))
}

/// Compiles the kernels and puts them where they are checked in.
pub fn write(root: &Path, bless: bool) -> Outcome {
    each(root, |root, set| write_set(root, set, bless))
}

/// Compiles the kernels elsewhere and compares every byte with what is checked in; of the machine code, that it was
/// made from this PTX.
pub fn check(root: &Path) -> Outcome {
    each(root, check_set)
}

/// Assembles every shipped image and prints its figures.
pub fn ptxas(root: &Path) -> Outcome {
    each(root, ptxas_set)
}

fn find_ptxas(root: &Path) -> Result<Ptxas, Failure> {
    Ptxas::find(root).ok_or_else(|| Error::NoPtxas.into())
}

fn manifest(dir: &Path) -> Result<Manifest, Failure> {
    Manifest::read(dir)?
        .ok_or_else(|| Failure::new(format!("{}: no PTX is shipped; run `cargo xtask ptx`", dir.display())))
}

fn write_set(root: &Path, Set { kernels, shipped: dir }: &Set, bless: bool) -> Outcome {
    // the compiler they were made with, unless there is no such one any more
    let pinned = Manifest::read(dir)?.map(|m| DeviceCompiler::find_pinned(&m.compiler));
    let compiler = match pinned {
        Some(Ok(c)) => c,
        _ => DeviceCompiler::find()?,
    };
    let ptxas = find_ptxas(root)?;
    let mut built = kernels.compile(&compiler, Some(&ptxas), &target(root).join("tilewright"))?;
    built.keep_machine_code(dir)?;
    let manifest = kernels.manifest(&built);
    built.write(dir, &manifest)?;
    for i in &built.images {
        let cubin = i.cubin.as_ref().map_or(0, |c| c.code.len());
        println!(
            "{}: {} entries, {} bytes of PTX {}.{}, {cubin} of machine code",
            i.arch,
            i.entries.len(),
            i.ptx.len(),
            i.version.0,
            i.version.1
        );
    }
    let found = figures_of(&built)?;
    if bless {
        return expected::write(dir, &found);
    }
    judge(dir, &found, "`cargo xtask ptx --bless` accepts them")
}

/// Compares with what is expected.
fn judge(dir: &Path, found: &Expected, advice: &str) -> Outcome {
    let d = expected::differences(&expected::read(dir)?, found);
    if d.is_empty() {
        return Ok(());
    }
    Err(Failure::new(format!("figures differ from what is expected ({advice}):\n  {}", d.join("\n  "))))
}

fn figures_of(built: &Built) -> Result<Expected, Failure> {
    let mut all = Expected::new();
    for i in &built.images {
        if let Some(r) = &i.report {
            all.extend(figures(&i.arch, &i.entries, r)?);
        }
    }
    Ok(all)
}

/// The figures of one image; anything that no image may have is an error.
fn figures(arch: &str, entries: &[EntryMeta], report: &Report) -> Result<Expected, Failure> {
    let mut wrong: Vec<String> = report.notes.clone();
    let mut all = Expected::new();
    for f in &report.functions {
        if f.stack > 0 || f.spills > 0 {
            wrong.push(format!("`{}`: {} bytes of stack, {} of spills", f.name, f.stack, f.spills));
        }
        let Some(entry) = entries.iter().find(|e| e.symbol == f.name) else {
            wrong.push(format!("`{}` is not an entry", f.name));
            continue;
        };
        let figures =
            Figures { registers: f.registers, barriers: f.barriers, convergent: counts_text(&entry.convergent) };
        all.insert(format!("{arch} {}", f.name), figures);
    }
    if wrong.is_empty() { Ok(all) } else { Err(Failure::new(format!("{arch}:\n  {}", wrong.join("\n  ")))) }
}

fn check_set(root: &Path, Set { kernels, shipped: dir }: &Set) -> Outcome {
    let manifest = manifest(dir)?;
    if let Some(file) = manifest.damaged(dir) {
        return Err(Failure::new(file));
    }
    let (compiler, same) = match DeviceCompiler::find_pinned(&manifest.compiler) {
        Ok(c) => (c, true),
        Err(Error::WrongCompiler { need, found }) => {
            println!(
                "note: made by {need}, which is not installed; {found} gives other bytes, so only the figures are compared"
            );
            (DeviceCompiler::find()?, false)
        }
        Err(e) => return Err(e.into()),
    };
    let ptxas = find_ptxas(root)?;
    let mut built = kernels.compile(&compiler, Some(&ptxas), &target(root).join("tilewright"))?;
    built.keep_machine_code(dir)?;
    if same {
        let temporary = target(root).join("tilewright/check");
        let fresh = kernels.manifest(&built);
        built.write(&temporary, &fresh)?;
        compare(dir, &temporary, &manifest, &fresh)?;
        println!("{} files are the same to the byte", fresh.files().count() + 1);
    }
    judge(dir, &figures_of(&built)?, "`cargo xtask ptx --bless` accepts them")
}

fn compare(dir: &Path, fresh_dir: &Path, old: &Manifest, fresh: &Manifest) -> Outcome {
    let mut wrong = Vec::new();
    for (file, hash) in &fresh.inputs {
        if old.inputs.get(file) != Some(hash) {
            wrong.push(format!("{file} has changed since"));
        }
    }
    for file in fresh.files().chain(std::iter::once(tilewright_build::MANIFEST)) {
        let read = |d: &Path| std::fs::read(d.join(file)).ok();
        if read(dir) != read(fresh_dir) {
            wrong.push(format!("{file} is not what the sources give"));
        }
    }
    wrong.extend(old.files().filter(|f| !fresh.files().any(|n| n == *f)).map(|f| format!("{f} should not be there")));
    if wrong.is_empty() {
        return Ok(());
    }
    Err(Failure::new(format!("the checked-in PTX is out of date; run `cargo xtask ptx`:\n  {}", wrong.join("\n  "))))
}

fn ptxas_set(root: &Path, Set { shipped: dir, .. }: &Set) -> Outcome {
    let ptxas = find_ptxas(root)?;
    let manifest = manifest(dir)?;
    let mut found = Expected::new();
    println!("{:<8} {:<52} {:>5} {:>8} {:>8} {:>7}", "image", "entry", "regs", "barriers", "shared", "threads");
    for i in &manifest.images {
        let file = dir.join(&i.file);
        let ptx = std::fs::read_to_string(&file).map_err(|e| Failure::new(format!("{}: {e}", file.display())))?;
        let arch = i.cubin.as_ref().map_or(&i.arch, |c| &c.arch);
        let (_, report) = ptxas.assemble(&ptx, arch, &target(root).join("tilewright/ptxas"))?;
        for f in &report.functions {
            let e = i.entries.iter().find(|e| e.symbol == f.name);
            let (shared, threads) = e.map_or((0, 0), |e| (e.shared_bytes, e.threads));
            println!(
                "{:<8} {:<52} {:>5} {:>8} {shared:>8} {threads:>7}",
                i.arch,
                readable(&f.name),
                f.registers,
                f.barriers
            );
        }
        found.extend(figures(&i.arch, &i.entries, &report)?);
    }
    judge(dir, &found, "`cargo xtask ptx --bless` accepts them")
}
