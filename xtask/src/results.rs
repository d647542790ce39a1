//! The README's table of measured figures, made from `benches/results/*.json`.

use crate::step::{Failure, Outcome};
use serde_json::Value;
use std::fmt::Write as _;
use std::path::Path;

const BEGIN: &str = "<!-- results: made by `cargo xtask results` -->";
const END: &str = "<!-- end of results -->";

/// Writes the table into the README.
pub fn write(root: &Path) -> Outcome {
    let path = root.join("README.md");
    let (readme, new) = updated(root)?;
    if readme != new {
        std::fs::write(&path, new).map_err(|e| Failure::new(format!("{}: {e}", path.display())))?;
    }
    Ok(())
}

/// Fails if the README's table is not what the results say.
pub fn check(root: &Path) -> Outcome {
    let (readme, new) = updated(root)?;
    if readme == new {
        return Ok(());
    }
    Err(Failure::new("README.md: the table of results is out of date; run `cargo xtask results`"))
}

fn updated(root: &Path) -> Result<(String, String), Failure> {
    let path = root.join("README.md");
    let readme = std::fs::read_to_string(&path).map_err(|e| Failure::new(format!("{}: {e}", path.display())))?;
    let parts = readme.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let (before, after) = parts.ok_or_else(|| Failure::new(format!("README.md has no `{BEGIN}` ... `{END}`")))?;
    let new = format!("{before}{BEGIN}\n{}{END}{after}", tables(&root.join("benches/results"))?);
    Ok((readme.clone(), new))
}

fn tables(dir: &Path) -> Result<String, Failure> {
    let fail = |e: std::io::Error| Failure::new(format!("{}: {e}", dir.display()));
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(fail)? {
        let path = entry.map_err(fail)?.path();
        if path.extension().is_some_and(|e| e == "json") {
            files.push(path);
        }
    }
    files.sort();
    let mut out = String::new();
    for file in files {
        let text = std::fs::read_to_string(&file).map_err(fail)?;
        let run: Value = serde_json::from_str(&text).map_err(|e| Failure::new(format!("{}: {e}", file.display())))?;
        table(&run, &mut out).ok_or_else(|| Failure::new(format!("{}: a field is missing", file.display())))?;
    }
    Ok(out)
}

fn table(run: &Value, out: &mut String) -> Option<()> {
    let text = |key: &str| run.get(key)?.as_str();
    let (gpu, driver, date, commit) = (text("gpu")?, text("driver")?, text("date")?, text("commit")?);
    let rows = run.get("rows")?.as_array()?;
    let _ = writeln!(out, "\n{gpu}, driver {driver}, {date}, commit {commit}:\n");
    let (first, rest): (Vec<_>, Vec<_>) = rows.iter().partition(|r| is_headline(r));
    lines(&first, out)?;
    let _ = writeln!(out, "\n<details><summary>and {} more rows</summary>\n", rest.len());
    lines(&rest, out)?;
    out.push_str("\n</details>\n");
    Some(())
}

/// The shapes of the project's aim.
fn is_headline(row: &Value) -> bool {
    let shape = row.get("shape").and_then(Value::as_str).unwrap_or_default();
    let dtype = row.get("dtype").and_then(Value::as_str).unwrap_or_default();
    shape == "host"
        || dtype == "bf16" && ["4096x4096x4096", "8192x8192x8192", "32768x4096", "128/128/4096"].contains(&shape)
}

fn lines(rows: &[&Value], out: &mut String) -> Option<()> {
    out.push_str(
        "| | type | shape | tilewright, us | | peer | its us | ratio |\n|---|---|---|---:|---:|---|---:|---:|\n",
    );
    for row in rows {
        let text = |key: &str| row.get(key)?.as_str();
        let number = |key: &str| row.get(key)?.as_f64();
        let (op, shape, ours) = (text("op")?, text("shape")?, number("ours_us")?);
        let _ = writeln!(
            out,
            "| `{op}` | {} | {shape} | {ours:.1} | {} | {} | {:.1} | {:.2} |",
            text("dtype")?,
            rate(op, text("dtype")?, shape, ours).unwrap_or_default(),
            text("peer")?,
            number("peer_us")?,
            number("ratio")?,
        );
    }
    Some(())
}

/// What the time is worth.
fn rate(op: &str, dtype: &str, shape: &str, us: f64) -> Option<String> {
    let extents: Vec<f64> = shape.split('x').map(|e| e.parse().ok()).collect::<Option<_>>()?;
    let size = match dtype {
        "f32" => 4.0,
        _ => 2.0,
    };
    match *extents.as_slice() {
        [m, n, k] => Some(format!("{:.0} TFLOP/s", 2e-6 * m * n * k / us)),
        [m, n] if ["rmsnorm", "layernorm", "softmax"].iter().any(|name| op.starts_with(name)) => {
            let passes = if op.ends_with("residual") { 4.0 } else { 2.0 };
            Some(format!("{:.0} GB/s", passes * m * n * size / us * 1e-3))
        }
        _ => None,
    }
}
