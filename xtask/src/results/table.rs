//! Results as tables.

use std::fmt::Write as _;

use super::{Group, Row, Run};

/// One line for each pair of things compared: what a reader wants first.
pub fn summary(runs: &[(String, Run)]) -> String {
    let mut out = String::new();
    for (name, run) in runs {
        let _ = writeln!(out, "\n{} ([plot](docs/plots/{name}.svg)):\n", run.title());
        out.push_str("| | type | beside | shapes | ratio, geometric mean | least | greatest |\n");
        out.push_str("|---|---|---|---:|---:|---|---|\n");
        for group in Group::all(run) {
            let end = |row: Option<&Row>| row.map(|r| format!("{:.2} at {}", r.ratio, r.shape)).unwrap_or_default();
            let Group { op, dtype, peer, .. } = group;
            let (count, mean) = (group.rows.len(), group.geometric_mean());
            let (least, greatest) = (end(group.least()), end(group.greatest().filter(|_| count > 1)));
            let _ = writeln!(out, "| `{op}` | {dtype} | {peer} | {count} | {mean:.2} | {least} | {greatest} |");
        }
    }
    out
}

/// Every row of every run.
pub fn complete(runs: &[(String, Run)]) -> String {
    let mut out = String::from("# Measured: every row\n\nMade from `benches/results` by `cargo xtask results`. ");
    out.push_str("Ratio = the peer's time / ours, above 1 is faster.\n");
    for (name, run) in runs {
        let _ = writeln!(out, "\n## {}\n\n![ratios](plots/{name}.svg)\n", run.title());
        out.push_str("| | type | shape | tilewright, us | | peer | its us | ratio |\n");
        out.push_str("|---|---|---|---:|---:|---|---:|---:|\n");
        for row in &run.rows {
            let Row { op, dtype, shape, ours_us, peer, peer_us, ratio } = row;
            let rate = rate(row).unwrap_or_default();
            let _ = writeln!(
                out,
                "| `{op}` | {dtype} | {shape} | {ours_us:.1} | {rate} | {peer} | {peer_us:.1} | {ratio:.2} |"
            );
        }
    }
    out
}

/// What the time is worth.
fn rate(row: &Row) -> Option<String> {
    let extents: Vec<f64> = row.shape.split('x').map(|e| e.parse().ok()).collect::<Option<_>>()?;
    let size = if row.dtype == "f32" { 4.0 } else { 2.0 };
    match *extents.as_slice() {
        [m, n, k] if row.op.starts_with("gemm") => Some(format!("{:.0} TFLOP/s", 2e-6 * m * n * k / row.ours_us)),
        [m, n] if ["rmsnorm", "layernorm", "softmax"].iter().any(|name| row.op.starts_with(name)) => {
            let passes = if row.op.ends_with("residual") { 4.0 } else { 2.0 };
            Some(format!("{:.0} GB/s", passes * m * n * size / row.ours_us * 1e-3))
        }
        _ => None,
    }
}
