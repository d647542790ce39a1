//! Measures every configuration of the Hopper products on the shapes of the table, and writes the table:
//! `gpu --tune src/ops/gemm/table.rs`.

use std::fmt::Write as _;

use tilewright::ops::gemm::{Config, Path, gemm_with};
use tilewright::prelude::*;

use crate::cublas::Cublas;
use crate::gemm::{Buffers, WEIGHTS, buffers, by_cublas};
use crate::timing::{Candidate, candidate, measure};

const HEAD: &str = "//! What was measured fastest. Written by `gpu --tune` (see `benches/gpu/tune.rs`): rows of A, rows of B, depth, and the
//! configuration. Up to 128, rows of A stand for all from half of it up (16: from 1).

use super::config::{Config, Decode};

";

/// As the table spells it.
fn source(config: Config) -> String {
    match config {
        Config::Decode(d) => {
            format!("Config::Decode(Decode::new({}, {}, {}, {}))", d.rows(), d.tokens(), d.split(), d.persistent())
        }
        Config::Cooperative => "Config::Cooperative".into(),
        _ => "Config::PingPong".into(),
    }
}

/// Whether it could be the fastest for so many rows of A.
fn worth(config: Config, m: usize) -> bool {
    match config {
        Config::Decode(d) if m <= 128 => d.tokens() == m.max(16) || m == 128 && d.tokens() == 64,
        Config::Decode(d) => d.tokens() == 128 && d.split() <= 3,
        other => other.path() == Path::Hopper && m > 128,
    }
}

/// Times all configurations of all shapes, and writes the table to `path`.
pub fn tune(stream: &Stream, path: &str) -> Result<(), Box<dyn std::error::Error>> {
    if stream.device().compute_capability() != Some((9, 0)) {
        return Err("--tune measures the configurations for Hopper GPUs".into());
    }
    let mut shapes: Vec<_> = WEIGHTS.iter().flat_map(|&(n, k)| [16, 32, 64, 128].map(|m| [m, n, k])).collect();
    shapes.extend([[256, 4096, 4096], [512, 4096, 4096], [1024, 1024, 1024], [2048, 2048, 2048], [4096, 4096, 4096]]);
    shapes.extend([
        [4096, 2112, 7168],
        [4096, 7168, 2048],
        [4096, 4096, 7168],
        [4096, 24576, 1536],
        [4096, 32768, 512],
    ]);
    let cublas = Cublas::load(stream).ok();
    let mut table = format!(
        "{HEAD}/// On an {}.\npub const SM_90A: &[(usize, usize, usize, Config)] = &[\n",
        stream.device().name()
    );
    for (i, &[m, n, k]) in shapes.iter().enumerate() {
        let buffers = buffers::<bf16>(stream, [m, n, k])?;
        let configs: Vec<_> = Config::all().filter(|c| worth(*c, m)).collect();
        let mut all = Vec::new();
        for &config in &configs {
            all.push(timed(stream, config, &buffers)?);
        }
        if let Some(cublas) = &cublas {
            all.push(by_cublas(stream, cublas, &buffers)?);
        }
        measure(stream, &mut all, 5, if m < 1024 { 2.0 } else { 4.0 })?;
        let mut order: Vec<_> = configs.iter().zip(&all).map(|(config, c)| (c.micros(), *config)).collect();
        order.sort_by(|a, b| a.0.total_cmp(&b.0));
        let peer = all.get(configs.len()).map_or(f64::NAN, Candidate::micros);
        let (best, config) = order[0];
        let next = order.get(1).map_or_else(String::new, |(t, c)| format!(", next {c} {t:.2}"));
        let done = format!("{}/{}", i + 1, shapes.len());
        println!("{done:>6} {m}x{n}x{k}: {config} {best:.2} us{next}; cuBLAS {peer:.2} ({:.3})", peer / best);
        writeln!(table, "    ({m}, {n}, {k}, {}),", source(config))?;
    }
    table.push_str("];\n");
    std::fs::write(path, table)?;
    Ok(())
}

fn timed(stream: &Stream, config: Config, buffers: &[Buffers<bf16>]) -> Result<Candidate, Error> {
    candidate(stream, "", buffers.len(), |s: &Stream, set: usize| {
        let (a, b, c) = &buffers[set];
        gemm_with(config, s, a.view(), b.view(), c.borrow_mut().view_mut())
    })
}
