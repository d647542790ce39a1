//! The vendor's assembler: optional for consumers, and part of every check here.

use crate::compiler::{clean_command, run_text, which};
use crate::error::{Error, fs};
use std::path::{Path, PathBuf};

/// A `ptxas`.
#[derive(Clone, Debug)]
pub struct Ptxas {
    path: PathBuf,
    version: String,
}

/// What `ptxas -v` says about one function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FunctionReport {
    /// The function's name.
    pub name: String,
    /// It is an entry.
    pub entry: bool,
    /// Registers of a thread.
    pub registers: u32,
    /// Hardware barriers.
    pub barriers: u32,
    /// Bytes of stack.
    pub stack: u32,
    /// Bytes of spill stores and loads.
    pub spills: u32,
}

/// What `ptxas -v` says about a module.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Every function, entries or not: the stack of a function that was not inlined shows nowhere else.
    pub functions: Vec<FunctionReport>,
    /// Warnings and notes about the code, such as C7508 (`setmaxnreg` ignored) and C7510 (`wgmma` serialised).
    pub notes: Vec<String>,
}

impl Ptxas {
    /// Finds one: `TILEWRIGHT_PTXAS`, PATH, then `.tools` of this folder or one above it.
    pub fn find(start: &Path) -> Option<Self> {
        if let Some(named) = std::env::var_os("TILEWRIGHT_PTXAS") {
            return Self::at(Path::new(&named));
        }
        let local = start.ancestors().map(|d| d.join(".tools/ptxas")).find(|p| p.is_file());
        // the project's own comes first: its version is the one that shipped cubins are made with
        local.or_else(|| which("ptxas")).and_then(|p| Self::at(&p))
    }

    fn at(path: &Path) -> Option<Self> {
        let text = run_text(clean_command(path).arg("--version")).ok()?;
        // "Cuda compilation tools, release 13.0, V13.0.88"
        let version = text.split(", V").nth(1)?.split_whitespace().next()?.to_string();
        Some(Ptxas { path: path.to_path_buf(), version })
    }

    /// Its version, as `13.0.88`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Assembles PTX for an architecture; files are made in `scratch`.
    pub fn assemble(&self, ptx: &str, arch: &str, scratch: &Path) -> Result<(Vec<u8>, Report), Error> {
        fs::create_dir(scratch)?;
        let source = scratch.join(format!("{arch}.ptx"));
        let cubin = scratch.join(format!("{arch}.cubin"));
        fs::write(&source, ptx.as_bytes())?;
        let mut c = clean_command(&self.path);
        c.current_dir(scratch);
        c.arg("-v").arg(format!("-arch={arch}"));
        c.arg(format!("{arch}.ptx")).arg("-o").arg(format!("{arch}.cubin"));
        let out = c.output().map_err(|source| Error::Spawn { program: self.path.clone(), source })?;
        let mut text = String::from_utf8_lossy(&out.stderr).into_owned();
        text.push_str(&String::from_utf8_lossy(&out.stdout));
        if !out.status.success() {
            return Err(Error::Failed { what: format!("ptxas for {arch}"), output: text });
        }
        Ok((fs::read(&cubin)?, Report::parse(&text)))
    }
}

impl Report {
    /// Reads what `ptxas -v` prints.
    pub fn parse(text: &str) -> Self {
        let mut report = Report::default();
        let mut current = FunctionReport::default();
        for line in text.lines() {
            let bare = line.trim();
            if let Some(name) = after(bare, "Compiling entry function '") {
                report.finish(&mut current);
                current.name = name.split('\'').next().unwrap_or("").into();
                current.entry = true;
            } else if let Some(name) = after(bare, "Function properties for ") {
                if current.name != name {
                    report.finish(&mut current);
                    current.name = name.into();
                }
            } else if bare.contains("bytes stack frame") {
                let n = numbers(bare);
                current.stack = n.first().copied().unwrap_or(0);
                current.spills = n.iter().skip(1).sum();
            } else if let Some(used) = after(bare, "Used ") {
                for part in used.split(',') {
                    let n = numbers(part).first().copied().unwrap_or(0);
                    if part.contains("registers") {
                        current.registers = n;
                    } else if part.contains("barriers") {
                        current.barriers = n;
                    }
                }
            } else if is_note(bare) {
                report.notes.push(bare.to_string());
            }
        }
        report.finish(&mut current);
        report
    }

    fn finish(&mut self, current: &mut FunctionReport) {
        let done = std::mem::take(current);
        if !done.name.is_empty() {
            self.functions.push(done);
        }
    }
}

/// Everything but the progress lines and figures that come for every module.
fn is_note(line: &str) -> bool {
    let harmless = ["bytes gmem", "Compiling entry", "Compile time", "Used ", "Function properties"];
    let told = line.starts_with("ptxas") || line.contains("warning") || line.contains("(C7");
    told && !harmless.iter().any(|h| line.contains(h))
}

fn after<'a>(line: &'a str, what: &str) -> Option<&'a str> {
    line.split_once(what).map(|(_, t)| t)
}

fn numbers(text: &str) -> Vec<u32> {
    text.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_report() {
        let text = "\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'k' for 'sm_90a'
ptxas info    : Function properties for k
    8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 168 registers, used 7 barriers, 8 bytes cumulative stack size
ptxas info    : Compile time = 1.5 ms
ptxas info    : Function properties for helper
    24 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored
";
        let r = Report::parse(text);
        assert_eq!(r.functions.len(), 2);
        assert_eq!(
            r.functions[0],
            FunctionReport { name: "k".into(), entry: true, registers: 168, barriers: 7, stack: 8, spills: 16 }
        );
        assert_eq!((r.functions[1].name.as_str(), r.functions[1].entry, r.functions[1].stack), ("helper", false, 24));
        assert_eq!(r.notes.len(), 1);
    }
}
