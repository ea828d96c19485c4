//! Following a `sim-scaleway` that runs in another process.

use crate::fleet::Fleet;
use russet_sim_scaleway::{FollowError, Follower, Host, HostChange, HostEvent, HostFactory as _, Id};
use std::collections::{BTreeMap, BTreeSet};

/// Follows the emulator at this URL for ever. `ready` is called once, when the fleet is first as the emulator says.
pub async fn follow(fleet: Fleet, url: &str, ready: impl FnOnce()) -> Result<(), FollowError> {
    russet_sim_scaleway::follow(&fleet, url, ready).await
}

impl Follower<HostEvent> for Fleet {
    async fn catch_up(&self, events: &[HostEvent], hosts: Vec<Host>) {
        let (latest, present) = now(events, &hosts);
        self.keep_only(|id| present.contains(id)).await;
        for (change, host) in latest {
            self.apply(change, host).await;
        }
    }

    async fn happened(&self, event: &HostEvent) {
        self.changed(event).await;
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
