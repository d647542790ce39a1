//! From the compiler's PTX to the one that is loaded: what rustc cannot say about an entry is added, and what differs
//! from one build to the next is removed.

use super::shared_matrix::spell_out_shared;
use super::{Item, convergent_counts, is_name_char, items, names, statements, strip};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Part of the recipe's hash: raise it whenever the pass changes what it emits.
pub(crate) const PASS_VERSION: u32 = 3;

/// First word of every `NAME__meta`: "tilewrgt" in ASCII.
pub(crate) const MAGIC: u64 = 0x7469_6c65_7772_6774;

/// What the entry's `NAME__meta` says, and what was found in its code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryMeta {
    /// The entry's name in the PTX.
    pub symbol: String,
    /// Hash of its arguments' layout, compared before the first launch.
    pub signature: u64,
    /// Threads of a block.
    pub threads: u32,
    /// Blocks that must fit on a multiprocessor (0: not said).
    pub min_blocks: u32,
    /// Blocks of a cluster.
    pub cluster: u32,
    /// Dynamic shared memory of a block.
    pub shared_bytes: u32,
    /// Informative.
    pub flags: u64,
    /// Convergent instructions and how often each stands in the code.
    pub convergent: BTreeMap<String, usize>,
}

/// A finished module.
#[derive(Clone, Debug)]
pub struct Finished {
    /// The text to load.
    pub ptx: String,
    /// Its entries, by name.
    pub entries: Vec<EntryMeta>,
    /// Its items, for the lint.
    pub items: Vec<Item>,
    /// The PTX version that it needs.
    pub version: (u32, u32),
}

/// Runs the pass over the compiler's output. The error says what is not understood.
pub fn finish(raw: &str) -> Result<Finished, String> {
    let mut all = items(&strip(raw))?;
    let mut metas = take_metas(&mut all)?;
    let mut entries = Vec::new();
    for item in &mut all {
        if let Item::Function { name, entry: true, head, body } = item {
            let words = metas.remove(name.as_str()).ok_or_else(|| format!("entry `{name}` has no `{name}__meta`"))?;
            *body = spell_out_shared(body);
            let meta = entry_meta(name, words, body)?;
            *head = align_parameters(head);
            shorten_parameters(name, head, body);
            bounds(head, &meta);
            entries.push(meta);
        }
    }
    if let Some(name) = metas.keys().next() {
        return Err(format!("`{name}__meta` belongs to no entry"));
    }
    drop_unused(&mut all);
    rename_data(&mut all);
    entries.sort_by(|a, b| a.symbol.cmp(&b.symbol));
    sort_functions(&mut all);
    let version = raise_version(&mut all)?;
    let ptx = write(&all);
    Ok(Finished { ptx, entries, items: all, version })
}

/// Takes the `NAME__meta` constants out: they are for the build, not for the device.
fn take_metas(all: &mut Vec<Item>) -> Result<BTreeMap<String, [u64; 8]>, String> {
    let mut metas = BTreeMap::new();
    let mut wrong = None;
    all.retain(|item| {
        let Item::Var { name, text } = item else {
            return true;
        };
        let Some(entry) = name.strip_suffix("__meta") else {
            return true;
        };
        match words(text) {
            Some(words) if words[0] == MAGIC => {
                metas.insert(entry.to_string(), words);
            }
            _ => wrong = Some(format!("`{name}` is not a kernel's constant: {text}")),
        }
        false
    });
    wrong.map_or(Ok(metas), Err)
}

/// The value of a constant of eight words. LLVM writes it as bytes or as words, and leaves zeros at the end out.
fn words(text: &str) -> Option<[u64; 8]> {
    let list = text.split_once('{')?.1.split('}').next()?;
    let numbers: Vec<u64> = list.split(',').map(|n| n.trim().parse().ok()).collect::<Option<_>>()?;
    let mut words = [0; 8];
    if text.contains(".b64") || text.contains(".u64") {
        (numbers.len() <= 8).then_some(())?;
        words[..numbers.len()].copy_from_slice(&numbers);
    } else if text.contains(".b8") {
        (numbers.len() <= 64).then_some(())?;
        for (i, n) in numbers.iter().enumerate() {
            words[i / 8] |= (*n & 255) << (i % 8 * 8);
        }
    } else {
        return None;
    }
    Some(words)
}

fn entry_meta(name: &str, words: [u64; 8], body: &str) -> Result<EntryMeta, String> {
    let [_, signature, threads, min_blocks, cluster, shared, flags, _] = words;
    let small = |what: &str, value: u64, most: u64| {
        u32::try_from(value)
            .ok()
            .filter(|_| value <= most)
            .ok_or_else(|| format!("entry `{name}`: {what} is {value}, the most is {most}"))
    };
    let threads = small("the number of threads", threads, 1024)?;
    if threads == 0 || threads % 32 != 0 {
        return Err(format!("entry `{name}`: {threads} threads are not whole warps"));
    }
    Ok(EntryMeta {
        symbol: name.to_string(),
        signature,
        threads,
        min_blocks: small("min_blocks", min_blocks, 32)?,
        cluster: small("the cluster", cluster, 16)?.max(1),
        shared_bytes: small("shared memory", shared, 232_448)?,
        flags,
        convergent: convergent_counts(body),
    })
}

/// A tensor map must be 64-byte aligned, and rustc cannot align a parameter by more than 16. A parameter as large as a
/// tensor map holds one.
fn align_parameters(head: &str) -> String {
    let line = |l: &str| {
        let size = l.split_once('[').and_then(|(_, t)| t.split(']').next()?.parse::<u32>().ok());
        match size {
            Some(128..) => l.replace(".align 8 ", ".align 64 ").replace(".align 16 ", ".align 64 "),
            _ => l.to_string(),
        }
    };
    head.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// Parameters without their entry's name, which is long and stands before each of them: a tenth of all text.
fn shorten_parameters(entry: &str, head: &mut String, body: &mut String) {
    let long = format!("{entry}_param_");
    for text in [head, body] {
        *text = text.replace(&long, "param_");
    }
}

/// Without `.maxntid` and `.minnctapersm`, ptxas ignores `setmaxnreg`.
fn bounds(head: &mut String, meta: &EntryMeta) {
    // writing to a String cannot fail
    let _ = write!(head, "\n.maxntid {}, 1, 1", meta.threads);
    if meta.min_blocks > 0 {
        let _ = write!(head, "\n.minnctapersm {}", meta.min_blocks);
    }
    if meta.cluster > 1 {
        let _ = write!(head, "\n.explicitcluster\n.reqnctapercluster {}, 1, 1", meta.cluster);
    }
}

/// Drops variables that nothing names, until none is left.
fn drop_unused(all: &mut Vec<Item>) {
    loop {
        let mut used = BTreeSet::new();
        for item in all.iter() {
            let (own, text) = match item {
                Item::Var { name, text } => (name.as_str(), text.as_str()),
                Item::Function { body, .. } => ("", body.as_str()),
                Item::Directive(_) | Item::Other(_) => continue,
            };
            used.extend(names(text).filter(|n| *n != own).map(str::to_string));
        }
        let before = all.len();
        all.retain(|i| !matches!(i, Item::Var { name, .. } if !used.contains(name)));
        if all.len() == before {
            return;
        }
    }
}

/// Constants get names by their place, because the compiler's are hashes. What is `.extern` was named by hand.
fn rename_data(all: &mut [Item]) {
    let own = |i: &Item| match i {
        Item::Var { name, text } if !text.starts_with(".extern") => Some(name.clone()),
        _ => None,
    };
    let new: BTreeMap<String, String> =
        all.iter().filter_map(own).enumerate().map(|(i, old)| (old, format!("tw_data_{i}"))).collect();
    if new.is_empty() {
        return;
    }
    for item in all {
        match item {
            Item::Var { name, text } => {
                *text = rename(text, &new);
                if let Some(n) = new.get(name) {
                    *name = n.clone();
                }
            }
            Item::Function { body, .. } => *body = rename(body, &new),
            Item::Directive(_) | Item::Other(_) => {}
        }
    }
}

fn rename(text: &str, new: &BTreeMap<String, String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(is_name_char) {
        let length = rest[start..].find(|c| !is_name_char(c)).unwrap_or(rest.len() - start);
        let name = &rest[start..start + length];
        out.push_str(&rest[..start]);
        out.push_str(new.get(name).map_or(name, String::as_str));
        rest = &rest[start + length..];
    }
    out.push_str(rest);
    out
}

/// Entries in the order of their names, after everything else.
fn sort_functions(all: &mut [Item]) {
    all.sort_by_cached_key(|i| match i {
        Item::Function { name, .. } => name.clone(),
        _ => String::new(),
    });
}

/// Instructions that need a newer version than rustc writes for the architecture. Inline assembly is not looked at by
/// LLVM, so it does not raise the version by itself.
const NEEDS: [(&str, (u32, u32)); 11] = [
    ("cvta.param", (7, 7)),
    ("griddepcontrol", (7, 8)),
    ("stmatrix", (7, 8)),
    ("barrier.cluster", (7, 8)),
    ("mapa", (7, 8)),
    ("elect.sync", (8, 0)),
    ("setmaxnreg", (8, 0)),
    ("wgmma", (8, 0)),
    ("cp.async.bulk", (8, 0)),
    ("st.async", (8, 1)),
    ("tanh.approx", (7, 0)),
];

/// Qualifiers that do.
const QUALIFIERS: [(&str, (u32, u32)); 4] =
    [(".L1::no_allocate", (7, 4)), (".L2::64B", (7, 4)), (".L2::128B", (7, 4)), (".L2::256B", (7, 4))];

fn raise_version(all: &mut [Item]) -> Result<(u32, u32), String> {
    let mut need = (0, 0);
    for item in all.iter() {
        let Item::Function { head, body, .. } = item else {
            continue;
        };
        if head.contains(".reqnctapercluster") {
            need = need.max((7, 8));
        }
        for s in statements(body) {
            for (qualifier, version) in QUALIFIERS {
                if s.op.contains(qualifier) {
                    need = need.max(version);
                }
            }
            for (op, version) in NEEDS {
                if s.op.starts_with(op) && s.op[op.len()..].chars().next().is_none_or(|c| c == '.') {
                    need = need.max(version);
                }
            }
        }
    }
    for item in all {
        let Item::Directive(line) = item else {
            continue;
        };
        let Some(number) = line.strip_prefix(".version") else {
            continue;
        };
        let have = number.trim().split_once('.').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
        let have = have.ok_or_else(|| format!("no version in `{line}`"))?;
        let version = need.max(have);
        *line = format!(".version {}.{}", version.0, version.1);
        return Ok(version);
    }
    Err("there is no `.version`".into())
}

fn write(all: &[Item]) -> String {
    let mut out = String::new();
    for item in all {
        match item {
            Item::Directive(t) | Item::Other(t) | Item::Var { text: t, .. } => out.push_str(t),
            Item::Function { head, body, .. } => {
                out.push_str(head);
                out.push('\n');
                out.push_str(body);
            }
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const RAW: &str = "\
.version 7.0
.target sm_80
.address_size 64
.visible .global .align 8 .b8 k__meta[64] = {116, 103, 114, 119, 101, 108, 105, 116, 1, 2, 0, 0, 0, 0, 0, 128, 128, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 4};
.global .align 4 .b8 anon_$_ef4d_$_0[4] = {1, 2};
.global .align 4 .b8 unused[4] = {1, 2};
.visible .entry k(
\t.param .u64 .ptr .align 1 k_param_0,
\t.param .align 8 .b8 k_param_1[136],
\t.param .align 8 .b8 k_param_2[16]
)
{
\tmov.b64 \t%rd4, anon_$_ef4d_$_0;
\t{ .reg .b64 t; cvta.param.u64 %rd1, t; }
\tbar.sync \t0;
\tret;
}
";

    #[test]
    fn adds_what_rustc_cannot_say() {
        let f = finish(RAW).unwrap();
        let e = &f.entries[0];
        assert_eq!(
            (e.symbol.as_str(), e.signature, e.threads, e.min_blocks, e.cluster, e.shared_bytes),
            ("k", 0x8000_0000_0000_0201, 384, 1, 2, 1024)
        );
        assert_eq!(f.version, (7, 8));
        assert!(f.ptx.starts_with(".version 7.8\n"));
        assert!(
            f.ptx.contains(")\n.maxntid 384, 1, 1\n.minnctapersm 1\n.explicitcluster\n.reqnctapercluster 2, 1, 1\n{"),
            "{}",
            f.ptx
        );
        assert!(f.ptx.contains(".align 64 .b8 param_1[136]") && f.ptx.contains(".align 8 .b8 param_2[16]"));
        assert!(!f.ptx.contains("__meta") && !f.ptx.contains("unused") && !f.ptx.contains("anon"));
        assert!(f.ptx.contains("%rd4, tw_data_0;"));
    }

    #[test]
    fn words_as_words() {
        assert_eq!(
            words(".visible .global .align 8 .u64 k__meta[8] = {8388355, 7, 32};"),
            Some([8388355, 7, 32, 0, 0, 0, 0, 0])
        );
    }

    #[test]
    fn refuses_what_it_does_not_know() {
        let without = RAW.replace("k__meta", "other");
        assert!(finish(&without).unwrap_err().contains("has no `k__meta`"));
        let stray = RAW.replace("k__meta", "other__meta");
        assert!(finish(&stray).is_err());
        let threads = RAW.replace("128, 1, 0, 0, 0, 0, 0, 0, 1, 0", "129, 1, 0, 0, 0, 0, 0, 0, 1, 0");
        assert!(finish(&threads).unwrap_err().contains("whole warps"));
    }
}
