//! The manifest beside shipped PTX: what it was made from and what is in it. A small part of TOML, written and read
//! here so that consumers compile no parser.

use crate::error::{Error, fs};
use crate::hash;
use crate::ptx::EntryMeta;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// Name of the file in the folder of shipped PTX.
pub const MANIFEST: &str = "manifest.toml";

/// What a manifest says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Manifest {
    /// `rustc --version` of the compiler.
    pub compiler: String,
    /// Hash of the flags and the PTX pass.
    pub recipe: String,
    /// Source files, relative to the kernels' package, and their hashes.
    pub inputs: BTreeMap<String, String>,
    /// Crates from registries and their versions.
    pub crates: BTreeMap<String, String>,
    /// One for each architecture.
    pub images: Vec<ImageRecord>,
}

/// An image as the manifest describes it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImageRecord {
    /// `sm_80`, `sm_90a`, ...
    pub arch: String,
    /// Name of the PTX file.
    pub file: String,
    /// Its SHA-256.
    pub sha256: String,
    /// Its size.
    pub bytes: u64,
    /// The size that it may have.
    pub budget: u64,
    /// Its PTX version.
    pub ptx: String,
    /// Machine code beside it, if any.
    pub cubin: Option<CubinRecord>,
    /// Its entries.
    pub entries: Vec<EntryMeta>,
}

/// Machine code as the manifest describes it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CubinRecord {
    /// What it runs on.
    pub arch: String,
    /// Its file's name.
    pub file: String,
    /// Its SHA-256.
    pub sha256: String,
    /// `ptxas` that made it.
    pub ptxas: String,
    /// The SHA-256 of the PTX that it was made from.
    pub of: String,
}

/// An entry's name as a profiler's reader wants it: `crate::module::kernel::instance`.
pub fn readable(symbol: &str) -> String {
    symbol.replace("__", "::")
}

impl Manifest {
    /// Reads the manifest in a folder; `None` if there is none.
    pub fn read(dir: &Path) -> Result<Option<Self>, Error> {
        let path = dir.join(MANIFEST);
        if !path.exists() {
            return Ok(None);
        }
        let text = fs::read_text(&path)?;
        let wrong = |message| Error::Manifest { path, message };
        Self::parse(&text).map(Some).map_err(wrong)
    }

    /// The text of the file.
    pub fn to_text(&self) -> String {
        let mut t = String::from("# Written by the build of the kernels; not to be edited.\n");
        // writing to a String cannot fail
        let _ = self.put(&mut t);
        t
    }

    fn put(&self, t: &mut String) -> std::fmt::Result {
        writeln!(t, "compiler = \"{}\"\nrecipe = \"{}\"", self.compiler, self.recipe)?;
        for (title, table) in [("inputs", &self.inputs), ("crates", &self.crates)] {
            writeln!(t, "\n[{title}]")?;
            for (k, v) in table {
                writeln!(t, "\"{k}\" = \"{v}\"")?;
            }
        }
        for i in &self.images {
            writeln!(t, "\n[[image]]\narch = \"{}\"\nfile = \"{}\"", i.arch, i.file)?;
            writeln!(t, "sha256 = \"{}\"\nbytes = {}\nbudget = {}", i.sha256, i.bytes, i.budget)?;
            writeln!(t, "ptx = \"{}\"", i.ptx)?;
            if let Some(c) = &i.cubin {
                writeln!(t, "cubin_arch = \"{}\"\ncubin_file = \"{}\"", c.arch, c.file)?;
                writeln!(t, "cubin_sha256 = \"{}\"\ncubin_ptxas = \"{}\"", c.sha256, c.ptxas)?;
                writeln!(t, "cubin_of = \"{}\"", c.of)?;
            }
            for e in &i.entries {
                writeln!(t, "\n[[image.entry]]\nsymbol = \"{}\"", e.symbol)?;
                writeln!(t, "name = \"{}\"\nsignature = \"{:#018x}\"", readable(&e.symbol), e.signature)?;
                writeln!(t, "threads = {}\nmin_blocks = {}\ncluster = {}", e.threads, e.min_blocks, e.cluster)?;
                writeln!(t, "shared_bytes = {}\nflags = {}", e.shared_bytes, e.flags)?;
                writeln!(t, "convergent = \"{}\"", counts_text(&e.convergent))?;
            }
        }
        Ok(())
    }

    /// Reads a manifest's text. The error says which line is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut m = Manifest::default();
        let mut section = String::new();
        for (n, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = || format!("line {}: `{line}`", n + 1);
            if line.starts_with('[') {
                section = line.to_string();
                match line {
                    "[inputs]" | "[crates]" => {}
                    "[[image]]" => m.images.push(ImageRecord::default()),
                    "[[image.entry]]" => m.images.last_mut().ok_or_else(wrong)?.entries.push(new_entry()),
                    _ => return Err(wrong()),
                }
                continue;
            }
            let (key, value) = line.split_once(" = ").ok_or_else(wrong)?;
            let (key, value) = (key.trim_matches('"'), value.trim_matches('"'));
            let known = match section.as_str() {
                "" => m.set(key, value),
                "[inputs]" => m.inputs.insert(key.into(), value.into()).is_none().then_some(()),
                "[crates]" => m.crates.insert(key.into(), value.into()).is_none().then_some(()),
                "[[image]]" => m.images.last_mut().and_then(|i| i.set(key, value)),
                _ => m.images.last_mut().and_then(|i| i.entries.last_mut()).and_then(|e| set_entry(e, key, value)),
            };
            known.ok_or_else(wrong)?;
        }
        Ok(m)
    }

    fn set(&mut self, key: &str, value: &str) -> Option<()> {
        match key {
            "compiler" => self.compiler = value.into(),
            "recipe" => self.recipe = value.into(),
            _ => return None,
        }
        Some(())
    }

    /// Why the shipped PTX is out of date, or `None` if it is what the sources give. `package` is the kernels'
    /// package, `dir` the folder of the PTX, `lock` the text of the lock file if there is one.
    pub fn stale(&self, package: &Path, dir: &Path, lock: Option<&str>) -> Option<String> {
        if self.recipe != crate::recipe::fingerprint() {
            return Some("the way kernels are compiled has changed".into());
        }
        for (file, hash) in &self.inputs {
            match std::fs::read(package.join(file)) {
                Ok(content) if hash::short(&content) == *hash => {}
                Ok(_) => return Some(format!("{file} has changed")),
                Err(e) => return Some(format!("{file}: {e}")),
            }
        }
        if let Some(lock) = lock {
            for (name, version) in &self.crates {
                if !lock.contains(&format!("name = \"{name}\"\nversion = \"{version}\"")) {
                    return Some(format!("{name} is no longer {version}"));
                }
            }
        }
        self.damaged(dir)
    }

    /// Which shipped file is not what the manifest says.
    pub fn damaged(&self, dir: &Path) -> Option<String> {
        let cubins = self.images.iter().filter_map(|i| i.cubin.as_ref()).map(|c| (&c.file, &c.sha256));
        let files = self.images.iter().map(|i| (&i.file, &i.sha256)).chain(cubins);
        for (file, hash) in files {
            if !std::fs::read(dir.join(file)).is_ok_and(|c| hash::sha256(&c) == *hash) {
                return Some(format!("{file} is not the file that the manifest describes"));
            }
        }
        let other = |i: &&ImageRecord| i.cubin.as_ref().is_some_and(|c| c.of != i.sha256);
        let i = self.images.iter().find(other)?;
        Some(format!("the machine code for {} was made from other PTX", i.arch))
    }
}

impl ImageRecord {
    fn set(&mut self, key: &str, value: &str) -> Option<()> {
        match key {
            "arch" => self.arch = value.into(),
            "file" => self.file = value.into(),
            "sha256" => self.sha256 = value.into(),
            "bytes" => self.bytes = value.parse().ok()?,
            "budget" => self.budget = value.parse().ok()?,
            "ptx" => self.ptx = value.into(),
            "cubin_arch" => self.cubin.get_or_insert_default().arch = value.into(),
            "cubin_file" => self.cubin.get_or_insert_default().file = value.into(),
            "cubin_sha256" => self.cubin.get_or_insert_default().sha256 = value.into(),
            "cubin_ptxas" => self.cubin.get_or_insert_default().ptxas = value.into(),
            "cubin_of" => self.cubin.get_or_insert_default().of = value.into(),
            _ => return None,
        }
        Some(())
    }
}

fn new_entry() -> EntryMeta {
    EntryMeta {
        symbol: String::new(),
        signature: 0,
        threads: 0,
        min_blocks: 0,
        cluster: 1,
        shared_bytes: 0,
        flags: 0,
        convergent: BTreeMap::new(),
    }
}

fn set_entry(e: &mut EntryMeta, key: &str, value: &str) -> Option<()> {
    match key {
        "symbol" => e.symbol = value.into(),
        "name" => {}
        "signature" => e.signature = u64::from_str_radix(value.strip_prefix("0x")?, 16).ok()?,
        "threads" => e.threads = value.parse().ok()?,
        "min_blocks" => e.min_blocks = value.parse().ok()?,
        "cluster" => e.cluster = value.parse().ok()?,
        "shared_bytes" => e.shared_bytes = value.parse().ok()?,
        "flags" => e.flags = value.parse().ok()?,
        "convergent" => e.convergent = counts_parse(value)?,
        _ => return None,
    }
    Some(())
}

/// `bar.sync=2 shfl.sync.bfly.b32=5`
pub fn counts_text(counts: &BTreeMap<String, usize>) -> String {
    let all: Vec<String> = counts.iter().map(|(op, n)| format!("{op}={n}")).collect();
    all.join(" ")
}

fn counts_parse(text: &str) -> Option<BTreeMap<String, usize>> {
    let pair = |p: &str| {
        let (op, n) = p.split_once('=')?;
        Some((op.to_string(), n.parse().ok()?))
    };
    text.split_whitespace().map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let entry = EntryMeta {
            symbol: "a__b__c".into(),
            signature: 0xfedc_ba98_7654_3210,
            threads: 384,
            min_blocks: 1,
            cluster: 2,
            shared_bytes: 1024,
            flags: 1,
            convergent: [("bar.sync".to_string(), 2), ("elect.sync".to_string(), 1)].into(),
        };
        let image = ImageRecord {
            arch: "sm_90a".into(),
            file: "k.sm_90a.ptx".into(),
            sha256: "12".into(),
            bytes: 3,
            budget: 4,
            ptx: "8.0".into(),
            cubin: Some(CubinRecord {
                arch: "sm_90a".into(),
                file: "k.cubin".into(),
                sha256: "34".into(),
                ptxas: "13.0".into(),
                of: "12".into(),
            }),
            entries: vec![entry.clone(), EntryMeta { symbol: "d".into(), convergent: BTreeMap::new(), ..entry }],
        };
        let m = Manifest {
            compiler: "rustc 1.96.0 (ac68faa20 2026-05-25)".into(),
            recipe: "ab".into(),
            inputs: [("../x/src/lib.rs".to_string(), "56".to_string())].into(),
            crates: [("half".to_string(), "2.6.0".to_string())].into(),
            images: vec![ImageRecord { arch: "sm_80".into(), ..Default::default() }, image],
        };
        let text = m.to_text();
        assert_eq!(Manifest::parse(&text).unwrap(), m);
        assert!(text.contains("name = \"a::b::c\""));
        assert!(Manifest::parse("what = 1").unwrap_err().contains("line 1"));
        assert!(Manifest::parse("[[image.entry]]").is_err());
    }
}
