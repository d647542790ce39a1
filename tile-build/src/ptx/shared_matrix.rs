//! `ldmatrix` and `stmatrix` of shared memory say that it is shared.
//!
//! rustc has no pointers of the shared address space, so kernels reach these two through intrinsics that take a generic
//! address, made right before from the 32-bit one. Generic, ptxas must compute every address in 64 bits and subtract the
//! window's base from it again: dozens of instructions in a step of a matrix product.

use super::{Statement, is_name_char, names, statements};
use std::collections::BTreeMap;
use std::ops::Range;

/// Rewrites a body. An address is replaced if its 64-bit register was made from a 32-bit register in the same basic block
/// by `{ .reg .b64 t; cvt.u64.u32 t, SHARED; cvta.shared.u64 GENERIC, t; }`, without a guard, and neither of the two has
/// been written since. What made addresses that nothing uses any more is removed.
pub(crate) fn spell_out_shared(body: &str) -> String {
    let all = statements(body);
    if shadows(body, &all) {
        return body.to_string();
    }
    // what each 64-bit register was made from
    let mut made: BTreeMap<&str, &str> = BTreeMap::new();
    let mut makers: BTreeMap<&str, Vec<Range<usize>>> = BTreeMap::new();
    let mut replaced: BTreeMap<&str, usize> = BTreeMap::new();
    let mut edits: Vec<(Range<usize>, String)> = Vec::new();
    for (i, s) in all.iter().enumerate() {
        if ends_block(s) {
            made.clear();
            continue;
        }
        if let Some((op, address)) = matrix_access(s)
            && let Some(shared) = made.get(address)
        {
            edits.push((place(body, s.op), op));
            edits.push((place(body, address), (*shared).to_string()));
            *replaced.entry(address).or_insert(0) += 1;
        }
        for register in written(s) {
            made.retain(|generic, shared| *generic != register && *shared != register);
        }
        // a maker's last statement has been looked at like any other: what it writes is known from here on
        if let Some(m) = i.checked_sub(2).and_then(|first| maker(body, &all[first..=i])) {
            made.insert(m.generic, m.shared);
            makers.entry(m.generic).or_default().push(m.text);
        }
    }
    let mut named: BTreeMap<&str, usize> = BTreeMap::new();
    for name in names(body) {
        *named.entry(name).or_insert(0) += 1;
    }
    for (generic, replaced) in replaced {
        let texts = makers.remove(generic).unwrap_or_default();
        if named.get(generic) == Some(&(texts.len() + replaced)) {
            edits.extend(texts.into_iter().map(|t| (with_line(body, t), String::new())));
        }
    }
    apply(body, edits)
}

/// Whether an inner scope declares registers under names such as the compiler's, which then mean two things.
fn shadows(body: &str, all: &[Statement]) -> bool {
    let inner = body.find('{').and_then(|outer| Some(outer + 1 + body[outer + 1..].find('{')?)).unwrap_or(body.len());
    all.iter().any(|s| s.op == ".reg" && s.operands.contains('%') && place(body, s.op).start > inner)
}

fn ends_block(s: &Statement) -> bool {
    s.op.ends_with(':') || matches!(s.op.split('.').next(), Some("bra" | "brx" | "call" | "ret" | "exit"))
}

/// The access with `.shared` before its type, and its address register, if it is one of a generic address.
fn matrix_access<'a>(s: &Statement<'a>) -> Option<(String, &'a str)> {
    if !s.op.starts_with("ldmatrix.sync.aligned.") && !s.op.starts_with("stmatrix.sync.aligned.") {
        return None;
    }
    let (what, kind) = s.op.rsplit_once('.')?;
    if !matches!(kind, "b16" | "b8") || what.contains(".shared") {
        return None;
    }
    let (_, address) = s.operands.split_once('[')?;
    let register = address.trim_start();
    let register = &register[..register.find(|c| !is_name_char(c))?];
    register.starts_with('%').then(|| (format!("{what}.shared.{kind}"), register))
}

/// The registers in a statement's first operand, which is the only one that instructions write; in brackets, it is read.
fn written<'a>(s: &Statement<'a>) -> impl Iterator<Item = &'a str> {
    let operands = s.operands;
    let first = match operands.as_bytes().first() {
        Some(b'[') | None => "",
        Some(b'{') => operands.split('}').next().unwrap_or(operands),
        Some(_) => operands.split(',').next().unwrap_or(operands),
    };
    names(first)
}

struct Maker<'a> {
    generic: &'a str,
    shared: &'a str,
    /// Where it stands, braces included.
    text: Range<usize>,
}

/// These three statements, if they are a scope that makes a shared address generic and does nothing else.
fn maker<'a>(body: &str, three: &[Statement<'a>]) -> Option<Maker<'a>> {
    let [reg, widen, cvta] = three else {
        return None;
    };
    if widen.guarded || cvta.guarded || reg.op != ".reg" || widen.op != "cvt.u64.u32" || cvta.op != "cvta.shared.u64" {
        return None;
    }
    let local = reg.operands.strip_prefix(".b64")?.trim();
    let (wide, shared) = two(widen.operands)?;
    let (generic, from) = two(cvta.operands)?;
    // registers that the compiler numbers: `%clock` is another value each time
    let right = wide == local && from == local && is_numbered(shared, "%r") && is_numbered(generic, "%rd");
    let (start, end) = (place(body, reg.op).start, place(body, cvta.operands).end);
    // nothing but this between the braces: the local register is the scope's own, and used up
    let open = body[..start].trim_end().strip_suffix('{')?.len();
    let tail = body[end..].trim_start().strip_prefix(';')?.trim_start().strip_prefix('}')?;
    let inside = &body[open + 1..body.len() - tail.len() - 1];
    (right && is_name(local) && !inside.contains(['{', '}'])).then(|| Maker {
        generic,
        shared,
        text: open..body.len() - tail.len(),
    })
}

/// Two operands, each a name.
fn two(operands: &str) -> Option<(&str, &str)> {
    let (a, b) = operands.split_once(',')?;
    let (a, b) = (a.trim(), b.trim());
    (is_name(a) && is_name(b)).then_some((a, b))
}

fn is_numbered(register: &str, kind: &str) -> bool {
    register.strip_prefix(kind).is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(is_name_char)
}

/// Where `piece`, which is a part of `body`, stands in it.
fn place(body: &str, piece: &str) -> Range<usize> {
    let start = piece.as_ptr() as usize - body.as_ptr() as usize;
    start..start + piece.len()
}

/// The text, and its line if there is nothing else on it.
fn with_line(body: &str, text: Range<usize>) -> Range<usize> {
    let before = body[..text.start].trim_end_matches([' ', '\t']);
    let after = body[text.end..].trim_start_matches([' ', '\t']);
    if before.ends_with('\n') && after.starts_with('\n') { before.len()..body.len() - after.len() + 1 } else { text }
}

/// Replaces parts of a text that do not overlap.
fn apply(body: &str, mut edits: Vec<(Range<usize>, String)>) -> String {
    edits.sort_by_key(|(place, _)| place.start);
    let mut out = String::with_capacity(body.len());
    let mut at = 0;
    for (place, new) in edits {
        out.push_str(&body[at..place.start]);
        out.push_str(&new);
        at = place.end;
    }
    out.push_str(&body[at..]);
    out
}

#[cfg(test)]
mod tests {
    use super::super::convergent_counts;
    use super::*;

    const MAKE: &str = "\t{ .reg .b64 t; cvt.u64.u32 t, %r5; cvta.shared.u64 %rd7, t; }\n";
    const LOAD: &str = "\tldmatrix.sync.aligned.m8n8.x4.b16 {%r1, %r2, %r3, %r4}, [%rd7];\n";
    const SHARED: &str = "\tldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1, %r2, %r3, %r4}, [%r5];\n";

    fn body(parts: &[&str]) -> String {
        format!("{{\n\t.reg .b32 \t%r<9>;\n\t.reg .b64 \t%rd<9>;\n{}\tret;\n}}", parts.concat())
    }
    fn gives(before: &[&str], after: &[&str]) {
        assert_eq!(spell_out_shared(&body(before)), body(after));
    }
    fn untouched(parts: &[&str]) {
        gives(parts, parts);
    }

    #[test]
    fn loads_and_stores_are_rewritten() {
        gives(&[MAKE, LOAD], &[SHARED]);
        gives(
            &[MAKE, "\tadd.s32 \t%r6, %r5, 1;\n\tbar.sync \t0;\n", LOAD],
            &["\tadd.s32 \t%r6, %r5, 1;\n\tbar.sync \t0;\n", SHARED],
        );
        gives(
            &[MAKE, "\tstmatrix.sync.aligned.m8n8.x2.trans.b16 [%rd7+-32], {%r1, %r2};\n"],
            &["\tstmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%r5+-32], {%r1, %r2};\n"],
        );
        gives(
            &[MAKE, "\t@%p1 ldmatrix.sync.aligned.m8n8.x1.b16 {%r1}, [%rd7+16];\n"],
            &["\t@%p1 ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [%r5+16];\n"],
        );
    }

    #[test]
    fn what_makes_an_address_stays_while_it_is_used() {
        let other = "\tst.b32 \t[%rd7], %r1;\n";
        gives(&[MAKE, LOAD, other], &[MAKE, SHARED, other]);
        let elsewhere = "$L__BB0_1:\n\tadd.s64 \t%rd8, %rd7, 1;\n";
        gives(&[MAKE, LOAD, elsewhere], &[MAKE, SHARED, elsewhere]);
        // made twice, used up both times
        gives(&[MAKE, LOAD, "$L__BB0_1:\n", MAKE, LOAD], &[SHARED, "$L__BB0_1:\n", SHARED]);
        // a name that begins the same is another one
        gives(&[MAKE, LOAD, "\tmov.b64 \t%rd71, 0;\n"], &[SHARED, "\tmov.b64 \t%rd71, 0;\n"]);
    }

    #[test]
    fn not_from_one_block_to_the_next() {
        for between in ["$L__BB0_1:\n", "\t@%p1 bra \t$L__BB0_2;\n", "\tbra.uni \t$L__BB0_2;\n", "\t@%p1 ret;\n"] {
            untouched(&[MAKE, between, LOAD]);
        }
        // made again in its own block: the load there is rewritten, and only that
        gives(&[MAKE, "$L__BB0_1:\n", LOAD, MAKE, LOAD], &[MAKE, "$L__BB0_1:\n", LOAD, MAKE, SHARED]);
    }

    #[test]
    fn not_if_written_since() {
        for write in [
            "\tadd.s32 \t%r5, %r5, 1;\n",
            "\t@%p1 mov.b32 \t%r5, 0;\n",
            "\tmov.b64 \t{%r6, %r5}, %rd1;\n",
            "\tshfl.sync.bfly.b32 %r5|%p1, %r6, 1, 31, -1;\n",
            "\t{ .reg .pred p; elect.sync %r5|p, -1; }\n",
            "\tldmatrix.sync.aligned.m8n8.x2.b16 {%r5, %r6}, [%rd1];\n",
            "\tmma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32\n\t\t{%r1, %r2,\n\t\t%r5, %r3},\n\t\t{%r1}, {%r1}, {%r1};\n",
            "\tadd.s64 \t%rd7, %rd7, 64;\n",
            "\tld.shared.b64 \t%rd7, [%r1];\n",
        ] {
            untouched(&[MAKE, write, LOAD]);
        }
        // by the very load: this one reads the address first, the next one does not
        let own = "\tldmatrix.sync.aligned.m8n8.x1.b16 {%r5}, [%rd7];\n";
        gives(&[MAKE, own, LOAD], &[MAKE, "\tldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r5}, [%r5];\n", LOAD]);
        // a store's address is read
        gives(&[MAKE, "\tst.shared.b32 [%r5], %r1;\n", LOAD], &["\tst.shared.b32 [%r5], %r1;\n", SHARED]);
    }

    #[test]
    fn not_if_made_by_something_else() {
        for make in [
            "\t{ .reg .b64 t; cvt.s64.s32 t, %r5; cvta.shared.u64 %rd7, t; }\n",
            "\t{ .reg .b64 t; cvt.u64.u32 t, %r5; cvta.global.u64 %rd7, t; }\n",
            "\t{ .reg .b64 t; cvt.u64.u32 t, %r5; cvta.to.shared.u64 %rd7, t; }\n",
            "\t{ .reg .b64 t; cvt.u64.u32 t, %r5; @%p1 cvta.shared.u64 %rd7, t; }\n",
            "\t{ .reg .b64 t; @%p1 cvt.u64.u32 t, %r5; cvta.shared.u64 %rd7, t; }\n",
            "\t{ .reg .b64 t, u; cvt.u64.u32 t, %r5; cvta.shared.u64 %rd7, u; }\n",
            "\t{ .reg .b64 t; cvt.u64.u32 t, %r5; cvta.shared.u64 %rd7, t; add.s64 %rd7, %rd7, 8; }\n",
            "\t{ .reg .b64 t; cvt.u64.u32 t, %clock; cvta.shared.u64 %rd7, t; }\n",
            "\t{ .reg .b64 t; cvt.u64.u32 t, 1024; cvta.shared.u64 %rd7, t; }\n",
            "\tcvt.u64.u32 \t%rd6, %r5;\n\tcvta.shared.u64 \t%rd7, %rd6;\n",
            "\tld.param.b64 \t%rd7, [k_param_0];\n",
        ] {
            untouched(&[make, LOAD]);
        }
        untouched(&[LOAD]);
        untouched(&[LOAD, MAKE]);
        untouched(&[MAKE, "\tld.b32 \t%r1, [%rd7];\n"]);
        untouched(&[MAKE, SHARED]);
        // an inner scope's register of the same name
        untouched(&["\t{ .reg .b32 %r5; mov.b32 %r5, 0;\n", MAKE, "\t}\n", LOAD]);
    }

    #[test]
    fn still_counted_as_convergent() {
        let counts = convergent_counts(&spell_out_shared(&body(&[MAKE, LOAD, LOAD])));
        let counts: Vec<_> = counts.into_iter().collect();
        assert_eq!(counts, [("ldmatrix.sync.aligned.m8n8.x4.shared.b16".to_string(), 2)]);
    }
}
