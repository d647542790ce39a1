//! What `benches/results/*.json` say, as people read it: a summary in the README, every row in `docs/results.md`, and a
//! plot of each run in `docs/plots`.

mod plot;
mod table;

use serde::Deserialize;
use std::path::{Path, PathBuf};

use crate::step::{Failure, Outcome};

const BEGIN: &str = "<!-- results: made by `cargo xtask results` -->";
const END: &str = "<!-- end of results -->";

/// One run of one GPU: all its candidates were timed beside each other.
#[derive(Deserialize)]
struct Run {
    gpu: String,
    driver: String,
    date: String,
    commit: String,
    rows: Vec<Row>,
}

/// One shape beside one peer; `ratio` is the peer's time over ours.
#[derive(Deserialize)]
struct Row {
    op: String,
    dtype: String,
    shape: String,
    ours_us: f64,
    peer: String,
    peer_us: f64,
    ratio: f64,
}

impl Run {
    fn title(&self) -> String {
        let Self { gpu, driver, date, commit, .. } = self;
        format!("{gpu}, driver {driver}, {date}, commit {commit}")
    }
}

/// Rows that compare the same two things, over their shapes, in the order of the file.
struct Group<'a> {
    op: &'a str,
    dtype: &'a str,
    peer: &'a str,
    rows: Vec<&'a Row>,
}

impl<'a> Group<'a> {
    fn all(run: &'a Run) -> Vec<Self> {
        let mut groups: Vec<Self> = Vec::new();
        for row in &run.rows {
            let same = |g: &&mut Self| g.op == row.op && g.dtype == row.dtype && g.peer == row.peer;
            match groups.iter_mut().find(same) {
                Some(group) => group.rows.push(row),
                None => groups.push(Self { op: &row.op, dtype: &row.dtype, peer: &row.peer, rows: vec![row] }),
            }
        }
        groups
    }

    fn geometric_mean(&self) -> f64 {
        let sum: f64 = self.rows.iter().map(|r| r.ratio.ln()).sum();
        (sum / self.rows.len() as f64).exp()
    }

    fn least(&self) -> Option<&'a Row> {
        self.rows.iter().copied().min_by(|a, b| a.ratio.total_cmp(&b.ratio))
    }

    fn greatest(&self) -> Option<&'a Row> {
        self.rows.iter().copied().max_by(|a, b| a.ratio.total_cmp(&b.ratio))
    }
}

/// Writes everything that is made from the results.
pub fn write(root: &Path) -> Outcome {
    for (path, text) in made(root)? {
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(|e| Failure::new(format!("{}: {e}", parent.display())))?;
        }
        std::fs::write(&path, text).map_err(|e| Failure::new(format!("{}: {e}", path.display())))?;
    }
    Ok(())
}

/// Fails if anything that is made from the results is not what they say.
pub fn check(root: &Path) -> Outcome {
    for (path, text) in made(root)? {
        if std::fs::read_to_string(&path).ok().as_ref() != Some(&text) {
            return Err(Failure::new(format!("{} is out of date; run `cargo xtask results`", path.display())));
        }
    }
    Ok(())
}

/// Files and what should stand in them.
fn made(root: &Path) -> Result<Vec<(PathBuf, String)>, Failure> {
    let runs = read(&root.join("benches/results"))?;
    let readme = root.join("README.md");
    let old = std::fs::read_to_string(&readme).map_err(|e| Failure::new(format!("{}: {e}", readme.display())))?;
    let parts = old.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let (before, after) = parts.ok_or_else(|| Failure::new(format!("README.md has no `{BEGIN}` ... `{END}`")))?;
    let mut files = vec![
        (readme, format!("{before}{BEGIN}\n{}{END}{after}", table::summary(&runs))),
        (root.join("docs/results.md"), table::complete(&runs)),
    ];
    for (name, run) in &runs {
        files.push((root.join(format!("docs/plots/{name}.svg")), plot::ratios(run)?));
    }
    Ok(files)
}

/// The runs with the names of their files, in the order of these.
fn read(dir: &Path) -> Result<Vec<(String, Run)>, Failure> {
    let fail = |e: std::io::Error| Failure::new(format!("{}: {e}", dir.display()));
    let mut runs = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(fail)? {
        let path = entry.map_err(fail)?.path();
        let (Some("json"), Some(name)) =
            (path.extension().and_then(|e| e.to_str()), path.file_stem().and_then(|s| s.to_str()))
        else {
            continue;
        };
        let text = std::fs::read_to_string(&path).map_err(fail)?;
        let run = serde_json::from_str(&text).map_err(|e| Failure::new(format!("{}: {e}", path.display())))?;
        runs.push((name.to_owned(), run));
    }
    runs.sort_by(|a: &(String, Run), b| a.0.cmp(&b.0));
    Ok(runs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run() -> Run {
        let row = |op: &str, shape: &str, ratio| Row {
            op: op.into(),
            dtype: "bf16".into(),
            shape: shape.into(),
            ours_us: 2.0,
            peer: "copy".into(),
            peer_us: 2.0 * ratio,
            ratio,
        };
        let rows = vec![row("softmax", "8x8", 0.5), row("rmsnorm", "1x8", 1.0), row("softmax", "9x9", 2.0)];
        Run { gpu: "G".into(), driver: "1".into(), date: "d".into(), commit: "c".into(), rows }
    }

    #[test]
    fn rows_are_grouped_by_what_they_compare() {
        let run = run();
        let groups = Group::all(&run);
        assert_eq!(groups.iter().map(|g| (g.op, g.rows.len())).collect::<Vec<_>>(), [("softmax", 2), ("rmsnorm", 1)]);
        assert!((groups[0].geometric_mean() - 1.0).abs() < 1e-12);
        assert_eq!(groups[0].least().map(|r| r.shape.as_str()), Some("8x8"));
        assert_eq!(groups[0].greatest().map(|r| r.shape.as_str()), Some("9x9"));
    }

    #[test]
    fn every_row_stands_in_the_complete_table_losses_included() {
        let text = table::complete(&[("r".into(), run())]);
        assert_eq!(text.lines().filter(|l| l.starts_with("| `")).count(), 3);
        assert!(text.contains("| 0.50 |"), "{text}");
    }

    #[test]
    fn a_plot_has_a_dot_for_every_row() {
        let svg = plot::ratios(&run()).unwrap_or_else(|e| panic!("{e:?}"));
        assert_eq!(svg.matches("<circle").count(), 3);
    }
}
