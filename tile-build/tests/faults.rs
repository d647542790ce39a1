//! Every known fault of the compiler, its cure, and what the cure must look like in the PTX. When one of these fails
//! after a change of compiler, the cure no longer works (or is no longer needed): look before adapting the test.
mod common;

use std::path::Path;
use tilewright_build::ptx::{convergent_counts, finish, lint, strip};
use tilewright_build::testing::Bench;
use tilewright_build::{Error, Ptxas};

const PRELUDE: &str = r#"
#![no_std]
#![allow(internal_features)]
#![feature(link_llvm_intrinsics, abi_unadjusted)]
use core::arch::{asm, nvptx::*};

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! { loop {} }

fn lane() -> u32 { unsafe { _thread_idx_x() as u32 } }

unsafe extern "unadjusted" {
    #[link_name = "llvm.nvvm.barrier.cta.sync.aligned.all"]
    fn barrier(id: u32);
    #[link_name = "llvm.nvvm.wgmma.fence.sync.aligned"]
    fn fence();
    #[link_name = "llvm.nvvm.wgmma.commit_group.sync.aligned"]
    fn commit();
    #[link_name = "llvm.nvvm.wgmma.wait_group.sync.aligned"]
    fn wait(n: u64);
    #[link_name = "llvm.nvvm.setmaxnreg.dec.sync.aligned.u32"]
    fn fewer_registers(n: u32);
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct TensorMap([u64; 16]);

#[unsafe(no_mangle)]
pub static k__meta: [u64; 8] = [0x7469_6c65_7772_6774, 7, 128, 1, 1, 0, 0, 0];
"#;

struct Compiled {
    raw: String,
    /// The finished PTX, as long as the pass understands it.
    ptx: String,
    findings: Vec<String>,
}

impl Compiled {
    /// Convergent instructions of entry `k`, before anything is judged.
    fn count(&self, op: &str) -> usize {
        let body = strip(&self.raw);
        let all = convergent_counts(&body[body.find(".entry k(").unwrap()..]);
        all.iter().filter(|(o, _)| o.starts_with(op)).map(|(_, n)| n).sum()
    }

    #[track_caller]
    fn clean(&self) {
        assert!(self.findings.is_empty(), "{:?}\n{}", self.findings, self.ptx);
    }

    #[track_caller]
    fn found(&self, what: &str) {
        assert!(self.findings.iter().any(|f| f.contains(what)), "{:?}\n{}", self.findings, self.raw);
    }

    #[track_caller]
    fn has(&self, what: &str) {
        assert!(self.ptx.contains(what), "no `{what}` in\n{}", self.ptx);
    }

    #[track_caller]
    fn lacks(&self, what: &str) {
        assert!(!self.ptx.contains(what), "`{what}` in\n{}", self.ptx);
    }
}

/// One bench for all tests of this file.
fn bench() -> Option<Bench> {
    common::compiler().map(|c| Bench::new(c, &common::cache()).unwrap())
}

fn compile(bench: &Bench, name: &str, arch: &str, code: &str, without: Option<&str>) -> Result<Compiled, Error> {
    let raw = bench.ptx(name, &format!("{PRELUDE}\n{code}"), arch, without)?;
    let done = finish(&raw).unwrap();
    assert_eq!(done.entries.len(), 1);
    let findings = lint(&raw, &done.items);
    Ok(Compiled { findings, ptx: done.ptx, raw })
}

/// Compiles and assembles: what ptxas refuses is no cure.
fn cured(name: &str, arch: &str, code: &str) -> Option<Compiled> {
    let c = compile(&bench()?, name, arch, code, None).unwrap();
    c.clean();
    let (report, _) = assemble(&c, name, arch)?;
    assert!(report.notes.is_empty(), "{:?}", report.notes);
    assert!(report.functions.iter().all(|f| f.entry && f.stack == 0 && f.spills == 0));
    Some(c)
}

fn assemble(c: &Compiled, name: &str, arch: &str) -> Option<(tilewright_build::Report, usize)> {
    let Some(ptxas) = Ptxas::find(Path::new(env!("CARGO_MANIFEST_DIR"))) else {
        assert!(std::env::var_os("TILEWRIGHT_REQUIRE_DEVICE").is_none(), "there is no ptxas");
        return None;
    };
    let (code, report) = ptxas.assemble(&c.ptx, arch, &common::scratch(name)).unwrap();
    Some((report, code.len()))
}

/// The shape that made two barriers of one: work of a lane before and after it.
fn lanes_around(barrier: &str) -> String {
    format!(
        r#"#[unsafe(no_mangle)]
        pub unsafe extern "ptx-kernel" fn k(p: *mut u32) {{ unsafe {{
            let t = lane();
            if t == 0 {{ *p = 1; }}
            {barrier}
            if t == 0 {{ *p.add(1) = 2; }}
        }} }}"#
    )
}

/// A barrier in a loop whose body also depends on the lane.
fn lanes_in_loop(barrier: &str) -> String {
    format!(
        r#"#[unsafe(no_mangle)]
        pub unsafe extern "ptx-kernel" fn k(p: *mut u32, n: u32) {{ unsafe {{
            let t = lane();
            let mut i = 0;
            while i < n {{
                if t < 32 {{ *p.add(i as usize) = i; }}
                {barrier}
                if t < 32 {{ *p.add(i as usize + 1) += 1; }}
                i += 1;
            }}
        }} }}"#
    )
}

#[test]
fn convergent_intrinsics_stay_single() {
    for (i, shape) in [lanes_around("barrier(0);"), lanes_in_loop("barrier(0);")].iter().enumerate() {
        let Some(c) = cured(&format!("single_{i}"), "sm_90a", shape) else {
            return;
        };
        assert_eq!(c.count("bar"), 1, "{}", c.ptx);
    }
}

#[test]
fn convergent_inline_assembly_is_refused() {
    let Some(bench) = bench() else { return };
    let code = lanes_around(r#"asm!("bar.sync 0;", options(nostack));"#);
    let c = compile(&bench, "asm_barrier", "sm_90a", &code, None).unwrap();
    c.found("`bar.sync` is written as inline assembly");
    eprintln!("inline assembly: {} barriers for one", c.count("bar"));
}

/// rust#137086: jump threading on MIR copies even an intrinsic into both arms.
#[test]
fn jump_threading_is_off() {
    let Some(bench) = bench() else { return };
    let code = lanes_around("_syncthreads();");
    let with = compile(&bench, "threaded", "sm_80", &code, None).unwrap();
    assert_eq!(with.count("bar"), 1, "{}", with.ptx);
    let fault = compile(&bench, "threaded_fault", "sm_80", &code, Some("JumpThreading")).unwrap();
    eprintln!("with jump threading: {} barriers for one", fault.count("bar"));
}

/// llvm#179553: ordered read-modify-writes lose their order. There are none: the target has no atomics.
#[test]
fn atomics_do_not_exist() {
    let Some(bench) = bench() else { return };
    let code = r#"
        use core::sync::atomic::{AtomicU32, Ordering};
        #[unsafe(no_mangle)]
        pub unsafe extern "ptx-kernel" fn k(p: *mut AtomicU32) { unsafe { (*p).fetch_add(1, Ordering::AcqRel); } }"#;
    match compile(&bench, "atomics", "sm_80", code, None) {
        Err(Error::Failed { output, .. }) => assert!(output.contains("AtomicU32"), "{output}"),
        Err(e) => panic!("{e}"),
        Ok(_) => panic!("atomics compile"),
    }
}

#[test]
fn ordered_atomics_are_written_out() {
    let code = r#"
        #[unsafe(no_mangle)]
        pub unsafe extern "ptx-kernel" fn k(p: *mut u32) { unsafe {
            let old: u32;
            asm!("atom.acq_rel.gpu.global.add.u32 {0}, [{1}], 1;", out(reg32) old, in(reg64) p, options(nostack));
            *p.add(1) = old;
        } }"#;
    if let Some(c) = cured("ordered", "sm_80", code) {
        c.has("atom.acq_rel.gpu.global.add.u32");
    }
}

/// Alignment above 16 of a parameter makes the compiler panic, an array by value too: a plain struct, aligned later.
/// Taking its address the ordinary way copies it to local memory: by name it stays where it is.
#[test]
fn tensor_maps_by_value() {
    let code = r#"
        #[unsafe(no_mangle)]
        pub unsafe extern "ptx-kernel" fn k(p: *mut u64, map: TensorMap) { unsafe {
            let a: u64;
            asm!("{{ .reg .b64 t; mov.b64 t, k_param_1; cvta.param.u64 {0}, t; }}", out(reg64) a, options(pure, nomem, nostack));
            *p = a;
        } }"#;
    for arch in ["sm_80", "sm_90a"] {
        let Some(c) = cured(&format!("map_{arch}"), arch, code) else {
            return;
        };
        c.has(".param .align 64 .b8 param_1[128]");
        c.lacks("local");
        // sm_80 gets 7.0 from the compiler, which has no `cvta.param`
        c.has(if arch == "sm_80" { ".version 7.7" } else { ".version 8.0" });
    }
}

#[test]
fn the_address_of_a_parameter_is_local_memory() {
    let Some(bench) = bench() else { return };
    let code = r#"
        #[unsafe(no_mangle)]
        pub unsafe extern "ptx-kernel" fn k(p: *mut u64, mut map: TensorMap) { unsafe {
            asm!("st.u64 [{0}], 1;", in(reg64) &mut map, options(nostack));
            *p = map.0[3];
        } }"#;
    compile(&bench, "local_map", "sm_90a", code, None).unwrap().found("local");
}

/// Without launch bounds, ptxas ignores `setmaxnreg` (C7508).
#[test]
fn launch_bounds_make_setmaxnreg_count() {
    let code = r#"
        #[unsafe(no_mangle)]
        pub unsafe extern "ptx-kernel" fn k(p: *mut u32) { unsafe { fewer_registers(40); *p = lane(); } }"#;
    let Some(c) = cured("bounds", "sm_90a", code) else {
        return;
    };
    c.has(".maxntid 128, 1, 1\n.minnctapersm 1\n{");
    assert_eq!(c.count("setmaxnreg.dec"), 1);
    let fault = Compiled { ptx: c.ptx.replace(".maxntid 128, 1, 1\n.minnctapersm 1\n", ""), ..c };
    let Some((report, _)) = assemble(&fault, "no_bounds", "sm_90a") else {
        return;
    };
    assert!(report.notes.iter().any(|n| n.contains("setmaxnreg")), "{:?}", report.notes);
}

/// The registers of a block are those of its entry, which follow from the launch bounds. Roles that ask for more than that
/// wait for ever, and neither the compiler nor ptxas says so.
#[test]
fn roles_fit_the_registers_at_entry() {
    let Some(bench) = bench() else { return };
    let code = r#"
        unsafe extern "unadjusted" {
            #[link_name = "llvm.nvvm.setmaxnreg.inc.sync.aligned.u32"]
            fn more_registers(n: u32);
        }
        #[unsafe(no_mangle)]
        pub unsafe extern "ptx-kernel" fn k(p: *mut u32) { unsafe {
            if lane() < 128 { fewer_registers(40) } else { more_registers(232) }
            *p = lane();
        } }"#;
    for (blocks, registers) in [(1, 168), (2, 80)] {
        let prelude = PRELUDE.replace("7, 128, 1, 1", &format!("7, 384, {blocks}, 1"));
        let raw = bench.ptx("roles", &format!("{prelude}\n{code}"), "sm_90a", None).unwrap();
        let done = finish(&raw).unwrap();
        let c = Compiled { findings: lint(&raw, &done.items), ptx: done.ptx, raw };
        match blocks {
            1 => c.clean(),
            _ => c.found(&format!("ask for 504 registers a lane in all where `min_blocks = {blocks}`")),
        }
        let Some((report, _)) = assemble(&c, &format!("roles{blocks}"), "sm_90a") else {
            return;
        };
        assert!(report.notes.is_empty(), "{:?}", report.notes);
        assert_eq!(report.functions[0].registers, registers);
    }
}

#[test]
fn clusters_are_accepted() {
    let code = r#"
        #[unsafe(no_mangle)]
        pub unsafe extern "ptx-kernel" fn k(p: *mut u32) { unsafe { *p = lane(); } }"#;
    let Some(c) = cured("cluster", "sm_90a", code) else {
        return;
    };
    let bounds = ".minnctapersm 1\n";
    let pair = c.ptx.replace(bounds, &format!("{bounds}.explicitcluster\n.reqnctapercluster 2, 1, 1\n"));
    assert_ne!(pair, c.ptx);
    let Some((report, _)) = assemble(&Compiled { ptx: pair, ..c }, "cluster", "sm_90a") else {
        return;
    };
    assert!(report.notes.is_empty(), "{:?}", report.notes);
}

/// A function that is not inlined hides its stack from the entry's figures.
#[test]
fn functions_are_refused() {
    let Some(bench) = bench() else { return };
    let code = r#"
        #[inline(never)]
        fn f(n: u32, x: &mut [u32; 4]) -> u32 { if n == 0 { x[1] } else { x[(n & 3) as usize] += n; f(n / 2, x) ^ f(n - 1, x) } }
        #[unsafe(no_mangle)]
        pub unsafe extern "ptx-kernel" fn k(p: *mut u32) { unsafe { *p = f(lane(), &mut [0; 4]); } }"#;
    let c = compile(&bench, "functions", "sm_80", code, None).unwrap();
    c.found("was not inlined");
    c.found("a call is left");
}

/// An array goes to local memory unless every index is known after unrolling.
#[test]
fn arrays_stay_in_registers_when_written_out() {
    let Some(bench) = bench() else { return };
    let rolled = r#"
        #[unsafe(no_mangle)]
        pub unsafe extern "ptx-kernel" fn k(p: *mut f32, n: u32) { unsafe {
            let mut acc = [0f32; 64];
            let mut i = 0;
            while i < n { acc[(i * 7 & 63) as usize] += *p.add(i as usize); i += 1; }
            *p = acc[(n & 63) as usize];
        } }"#;
    compile(&bench, "rolled", "sm_80", rolled, None).unwrap().found("local memory");
    let sums: String = (0..64).map(|i| format!("acc[{i}] += *p.add({i}) * x;")).collect();
    let stores: String = (0..64).map(|i| format!("*p.add({i}) = acc[{i}];")).collect();
    let straight = format!(
        r#"#[unsafe(no_mangle)]
        pub unsafe extern "ptx-kernel" fn k(p: *mut f32, n: u32) {{ unsafe {{
            let mut acc = [0f32; 64];
            let mut i = 0;
            while i < n {{ let x = i as f32; {sums} i += 1; }}
            {stores}
        }} }}"#
    );
    if let Some(c) = cured("straight", "sm_80", &straight) {
        c.lacks("local");
    }
}

/// `expf` and its like cannot be selected; the instructions can be written.
#[test]
fn approximations_are_written_out() {
    let code = r#"
        #[unsafe(no_mangle)]
        pub unsafe extern "ptx-kernel" fn k(p: *mut f32) { unsafe {
            let mut x = *p;
            asm!("ex2.approx.ftz.f32 {0}, {0};", inout(reg32) x, options(pure, nomem, nostack));
            asm!("lg2.approx.ftz.f32 {0}, {0};", inout(reg32) x, options(pure, nomem, nostack));
            asm!("rsqrt.approx.ftz.f32 {0}, {0};", inout(reg32) x, options(pure, nomem, nostack));
            asm!("tanh.approx.f32 {0}, {0};", inout(reg32) x, options(pure, nomem, nostack));
            *p = x;
        } }"#;
    if let Some(c) = cured("approx", "sm_80", code) {
        c.has("tanh.approx.f32");
    }
}

/// A conversion is one instruction, not forty.
#[test]
fn conversions_are_one_instruction() {
    let code = r#"
        #[unsafe(no_mangle)]
        pub unsafe extern "ptx-kernel" fn k(p: *mut u32, a: f32, b: f32) { unsafe {
            let (h, w): (u32, u32);
            asm!("cvt.rn.bf16x2.f32 {0}, {1}, {2};", out(reg32) w, in(reg32) a, in(reg32) b, options(pure, nomem, nostack));
            asm!("cvt.rn.f16x2.f32 {0}, {1}, {2};", out(reg32) h, in(reg32) a, in(reg32) b, options(pure, nomem, nostack));
            *p = w;
            *p.add(1) = h;
        } }"#;
    let Some(c) = cured("convert", "sm_80", code) else {
        return;
    };
    c.has("cvt.rn.bf16x2.f32");
    let instructions = c.ptx.lines().filter(|l| l.ends_with(';') && !l.trim_start().starts_with('.')).count();
    assert!(instructions < 12, "{}", c.ptx);
}

/// A division by what may be zero leaves a panic; one that cannot be does not.
#[test]
fn divisions_leave_no_panic() {
    let Some(bench) = bench() else { return };
    let entry = |body: &str| {
        format!(
            r#"#[unsafe(no_mangle)] pub unsafe extern "ptx-kernel" fn k(p: *mut u32, n: u32) {{ unsafe {{ {body} }} }}"#
        )
    };
    let fault = compile(&bench, "divide", "sm_80", &entry("*p = *p / n;"), None).unwrap();
    assert!(!fault.findings.is_empty(), "{}", fault.ptx);
    cured("divide_checked", "sm_80", &entry("*p = (*p).checked_div(n).unwrap_or(0);"));
    cured("divide_nonzero", "sm_80", &entry("if let Some(n) = core::num::NonZeroU32::new(n) { *p = *p / n; }"));
}

/// A thin pointer that is a parameter itself is known to be global.
#[test]
fn thin_pointers_store_to_global_memory() {
    let code = r#"
        #[unsafe(no_mangle)]
        pub unsafe extern "ptx-kernel" fn k(p: *mut u32, n: u32) { unsafe { *p.add(lane() as usize) = n; } }"#;
    if let Some(c) = cured("thin", "sm_80", code) {
        c.has("st.global.b32");
    }
}

#[test]
fn shared_memory_is_named_once() {
    let code = r#"
        core::arch::global_asm!(".extern .shared .align 1024 .b8 dyn_smem[];");
        #[unsafe(no_mangle)]
        pub unsafe extern "ptx-kernel" fn k(p: *mut u32) { unsafe {
            let s: u32;
            asm!("mov.u32 {0}, dyn_smem;", out(reg32) s, options(pure, nomem, nostack));
            asm!("st.shared.u32 [{0}], {1};", in(reg32) s, in(reg32) lane(), options(nostack));
            barrier(0);
            let v: u32;
            asm!("ld.shared.u32 {0}, [{1}];", out(reg32) v, in(reg32) s, options(nostack));
            *p = v;
        } }"#;
    if let Some(c) = cured("shared", "sm_80", code) {
        assert_eq!(c.ptx.matches(".extern .shared").count(), 1);
    }
}

/// There are no predicate operands and no labels in assembly: a wait is a loop in Rust around a test that gives 0 or 1.
#[test]
fn waits_loop_in_rust() {
    let code = r#"
        #[unsafe(no_mangle)]
        pub unsafe extern "ptx-kernel" fn k(p: *mut u32, bar: u32, phase: u32) { unsafe {
            loop {
                let done: u32;
                asm!("{{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [{1}], {2}; selp.u32 {0}, 1, 0, p; }}",
                    out(reg32) done, in(reg32) bar, in(reg32) phase, options(nostack));
                if done != 0 { break; }
            }
            *p = 1;
        } }"#;
    if let Some(c) = cured("wait", "sm_90a", code) {
        assert_eq!(c.ptx.matches("mbarrier.try_wait").count(), 1);
    }
}

/// The only convergent instruction without an intrinsic stays behind its fence.
#[test]
fn products_follow_their_fence() {
    let code = r#"
        #[unsafe(no_mangle)]
        pub unsafe extern "ptx-kernel" fn k(p: *mut f32, a: u64, b: u64, n: u32) { unsafe {
            let (mut x, mut y, mut z, mut w) = (0f32, 0f32, 0f32, 0f32);
            let t = lane();
            let mut i = 0;
            while i < n {
                if t == 0 { *p.add(4) = x; }
                fence();
                asm!("{{ .reg .pred q; setp.ne.b32 q, 1, 0; wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {{{0}, {1}, {2}, {3}}}, {4}, {5}, q, 1, 1, 0, 0; }}",
                    inout(reg32) x, inout(reg32) y, inout(reg32) z, inout(reg32) w, in(reg64) a, in(reg64) b, options(nostack));
                commit();
                wait(0);
                if t == 0 { *p.add(5) = y; }
                i += 1;
            }
            *p = x; *p.add(1) = y; *p.add(2) = z; *p.add(3) = w;
        } }"#;
    let Some(c) = cured("product", "sm_90a", code) else {
        return;
    };
    for op in ["wgmma.fence", "wgmma.mma_async", "wgmma.commit_group", "wgmma.wait_group"] {
        assert_eq!(c.count(op), 1, "{op}\n{}", c.ptx);
    }
}

/// A static that a kernel writes is shared by all blocks behind the types' back.
#[test]
fn statics_cannot_be_written() {
    let Some(bench) = bench() else { return };
    let code = r#"
        static mut COUNT: u32 = 0;
        #[unsafe(no_mangle)]
        pub unsafe extern "ptx-kernel" fn k(p: *mut u32, i: u32) { unsafe { COUNT += i; *p = COUNT; } }"#;
    compile(&bench, "statics", "sm_80", code, None).unwrap().found("writes to the module's variable");
}

/// Debug sections are invalid in old PTX, and line numbers name files of one machine.
#[test]
fn nothing_of_the_build_is_left() {
    let Some(c) = cured("traces", "sm_80", &lanes_around("barrier(0);")) else {
        return;
    };
    for gone in ["//", ".file", ".loc", ".section", "__meta", ".version 6"] {
        c.lacks(gone);
    }
}
