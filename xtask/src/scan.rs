//! Inline assembly of the vocabulary must hold no convergent instruction: LLVM takes assembly for ordinary code and
//! clones it into the arms of a branch. The lint on the PTX sees what is compiled; this sees all that is written.

use crate::step::{Failure, Outcome};
use std::path::{Path, PathBuf};
use tilewright_build::ptx::{INLINE_ALLOWED, is_convergent};

/// The device sides of the sources.
const FOLDERS: [&str; 2] = ["tile-core/src", "kernels-device/src"];

pub fn run(root: &Path) -> Outcome {
    let (mut files, mut found, mut blocks) = (Vec::new(), Vec::new(), 0);
    for folder in FOLDERS {
        collect(&root.join(folder), &mut files);
    }
    for file in &files {
        let text = std::fs::read_to_string(file).map_err(|e| Failure::new(format!("{}: {e}", file.display())))?;
        for (line, asm) in assembly(&text) {
            blocks += 1;
            for op in convergent(&asm) {
                found.push(format!("{}:{line}: `{op}` in inline assembly", file.display()));
            }
        }
    }
    println!("{blocks} blocks of inline assembly in {} files", files.len());
    if found.is_empty() { Ok(()) } else { Err(Failure::new(found.join("\n  "))) }
}

fn collect(dir: &Path, files: &mut Vec<PathBuf>) {
    let mut all: Vec<_> =
        std::fs::read_dir(dir).into_iter().flatten().filter_map(Result::ok).map(|e| e.path()).collect();
    all.sort();
    for path in all {
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
}

/// Convergent instructions in a piece of assembly. A piece may be cut anywhere by `concat!`, so every word is looked
/// at, not only the first of a statement.
fn convergent(asm: &str) -> Vec<String> {
    asm.split(|c: char| c.is_whitespace() || matches!(c, ';' | '{' | '}' | ','))
        .filter(|w| w.contains('.') && is_convergent(w) && !INLINE_ALLOWED.iter().any(|a| w.starts_with(a)))
        .map(str::to_string)
        .collect()
}

/// The text of every `asm!` in a source: its string literals put together, with the line it starts on.
fn assembly(source: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(offset) = source[at..].find("asm!") {
        let start = at + offset + 4;
        at = start;
        let rest = source[start..].trim_start();
        if rest.starts_with(['(', '{', '[']) {
            let line = source[..start].matches('\n').count() + 1;
            found.push((line, literals(rest)));
        }
    }
    found
}

/// The string literals up to the bracket that closes the first, comments left out. A string that ends is followed by a
/// space only if the next is a template of its own, which `asm!` joins by a newline; `concat!` joins by nothing.
fn literals(text: &str) -> String {
    let (mut out, mut depth, mut concat) = (String::new(), 0usize, 0usize);
    let bytes = text.as_bytes();
    let mut i = 0;
    while i < bytes.len() {
        match bytes[i] {
            b'/' if text[i..].starts_with("//") => {
                i += text[i..].find('\n').unwrap_or(text.len() - i);
                continue;
            }
            b'(' | b'{' | b'[' => {
                depth += 1;
                if text[..i].trim_end().ends_with("concat!") {
                    concat = depth;
                }
            }
            b')' | b'}' | b']' => {
                if depth == concat {
                    concat = 0;
                    out.push('\n');
                }
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    break;
                }
            }
            b'"' => {
                let mut end = i + 1;
                while end < bytes.len() && bytes[end] != b'"' {
                    end += if bytes[end] == b'\\' { 2 } else { 1 };
                }
                let end = end.min(bytes.len());
                out.push_str(&text[i + 1..end]);
                if concat == 0 {
                    out.push('\n');
                }
                i = end;
            }
            _ => {}
        }
        i += 1;
    }
    out.replace("\\n", "\n").replace("\\t", "\t")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(source: &str) -> Vec<String> {
        assembly(source).iter().flat_map(|(_, a)| convergent(a)).collect()
    }

    #[test]
    fn finds_and_leaves() {
        assert_eq!(found(r#"asm!("bar.sync 0;", options(nostack))"#), ["bar.sync"]);
        assert_eq!(found("core::arch::asm!(\n\"{{ .reg .pred p;\",\n\"elect.sync _|p, -1; }}\")"), ["elect.sync"]);
        assert_eq!(
            found(r#"$crate::__asm!(concat!("mma.sync.aligned.m16n8k16", ".f32 x;"), in(reg32) a)"#),
            ["mma.sync.aligned.m16n8k16.f32"]
        );
        assert_eq!(
            found(r#"asm!(concat!("wgmma.mma_async.sync.aligned.m64n", $n, "k16 {{ }}, {0};"), in(reg64) d)"#),
            Vec::<String>::new()
        );
        assert_eq!(found(r#"asm!("mbarrier.arrive.shared::cta.b64 _, [{0}];") // asm!("bar.sync 0;"#).len(), 1);
        assert_eq!(found(r#"let text = "bar.sync 0;"; asm!("fence.proxy.async;")"#), Vec::<String>::new());
    }
}
