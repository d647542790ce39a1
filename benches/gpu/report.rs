//! Figures as a table and as JSON.

use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use tilewright::prelude::*;

/// One figure beside one peer's.
pub struct Row {
    pub op: &'static str,
    pub dtype: DType,
    pub shape: String,
    pub ours_us: f64,
    pub peer: &'static str,
    pub peer_us: f64,
    /// What the time is worth, for the table alone: `700 TFLOP/s`.
    pub rate: String,
}

pub struct Report {
    gpu: String,
    driver: String,
    commit: String,
    rows: Vec<Row>,
}

impl Report {
    pub fn new(device: Device, commit: Option<&str>) -> Self {
        Report {
            gpu: device.name().to_string(),
            driver: driver(device),
            commit: commit.unwrap_or("unknown").to_string(),
            rows: Vec::new(),
        }
    }

    pub fn add(&mut self, row: Row) {
        println!("{}", line(&row));
        self.rows.push(row);
    }

    /// All rows once more, as a table.
    pub fn print(&self) {
        println!("\n{} (driver {}), ratio = peer's time / ours", self.gpu, self.driver);
        for row in &self.rows {
            println!("{}", line(row));
        }
    }

    pub fn write(&self, path: &str) -> std::io::Result<()> {
        let mut text = String::new();
        let (gpu, driver, commit, date) = (&self.gpu, &self.driver, &self.commit, today());
        let _ = writeln!(
            text,
            "{{\"gpu\": \"{gpu}\", \"driver\": \"{driver}\", \"date\": \"{date}\", \"commit\": \"{commit}\", \"rows\": ["
        );
        for (i, r) in self.rows.iter().enumerate() {
            let comma = if i + 1 < self.rows.len() { "," } else { "" };
            let _ = writeln!(
                text,
                "  {{\"op\": \"{}\", \"dtype\": \"{}\", \"shape\": \"{}\", \"ours_us\": {:.3}, \"peer\": \"{}\", \"peer_us\": {:.3}, \"ratio\": {:.4}}}{comma}",
                r.op,
                r.dtype,
                r.shape,
                r.ours_us,
                r.peer,
                r.peer_us,
                r.peer_us / r.ours_us
            );
        }
        text.push_str("]}\n");
        std::fs::write(path, text)
    }
}

fn line(r: &Row) -> String {
    format!(
        "{:<16} {:<5} {:<18} {:>9.2} us {:<14} {:<12} {:>9.2} us  {:.3}",
        r.op,
        r.dtype.name(),
        r.shape,
        r.ours_us,
        r.rate,
        r.peer,
        r.peer_us,
        r.peer_us / r.ours_us
    )
}

/// The driver's own version if the system tells it, and the CUDA version that it supports.
fn driver(device: Device) -> String {
    let cuda = device.driver_version().map_or_else(String::new, |v| format!("CUDA {v}"));
    let text = std::fs::read_to_string("/proc/driver/nvidia/version").unwrap_or_default();
    let number =
        text.split_whitespace().find(|w| w.split('.').count() == 3 && w.starts_with(|c: char| c.is_ascii_digit()));
    number.map_or_else(|| cuda.clone(), |n| format!("{n}, {cuda}"))
}

/// The date, from the days since 1970 (Hinnant, "chrono-Compatible Low-Level Date Algorithms").
fn today() -> String {
    let days = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs() / 86_400) as i64 + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let in_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * in_year + 2) / 153;
    let day = in_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    format!("{:04}-{month:02}-{day:02}", era * 400 + year + i64::from(month <= 2))
}
