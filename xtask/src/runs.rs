//! The runs of the gate on this machine, kept in Russet's cache folder so that a change of speed or a shaky test is seen across clones.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;

use anyhow::{Context, Result};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::test_run::Cost;

/// One run, a line of JSON.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Run {
    pub(crate) at: Timestamp,
    /// None outside of a checkout.
    pub(crate) commit: Option<String>,
    pub(crate) minutes: f64,
    pub(crate) passed: bool,
    /// The hash that drew; `None` for a full run.
    pub(crate) draw: Option<String>,
    /// Only what a change touched was run.
    pub(crate) partial: bool,
    pub(crate) shaky: Vec<String>,
    pub(crate) skipped: usize,
    /// Seconds of each step.
    pub(crate) steps: BTreeMap<String, f64>,
    pub(crate) programs: BTreeMap<String, KeptCost>,
    pub(crate) compiled: BTreeMap<String, f64>,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct KeptCost {
    wall: f64,
    processor: f64,
}

impl From<Cost> for KeptCost {
    fn from(Cost { wall, processor }: Cost) -> Self {
        Self { wall, processor }
    }
}

impl From<KeptCost> for Cost {
    fn from(KeptCost { wall, processor }: KeptCost) -> Self {
        Self { wall, processor }
    }
}

fn file() -> PathBuf {
    russet_parts::Options::from_env().cache.join("gate/runs.jsonl")
}

/// Every run that can be read, oldest first; lines of another version of this program are passed over.
pub(crate) fn kept() -> Vec<Run> {
    let text = std::fs::read_to_string(file()).unwrap_or_default();
    text.lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

pub(crate) fn keep(run: &Run) -> Result<()> {
    let file = file();
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let line = format!("{}\n", serde_json::to_string(run)?);
    let mut runs = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(&file)
        .with_context(|| format!("failed to open {}", file.display()))?;
    Ok(runs.write_all(line.as_bytes())?)
}

/// The last ten runs, one line each.
pub(crate) fn print(runs: &[Run]) {
    eprintln!("the last runs here:");
    for run in runs.iter().skip(runs.len().saturating_sub(10)) {
        let short = |hash: &Option<String>| {
            hash.as_deref()
                .map_or("-".to_owned(), |hash| hash.chars().take(8).collect())
        };
        eprintln!(
            "  {}  {:>8}  {:>5.1} min  {}  draw {:>8}{}  {}",
            run.at.strftime("%Y-%m-%d %H:%M"),
            short(&run.commit),
            run.minutes,
            if run.passed { "passed" } else { "FAILED" },
            run.draw
                .as_ref()
                .map_or("full".to_owned(), |draw| short(&Some(draw.clone()))),
            if run.partial { " (changed only)" } else { "" },
            if run.shaky.is_empty() {
                "no shaky test".to_owned()
            } else {
                format!("shaky: {}", run.shaky.join(", "))
            },
        );
    }
}
