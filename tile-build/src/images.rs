//! From compiled PTX to what is shipped and embedded.

use crate::error::{Error, fs};
use crate::hash;
use crate::manifest::{CubinRecord, ImageRecord, MANIFEST, Manifest};
use crate::ptx::{self, EntryMeta};
use crate::ptxas::{Ptxas, Report};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// Machine code for one architecture.
#[derive(Clone, Debug)]
pub struct Cubin {
    /// What it runs on.
    pub arch: String,
    /// The code.
    pub code: Vec<u8>,
    /// The version of `ptxas` that made it.
    pub ptxas: String,
}

/// The kernels for one architecture.
#[derive(Clone, Debug)]
pub struct Image {
    /// `sm_80`, `sm_90a`, ...
    pub arch: String,
    /// The finished PTX.
    pub ptx: String,
    /// Its PTX version.
    pub version: (u32, u32),
    /// Its entries.
    pub entries: Vec<EntryMeta>,
    /// Machine code, if a `ptxas` made any.
    pub cubin: Option<Cubin>,
    /// What `ptxas` said, if there was one.
    pub report: Option<Report>,
}

/// Everything that one build gives.
#[derive(Clone, Debug)]
pub struct Built {
    /// The compiler's version.
    pub compiler: String,
    /// The images, those without entries left out.
    pub images: Vec<Image>,
    /// Source files relative to the kernels' package, and their hashes.
    pub inputs: BTreeMap<String, String>,
    /// Crates from registries.
    pub crates: BTreeMap<String, String>,
}

/// What a cubin beside an image's PTX is for: that very family, or the one that portable images are mostly run on.
fn cubin_arch(arch: &str) -> &str {
    if arch == "sm_80" { "sm_90" } else { arch }
}

/// Runs the pass and the lint over the compiler's PTX. `None`: there is no entry for this architecture.
pub(crate) fn finish(arch: &str, raw: &str, budget: usize) -> Result<Option<Image>, Error> {
    let unreadable = |message| Error::Ptx { arch: arch.into(), message };
    let done = ptx::finish(raw).map_err(unreadable)?;
    if done.entries.is_empty() {
        return Ok(None);
    }
    let findings = ptx::lint(raw, &done.items);
    if !findings.is_empty() {
        return Err(Error::Lint { arch: arch.into(), findings });
    }
    let ptx = compact(&done.ptx);
    if ptx.len() > budget {
        return Err(Error::Budget { arch: arch.into(), bytes: ptx.len(), budget });
    }
    Ok(Some(Image { arch: arch.into(), ptx, version: done.version, entries: done.entries, cubin: None, report: None }))
}

/// Without what only a reader would miss: the lines that are nothing but a comment, of which the compiler puts two around every
/// piece of assembler text, and the space at the beginning of lines and behind commas and semicolons. A third of all there is.
fn compact(ptx: &str) -> String {
    let mut kept = String::with_capacity(ptx.len());
    for line in ptx.lines().map(str::trim).filter(|l| !l.starts_with("//")) {
        let mut last = ' ';
        for c in line.chars() {
            let blank = c == ' ' || c == '\t';
            if blank && matches!(last, ' ' | ',' | ';') {
                continue;
            }
            last = if blank { ' ' } else { c };
            kept.push(last);
        }
        kept.push('\n');
    }
    kept
}

impl Image {
    /// Assembles it, keeping the machine code and the report.
    pub(crate) fn assemble(&mut self, ptxas: &Ptxas, scratch: &Path) -> Result<(), Error> {
        let arch = cubin_arch(&self.arch);
        let (code, report) = ptxas.assemble(&self.ptx, arch, scratch)?;
        self.cubin = Some(Cubin { arch: arch.into(), code, ptxas: ptxas.version().into() });
        self.report = Some(report);
        Ok(())
    }
}

impl Built {
    /// The manifest of these images.
    pub fn manifest(&self, crate_name: &str, budget: usize) -> Manifest {
        let record = |i: &Image| {
            let file = |ending: &str| format!("{crate_name}.{}.{ending}", i.arch);
            ImageRecord {
                arch: i.arch.clone(),
                file: file("ptx"),
                sha256: hash::sha256(i.ptx.as_bytes()),
                bytes: i.ptx.len() as u64,
                budget: budget as u64,
                ptx: format!("{}.{}", i.version.0, i.version.1),
                cubin: i.cubin.as_ref().map(|c| CubinRecord {
                    arch: c.arch.clone(),
                    file: file("cubin"),
                    sha256: hash::sha256(&c.code),
                    ptxas: c.ptxas.clone(),
                    of: hash::sha256(i.ptx.as_bytes()),
                }),
                entries: i.entries.clone(),
            }
        };
        Manifest {
            compiler: self.compiler.clone(),
            recipe: crate::recipe::fingerprint(),
            inputs: self.inputs.clone(),
            crates: self.crates.clone(),
            images: self.images.iter().map(record).collect(),
        }
    }

    /// Takes over the machine code in a folder that the same `ptxas` made from the same PTX. It allots registers by
    /// the addresses of its own data, so that no two runs need agree.
    pub fn keep_machine_code(&mut self, dir: &Path) -> Result<(), Error> {
        let Some(old) = Manifest::read(dir)? else {
            return Ok(());
        };
        for image in &mut self.images {
            let Some(cubin) = &mut image.cubin else {
                continue;
            };
            let record = old.images.iter().filter(|i| i.arch == image.arch).find_map(|i| i.cubin.as_ref());
            let Some(r) = record else { continue };
            if (&r.arch, &r.ptxas, &r.of) != (&cubin.arch, &cubin.ptxas, &hash::sha256(image.ptx.as_bytes())) {
                continue;
            }
            if let Ok(code) = std::fs::read(dir.join(&r.file))
                && hash::sha256(&code) == r.sha256
            {
                cubin.code = code;
            }
        }
        Ok(())
    }

    /// Writes PTX, machine code and manifest into a folder, and removes those of images that are no more. The folder's
    /// other files stay.
    pub fn write(&self, dir: &Path, manifest: &Manifest) -> Result<(), Error> {
        fs::create_dir(dir)?;
        if let Ok(Some(old)) = Manifest::read(dir) {
            for i in &old.images {
                for file in [Some(&i.file), i.cubin.as_ref().map(|c| &c.file)].into_iter().flatten() {
                    if !manifest.files().any(|f| f == file) {
                        fs::remove(&dir.join(file))?;
                    }
                }
            }
        }
        for (image, record) in self.images.iter().zip(&manifest.images) {
            fs::write(&dir.join(&record.file), image.ptx.as_bytes())?;
            if let (Some(c), Some(r)) = (&image.cubin, &record.cubin) {
                fs::write(&dir.join(&r.file), &c.code)?;
            }
        }
        fs::write(&dir.join(MANIFEST), manifest.to_text().as_bytes())
    }
}

impl Manifest {
    /// Every file beside the manifest.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        self.images.iter().flat_map(|i| {
            let cubin = i.cubin.as_ref().map(|c| c.file.as_str());
            std::iter::once(i.file.as_str()).chain(cubin)
        })
    }
}

/// The expression that a host crate includes. Files are named by absolute paths in `dir`.
pub(crate) fn expression(manifest: &Manifest, dir: &Path) -> String {
    let mut t = String::from("&[\n");
    // writing to a String cannot fail
    let _ = put(&mut t, manifest, dir);
    t.push_str("]\n");
    t
}

fn put(t: &mut String, manifest: &Manifest, dir: &Path) -> std::fmt::Result {
    let path = |file: &str| format!("{:?}", dir.join(file).display().to_string());
    for i in &manifest.images {
        writeln!(t, "    ::tilewright::__private::Image {{")?;
        writeln!(t, "        arch: {:?},", i.arch)?;
        writeln!(t, "        ptx: include_str!({}),", path(&i.file))?;
        match &i.cubin {
            None => writeln!(t, "        cubin: None,")?,
            Some(c) => writeln!(t, "        cubin: Some(({:?}, include_bytes!({}))),", c.arch, path(&c.file))?,
        }
        writeln!(t, "        entries: &[")?;
        for e in &i.entries {
            writeln!(
                t,
                "            ::tilewright::__private::Entry {{ symbol: {:?}, signature: {:#018x}u64, shared_bytes: {}, threads: {}, cluster: {} }},",
                e.symbol, e.signature, e.shared_bytes, e.threads, e.cluster
            )?;
        }
        writeln!(t, "        ],\n    }},")?;
    }
    Ok(())
}
