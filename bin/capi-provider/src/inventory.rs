//! The Macs of each zone, read by one poll that everybody shares.
//!
//! ```text
//!   reconciles ──ask(zone)──▶ zones ◀──poll── one list per zone and period, one at once for a zone nobody has read yet
//!        ▲                      │
//!        └──wake── whoever waits for a host, or whose host changed
//! ```
//!
//! What a reconcile learns about a host by a call of its own is put in as well, so that the next step of the same machine does not
//! have to ask again.

mod poll;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use russet_api::values::{ServerId, Zone};
use russet_scaleway::apple_silicon::Server;
use russet_scaleway::{Client, Error, Kind};
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::warn;

use crate::flight::{Answer, HostCall};
use crate::host::{Host, Image, Inventory, Listed, Sight};
use crate::metrics::ProviderMetrics;
use crate::registry::{Key, Registry};
use crate::spend::Budget;

pub use poll::Polling;
pub(crate) use poll::take;

/// Images are retired without notice, but not every minute.
const IMAGES_FOR: Duration = Duration::from_mins(10);

/// The Macs of all zones anybody asked for. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Inventories(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    scaleway: Client,
    registry: Registry,
    metrics: ProviderMetrics,
    budget: Budget,
    zones: Mutex<BTreeMap<Zone, Arc<RwLock<ZoneState>>>>,
    images: Mutex<ImageCache>,
    urgent: Notify,
}

/// Images by zone and hardware, and when they were read.
type ImageCache = HashMap<(Zone, String), (Instant, Arc<Vec<Image>>)>;

/// One zone.
#[derive(Debug)]
pub struct ZoneState<H = Host> {
    pub(crate) inventory: Inventory<H>,
    /// What reconciles saw themselves, and when; a list that was begun before does not undo it.
    pub(crate) observed: BTreeMap<ServerId, (Instant, H)>,
    pub(crate) waiting: BTreeSet<Key>,
    pub(crate) error: Option<Error>,
    pub(crate) asked: Instant,
}

impl<H> ZoneState<H> {
    pub(crate) fn new() -> Self {
        Self {
            inventory: Inventory::default(),
            observed: BTreeMap::new(),
            waiting: BTreeSet::new(),
            error: None,
            asked: Instant::now(),
        }
    }

    /// The Macs, once they were read.
    pub fn inventory(&self) -> Option<&Inventory<H>> {
        self.inventory.at.is_some().then_some(&self.inventory)
    }

    /// Why the last poll failed, if it did.
    pub fn error(&self) -> Option<&Error> {
        self.error.as_ref()
    }
}

/// A zone, shared.
#[derive(Clone, Debug)]
pub struct ZoneCell(Arc<RwLock<ZoneState>>);

impl ZoneCell {
    /// Looks at it; hold it for a decision only.
    pub fn read(&self) -> RwLockReadGuard<'_, ZoneState> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, ZoneState> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inventories {
    /// Nothing has been read yet.
    pub fn new(scaleway: Client, registry: Registry, metrics: ProviderMetrics, budget: Budget) -> Self {
        Self(Arc::new(Inner {
            scaleway,
            registry,
            metrics,
            budget,
            zones: Mutex::default(),
            images: Mutex::default(),
            urgent: Notify::new(),
        }))
    }

    /// The zone, which is polled from now on.
    pub fn ask(&self, zone: &Zone) -> ZoneCell {
        let (cell, new) = {
            let mut zones = self.zones();
            let new = !zones.contains_key(zone);
            let cell = zones
                .entry(zone.clone())
                .or_insert_with(|| Arc::new(RwLock::new(ZoneState::new())));
            (ZoneCell(Arc::clone(cell)), new)
        };
        if new {
            self.0.urgent.notify_one();
        } else {
            cell.write().asked = Instant::now();
        }
        cell
    }

    /// Wakes this machine when the zone has been read for the first time, or something changed in it.
    pub fn wait(&self, zone: &Zone, key: &Key) {
        self.ask(zone).write().waiting.insert(key.clone());
    }

    /// A host may be free that was not, although it looks the same: whoever waits for one looks again.
    pub fn wake_waiting(&self) {
        for (_, cell) in self.all() {
            let waiting = std::mem::take(&mut cell.write().waiting);
            for key in waiting {
                self.0.registry.wake(&key);
            }
        }
    }

    /// A host as a call just showed it.
    pub fn observe(&self, zone: &Zone, server: &Server) {
        let host = Host::from(server);
        let cell = self.ask(zone);
        let mut state = cell.write();
        put(&mut state.inventory, &host);
        state.observed.insert(host.id.clone(), (Instant::now(), host));
    }

    /// Reads one host. That it is gone is believed only on good evidence: Scaleway answers "permission denied" for hosts that
    /// do not exist any more, and also for keys that lost a right.
    pub async fn see(&self, zone: &Zone, id: &ServerId) -> Result<(Sight, Option<Server>), Error> {
        match self.0.scaleway.get_mac(zone, id).await {
            Ok(server) => {
                self.observe(zone, &server);
                Ok((Sight::There(Box::new(Host::from(&server))), Some(server)))
            }
            Err(error) if matches!(error.kind, Kind::NotFound { .. }) => Ok((Sight::Gone, None)),
            Err(error) if error.may_mean_gone() => {
                self.refresh(zone).await?;
                let cell = self.ask(zone);
                let state = cell.read();
                match state.inventory() {
                    Some(inventory) if inventory.get(id).is_none() => Ok((Sight::Gone, None)),
                    _ => Err(error),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Makes one call, once. Nothing leaves here later than `within`, however long our own limiter would have it wait.
    pub async fn send(&self, zone: &Zone, server: &ServerId, call: &HostCall, within: Duration) -> Answer {
        let scaleway = &self.0.scaleway;
        let exchange = async {
            match call {
                HostCall::Rename { to } => scaleway.rename_mac(zone, server, to).await,
                HostCall::Reinstall { image } => scaleway.reinstall_mac(zone, server, image.as_ref()).await,
                HostCall::Reboot => scaleway.reboot_mac(zone, server).await,
            }
        };
        match tokio::time::timeout(within, exchange).await {
            Ok(Ok(answer)) => {
                self.observe(zone, &answer);
                Answer::Done(answer.status)
            }
            Ok(Err(error)) => {
                warn!(%server, %error, "Scaleway did not do as asked");
                Answer::of_error(&error)
            }
            Err(_) => Answer::Unknown,
        }
    }

    /// Reads one zone now.
    pub async fn refresh(&self, zone: &Zone) -> Result<(), Error> {
        self.poll(zone).await
    }

    /// The images this hardware can run.
    pub async fn images(&self, zone: &Zone, type_: &str) -> Result<Arc<Vec<Image>>, Error> {
        let key = (zone.clone(), type_.to_owned());
        let known = self.image_cache().get(&key).cloned();
        if let Some((at, images)) = known
            && at.elapsed() < IMAGES_FOR
        {
            return Ok(images);
        }
        let images = self.0.scaleway.list_mac_os(zone, type_).await?;
        let images: Arc<Vec<Image>> = Arc::new(images.iter().map(Image::from).collect());
        self.image_cache().insert(key, (Instant::now(), Arc::clone(&images)));
        Ok(images)
    }

    /// The zones that are polled.
    pub fn all(&self) -> Vec<(Zone, ZoneCell)> {
        self.zones()
            .iter()
            .map(|(zone, cell)| (zone.clone(), ZoneCell(Arc::clone(cell))))
            .collect()
    }

    fn zones(&self) -> MutexGuard<'_, BTreeMap<Zone, Arc<RwLock<ZoneState>>>> {
        self.0.zones.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn image_cache(&self) -> MutexGuard<'_, ImageCache> {
        self.0.images.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) fn put<H: Listed>(inventory: &mut Inventory<H>, host: &H) {
    // Before the first list there is nothing to put it into: a part must not be taken for the whole.
    if inventory.at.is_none() {
        return;
    }
    match inventory.hosts.iter_mut().find(|known| known.id() == host.id()) {
        Some(known) => known.clone_from(host),
        None => inventory.hosts.push(host.clone()),
    }
}
