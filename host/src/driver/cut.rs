//! One entry out of an image's PTX. The driver compiles all of a module that it loads, which is dozens of kernels where
//! one is wanted.

/// Characters that PTX names are made of.
fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '%')
}

/// The module with entry `symbol` as its only one: all that is not an entry, and that one. `None` if it is not there, or
/// the text is not understood; it needs to be as the build's pass writes it, without comments. Allocated once, with
/// room for a zero at the end.
pub(crate) fn one_entry(ptx: &str, symbol: &str) -> Option<Vec<u8>> {
    let mut kept: Vec<&str> = Vec::new();
    let mut found = false;
    let mut rest = ptx;
    while let Some(entry) = Entry::first(rest) {
        let Entry { start, length, name } = entry?;
        let (before, after) = rest.split_at(start);
        keep(&mut kept, before);
        let (text, tail) = after.split_at(length);
        if name == symbol {
            kept.push(text);
            found = true;
        }
        rest = tail;
    }
    keep(&mut kept, rest);
    if !found {
        return None;
    }
    let mut out = Vec::with_capacity(kept.iter().map(|piece| piece.len() + 1).sum::<usize>() + 1);
    for piece in kept {
        out.extend_from_slice(piece.as_bytes());
        out.push(b'\n');
    }
    Some(out)
}

/// Between entries there are line ends, mostly.
fn keep<'a>(kept: &mut Vec<&'a str>, piece: &'a str) {
    let piece = piece.trim_matches(['\n', '\0']);
    if !piece.trim().is_empty() {
        kept.push(piece);
    }
}

/// Where an entry stands in a text, linkage and all.
struct Entry<'a> {
    start: usize,
    length: usize,
    name: &'a str,
}

impl<'a> Entry<'a> {
    /// The first one; `Some(None)` if it is not understood.
    fn first(text: &'a str) -> Option<Option<Self>> {
        let word = text.find(".entry")?;
        Some(Self::at(text, word))
    }

    fn at(text: &'a str, word: usize) -> Option<Self> {
        let start = text[..word].rfind('\n').map_or(0, |n| n + 1);
        let linkage = text[start..word].trim();
        if !matches!(linkage, "" | ".visible" | ".weak") {
            return None;
        }
        let name = text[word + ".entry".len()..].strip_prefix([' ', '\t'])?.trim_start();
        let name = &name[..name.find(|c| !is_name_char(c))?];
        // the parameters and bounds, which have no braces; then the body
        let (mut depth, mut body) = (0usize, false);
        for (i, b) in text.as_bytes()[word..].iter().enumerate() {
            match b {
                b'{' => (depth, body) = (depth + 1, true),
                b'}' => depth = depth.checked_sub(1)?,
                b';' if !body => return None,
                _ => continue,
            }
            if body && depth == 0 {
                return Some(Entry { start, length: word + i + 1 - start, name });
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::{Path, PathBuf};
    use std::process::Command;

    const SAMPLE: &str = "\
.version 7.4
.target sm_80
.address_size 64
.extern .shared .align 1024 .b8 tilewright_shared[];
.global .align 4 .b8 tw_data_0[4] = {1, 2};
.visible .entry ab(
\t.param .u64 ab_param_0
)
.maxntid 128, 1, 1
{
\t{ .reg .b64 t; mov.b64 {%r1, %r2}, t; }
}
.visible .entry a(
)
.maxntid 32, 1, 1
{
\tret;
}
.visible .entry b()
{
}
";
    const HEAD: &str = "\
.version 7.4
.target sm_80
.address_size 64
.extern .shared .align 1024 .b8 tilewright_shared[];
.global .align 4 .b8 tw_data_0[4] = {1, 2};
";

    fn cut(ptx: &str, symbol: &str) -> Option<String> {
        let text = one_entry(ptx, symbol)?;
        assert!(text.capacity() > text.len(), "room for a zero");
        String::from_utf8(text).ok()
    }

    #[test]
    fn the_entry_and_what_belongs_to_all() {
        assert_eq!(cut(SAMPLE, "a"), Some(format!("{HEAD}.visible .entry a(\n)\n.maxntid 32, 1, 1\n{{\n\tret;\n}}\n")));
        assert_eq!(cut(SAMPLE, "b"), Some(format!("{HEAD}.visible .entry b()\n{{\n}}\n")));
        let first = cut(SAMPLE, "ab").unwrap_or_default();
        assert!(first.starts_with(HEAD) && first.ends_with("mov.b64 {%r1, %r2}, t; }\n}\n"), "{first}");
        // what stands between entries, or after them, and a zero at the end
        let more = SAMPLE.replace(".visible .entry b(", ".func f()\n{\n}\n.visible .entry b(") + ".alias g, f;\n\0";
        let ends = "{\n\tret;\n}\n.func f()\n{\n}\n.alias g, f;\n";
        assert!(cut(&more, "a").is_some_and(|t| t.ends_with(ends)));
    }

    #[test]
    fn what_is_not_there_or_not_understood() {
        for symbol in ["", "c", "aa", "a_param_0", "tw_data_0"] {
            assert_eq!(cut(SAMPLE, symbol), None, "{symbol}");
        }
        assert_eq!(cut("", "a"), None);
        assert_eq!(cut(&SAMPLE[..SAMPLE.len() - 2], "b"), None, "cut short");
        assert_eq!(cut(&SAMPLE.replace(".visible .entry b()\n", ".visible .entry b();\n"), "a"), None, "declared");
        assert_eq!(cut(&SAMPLE.replace(".visible .entry b", "}.visible .entry b"), "a"), None);
    }

    /// Images of this workspace, with the names of their entries.
    fn shipped() -> Vec<(PathBuf, String, Vec<String>)> {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernels-device/ptx");
        let files = std::fs::read_dir(&dir).into_iter().flatten().filter_map(|f| f.ok()).map(|f| f.path());
        files
            .filter(|f| f.extension().is_some_and(|e| e == "ptx"))
            .map(|f| {
                let text = std::fs::read_to_string(&f).unwrap();
                let lines = text.lines().filter_map(|l| l.strip_prefix(".visible .entry "));
                let names = lines.map(|l| l.trim_end_matches(['(', ')', ' ']).to_string()).collect();
                (f, text, names)
            })
            .collect()
    }

    #[test]
    fn every_shipped_entry_is_found() {
        let images = shipped();
        assert!(images.len() >= 2 && images.iter().all(|(_, _, names)| !names.is_empty()));
        for (file, text, names) in &images {
            let head = &text[..text.find(".visible .entry ").unwrap()];
            for name in names {
                let one = cut(text, name).unwrap_or_else(|| panic!("{}: no {name}", file.display()));
                let entry = one.strip_prefix(head).unwrap();
                assert!(entry.starts_with(&format!(".visible .entry {name}(")), "{name}");
                assert!(
                    text.contains(entry) && entry.ends_with("\n}\n") && one.matches(".entry").count() == 1,
                    "{name}"
                );
            }
        }
    }

    /// The assembler that the other checks use: `TILEWRIGHT_PTXAS`, the workspace's, or one in the PATH.
    fn ptxas() -> Option<PathBuf> {
        let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.tools/ptxas");
        let named = std::env::var_os("TILEWRIGHT_PTXAS").map(PathBuf::from);
        let program = named.unwrap_or_else(|| if own.is_file() { own } else { "ptxas".into() });
        let runs = Command::new(&program).arg("--version").output().is_ok_and(|o| o.status.success());
        runs.then_some(program)
    }

    #[test]
    fn what_is_cut_out_assembles() {
        let Some(ptxas) = ptxas() else {
            eprintln!("no ptxas: skipped");
            return;
        };
        let dir = std::env::temp_dir().join(format!("tilewright-cut-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let file = dir.join("one.ptx");
        for (_, text, names) in shipped() {
            let arch = text.lines().find_map(|l| l.strip_prefix(".target ")).unwrap().trim();
            // the first, the last, and some from between
            let some = names.iter().step_by(names.len().div_ceil(3)).chain(names.last());
            for name in some {
                std::fs::write(&file, one_entry(&text, name).unwrap()).unwrap();
                let mut run = Command::new(&ptxas);
                run.arg(format!("-arch={arch}")).arg(&file).arg("-o").arg(dir.join("one.cubin"));
                let out = run.output().unwrap();
                assert!(out.status.success(), "{name}: {}", String::from_utf8_lossy(&out.stderr));
            }
        }
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
