//! Following a `sim-scaleway` that runs in another process.
//!
//! A feed keeps its last events only and counts from 1 in each run, so the first look reads all of it plus the table of what is there
//! now, and so does every look after the feed was lost.

use crate::boxes::{BoxEvent, LinuxBox};
use crate::host::{Host, HostEvent};
use serde::de::DeserializeOwned;
use std::time::Duration;

const AGAIN: Duration = Duration::from_secs(1);
/// Longer than the emulator lets a question wait.
const ANSWER: Duration = Duration::from_mins(1);

/// Why the emulated Scaleway cannot be followed.
#[derive(Debug, thiserror::Error)]
#[error("could not read {url}; is a sim-scaleway running there?")]
pub struct FollowError {
    url: String,
    source: reqwest::Error,
}

/// An event of a feed, which belongs to a table.
pub trait Event: Clone + PartialEq + DeserializeOwned + Send + Sync {
    /// What the table has.
    type Row: DeserializeOwned + Send;
    /// Feed and table below `/_sim/`.
    const PLACES: (&'static str, &'static str);

    /// Counts from 1 in each run of the emulator.
    fn number(&self) -> u64;
}

impl Event for HostEvent {
    type Row = Host;
    const PLACES: (&'static str, &'static str) = ("events", "hosts");

    fn number(&self) -> u64 {
        self.number
    }
}

impl Event for BoxEvent {
    type Row = LinuxBox;
    const PLACES: (&'static str, &'static str) = ("box-events", "boxes");

    fn number(&self) -> u64 {
        self.number
    }
}

/// Who makes the machines.
pub trait Follower<E: Event>: Sync {
    /// Makes them what the table says, all events of the feed so far being these.
    fn catch_up(&self, events: &[E], rows: Vec<E::Row>) -> impl Future<Output = ()> + Send;

    /// Something happened after that.
    fn happened(&self, event: &E) -> impl Future<Output = ()> + Send;
}

/// Follows the emulator at this URL for ever. `ready` is called once, when the machines are first as the emulator says; an
/// emulator that cannot be read before that is an error, one that goes away later is waited for.
pub async fn follow<E: Event>(machines: &impl Follower<E>, url: &str, ready: impl FnOnce()) -> Result<(), FollowError> {
    let feed = Feed::new(url)?;
    let mut last = feed.catch_up(machines).await?;
    ready();
    loop {
        match feed.next(machines, last).await {
            Ok(next) => last = next,
            Err(error) => {
                tracing::warn!(%error, "lost the emulated Scaleway, will look again");
                last = loop {
                    tokio::time::sleep(AGAIN).await;
                    if let Ok(last) = feed.catch_up(machines).await {
                        break last;
                    }
                };
                tracing::info!("found the emulated Scaleway again");
            }
        }
    }
}

struct Feed {
    url: String,
    client: reqwest::Client,
}

impl Feed {
    fn new(url: &str) -> Result<Self, FollowError> {
        let url = url.trim_end_matches('/').to_owned();
        match reqwest::Client::builder().timeout(ANSWER).no_proxy().build() {
            Ok(client) => Ok(Self { url, client }),
            Err(source) => Err(FollowError { url, source }),
        }
    }

    /// Answers the last event that the machines have seen.
    async fn catch_up<E: Event>(&self, machines: &impl Follower<E>) -> Result<Option<E>, FollowError> {
        let events: Vec<E> = self.get(&format!("{}?wait=false", E::PLACES.0)).await?;
        machines.catch_up(&events, self.get(E::PLACES.1).await?).await;
        Ok(events.last().cloned())
    }

    /// Waits for what comes after an event and does it.
    async fn next<E: Event>(&self, machines: &impl Follower<E>, last: Option<E>) -> Result<Option<E>, FollowError> {
        let number = last.as_ref().map_or(0, E::number);
        let after = |number: u64, wait: bool| format!("{}?after={number}&wait={wait}", E::PLACES.0);
        let events: Vec<E> = self.get(&after(number, true)).await?;
        if events.is_empty() {
            // Either nothing happens, or this is another run, which counts anew.
            let same: Vec<E> = self.get(&after(number.saturating_sub(1), false)).await?;
            return match last {
                Some(last) if same.first() != Some(&last) => self.catch_up(machines).await,
                last => Ok(last),
            };
        }
        for event in &events {
            machines.happened(event).await;
        }
        Ok(events.last().cloned())
    }

    async fn get<T: DeserializeOwned>(&self, what: &str) -> Result<T, FollowError> {
        let url = format!("{}/_sim/{what}", self.url);
        let answer = async { self.client.get(&url).send().await?.error_for_status()?.json().await };
        answer.await.map_err(|source| FollowError { url, source })
    }
}
