//! The servers of each zone, read by one poll that all machines of a kind share. The poll of the Macs is [`crate::inventory`];
//! what a list means for those who wait is the same code.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use jiff::Timestamp;
use russet_api::values::Zone;
use russet_scaleway::Error;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::cloud::Cloud;
use super::server::Server;
use crate::inventory::{ZoneState, put, take};
use crate::registry::{Key, Registry};

/// A zone nobody asked for in so long is not read any more.
const FORGET_AFTER: Duration = Duration::from_hours(1);

/// The zones. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Zones(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    cloud: Cloud,
    registry: Registry,
    zones: Mutex<BTreeMap<Zone, ZoneCell>>,
    urgent: Notify,
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
    /// Nothing has been read yet.
    pub fn new(cloud: Cloud, registry: Registry) -> Self {
        Self(Arc::new(Inner {
            cloud,
            registry,
            zones: Mutex::default(),
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

    /// A server as a call just showed it.
    pub fn observe(&self, zone: &Zone, server: &Server) {
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
                if !(all || unread) || asked.elapsed() >= FORGET_AFTER {
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
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.0.urgent.notified() => {}
                () = tokio::time::sleep_until(next) => {}
            }
        }
    }

    async fn poll(&self, zone: &Zone, cell: &ZoneCell) -> Result<(), Error> {
        let begun = Instant::now();
        let read = self.0.cloud.list(zone).await;
        let mut state = cell.write();
        let (waiting, changed, result) = match read {
            Ok(servers) => {
                let woken = take(&mut state, servers, begun, Timestamp::now());
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

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Zone, ZoneCell>> {
        self.0.zones.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
