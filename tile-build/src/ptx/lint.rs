//! Rules that no kernel may break, checked on the PTX because that is what runs.

use super::{Item, Statement, names, statements};
use std::collections::{BTreeMap, BTreeSet};

/// Whether all threads of a warp (or more) must reach this instruction together: duplicating or moving it into a branch
/// changes what a program does.
pub fn is_convergent(op: &str) -> bool {
    let first = op.split('.').next().unwrap_or("");
    matches!(first, "bar" | "barrier") || op.split('.').any(|part| matches!(part, "sync" | "aligned"))
}

/// How often each convergent instruction stands in a body. LLVM does not know that inline assembly is convergent, and
/// clones it; the counts show it.
pub fn convergent_counts(body: &str) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for s in statements(body).iter().filter(|s| is_convergent(s.op)) {
        *counts.entry(s.op.to_string()).or_insert(0) += 1;
    }
    counts
}

/// Checks a module. `raw` is the compiler's output (its comments say what was inline assembly), `items` the finished
/// module. Returns one line for each finding.
pub fn lint(raw: &str, items: &[Item]) -> Vec<String> {
    let mut found = inline_convergent(raw);
    let globals: BTreeSet<&str> = items
        .iter()
        .filter_map(|i| match i {
            Item::Var { name, text } if !text.contains(".shared") => Some(name.as_str()),
            _ => None,
        })
        .collect();
    for item in items {
        match item {
            Item::Function { name, entry: false, .. } => found.push(format!(
                "function `{name}` was not inlined: its stack and spills are hidden from the entry's figures"
            )),
            Item::Function { name, head, body, .. } => {
                let all = statements(body);
                found.extend(instructions(name, &all));
                found.extend(registers(name, head, &all));
                found.extend(global_stores(name, &all, &globals));
                found.extend(products(name, &all));
            }
            Item::Other(text) if text.contains(".func") => {
                let name = text.split(['(', ')']).filter(|p| !p.contains(".param")).collect::<String>();
                let name = names(&name).last().unwrap_or("?").to_string();
                found.push(format!("undefined function `{name}` (a panic or a library call is left in a kernel)"));
            }
            Item::Var { name, text } if text.contains(".local") => {
                found.push(format!("`{name}` is in local memory"));
            }
            _ => {}
        }
    }
    found
}

/// The convergent instructions that may be inline assembly. `wgmma.mma_async` has no intrinsic: the fence before it, which
/// is one, holds it in place. The f16 `mma.sync` has one that rustc can not call (it takes vectors of
/// halves): the checked-in counts of each entry show that it was not duplicated.
pub const INLINE_ALLOWED: [&str; 2] = ["wgmma.mma_async.", "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"];

/// Convergent instructions are intrinsics, which the optimiser knows to be convergent, but for [`INLINE_ALLOWED`].
fn inline_convergent(raw: &str) -> Vec<String> {
    let (mut found, mut entry, mut inside) = (BTreeSet::new(), "?", false);
    for line in raw.lines() {
        let bare = line.trim();
        if bare.starts_with("// begin inline asm") {
            inside = true;
        } else if bare.starts_with("// end inline asm") {
            inside = false;
        } else if let Some(at) = bare.find(".entry ") {
            entry = names(&bare[at + 7..]).next().unwrap_or("?");
        } else if inside {
            let code = bare.split("//").next().unwrap_or("");
            for s in statements(code) {
                if is_convergent(s.op) && !INLINE_ALLOWED.iter().any(|a| s.op.starts_with(a)) {
                    found.insert(format!("{entry}: `{}` is written as inline assembly; use its `llvm.nvvm` intrinsic, which stays single", s.op));
                }
            }
        }
    }
    found.into_iter().collect()
}

fn instructions(entry: &str, all: &[Statement]) -> Vec<String> {
    let mut found = BTreeSet::new();
    for s in all {
        let first = s.op.split('.').next().unwrap_or("");
        match first {
            "call" => found.insert(format!("{entry}: a call is left: `{} {}`", s.op, s.operands.replace(['\n', '\t'], " "))),
            "trap" | "brkpt" => found.insert(format!("{entry}: `{first}`: a kernel must end normally and report instead")),
            "alloca" => found.insert(format!("{entry}: `alloca`")),
            _ if s.op == ".local" || s.operands.contains("__local_depot") => {
                found.insert(format!("{entry}: local memory (`{} {}`): an array whose loop was not unrolled, or a value whose address is taken", s.op, s.operands))
            }
            "ld" | "st" if s.op.contains(".local") => found.insert(format!("{entry}: `{}`", s.op)),
            _ => false,
        };
    }
    found.into_iter().collect()
}

/// Warpgroups that ask for more registers than the block was given wait for ever. A block is given what the launch bounds
/// leave to each of its threads, in eights; one warpgroup gives some back, the others take.
fn registers(entry: &str, head: &str, all: &[Statement]) -> Option<String> {
    let bound = |directive: &str| {
        let digits = head.split_once(directive)?.1.trim_start();
        digits.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u32>().ok().filter(|n| *n > 0)
    };
    let most = |op: &str| {
        all.iter().filter(|s| s.op.starts_with(op)).filter_map(|s| s.operands.trim().parse::<u32>().ok()).max()
    };
    let (threads, blocks) = (bound(".maxntid")?, bound(".minnctapersm")?);
    let taken = most("setmaxnreg.inc")?;
    let at_entry = (65_536 / (threads * blocks) / 8 * 8).min(248);
    let left = most("setmaxnreg.dec").unwrap_or(at_entry);
    let warpgroups = threads / 128;
    let (has, wants) = (warpgroups * at_entry, left + warpgroups.saturating_sub(1) * taken);
    (wants > has).then(|| {
        format!(
            "{entry}: its warpgroups ask for {wants} registers a lane in all where `min_blocks = {blocks}` with {threads} \
             threads leaves {has}: they would wait for ever; roles of this many threads are for one block an SM"
        )
    })
}

/// A store or atomic to a module-scope variable would be state that all blocks share behind the types' back. Follows
/// addresses through registers, whatever the order of the code: once a register may hold a variable's address, it does.
fn global_stores(entry: &str, all: &[Statement], globals: &BTreeSet<&str>) -> Vec<String> {
    let mut tainted: BTreeMap<&str, &str> = BTreeMap::new();
    loop {
        let before = tainted.len();
        for s in all.iter().filter(|s| carries_address(s.op)) {
            let Some((target, sources)) = s.operands.split_once(',') else {
                continue;
            };
            let from = names(sources).find_map(|n| globals.get(n).copied().or(tainted.get(n).copied()));
            if let Some(from) = from {
                for register in names(target) {
                    tainted.entry(register).or_insert(from);
                }
            }
        }
        if tainted.len() == before {
            break;
        }
    }
    let mut found = BTreeSet::new();
    for s in all {
        let first = s.op.split('.').next().unwrap_or("");
        if !matches!(first, "st" | "atom" | "red" | "cp" | "multimem" | "stmatrix") {
            continue;
        }
        let Some(address) = s.operands.split_once('[').and_then(|(_, t)| t.split(']').next()) else {
            continue;
        };
        if let Some(v) = names(address).find_map(|n| globals.get(n).copied().or(tainted.get(n).copied())) {
            found.insert(format!("{entry}: `{}` writes to the module's variable `{v}`", s.op));
        }
    }
    found.into_iter().collect()
}

/// What is read through an address is no address; all other arithmetic may carry one on.
fn carries_address(op: &str) -> bool {
    let first = op.split('.').next().unwrap_or("");
    !op.starts_with('.') && !op.ends_with(':') && !matches!(first, "ld" | "st" | "atom" | "red" | "setp" | "bra" | "cp")
}

/// `wgmma.mma_async` must follow a `wgmma.fence` in its own basic block: the fence is an intrinsic, known to be
/// convergent, and the product is not moved or cloned away from it.
fn products(entry: &str, all: &[Statement]) -> Vec<String> {
    let mut fenced = false;
    for s in all {
        if s.op.ends_with(':') || s.op.starts_with("bra") || s.op.starts_with("brx") {
            fenced = false;
        } else if s.op.starts_with("wgmma.fence") {
            fenced = true;
        } else if s.op.starts_with("wgmma.mma_async") && !fenced {
            return vec![format!("{entry}: `wgmma.mma_async` without `wgmma.fence` before it in the same basic block")];
        }
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::super::{items, strip};
    use super::*;

    fn check(body: &str) -> Vec<String> {
        let raw = format!(".global .align 4 .b8 state[4];\n.visible .entry k(\n)\n{{\n{body}\n}}\n");
        lint(&raw, &items(&strip(&raw)).unwrap())
    }

    #[test]
    fn knows_convergent_instructions() {
        for op in [
            "bar.sync",
            "barrier.sync.aligned",
            "barrier.cluster.arrive",
            "bar.warp.sync",
            "shfl.sync.bfly.b32",
            "vote.sync.any.pred",
            "elect.sync",
            "setmaxnreg.inc.sync.aligned.u32",
            "ldmatrix.sync.aligned.m8n8.x4.shared.b16",
            "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
            "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16",
            "wgmma.wait_group.sync.aligned",
            "redux.sync.add.s32",
        ] {
            assert!(is_convergent(op), "{op}");
        }
        for op in [
            "mbarrier.try_wait.parity.shared::cta.b64",
            "membar.gl",
            "fence.proxy.async",
            "cp.async.wait_group",
            "ld.global.b32",
            "bra",
        ] {
            assert!(!is_convergent(op), "{op}");
        }
    }

    #[test]
    fn counts() {
        let c = convergent_counts(
            "{ bar.sync 0; @%p bar.sync 0; { .reg .pred p; setp.eq.b32 p, %r1, 0; elect.sync _|p, -1; } }",
        );
        assert_eq!(c.into_iter().collect::<Vec<_>>(), [("bar.sync".to_string(), 2), ("elect.sync".to_string(), 1)]);
    }

    #[test]
    fn clean_code_passes() {
        assert_eq!(
            check("mov.b64 %rd1, state;\nld.global.b32 %r1, [%rd1];\nst.global.b32 [%rd2], %r1;\nbar.sync 0;\nret;"),
            Vec::<String>::new()
        );
    }

    #[test]
    fn registers_that_a_block_does_not_have() {
        let check = |threads: u32, blocks: u32, [dec, inc]: [u32; 2]| {
            let raw = format!(
                ".visible .entry k(\n)\n.maxntid {threads}, 1, 1\n.minnctapersm {blocks}\n{{\n\
                 @%p bra $L;\nsetmaxnreg.inc.sync.aligned.u32 {inc};\nret;\n\
                 $L: setmaxnreg.dec.sync.aligned.u32 {dec};\nret;\n}}\n"
            );
            lint(&raw, &items(&strip(&raw)).unwrap())
        };
        for (threads, budget) in [(384, [40, 232]), (384, [24, 240]), (512, [32, 160])] {
            assert_eq!(check(threads, 1, budget), Vec::<String>::new(), "{threads} {budget:?}");
            let found = check(threads, 2, budget);
            assert!(found.len() == 1 && found[0].contains("min_blocks = 2"), "{threads} {budget:?}: {found:?}");
        }
        // two blocks that share what there is, and a budget that is too large for one
        assert_eq!(check(384, 2, [24, 104]), Vec::<String>::new());
        assert!(check(384, 1, [40, 240])[0].contains("ask for 520"));
        assert_eq!(check(256, 2, [24, 232]), Vec::<String>::new());
    }

    #[test]
    fn each_rule_finds_its_fault() {
        let cases = [
            ("trap;", "trap"),
            ("{ call.uni (r), f, (p); }", "call"),
            (".local .align 8 .b8 __local_depot0[16];", "local memory"),
            ("st.local.b32 [%rd1], %r1;", "st.local"),
            ("st.global.b32 [state], %r1;", "variable `state`"),
            ("add.s64 %rd2, %rd1, 4;\nmov.b64 %rd1, state;\natom.global.add.u32 %r1, [%rd2], 1;", "variable `state`"),
            ("cvta.global.u64 %rd1, state;\nred.relaxed.gpu.add.u32 [%rd1+8], 1;", "variable `state`"),
            ("// begin inline asm\n{ mov.b32 %r1, 1; bar.sync 0; }\n// end inline asm", "inline assembly"),
            ("wgmma.fence.sync.aligned;\n$L: wgmma.mma_async.sync.aligned.x {%f1}, %rd1;", "without `wgmma.fence`"),
        ];
        for (body, says) in cases {
            let found = check(body);
            assert!(found.iter().any(|f| f.contains(says)), "{body}: {found:?}");
        }
        let raw = ".func f()\n{\nret;\n}\n.extern .func (.param .b32 r) g\n(\n.param .b64 p\n)\n;\n";
        let found = lint(raw, &items(raw).unwrap());
        assert!(found[0].contains("`f` was not inlined") && found[1].contains("undefined function `g`"), "{found:?}");
    }
}
