//! Following a `sim-scaleway` that runs in another process.
//!
//! The feed keeps its last events only and counts from 1 in each run, so the first look reads all of it plus the list of
//! machines, and so does every look after the feed was lost.

use crate::error::FollowError;
use crate::fleet::Fleet;
use russet_sim_scaleway::{Host, HostChange, HostEvent, Id};
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const AGAIN: Duration = Duration::from_secs(1);
/// Longer than the emulator lets a question wait.
const ANSWER: Duration = Duration::from_mins(1);

/// Follows the emulator at this URL for ever. `ready` is called once, when the fleet is first as the emulator says; an
/// emulator that cannot be read before that is an error, one that goes away later is waited for.
pub async fn follow(fleet: Fleet, url: &str, ready: impl FnOnce()) -> Result<(), FollowError> {
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

struct Feed {
    url: String,
    client: reqwest::Client,
}

impl Feed {
    fn new(url: &str) -> Result<Self, FollowError> {
        let url = url.trim_end_matches('/').to_owned();
        let client = reqwest::Client::builder().timeout(ANSWER).no_proxy().build();
        match client {
            Ok(client) => Ok(Self { url, client }),
            Err(source) => Err(FollowError::Unreadable { url, source }),
        }
    }

    /// Makes the fleet what the emulator says now; answers the last event it contains.
    async fn catch_up(&self, fleet: &Fleet) -> Result<Option<HostEvent>, FollowError> {
        let events: Vec<HostEvent> = self.get("events").await?;
        let hosts: Vec<Host> = self.get("hosts").await?;
        let (latest, present) = now(&events, &hosts);
        fleet.keep_only(|id| present.contains(id)).await;
        for (change, host) in latest {
            fleet.apply(change, host).await;
        }
        Ok(events.last().cloned())
    }

    /// Waits for what comes after an event and does it.
    async fn next(&self, fleet: &Fleet, last: Option<HostEvent>) -> Result<Option<HostEvent>, FollowError> {
        let number = last.as_ref().map_or(0, |event| event.number);
        let events: Vec<HostEvent> = self.get(&format!("events?after={number}&wait=true")).await?;
        if events.is_empty() {
            // Either nothing happens, or this is another run, which counts anew.
            let same: Vec<HostEvent> = self.get(&format!("events?after={}", number.saturating_sub(1))).await?;
            return match (last, same.first()) {
                (Some(last), found) if found != Some(&last) => self.catch_up(fleet).await,
                (last, _) => Ok(last),
            };
        }
        for event in &events {
            fleet.apply(event.change, &event.host).await;
        }
        Ok(events.last().cloned())
    }

    async fn get<T: DeserializeOwned>(&self, what: &str) -> Result<T, FollowError> {
        let url = format!("{}/_sim/{what}", self.url);
        let answer = async { self.client.get(&url).send().await?.error_for_status()?.json().await };
        answer.await.map_err(|source| FollowError::Unreadable { url, source })
    }
}

/// The last change of each machine, and which machines there are. One without an event is older than the feed and runs.
fn now<'a>(events: &'a [HostEvent], hosts: &'a [Host]) -> (Vec<(HostChange, &'a Host)>, BTreeSet<Id>) {
    let mut latest: BTreeMap<&Id, (HostChange, &Host)> = BTreeMap::new();
    for host in hosts {
        latest.insert(&host.server_id, (HostChange::Installed, host));
    }
    for event in events {
        // A rebooted machine that is new to us is simply there.
        let change = match event.change {
            HostChange::Rebooted => HostChange::Installed,
            change => change,
        };
        latest.insert(&event.host.server_id, (change, &event.host));
    }
    let present = latest
        .iter()
        .filter(|(_, (change, _))| *change != HostChange::Gone)
        .map(|(id, _)| (*id).clone())
        .collect();
    (latest.into_values().collect(), present)
}
