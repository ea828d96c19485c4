//! The servers of each zone, read by one poll that all machines of a kind share. The poll of the Macs is [`crate::inventory`];
//! what a list means for those who wait is the same code.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use jiff::Timestamp;
use russet_api::values::{ServerId, Zone};
use russet_scaleway::Error;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::cloud::Cloud;
use super::server::Server;
use super::sightings::Sightings;
use crate::inventory::{ZoneState, put, take};
use crate::registry::{Key, Registry};

/// A zone nobody asked for in so long is not read any more.
const FORGET_AFTER: Duration = Duration::from_hours(1);
/// Time between two lists of a zone in which somebody waits for what takes seconds.
const HURRIED: Duration = Duration::from_secs(10);
/// Whoever waits says so again within this time.
const HURRY_FOR: Duration = Duration::from_secs(20);

/// The zones. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Zones(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    cloud: Cloud,
    registry: Registry,
    zones: Mutex<BTreeMap<Zone, ZoneCell>>,
    times: Mutex<BTreeMap<Zone, Times>>,
    sightings: Mutex<Sightings>,
    urgent: Notify,
}

/// When a zone was and will be read.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    /// When the list that is there was begun.
    listed: Option<Instant>,
    /// When it was last tried.
    tried: Option<Instant>,
    /// Until when somebody waits for what takes seconds.
    hurried_until: Option<Instant>,
}

impl Times {
    /// When the zone has to be read before its time, if it has.
    fn early(&self, now: Instant) -> Option<Instant> {
        let until = self.hurried_until.filter(|until| now < *until)?;
        let next = self.tried.map_or(now, |tried| tried + HURRIED);
        (next < until).then_some(next)
    }
}

/// A zone, shared.
#[derive(Clone, Debug)]
pub struct ZoneCell(Arc<RwLock<ZoneState<Server>>>);

impl ZoneCell {
    /// Looks at it; hold it for a decision only.
    pub fn read(&self) -> RwLockReadGuard<'_, ZoneState<Server>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, ZoneState<Server>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Zones {
    /// Nothing has been read yet. What is seen is kept for `patience` at most.
    pub fn new(cloud: Cloud, registry: Registry, patience: Duration) -> Self {
        Self(Arc::new(Inner {
            cloud,
            registry,
            zones: Mutex::default(),
            times: Mutex::default(),
            sightings: Mutex::new(Sightings::new(patience)),
            urgent: Notify::new(),
        }))
    }

    /// The zone, which is polled from now on.
    pub fn ask(&self, zone: &Zone) -> ZoneCell {
        let mut zones = self.lock();
        if let Some(cell) = zones.get(zone) {
            cell.write().asked = Instant::now();
            return cell.clone();
        }
        let cell = ZoneCell(Arc::new(RwLock::new(ZoneState::new())));
        zones.insert(zone.clone(), cell.clone());
        self.0.urgent.notify_one();
        cell
    }

    /// Wakes this machine when the zone has been read for the first time, or something changed in it.
    pub fn wait(&self, zone: &Zone, key: &Key) {
        self.ask(zone).write().waiting.insert(key.clone());
    }

    /// A server may be free that was not, although it looks the same.
    pub fn wake_waiting(&self) {
        for (_, cell) in self.all() {
            let waiting = std::mem::take(&mut cell.write().waiting);
            for key in waiting {
                self.0.registry.wake(&key);
            }
        }
    }

    /// Somebody waits in this zone for something that takes Scaleway seconds: one list more often is cheaper than a look by each.
    pub fn hurry(&self, zone: &Zone) {
        self.ask(zone);
        let now = Instant::now();
        let mut times = self.times();
        let times = times.entry(zone.clone()).or_default();
        let asleep = times.early(now).is_none();
        times.hurried_until = Some(now + HURRY_FOR);
        if asleep {
            self.0.urgent.notify_one();
        }
    }

    /// What was seen of servers.
    pub fn sightings(&self) -> MutexGuard<'_, Sightings> {
        self.0.sightings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A server as it was seen some seconds ago and after our last call about it; none inside: it does not exist.
    pub fn seen(&self, zone: &Zone, id: &ServerId) -> Option<Option<Server>> {
        let now = Instant::now();
        let listed = self.times().get(zone).and_then(|times| times.listed);
        let sightings = self.sightings();
        if let Some(seen) = sightings.server(id, now) {
            return Some(seen);
        }
        if !sightings.believes_list(id, listed?, now) {
            return None;
        }
        drop(sightings);
        let cell = self.ask(zone);
        let state = cell.read();
        // That a list lacks a server proves nothing.
        state.inventory()?.get(id).cloned().map(Some)
    }

    /// A look at a server that began then, and what it showed.
    pub fn saw(&self, zone: &Zone, id: &ServerId, begun: Instant, server: Option<&Server>) {
        self.sightings().saw(id, begun, server);
        if let Some(server) = server {
            self.observe(zone, server);
        }
    }

    /// A server as a call just showed it.
    fn observe(&self, zone: &Zone, server: &Server) {
        let cell = self.ask(zone);
        let mut state = cell.write();
        put(&mut state.inventory, server);
        state
            .observed
            .insert(server.id.clone(), (Instant::now(), server.clone()));
    }

    /// All zones.
    pub fn all(&self) -> Vec<(Zone, ZoneCell)> {
        self.lock()
            .iter()
            .map(|(zone, cell)| (zone.clone(), cell.clone()))
            .collect()
    }

    /// Polls until `stop`.
    pub async fn run(self, period: Duration, stop: CancellationToken) {
        let mut next = Instant::now();
        loop {
            let all = Instant::now() >= next;
            if all {
                next = Instant::now() + period;
            }
            for (zone, cell) in self.all() {
                let (unread, asked) = {
                    let state = cell.read();
                    (state.inventory().is_none() && state.error().is_none(), state.asked)
                };
                let now = Instant::now();
                let early = self.times().get(&zone).and_then(|times| times.early(now));
                let hurried = early.is_some_and(|at| at <= now);
                if !(all || unread || hurried) || asked.elapsed() >= FORGET_AFTER {
                    continue;
                }
                let read = tokio::select! {
                    () = stop.cancelled() => return,
                    read = self.poll(&zone, &cell) => read,
                };
                if let Err(error) = read {
                    warn!(%zone, %error, "the servers of a zone could not be listed");
                }
            }
            let now = Instant::now();
            let early = self.times().values().filter_map(|times| times.early(now)).min();
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.0.urgent.notified() => {}
                () = tokio::time::sleep_until(early.map_or(next, |early| early.min(next))) => {}
            }
        }
    }

    async fn poll(&self, zone: &Zone, cell: &ZoneCell) -> Result<(), Error> {
        let begun = Instant::now();
        self.times().entry(zone.clone()).or_default().tried = Some(begun);
        let read = self.0.cloud.list(zone).await;
        let mut state = cell.write();
        let (waiting, changed, result) = match read {
            Ok(servers) => {
                let woken = take(&mut state, servers, begun, Timestamp::now());
                self.times().entry(zone.clone()).or_default().listed = Some(begun);
                (woken.waiting, woken.changed, Ok(()))
            }
            Err(error) => {
                state.error = Some(error.clone());
                (
                    std::mem::take(&mut state.waiting),
                    std::collections::BTreeSet::default(),
                    Err(error),
                )
            }
        };
        drop(state);
        for key in waiting {
            self.0.registry.wake(&key);
        }
        for key in self.0.registry.with_servers(&changed) {
            self.0.registry.wake(&key);
        }
        result
    }

    fn times(&self) -> MutexGuard<'_, BTreeMap<Zone, Times>> {
        self.0.times.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Zone, ZoneCell>> {
        self.0.zones.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_zone_is_listed_more_often_while_somebody_waits_in_it_for_seconds_and_no_longer() {
        let now = Instant::now();
        let mut times = Times::default();
        assert_eq!(times.early(now), None, "nobody waits");
        times.hurried_until = Some(now + HURRY_FOR);
        assert_eq!(times.early(now), Some(now), "it was never listed");
        times.tried = Some(now);
        assert_eq!(times.early(now), Some(now + HURRIED));
        let later = now + HURRIED;
        times.tried = Some(later);
        assert_eq!(times.early(later), None, "by then nobody may wait any more");
        times.hurried_until = Some(later + HURRY_FOR);
        assert_eq!(times.early(later), Some(later + HURRIED), "somebody said so again");
        assert_eq!(times.early(later + HURRY_FOR), None);
    }
}
