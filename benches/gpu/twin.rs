//! What the checks cost on the device: kernels beside their unchecked twins.
//!
//! The twin is the kernel's own PTX in which every access of a register tile to global memory is made without asking
//! whether it lies inside the view, and in which the element-by-element edges are gone. The compiler then removes what
//! computed the answers. It is right for tensors of whole, aligned tiles alone, which is what it is given; its results
//! are compared with the kernel's, bit by bit. Both are compiled by the same driver from text, and launched alike.

use tilewright::__private::Args;
use tilewright::kernels::elementwise::axpy;
use tilewright::kernels::{gated::silu_mul, rmsnorm};
use tilewright::prelude::*;

use crate::bare::{Driver, addresses, text_of};
use crate::report::{Report, Row};
use crate::timing::{candidate, measure};

type Failed = Box<dyn std::error::Error>;

/// The text without its checks, and how many accesses there were that asked.
fn unchecked(text: &str) -> (String, usize) {
    let (mut out, mut found) = (String::with_capacity(text.len()), 0);
    let mut in_edge = false;
    for line in text.lines() {
        let bare = line.trim_start();
        // an edge, element by element: a block of several lines
        in_edge |= bare.starts_with("{ .reg .pred p,q;.reg .b32 n,t;");
        if in_edge {
            in_edge = !bare.ends_with('}');
            continue;
        }
        let guarded = bare.strip_prefix("{ .reg .pred p;setp.lt.u32 p,");
        match guarded.and_then(|rest| rest.split_once(";@p ")).and_then(|(_, access)| access.strip_suffix('}')) {
            Some(access) => {
                found += 1;
                out.push_str(access);
            }
            None => out.push_str(line),
        }
        out.push('\n');
    }
    (out, found)
}

/// Times `K` and its twin. `read` gives what the kernel has written.
fn pair<K: Kernel>(
    stream: &Stream,
    report: &mut Report,
    (op, dtype, shape): (&'static str, DType, String),
    blocks: u32,
    sets: &[K::Args<'_>],
    mut read: impl FnMut() -> Result<Vec<u32>, Error>,
) -> Result<bool, Failed> {
    K::prepare(&stream.device())?;
    let driver = Driver::open()?;
    let text = text_of::<K>()?;
    let (without, found) = unchecked(&text);
    if found == 0 {
        return Err(format!("{} has no access that asks", K::NAME).into());
    }
    let (ours, twin) = (driver.load::<K>(&text)?, driver.load::<K>(&without)?);
    let lowered: Vec<_> = sets.iter().map(Args::lower).collect();
    let launch = |f: &crate::bare::Function, s: &Stream, i: usize| {
        // SAFETY: the parameters of the kernel; the tensors are used on this stream alone.
        unsafe { f.launch(s, blocks, &mut addresses::<K::Args<'_>>(&lowered[i])) }.expect("a launch");
        Ok(())
    };
    let mut results = Vec::new();
    for f in [&ours, &twin] {
        launch(f, stream, 0)?;
        stream.synchronize()?;
        results.push(read()?);
    }
    let same = results[0] == results[1];
    if !same {
        println!("{op} {shape}: the twin's results differ");
    }
    let mut both = [
        candidate(stream, "checked", sets.len(), |s, i| launch(&ours, s, i))?,
        candidate(stream, "twin", sets.len(), |s, i| launch(&twin, s, i))?,
    ];
    measure(stream, &mut both, 31, 4.0)?;
    let (ours_us, peer_us) = (both[0].micros(), both[1].micros());
    let rate = format!("{:+.2} % ({found} accesses)", (ours_us / peer_us - 1.0) * 100.0);
    report.add(Row { op, dtype, shape, ours_us, peer: "unchecked twin", peer_us, rate });
    Ok(same)
}

/// `n` numbers in (-1, 1), the same in every run.
fn random<T: Element<Value = f32>>(n: usize, seed: u32) -> Vec<T> {
    let mut x = seed | 1;
    let mut next = || {
        x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        T::from_value((x >> 8) as f32 / (1 << 23) as f32 - 1.0)
    };
    (0..n).map(|_| next()).collect()
}

/// Rotated buffers: three times the L2 cache, but for the small shapes, which stay in it.
const SETS: usize = 3;

pub fn time(stream: &Stream, report: &mut Report) -> Result<bool, Failed> {
    let mut right = true;
    for n in [1 << 20, 1 << 24] {
        let data = random::<f32>(n, 1);
        let make = || Tensor::from_slice(stream, [n], &data);
        let x: Vec<Tensor<f32, 1>> = (0..SETS).map(|_| make()).collect::<Result<_, _>>()?;
        let mut y: Vec<Tensor<f32, 1>> = (0..SETS).map(|_| make()).collect::<Result<_, _>>()?;
        let first = make()?;
        let base = y[0].as_mut_ptr();
        let mut args = Vec::new();
        for (x, y) in x.iter().zip(&mut y) {
            args.push((0.5, x.tiles()?, y.tiles_mut()?));
        }
        // in place: the next run starts from the same numbers
        let read = || {
            // SAFETY: the stream is idle, and `y[0]` is used by launches of this stream alone.
            let mut now = unsafe { TensorViewMut::from_raw(&stream.device(), base, [n], [1]) }?;
            let found = now.view().to_vec(stream)?;
            now.copy_from(stream, first.view())?;
            Ok(found.into_iter().map(f32::to_bits).collect())
        };
        let what = ("twin_axpy", DType::F32, n.to_string());
        right &= pair::<axpy<f32>>(stream, report, what, (n / 2048) as u32, &args, read)?;
    }
    for (rows, cols) in [(256, 4096), (4096, 8192)] {
        let n = rows * cols;
        let make = |seed| Tensor::from_slice(stream, [rows, cols], &random::<bf16>(n, seed));
        let gate: Vec<Tensor<bf16, 2>> = (0..SETS).map(|_| make(1)).collect::<Result<_, _>>()?;
        let up: Vec<Tensor<bf16, 2>> = (0..SETS).map(|_| make(2)).collect::<Result<_, _>>()?;
        let mut y: Vec<Tensor<bf16, 2>> = (0..SETS).map(|_| make(3)).collect::<Result<_, _>>()?;
        let base = y[0].as_mut_ptr();
        let mut args = Vec::new();
        for ((gate, up), y) in gate.iter().zip(&up).zip(&mut y) {
            args.push((gate.tiles()?, up.tiles()?, y.tiles_mut()?));
        }
        let what = ("twin_silu_mul", DType::BF16, format!("{rows}x{cols}"));
        let read = || written(stream, base, [rows, cols]);
        right &= pair::<silu_mul<bf16, 2048>>(stream, report, what, (n / 2048) as u32, &args, read)?;
    }
    for rows in [256, 8192] {
        let cols = 4096;
        let make = |seed| Tensor::from_slice(stream, [rows, cols], &random::<bf16>(rows * cols, seed));
        let x: Vec<Tensor<bf16, 2>> = (0..SETS).map(|_| make(1)).collect::<Result<_, _>>()?;
        let w = Tensor::from_slice(stream, [1, cols], &random::<bf16>(cols, 2))?;
        let mut y: Vec<Tensor<bf16, 2>> = (0..SETS).map(|_| make(3)).collect::<Result<_, _>>()?;
        let base = y[0].as_mut_ptr();
        let mut args = Vec::new();
        for (x, y) in x.iter().zip(&mut y) {
            args.push((x.view().row_tiles()?, w.view().row_tiles()?, y.view_mut().row_tiles_mut()?, 1e-6, 0.0));
        }
        let what = ("twin_rmsnorm", DType::BF16, format!("{rows}x{cols}"));
        let read = || written(stream, base, [rows, cols]);
        type K = rmsnorm::rows::plain<bf16, bf16, 1, 4096, 128, 8>;
        right &= pair::<K>(stream, report, what, rows as u32, &args, read)?;
    }
    Ok(right)
}

/// What a kernel has written, and NaN in its place for the next.
fn written(stream: &Stream, base: *mut bf16, extents: [usize; 2]) -> Result<Vec<u32>, Error> {
    // SAFETY: the stream is idle, and the memory is used by launches of this stream alone.
    let mut y = unsafe { TensorViewMut::from_raw(&stream.device(), base, extents, [extents[1], 1]) }?;
    let found = y.view().to_vec(stream)?;
    y.fill(stream, bf16::from_f32(f32::NAN))?;
    Ok(found.into_iter().map(|v| u32::from(v.to_bits())).collect())
}
