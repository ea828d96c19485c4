//! What a running node has done for each tool and project, from its metrics.
//!
//! Sizes are on disk, and a node that runs has the disk for itself; hits and misses are in its memory, since it started. So the
//! one is asked of a data folder and the other of a URL.

use anyhow::Context as _;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(10);

/// One tool in one project.
#[derive(Debug, Default, Clone, PartialEq, serde::Serialize)]
struct Row {
    tool: String,
    project: String,
    hits: u64,
    misses: u64,
    /// Hits in a hundred reads; none before the first read.
    hit_percent: Option<u64>,
    stored: u64,
    bytes_sent: u64,
    bytes_received: u64,
}

/// Asks the node at that URL.
pub(super) fn inspect(url: &str, json: bool) -> anyhow::Result<String> {
    // A second installation would mean that a library was faster; either way there is one.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let text = runtime.block_on(metrics(url))?;
    let rows = rows(&text);
    if json {
        Ok(serde_json::to_string_pretty(&serde_json::json!({ "tools": rows }))?)
    } else {
        Ok(table(&rows))
    }
}

async fn metrics(url: &str) -> anyhow::Result<String> {
    let url = format!("{}/metrics", url.trim_end_matches('/'));
    let client = reqwest::Client::builder().timeout(PATIENCE).build()?;
    let answer = async { client.get(&url).send().await?.error_for_status()?.text().await };
    answer
        .await
        .with_context(|| format!("{url} does not answer; name a running node as --node http://host:port"))
}

fn rows(text: &str) -> Vec<Row> {
    let mut rows: BTreeMap<(String, String), Row> = BTreeMap::new();
    for line in text.lines() {
        let Some((labels, value)) = ["kura_tool_requests_total{", "kura_tool_bytes_total{"]
            .iter()
            .find_map(|name| line.strip_prefix(name)?.split_once("} "))
        else {
            continue;
        };
        let label = |name: &str| {
            let quoted = labels
                .split(',')
                .find_map(|label| label.strip_prefix(name)?.strip_prefix("=\""));
            quoted.and_then(|value| value.strip_suffix('"')).unwrap_or_default()
        };
        let (tool, project) = (label("tool").to_owned(), label("project").to_owned());
        let row = rows.entry((tool.clone(), project.clone())).or_insert_with(|| Row {
            tool,
            project,
            ..Row::default()
        });
        let value: u64 = value.parse().unwrap_or(0);
        match (label("result"), label("direction")) {
            ("hit", _) => row.hits = value,
            ("miss", _) => row.misses = value,
            ("stored", _) => row.stored = value,
            (_, "sent") => row.bytes_sent = value,
            (_, "received") => row.bytes_received = value,
            _ => {}
        }
    }
    for row in rows.values_mut() {
        row.hit_percent = (row.hits * 100).checked_div(row.hits + row.misses);
    }
    rows.into_values().collect()
}

fn table(rows: &[Row]) -> String {
    let shown = |project: &str| if project.is_empty() { "(account)" } else { project }.to_owned();
    let width = rows
        .iter()
        .map(|row| shown(&row.project).chars().count())
        .max()
        .unwrap_or(0)
        .max(7);
    let mut text = String::new();
    // Writing into a `String` cannot fail.
    let _ = write!(
        text,
        "{:<10} {:<width$} {:>10} {:>10} {:>8} {:>10} {:>15} {:>15}",
        "TOOL", "PROJECT", "HITS", "MISSES", "HIT RATE", "STORED", "SENT", "RECEIVED"
    );
    for row in rows {
        let rate = row
            .hit_percent
            .map_or_else(|| "-".to_owned(), |percent| format!("{percent}%"));
        let _ = write!(
            text,
            "\n{:<10} {:<width$} {:>10} {:>10} {rate:>8} {:>10} {:>15} {:>15}",
            row.tool,
            shown(&row.project),
            row.hits,
            row.misses,
            row.stored,
            row.bytes_sent,
            row.bytes_received
        );
    }
    if rows.is_empty() {
        text.push_str("\nno tool has asked for anything yet");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::{Event, Tool, Tools};

    #[test]
    fn what_the_counters_say_is_read_back() {
        let tools = Tools::default();
        for _ in 0..2 {
            tools.record(Tool::Gradle, "ios", Event::Hit, 50);
        }
        tools.record(Tool::Gradle, "ios", Event::Miss, 0);
        tools.record(Tool::Nx, "", Event::Stored, 7);
        let mut text = "kura_other 1\n".to_owned();
        tools.render(&mut text);
        let rows = rows(&text);
        assert_eq!(rows.len(), 2);
        assert_eq!((rows[0].hits, rows[0].misses, rows[0].hit_percent), (2, 1, Some(66)));
        assert_eq!(rows[0].bytes_sent, 100);
        let seen = (rows[1].stored, rows[1].bytes_received, rows[1].hit_percent);
        assert_eq!(seen, (1, 7, None));
        let table = table(&rows);
        let row = table.contains("gradle     ios                2          1      66%");
        assert!(row, "{table}");
        assert!(table.contains("nx         (account)"), "{table}");
    }
}
