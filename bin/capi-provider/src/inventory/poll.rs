//! The poll: one list per zone and period.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use russet_api::values::{PoolPrefix, ServerId, Zone};
use russet_scaleway::Error;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::{Inventories, ZoneState, put};
use crate::host::{Host, Inventory, Listed};

/// A zone nobody asked for in so long is not read any more.
const FORGET_AFTER: Duration = Duration::from_hours(1);
/// Stock changes over days.
const STOCK_EVERY: Duration = Duration::from_mins(10);

/// How to poll.
#[derive(Clone, Debug)]
pub struct Polling {
    /// Time between two lists of a zone.
    pub period: Duration,
    /// Zones that are read whether or not a machine is in them.
    pub zones: Vec<Zone>,
    /// The pool of machines that name none.
    pub default_pool: Option<PoolPrefix>,
}

impl Inventories {
    /// Polls until `stop`.
    pub async fn run(self, polling: Polling, stop: CancellationToken) {
        for zone in &polling.zones {
            self.ask(zone);
        }
        let mut stock_at: BTreeMap<Zone, Instant> = BTreeMap::new();
        let mut next = Instant::now();
        loop {
            // A zone that was asked for meanwhile is read at once, the others when it is time.
            let all = Instant::now() >= next;
            if all {
                next = Instant::now() + polling.period;
            }
            for (zone, cell) in self.all() {
                let (unread, asked) = {
                    let state = cell.read();
                    (state.inventory().is_none() && state.error().is_none(), state.asked)
                };
                let wanted = polling.zones.contains(&zone) || asked.elapsed() < FORGET_AFTER;
                if !wanted || !(all || unread) {
                    continue;
                }
                let read = tokio::select! {
                    () = stop.cancelled() => return,
                    read = self.poll(&zone) => read,
                };
                if let Err(error) = read {
                    warn!(%zone, %error, "the Macs of a zone could not be listed");
                    continue;
                }
                self.0
                    .metrics
                    .hosts(&zone, &cell.read().inventory, &self.pools(&polling));
                self.0.budget.show(&self, &self.0.metrics);
                if stock_at.get(&zone).is_none_or(|at| at.elapsed() >= STOCK_EVERY) {
                    stock_at.insert(zone.clone(), Instant::now());
                    tokio::select! {
                        () = stop.cancelled() => return,
                        () = self.read_stock(&zone) => {}
                    }
                }
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.0.urgent.notified() => {}
                () = tokio::time::sleep_until(next) => {}
            }
        }
    }

    /// All pools that machines use.
    fn pools(&self, polling: &Polling) -> BTreeSet<PoolPrefix> {
        let mut pools = self.0.registry.pools();
        pools.extend(polling.default_pool.clone());
        pools
    }

    /// Stock and prices; neither is needed to keep what runs running.
    async fn read_stock(&self, zone: &Zone) {
        match self.0.scaleway.list_mac_types(zone).await {
            Ok(types) => self.0.metrics.stock(zone, &types),
            Err(error) => debug!(%zone, %error, "stock could not be read"),
        }
        match self.0.scaleway.list_mac_prices(zone).await {
            Ok(prices) => {
                let prices = prices.into_iter().map(|price| (price.type_, price.euros_per_hour));
                self.0.budget.set_prices(zone, prices);
            }
            Err(error) => debug!(%zone, %error, "prices could not be read"),
        }
    }

    /// Reads one zone and wakes whom it concerns.
    pub(super) async fn poll(&self, zone: &Zone) -> Result<(), Error> {
        let begun = Instant::now();
        let read = self.0.scaleway.list_macs(zone).await;
        let cell = self.ask(zone);
        let mut state = cell.write();
        let (woken, result) = match read {
            Ok(servers) => {
                let hosts = servers.iter().map(Host::from).collect();
                (take(&mut state, hosts, begun, Timestamp::now()), Ok(()))
            }
            Err(error) => {
                state.error = Some(error.clone());
                // They say so in their conditions.
                let woken = Woken {
                    waiting: std::mem::take(&mut state.waiting),
                    changed: BTreeSet::new(),
                };
                (woken, Err(error))
            }
        };
        drop(state);
        for key in woken.waiting {
            self.0.registry.wake(&key);
        }
        for key in self.0.registry.with_servers(&woken.changed) {
            self.0.registry.wake(&key);
        }
        result
    }
}

/// Whom a new list concerns.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Woken {
    pub(crate) waiting: BTreeSet<crate::registry::Key>,
    pub(crate) changed: BTreeSet<ServerId>,
}

/// Puts a new list in the place of the old one.
pub(crate) fn take<H: Listed>(state: &mut ZoneState<H>, hosts: Vec<H>, begun: Instant, now: Timestamp) -> Woken {
    let first = state.inventory.at.is_none();
    // Whoever was told that the list cannot be read has to hear that it can.
    let recovered = state.error.take().is_some();
    let old = std::mem::replace(&mut state.inventory, Inventory { at: Some(now), hosts });
    state.observed.retain(|_, (at, _)| *at >= begun);
    for (_, host) in state.observed.values() {
        put(&mut state.inventory, host);
    }
    let before: BTreeMap<&ServerId, &H> = old.hosts.iter().map(|host| (host.id(), host)).collect();
    let mut changed: BTreeSet<ServerId> = state
        .inventory
        .hosts
        .iter()
        .filter(|host| before.get(host.id()) != Some(host))
        .map(|host| host.id().clone())
        .collect();
    let here: BTreeSet<&ServerId> = state.inventory.hosts.iter().map(Listed::id).collect();
    changed.extend(
        old.hosts
            .iter()
            .map(Listed::id)
            .filter(|id| !here.contains(id))
            .cloned(),
    );
    let waiting = if first || recovered || !changed.is_empty() {
        std::mem::take(&mut state.waiting)
    } else {
        BTreeSet::new()
    };
    Woken { waiting, changed }
}

#[cfg(test)]
mod tests {
    use russet_scaleway::apple_silicon::ServerStatus;

    use super::*;
    use crate::host::PasswordState;
    use crate::registry::Key;

    fn host(id: &str, name: &str) -> Host {
        Host {
            id: id.parse().unwrap(),
            name: name.into(),
            project: "p1".parse().unwrap(),
            type_: "M2-L".into(),
            os: None,
            status: ServerStatus::Ready,
            delivered: true,
            leaving: false,
            address: None,
            password: PasswordState::Known,
        }
    }

    fn waiting() -> BTreeSet<Key> {
        BTreeSet::from([Key {
            namespace: "n".into(),
            name: "m".into(),
        }])
    }

    fn names(state: &ZoneState) -> Vec<&str> {
        state.inventory.hosts.iter().map(|host| host.name.as_str()).collect()
    }

    #[tokio::test]
    async fn whoever_waits_is_woken_by_a_change_and_by_nothing_else() {
        let mut state: ZoneState = ZoneState::new();
        state.waiting = waiting();
        let list = || vec![host("a", "pool-1"), host("b", "mac-1")];
        let now = Timestamp::UNIX_EPOCH;
        assert_eq!(
            take(&mut state, list(), Instant::now(), now).waiting,
            waiting(),
            "the first list"
        );
        state.waiting = waiting();
        assert_eq!(take(&mut state, list(), Instant::now(), now), Woken::default());
        let woken = take(&mut state, vec![host("a", "pool-1")], Instant::now(), now);
        assert_eq!(woken.waiting, waiting());
        assert_eq!(
            woken.changed,
            BTreeSet::from(["b".parse().unwrap()]),
            "a host that is gone"
        );
    }

    #[tokio::test]
    async fn a_list_that_began_before_a_call_does_not_undo_what_the_call_showed() {
        let mut state: ZoneState = ZoneState::new();
        let now = Timestamp::UNIX_EPOCH;
        take(&mut state, vec![host("a", "pool-1")], Instant::now(), now);
        let begun = Instant::now();
        let seen = host("a", "mac-1");
        put(&mut state.inventory, &seen);
        state.observed.insert(seen.id.clone(), (Instant::now(), seen));
        take(&mut state, vec![host("a", "pool-1")], begun, now);
        assert_eq!(names(&state), ["mac-1"]);
        take(
            &mut state,
            vec![host("a", "pool-2")],
            Instant::now() + Duration::from_secs(1),
            now,
        );
        assert_eq!(names(&state), ["pool-2"], "a later one counts");
    }
}
