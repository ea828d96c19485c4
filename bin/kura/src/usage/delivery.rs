//! The outbox of usage events, and the loop that empties it.

use super::{Event, Ledger, Reporter};
use crate::config::Usage;
use crate::multipart::unix_ms;
use std::collections::VecDeque;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

/// Events waiting to be accepted, mirrored in one file; beside it, in another, what the open window has counted so far.
#[derive(Debug)]
pub struct Outbox {
    path: PathBuf,
    window: PathBuf,
    events: VecDeque<Event>,
    max_depth: usize,
}

impl Outbox {
    /// Reads what an earlier process left, the window it did not close included. Lines that cannot be read are dropped with a
    /// warning: a count is not worth a start.
    pub fn open(data_dir: &Path, max_depth: usize) -> io::Result<Self> {
        let (path, window) = (path(data_dir), data_dir.join("usage-window.jsonl"));
        let mut outbox = Self {
            events: read(&path)?.into(),
            path,
            window,
            max_depth,
        };
        let unclosed = read(&outbox.window)?;
        if !unclosed.is_empty() {
            outbox.push(unclosed)?;
        }
        outbox.forget_window();
        Ok(outbox)
    }

    /// Keeps what the open window has counted so far, for a process that is killed.
    pub fn keep_window(&self, events: &[Event]) -> io::Result<()> {
        if events.is_empty() {
            return Ok(());
        }
        write(&self.window, events.iter())
    }

    /// The window was closed: its events are in the outbox. Should this fail, they are sent twice and counted once.
    fn forget_window(&self) {
        let _ = std::fs::remove_file(&self.window);
    }

    /// Adds events and writes the file. Beyond the limit the oldest go.
    pub fn push(&mut self, events: Vec<Event>) -> io::Result<()> {
        if events.is_empty() {
            return Ok(());
        }
        self.events.extend(events);
        let excess = self.events.len().saturating_sub(self.max_depth);
        if excess > 0 {
            tracing::warn!(
                excess,
                "usage events were dropped: the control plane has been away for too long"
            );
            self.events.drain(..excess);
        }
        self.save()
    }

    fn batch(&self, count: usize) -> Vec<&Event> {
        self.events.iter().take(count).collect()
    }

    fn accepted(&mut self, count: usize) -> io::Result<()> {
        self.events.drain(..count.min(self.events.len()));
        self.save()
    }

    /// Events waiting.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Nothing waits.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    fn save(&self) -> io::Result<()> {
        write(&self.path, self.events.iter())
    }
}

fn read(path: &Path) -> io::Result<Vec<Event>> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error),
    };
    let mut events = Vec::new();
    for line in text.lines() {
        match serde_json::from_str(line) {
            Ok(event) => events.push(event),
            Err(error) => tracing::warn!(%error, "an unreadable usage event was dropped"),
        }
    }
    Ok(events)
}

/// Replaces a file by these events, whole or not at all.
fn write<'a>(path: &Path, events: impl Iterator<Item = &'a Event>) -> io::Result<()> {
    let draft = path.with_extension("draft");
    let mut file = io::BufWriter::new(std::fs::File::create(&draft)?);
    for event in events {
        serde_json::to_writer(&mut file, event)?;
        file.write_all(b"\n")?;
    }
    file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
    std::fs::rename(&draft, path)
}

/// Where the outbox of a data folder is.
fn path(data_dir: &Path) -> PathBuf {
    data_dir.join("usage-outbox.jsonl")
}

#[derive(serde::Serialize)]
struct Report<'a> {
    schema_version: u8,
    node_id: &'a str,
    region: &'a str,
    events: &'a [&'a Event],
}

/// Closes windows and delivers them until stopped; then closes the last window and tries once more.
pub async fn deliver(config: Usage, reporter: Reporter, mut outbox: Outbox, ledger: &Ledger, stop: CancellationToken) {
    let client = reqwest::Client::builder()
        .connect_timeout(Duration::from_secs(1))
        .timeout(Duration::from_secs(5))
        .redirect(reqwest::redirect::Policy::none())
        .build();
    let client = match client {
        Ok(client) => client,
        Err(error) => {
            tracing::error!(%error, "usage events cannot be delivered");
            return;
        }
    };
    let mut opened = unix_ms() / 1000;
    let mut close = tokio::time::interval_at(Instant::now() + config.window, config.window);
    let mut send = tokio::time::interval(config.delivery);
    close.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut flush = tokio::time::interval_at(Instant::now() + config.flush, config.flush);
    send.set_missed_tick_behavior(MissedTickBehavior::Delay);
    flush.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let last = tokio::select! {
            () = stop.cancelled() => true,
            _ = close.tick() => {
                opened = shut(ledger, &reporter, opened, &mut outbox);
                false
            }
            _ = flush.tick() => {
                let seconds = (unix_ms() / 1000).saturating_sub(opened).max(1);
                if let Err(error) = outbox.keep_window(&ledger.so_far(&reporter, opened, seconds)) {
                    tracing::warn!(%error, "usage events could not be written to disk");
                }
                false
            }
            _ = send.tick() => {
                post(&client, &config, &reporter, &mut outbox).await;
                false
            }
        };
        if last {
            shut(ledger, &reporter, opened, &mut outbox);
            post(&client, &config, &reporter, &mut outbox).await;
            return;
        }
    }
}

/// Closes the open window; when the next one begins.
fn shut(ledger: &Ledger, reporter: &Reporter, opened: u64, outbox: &mut Outbox) -> u64 {
    // Never the same second twice: the id of a window is its first second.
    let now = (unix_ms() / 1000).max(opened + 1);
    let events = ledger.close(reporter, opened, now - opened);
    match outbox.push(events) {
        Ok(()) => outbox.forget_window(),
        Err(error) => tracing::warn!(%error, "usage events could not be written to disk"),
    }
    now
}

async fn post(client: &reqwest::Client, config: &Usage, reporter: &Reporter, outbox: &mut Outbox) {
    while !outbox.is_empty() {
        let batch = outbox.batch(config.batch);
        let count = batch.len();
        let report = Report {
            schema_version: 1,
            node_id: &reporter.node_id,
            region: &reporter.region,
            events: &batch,
        };
        let request = client
            .post(format!("{}/_internal/kura/usage", config.url))
            .basic_auth(&config.client_id, Some(config.client_secret.expose()))
            .json(&report);
        let status = match request.send().await {
            Ok(response) => response.status(),
            Err(error) => {
                tracing::debug!(error = %error.without_url(), "usage events were not delivered; they will be sent again");
                return;
            }
        };
        if !status.is_success() {
            tracing::warn!(%status, "usage events were refused; they will be sent again");
            return;
        }
        if let Err(error) = outbox.accepted(count) {
            tracing::warn!(%error, "the usage outbox could not be written");
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blob::Kind;
    use crate::usage::{Direction, Protocol};

    fn reporter() -> Reporter {
        Reporter {
            node_id: "n".to_owned(),
            tenant_id: "t".to_owned(),
            region: "r".to_owned(),
        }
    }

    #[test]
    fn the_outbox_survives_a_restart_and_forgets_what_was_accepted() {
        let dir = tempfile::tempdir().unwrap();
        let ledger = Ledger::on(10);
        ledger.add(Direction::Upload, Protocol::Http, Kind::Nx, "nx", 1);
        ledger.add(Direction::Download, Protocol::Http, Kind::Nx, "nx", 1);
        let reporter = reporter();
        let mut outbox = Outbox::open(dir.path(), 10).unwrap();
        outbox.push(ledger.close(&reporter, 1, 1)).unwrap();
        drop(outbox);
        let mut again = Outbox::open(dir.path(), 10).unwrap();
        assert_eq!(again.len(), 2);
        again.accepted(1).unwrap();
        assert_eq!(Outbox::open(dir.path(), 10).unwrap().len(), 1);
    }

    #[test]
    fn a_window_that_was_never_closed_is_sent_by_the_next_process() {
        let dir = tempfile::tempdir().unwrap();
        let ledger = Ledger::on(10);
        ledger.add(Direction::Upload, Protocol::Http, Kind::Nx, "nx", 7);
        let reporter = reporter();
        let outbox = Outbox::open(dir.path(), 10).unwrap();
        outbox.keep_window(&ledger.so_far(&reporter, 1, 1)).unwrap();
        drop(outbox);
        let mut next = Outbox::open(dir.path(), 10).unwrap();
        assert_eq!(next.len(), 1);
        assert_eq!(Outbox::open(dir.path(), 10).unwrap().len(), 1, "taken over once");
        assert!(shut(&ledger, &reporter, 1, &mut next) > 1);
        let doubled = next.batch(9)[0].event_id == next.batch(9)[1].event_id;
        assert!(doubled, "the receiver drops the double");
    }
}
