//! The report of hosts that are paid for and belong to nobody, and the removal of claims of machines that do not exist.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt as _};
use russet_api::ScalewayAppleSiliconMachine;
use russet_api::values::{PoolPrefix, ServerId, Zone};
use russet_controller::Scope;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::claims_store::ClaimStore;
use crate::clock::Clock;
use crate::host::Inventory;
use crate::inventory::Inventories;
use crate::journal::Journal;
use crate::leftovers::{Known, Leftovers};
use crate::machine::Effects;
use crate::metrics::ProviderMetrics;
use crate::orphans::{Orphan, Owner, Watch, Why, dead_claims, find};
use crate::pages;
use crate::reclaim::Reclaimer;
use crate::registry::{Key, Registry};

/// How often orphans that are on their way are seen to.
const RECLAIM_EVERY: Duration = Duration::from_secs(10);

/// What the report works with.
#[derive(Clone)]
pub struct Report {
    /// For listing machines past every cache.
    pub client: Client,
    /// Where our machines are. Claims of other namespaces are somebody else's to judge.
    pub scope: Scope,
    /// The claims.
    pub claims: ClaimStore,
    /// The Macs.
    pub inventories: Inventories,
    /// The pools in use.
    pub registry: Registry,
    /// The pool of machines that name none.
    pub default_pool: Option<PoolPrefix>,
    /// Our project.
    pub project: russet_scaleway::ProjectId,
    /// Metrics.
    pub metrics: ProviderMetrics,
    /// What decisions are made at.
    pub clock: Arc<dyn Clock>,
    /// How often to look.
    pub interval: Duration,
    /// How long a call may be in flight: a finding that is younger may be nothing.
    pub patience: Duration,
    /// Whether dead claims are removed.
    pub effects: Effects,
    /// Who puts orphans back into a pool; none: they are only reported.
    pub reclaimer: Option<Reclaimer>,
    /// Who looks for everything else.
    pub leftovers: Leftovers,
}

impl std::fmt::Debug for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Report")
            .field("interval", &self.interval)
            .finish_non_exhaustive()
    }
}

/// What is remembered between two looks.
#[derive(Debug, Default)]
struct Remembered {
    hosts: Watch,
    claims: Watch,
    told: BTreeSet<Orphan>,
    leftovers: Known,
}

impl Report {
    /// Looks until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        let mut remembered = Remembered::default();
        loop {
            let looked = tokio::select! {
                () = stop.cancelled() => return,
                looked = self.look(&mut remembered) => looked,
            };
            // Twice per interval, so that what counts only after a while is told within one.
            let mut pause = self.interval / 2;
            match looked {
                // A host that is being wiped should not be out of the pool for longer than that takes.
                Ok(reclaiming) if reclaiming > 0 => pause = pause.min(RECLAIM_EVERY),
                Ok(_) => {}
                Err(error) => warn!(%error, "orphans could not be looked for, trying again"),
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// One look; how many orphans are on their way into a pool after it.
    async fn look(&self, remembered: &mut Remembered) -> Result<usize, kube::Error> {
        // Claims first: a machine that takes one between the two reads is in the second.
        let claims = self.claims.live().await?;
        let (mut owners, mut keys) = (Vec::new(), BTreeSet::new());
        for place in self.scope.places() {
            let api: Api<ScalewayAppleSiliconMachine> = place.api(&self.client);
            pages::each(&api, &ListParams::default(), |mac| {
                owners.push(owner(&mac));
                keys.insert(Key {
                    namespace: mac.namespace().unwrap_or_default(),
                    name: mac.name_any(),
                });
            })
            .await?;
        }
        let now = self.clock.now();
        self.metrics.retain(|key| keys.contains(key));
        for gone in self.registry.keys().iter().filter(|key| !keys.contains(key)) {
            self.registry.forget(gone);
        }

        let ours = |orphan: &Orphan| {
            let holder = claims.get(&orphan.server).map(|claim| claim.holder.namespace.as_str());
            holder.is_some_and(|namespace| self.scope.contains(namespace))
        };
        let mut dead = dead_claims(&claims, &owners);
        dead.retain(ours);
        let dead = remembered.claims.update(dead, now, self.patience);
        for orphan in dead {
            if self.effects == Effects::DryRun {
                continue;
            }
            info!(server = %orphan.server, claim = orphan.name, "removing the claim of a machine that does not exist");
            self.claims.remove(&orphan.server, &orphan.name).await?;
        }

        let mut pools = self.registry.pools();
        pools.extend(self.default_pool.clone());
        // One list of all zones, because a claim does not say where its host is.
        let (mut inventory, mut zones, mut whole) = (Inventory::default(), BTreeMap::new(), true);
        for (zone, cell) in self.inventories.all() {
            let state = cell.read();
            match state.inventory() {
                Some(part) => {
                    zones.extend(part.hosts.iter().map(|host| (host.id.clone(), zone.clone())));
                    inventory.hosts.extend(part.hosts.iter().cloned());
                }
                None => whole = false,
            }
        }
        let mut found = find(&inventory, &claims, &owners, &pools, &self.project);
        found.retain(|orphan| match orphan.why {
            Why::ClaimWithoutHost => whole && ours(orphan),
            // Whoever has the claim, in whichever namespace, has the host.
            Why::HolderGone => ours(orphan),
            _ => true,
        });
        let orphans = remembered.hosts.update(found, now, self.patience);
        self.tell(&orphans, &zones, &mut remembered.told);
        let holders = claims.iter().map(|(_, claim)| &claim.holder);
        let holders = holders.filter(|holder| self.scope.contains(&holder.namespace));
        let holders = holders.map(|holder| holder.uid.clone()).collect();
        self.leftovers.look(&mut remembered.leftovers, holders, now).await?;
        match &self.reclaimer {
            Some(reclaimer) => reclaimer.work(&orphans, &zones).await,
            None => Ok(0),
        }
    }

    fn tell(&self, orphans: &[Orphan], zones: &BTreeMap<ServerId, Zone>, told: &mut BTreeSet<Orphan>) {
        let mut counts: BTreeMap<Zone, BTreeMap<Why, i64>> = BTreeMap::new();
        for (zone, _) in self.inventories.all() {
            counts.entry(zone).or_default();
        }
        for orphan in orphans {
            let zone = zones.get(&orphan.server).cloned().unwrap_or_default();
            if !told.contains(orphan) {
                warn!(%zone, server = %orphan.server, name = orphan.name, why = orphan.why.as_str(),
                    advice = orphan.why.advice(), "a Mac is paid for and belongs to nobody, or a claim holds nothing");
            }
            *counts.entry(zone).or_default().entry(orphan.why).or_insert(0) += 1;
        }
        for (zone, counts) in &counts {
            self.metrics.orphans(zone, counts);
        }
        *told = orphans.iter().cloned().collect();
    }
}

/// A machine, as far as it matters here.
pub(crate) fn owner(mac: &ScalewayAppleSiliconMachine) -> Owner {
    let status = mac.status.clone().unwrap_or_default();
    let journal = status.intent.as_ref().and_then(|intent| Journal::try_from(intent).ok());
    let provider = mac.spec.provider_id().ok().flatten().map(|id| id.server().clone());
    let server = status.server_id.as_deref().and_then(|id| id.parse().ok());
    let settled = status.intent.is_none() && server.is_some();
    Owner {
        uid: mac.uid().unwrap_or_default(),
        servers: [server, provider, journal.map(|journal| journal.server)]
            .into_iter()
            .flatten()
            .collect(),
        settled,
    }
}
