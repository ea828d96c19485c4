//! Linux servers that bear our tags and belong to nobody, and claims of machines that do not exist.
//!
//! Servers are only reported: somebody may have made them with another cluster of the same project. Dead claims are removed once
//! they have been there for as long as a call may be in flight.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt as _};
use russet_api::values::{ServerId, Zone};
use russet_api::{ScalewayElasticMetalMachine, ScalewayInstanceMachine};
use russet_controller::Scope;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::kind::LinuxKind;
use super::metrics::{LinuxMetrics, kind};
use super::server::Product;
use super::zones::Zones;
use crate::claims_store::ClaimStore;
use crate::clock::Clock;
use crate::machine::Effects;
use crate::orphans::{Orphan, Owner, Watch, Why, dead_claims};

/// What the report works with.
#[derive(Clone)]
pub struct LinuxReport {
    /// For listing machines past every cache.
    pub client: Client,
    /// Where our machines are.
    pub scope: Scope,
    /// The claims.
    pub claims: ClaimStore,
    /// The servers of both products.
    pub zones: [(Product, Zones); 2],
    /// Metrics.
    pub metrics: LinuxMetrics,
    /// What decisions are made at.
    pub clock: Arc<dyn Clock>,
    /// How often to look.
    pub interval: Duration,
    /// A finding that is younger may be nothing.
    pub patience: Duration,
    /// Whether dead claims are removed.
    pub effects: Effects,
}

impl std::fmt::Debug for LinuxReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LinuxReport").finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct Remembered {
    claims: Watch,
    servers: Watch,
    told: BTreeSet<Orphan>,
}

impl LinuxReport {
    /// Looks until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        let mut remembered = Remembered::default();
        loop {
            let looked = tokio::select! {
                () = stop.cancelled() => return,
                looked = self.look(&mut remembered) => looked,
            };
            if let Err(error) = looked {
                warn!(%error, "orphaned Linux servers could not be looked for, trying again");
            }
            // Twice per interval, so that what counts only after a while is told within one.
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(self.interval / 2) => {}
            }
        }
    }

    async fn look(&self, remembered: &mut Remembered) -> Result<(), kube::Error> {
        // Claims first: a machine that takes one between the two reads is in the second.
        let claims = self.claims.live().await?;
        let mut owners = self.owners::<ScalewayInstanceMachine>().await?;
        owners.extend(self.owners::<ScalewayElasticMetalMachine>().await?);
        let now = self.clock.now();
        let mut dead = dead_claims(&claims, &owners);
        dead.retain(|orphan| {
            let holder = claims.get(&orphan.server).map(|claim| claim.holder.namespace.as_str());
            holder.is_some_and(|namespace| self.scope.contains(namespace))
        });
        for orphan in remembered.claims.update(dead, now, self.patience) {
            if self.effects == Effects::DryRun {
                continue;
            }
            info!(server = %orphan.server, claim = orphan.name, "removing the claim of a machine that does not exist");
            self.claims.remove(&orphan.server, &orphan.name).await?;
        }
        let found = self.servers(&owners);
        let listed = found.iter().map(|(_, _, orphan)| orphan.clone()).collect();
        let orphans: BTreeSet<Orphan> = remembered
            .servers
            .update(listed, now, self.patience)
            .into_iter()
            .collect();
        for (product, zone, orphan) in found.iter().filter(|(_, _, orphan)| orphans.contains(orphan)) {
            if !remembered.told.contains(orphan) {
                warn!(kind = kind(*product), %zone, server = %orphan.server, name = orphan.name,
                    "a Linux server bears our tags and belongs to no machine: delete it with its volumes, or if it was adopted, reinstall it and remove its tags");
            }
        }
        for product in [Product::Instance, Product::Metal] {
            let of = |(other, _, orphan): &&(Product, Zone, Orphan)| *other == product && orphans.contains(orphan);
            self.metrics
                .orphans(product, "unknown", found.iter().filter(of).count());
        }
        remembered.told = orphans;
        Ok(())
    }

    /// Servers whose machine does not exist in any namespace we look after.
    fn servers(&self, owners: &[Owner]) -> Vec<(Product, Zone, Orphan)> {
        let mut found = Vec::new();
        for (product, zones) in &self.zones {
            for (zone, cell) in zones.all() {
                let state = cell.read();
                for server in state.inventory().iter().flat_map(|inventory| &inventory.hosts) {
                    let Some(uid) = server.owner() else { continue };
                    let owned = owners
                        .iter()
                        .any(|owner| owner.uid == uid || owner.servers.contains(&server.id));
                    if !owned {
                        let orphan = Orphan {
                            server: server.id.clone(),
                            why: Why::Unknown,
                            name: server.name.clone(),
                        };
                        found.push((*product, zone.clone(), orphan));
                    }
                }
            }
        }
        found
    }

    async fn owners<K: LinuxKind>(&self) -> Result<Vec<Owner>, kube::Error> {
        let mut owners = Vec::new();
        for place in self.scope.places() {
            let api: Api<K> = place.api(&self.client);
            let machines = api.list(&ListParams::default()).await?.items;
            owners.extend(machines.iter().map(owner));
        }
        Ok(owners)
    }
}

fn owner<K: LinuxKind>(object: &K) -> Owner {
    let status = object.status();
    let provider: Option<ServerId> = object.provider_id().ok().flatten().map(|id| id.server().clone());
    let server: Option<ServerId> = status.server_id.as_deref().and_then(|id| id.parse().ok());
    Owner {
        uid: object.uid().unwrap_or_default(),
        settled: status.intent.is_none() && server.is_some(),
        servers: [server, provider].into_iter().flatten().collect(),
    }
}
