//! `kura inspect` and `kura verify`: what is in a store, and whether it is whole.
//!
//! Both need the data folder for themselves: the lock tells who has it. `kura inspect --node` asks a running node instead, which
//! knows what was hit and missed.

mod node;

use crate::blob::Kind;
use crate::cli::{Inspect, Look};
use anyhow::Context as _;
use russet_segstore as segstore;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

/// What one kind in one namespace amounts to.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Row {
    kind: String,
    namespace: String,
    entries: u64,
    bytes: u64,
}

/// What a store holds.
#[derive(Debug, serde::Serialize)]
pub struct Contents {
    rows: Vec<Row>,
    entries: u64,
    bytes: u64,
    disk_bytes: u64,
    segments: u64,
    index_bytes: u64,
}

fn name(kind: segstore::Kind) -> String {
    match Kind::of_stored(kind) {
        Some(kind) => kind.producer().to_owned(),
        None if kind.is_mutable() => format!("mutable-{}", kind.number()),
        None => format!("immutable-{}", kind.number()),
    }
}

fn open(dir: &Path) -> anyhow::Result<segstore::Store> {
    let store = dir.join("store");
    anyhow::ensure!(
        store.is_dir(),
        "there is no store in {}; name its folder with --data-dir",
        dir.display()
    );
    // Looking must not evict, and needs no thread that would have to be told to end.
    let options = segstore::Options {
        background: segstore::Background::Caller,
        ..segstore::Options::new(u64::MAX / 4)
    };
    segstore::Store::open(&store, options).with_context(|| format!("cannot open the store in {}", dir.display()))
}

/// Looks, but not forever: a disk that does not answer must not leave a command hanging without a word.
fn within(look: &Look, work: fn(&Look) -> anyhow::Result<String>) -> anyhow::Result<String> {
    if look.timeout_secs == 0 {
        return work(look);
    }
    let (answer, answered) = std::sync::mpsc::sync_channel(1);
    let own = look.clone();
    std::thread::Builder::new()
        .name("kura-look".to_owned())
        .spawn(move || {
            // Nobody may be waiting any more.
            let _ = answer.send(work(&own));
        })?;
    match answered.recv_timeout(Duration::from_secs(look.timeout_secs)) {
        Ok(done) => done,
        Err(RecvTimeoutError::Timeout) => anyhow::bail!(
            "looking at {} did not finish within {} s; the disk may not answer (see the kernel log), or the store is large: \
             give it more time with --timeout-secs",
            look.data_dir.display(),
            look.timeout_secs
        ),
        Err(RecvTimeoutError::Disconnected) => {
            anyhow::bail!("looking at {} ended early; please report this", look.data_dir.display())
        }
    }
}

/// Says what is stored, or what a running node did.
pub fn inspect(inspect: &Inspect) -> anyhow::Result<String> {
    match &inspect.node {
        Some(url) => node::inspect(url, inspect.look.json),
        None => within(&inspect.look, inspect_now),
    }
}

fn inspect_now(look: &Look) -> anyhow::Result<String> {
    let store = open(&look.data_dir)?;
    let contents = contents(&store);
    store.close()?;
    if look.json {
        Ok(serde_json::to_string_pretty(&contents)?)
    } else {
        Ok(table(&contents))
    }
}

fn contents(store: &segstore::Store) -> Contents {
    let mut sums: BTreeMap<(String, String), (u64, u64)> = BTreeMap::new();
    for group in store.inspect().groups {
        let namespace = String::from_utf8_lossy(&group.namespace).into_owned();
        let sum = sums.entry((name(group.kind), namespace)).or_default();
        sum.0 += group.entries;
        sum.1 += group.bytes;
    }
    let rows: Vec<Row> = sums
        .into_iter()
        .map(|((kind, namespace), (entries, bytes))| Row {
            kind,
            namespace,
            entries,
            bytes,
        })
        .collect();
    let stats = store.stats();
    Contents {
        entries: rows.iter().map(|row| row.entries).sum(),
        bytes: rows.iter().map(|row| row.bytes).sum(),
        rows,
        disk_bytes: stats.disk_bytes,
        segments: stats.segments,
        index_bytes: stats.index_bytes,
    }
}

fn table(contents: &Contents) -> String {
    let shown = |namespace: &str| {
        if namespace.is_empty() {
            "(account)".to_owned()
        } else {
            namespace.to_owned()
        }
    };
    let width = contents
        .rows
        .iter()
        .map(|row| shown(&row.namespace).chars().count())
        .max()
        .unwrap_or(0)
        .max(9);
    let mut text = String::new();
    // Writing into a `String` cannot fail.
    let _ = writeln!(
        text,
        "{:<14} {:<width$} {:>12} {:>16}",
        "KIND", "NAMESPACE", "ENTRIES", "BYTES"
    );
    for row in &contents.rows {
        let _ = writeln!(
            text,
            "{:<14} {:<width$} {:>12} {:>16}",
            row.kind,
            shown(&row.namespace),
            row.entries,
            row.bytes
        );
    }
    let _ = writeln!(
        text,
        "{:<14} {:<width$} {:>12} {:>16}",
        "total", "", contents.entries, contents.bytes
    );
    let _ = write!(
        text,
        "{} segments, {} bytes on disk, {} bytes of index",
        contents.segments, contents.disk_bytes, contents.index_bytes
    );
    text
}

/// What verifying found.
#[derive(Debug, serde::Serialize)]
struct Verdict {
    entries: u64,
    bytes: u64,
    damaged: u64,
    damaged_segment_tables: u64,
}

/// Reads everything. An error if something is damaged; what is damaged is no longer served.
pub fn verify(look: &Look) -> anyhow::Result<String> {
    within(look, verify_now)
}

fn verify_now(look: &Look) -> anyhow::Result<String> {
    let store = open(&look.data_dir)?;
    let report = store.verify()?;
    store.close()?;
    let verdict = Verdict {
        entries: report.records,
        bytes: report.bytes,
        damaged: report.damaged,
        damaged_segment_tables: report.damaged_tables,
    };
    let text = if look.json {
        serde_json::to_string(&verdict)?
    } else {
        format!(
            "{} entries, {} bytes read, {} entries and {} segment tables damaged",
            verdict.entries, verdict.bytes, verdict.damaged, verdict.damaged_segment_tables
        )
    };
    anyhow::ensure!(
        report.is_sound(),
        "{text}; damaged entries are misses from now on, clients will store them again"
    );
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An early version of `kura inspect` was once seen to hang, and nobody could say on what.
    #[test]
    fn a_look_that_does_not_end_is_given_up_with_a_word() {
        let look = Look {
            data_dir: "somewhere".into(),
            json: false,
            timeout_secs: 1,
        };
        let stuck = |_: &Look| -> anyhow::Result<String> {
            loop {
                std::thread::park();
            }
        };
        let error = within(&look, stuck).unwrap_err().to_string();
        let told = error.contains("somewhere") && error.contains("--timeout-secs");
        assert!(told, "{error}");
        assert_eq!(within(&look, |_| Ok("done".to_owned())).unwrap(), "done");
    }

    #[test]
    fn the_table_names_account_scope_and_adds_up() {
        let text = table(&Contents {
            rows: vec![Row {
                kind: "gradle".to_owned(),
                namespace: String::new(),
                entries: 2,
                bytes: 10,
            }],
            entries: 2,
            bytes: 10,
            disk_bytes: 300,
            segments: 1,
            index_bytes: 96,
        });
        let row = "gradle         (account)            2               10";
        assert!(text.contains(row), "{text}");
        let sums = "1 segments, 300 bytes on disk, 96 bytes of index";
        assert!(text.ends_with(sums), "{text}");
    }
}
