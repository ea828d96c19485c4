//! Following a `sim-scaleway` that runs in another process.
//!
//! Rows say how things are, so the first look and every look after the feed was lost read them all; in between the feed
//! says which of them changed.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::error::Error;
use crate::fleet::Fleet;
use crate::row::{Change, Event, Row};

const AGAIN: Duration = Duration::from_secs(1);
/// Longer than the emulator lets a question wait.
const ANSWER: Duration = Duration::from_mins(1);

/// Follows the emulator at this URL for ever. `ready` is called once, when the fleet is first as the emulator says; an
/// emulator that cannot be read before that is an error, one that goes away later is waited for.
pub async fn follow(fleet: Fleet, url: &str, ready: impl FnOnce()) -> Result<(), Error> {
    let feed = Feed::new(url)?;
    let mut last = feed.catch_up(&fleet).await?;
    ready();
    loop {
        match feed.next(&fleet, last).await {
            Ok(next) => last = next,
            Err(error) => {
                tracing::warn!(%error, "lost the emulated Scaleway, will look again");
                last = loop {
                    tokio::time::sleep(AGAIN).await;
                    if let Ok(last) = feed.catch_up(&fleet).await {
                        break last;
                    }
                };
                tracing::info!("found the emulated Scaleway again");
            }
        }
    }
}

/// The last event that was seen: its number and whose it was, by which another run of the emulator is told apart.
type Seen = Option<(u64, String)>;

struct Feed {
    url: String,
    client: reqwest::Client,
}

impl Feed {
    fn new(url: &str) -> Result<Self, Error> {
        let url = url.trim_end_matches('/').to_owned();
        match reqwest::Client::builder().timeout(ANSWER).no_proxy().build() {
            Ok(client) => Ok(Self { url, client }),
            Err(source) => Err(Error::Unreadable { url, source }),
        }
    }

    async fn catch_up(&self, fleet: &Fleet) -> Result<Seen, Error> {
        let events: Vec<Event> = self.get("box-events?wait=false").await?;
        let rows: Vec<Row> = self.get("boxes").await?;
        let present: BTreeSet<String> = rows.iter().map(|row| row.server_id.clone()).collect();
        fleet.keep_only(|id| present.contains(id)).await;
        for row in rows {
            fleet.apply(row).await;
        }
        Ok(seen(&events))
    }

    async fn next(&self, fleet: &Fleet, last: Seen) -> Result<Seen, Error> {
        let number = last.as_ref().map_or(0, |(number, _)| *number);
        let events: Vec<Event> = self.get(&format!("box-events?after={number}&wait=true")).await?;
        if events.is_empty() {
            // Either nothing happens, or this is another run, which counts anew.
            let before = number.saturating_sub(1);
            let same: Vec<Event> = self.get(&format!("box-events?after={before}&wait=false")).await?;
            let found = same.first().map(|event| (event.number, event.row.server_id.clone()));
            return if last.is_some() && found != last {
                self.catch_up(fleet).await
            } else {
                Ok(last)
            };
        }
        let next = seen(&events);
        for event in events {
            match event.change {
                Change::Added | Change::Changed => fleet.apply(event.row).await,
                Change::Gone => fleet.remove(&event.row.server_id).await,
            }
        }
        Ok(next)
    }

    async fn get<T: DeserializeOwned>(&self, what: &str) -> Result<T, Error> {
        let url = format!("{}/_sim/{what}", self.url);
        let answer = async { self.client.get(&url).send().await?.error_for_status()?.json().await };
        answer.await.map_err(|source| Error::Unreadable { url, source })
    }
}

fn seen(events: &[Event]) -> Seen {
    events.last().map(|event| (event.number, event.row.server_id.clone()))
}
