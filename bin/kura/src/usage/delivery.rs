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

/// Events waiting to be accepted, mirrored in one file.
#[derive(Debug)]
pub struct Outbox {
    path: PathBuf,
    events: VecDeque<Event>,
    max_depth: usize,
}

impl Outbox {
    /// Reads what an earlier process left. Lines that cannot be read are dropped with a warning: a count is not worth a start.
    pub fn open(path: PathBuf, max_depth: usize) -> io::Result<Self> {
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error),
        };
        let mut events = VecDeque::new();
        for line in text.lines() {
            match serde_json::from_str(line) {
                Ok(event) => events.push_back(event),
                Err(error) => tracing::warn!(%error, "an unreadable usage event was dropped"),
            }
        }
        Ok(Self {
            path,
            events,
            max_depth,
        })
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
        let draft = self.path.with_extension("draft");
        let mut file = io::BufWriter::new(std::fs::File::create(&draft)?);
        for event in &self.events {
            serde_json::to_writer(&mut file, event)?;
            file.write_all(b"\n")?;
        }
        file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
        std::fs::rename(&draft, &self.path)
    }
}

/// Where the outbox of a data folder is.
pub fn path(data_dir: &Path) -> PathBuf {
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
    send.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let last = tokio::select! {
            () = stop.cancelled() => true,
            _ = close.tick() => {
                opened = shut(ledger, &reporter, opened, &mut outbox);
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
    if let Err(error) = outbox.push(events) {
        tracing::warn!(%error, "usage events could not be written to disk");
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
    use crate::usage::Direction;

    #[test]
    fn the_outbox_survives_a_restart_and_forgets_what_was_accepted() {
        let dir = tempfile::tempdir().unwrap();
        let file = path(dir.path());
        let ledger = Ledger::on(10);
        ledger.add(Direction::Upload, Kind::Nx, "nx", 1);
        ledger.add(Direction::Download, Kind::Nx, "nx", 1);
        let reporter = Reporter {
            node_id: "n".to_owned(),
            tenant_id: "t".to_owned(),
            region: "r".to_owned(),
        };
        Outbox::open(file.clone(), 10)
            .unwrap()
            .push(ledger.close(&reporter, 1, 1))
            .unwrap();
        let mut again = Outbox::open(file.clone(), 10).unwrap();
        assert_eq!(again.len(), 2);
        again.accepted(1).unwrap();
        assert_eq!(Outbox::open(file, 10).unwrap().len(), 1);
    }
}
