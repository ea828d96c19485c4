//! What the running `up` last saw: `.russet/status.json`, rewritten at every change.
//!
//! It is the only channel between `up` and the other commands, so it also carries the failure of a detached start. It
//! is believed only while the process that wrote it is alive; after that it is history (logs, ready times).

use super::{Layout, files};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::PathBuf;

/// Contents of `status.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    pub pid: u32,
    pub russet: String,
    pub started_at: Timestamp,
    pub phase: Phase,
    /// From the start of `up`, parts at hand, until everything answered.
    #[serde(default)]
    pub ready_after_seconds: Option<f64>,
    /// URL of the API server.
    #[serde(default)]
    pub server: Option<String>,
    #[serde(default)]
    pub kubeconfig: Option<PathBuf>,
    /// Whether Cluster API core was asked for.
    #[serde(default)]
    pub cluster_api: bool,
    #[serde(default)]
    pub parts: Vec<Part>,
    /// Work of `up` that is not a process: fetching parts, installing charts.
    #[serde(default)]
    pub steps: Vec<Step>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    Starting,
    Ready,
    Stopping,
}

/// State of one supervised process.
pub use russet_cluster::process::State as PartState;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Part {
    pub name: String,
    pub state: PartState,
    #[serde(default)]
    pub pid: Option<u32>,
    #[serde(default)]
    pub restarts: u32,
    #[serde(default)]
    pub started_at: Option<Timestamp>,
    /// Of the latest start.
    #[serde(default)]
    pub ready_after_seconds: Option<f64>,
    #[serde(default)]
    pub last_exit: Option<String>,
    #[serde(default)]
    pub address: Option<String>,
    pub log: PathBuf,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Step {
    pub name: String,
    /// `None` while it runs.
    #[serde(default)]
    pub seconds: Option<f64>,
    /// What came of it: `installed`, `unchanged`, …
    #[serde(default)]
    pub outcome: Option<String>,
}

/// The last run, or `None` when there is none or its file is damaged (the next `up` writes a new one).
pub fn read(layout: &Layout) -> Option<Run> {
    match files::read_json(&layout.run()) {
        Ok(files::Read::Value(run)) => Some(run),
        Ok(files::Read::Missing | files::Read::Corrupt(_)) | Err(_) => None,
    }
}

pub fn write(layout: &Layout, run: &Run) -> io::Result<()> {
    files::replace_json(&layout.run(), run)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn a_file_of_an_older_russet_without_newer_fields_is_still_read() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path(), Path::new("."));
        let old = r#"{"pid":1,"russet":"0.0.1","started_at":"2026-01-01T00:00:00Z","phase":"ready",
                      "parts":[{"name":"etcd","state":"Running","log":"/x"}]}"#;
        std::fs::write(layout.run(), old).unwrap();
        let run = read(&layout).unwrap();
        assert_eq!(run.phase, Phase::Ready);
        assert_eq!(run.parts.first().unwrap().restarts, 0);
    }

    #[test]
    fn a_damaged_file_is_no_run() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path(), Path::new("."));
        assert_eq!(read(&layout), None);
        std::fs::write(layout.run(), "not json").unwrap();
        assert_eq!(read(&layout), None);
    }
}
