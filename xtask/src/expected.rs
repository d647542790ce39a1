//! What each shipped entry is expected to be, checked in beside the PTX: a change of these figures is to be seen in
//! review, and is accepted by `cargo xtask ptx --bless` alone.

use crate::step::Failure;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// An entry's figures. Spills, stack and notes are not among them: they are always zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    pub registers: u32,
    pub barriers: u32,
    /// Each convergent instruction with its count.
    pub convergent: String,
}

/// By `arch symbol`.
pub type Expected = BTreeMap<String, Figures>;

fn file(dir: &Path) -> PathBuf {
    dir.join("expected.toml")
}

pub fn read(dir: &Path) -> Result<Expected, Failure> {
    let path = file(dir);
    let text = std::fs::read_to_string(&path).map_err(|e| Failure::new(format!("{}: {e}", path.display())))?;
    parse(&text).map_err(|line| Failure::new(format!("{}: `{line}`", path.display())))
}

pub fn write(dir: &Path, expected: &Expected) -> Result<(), Failure> {
    let path = file(dir);
    std::fs::write(&path, to_text(expected)).map_err(|e| Failure::new(format!("{}: {e}", path.display())))
}

fn to_text(expected: &Expected) -> String {
    let mut t = String::from(
        "# Figures of every shipped entry. A barrier more or an instruction twice is a fault until shown otherwise;\n# `cargo xtask ptx --bless` accepts what is there now.\n",
    );
    for (name, f) in expected {
        let Figures { registers, barriers, convergent } = f;
        // writing to a String cannot fail
        let _ = write!(
            t,
            "\n[\"{name}\"]\nregisters = {registers}\nbarriers = {barriers}\nconvergent = \"{convergent}\"\n"
        );
    }
    t
}

/// The error is the line that is wrong.
fn parse(text: &str) -> Result<Expected, String> {
    let mut all = Expected::new();
    let mut current: Option<String> = None;
    for line in text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#')) {
        let wrong = || line.to_string();
        if let Some(name) = line.strip_prefix("[\"").and_then(|l| l.strip_suffix("\"]")) {
            all.insert(name.to_string(), Figures::default());
            current = Some(name.to_string());
            continue;
        }
        let figures = current.as_ref().and_then(|c| all.get_mut(c)).ok_or_else(wrong)?;
        match line.split_once(" = ").ok_or_else(wrong)? {
            ("registers", v) => figures.registers = v.parse().map_err(|_| wrong())?,
            ("barriers", v) => figures.barriers = v.parse().map_err(|_| wrong())?,
            ("convergent", v) => figures.convergent = v.trim_matches('"').to_string(),
            _ => return Err(wrong()),
        }
    }
    Ok(all)
}

/// One line for each difference.
pub fn differences(expected: &Expected, found: &Expected) -> Vec<String> {
    let mut all = Vec::new();
    for (name, f) in found {
        match expected.get(name) {
            None => all.push(format!("{name}: not among the expected entries")),
            Some(e) => {
                let mut differ = |what: &str, e: String, f: String| {
                    if e != f {
                        all.push(format!("{name}: {what}: expected {e}, found {f}"));
                    }
                };
                differ("registers", e.registers.to_string(), f.registers.to_string());
                differ("barriers", e.barriers.to_string(), f.barriers.to_string());
                differ("convergent instructions", e.convergent.clone(), f.convergent.clone());
            }
        }
    }
    all.extend(expected.keys().filter(|n| !found.contains_key(*n)).map(|n| format!("{n}: expected, not found")));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_back_and_compared() {
        let figures = Figures { registers: 168, barriers: 7, convergent: "bar.sync=2".into() };
        let e: Expected = [("sm_90a k".to_string(), figures.clone())].into();
        assert_eq!(parse(&to_text(&e)).unwrap(), e);
        assert!(differences(&e, &e).is_empty());
        let twice = Figures { convergent: "bar.sync=3".into(), ..figures };
        let f: Expected = [("sm_90a k".to_string(), twice), ("sm_80 j".to_string(), Figures::default())].into();
        let d = differences(&e, &f);
        assert!(d.len() == 2 && d[1].contains("expected bar.sync=2, found bar.sync=3"), "{d:?}");
        assert_eq!(differences(&e, &Expected::new()), ["sm_90a k: expected, not found"]);
        assert!(parse("registers = 1").is_err());
    }
}
