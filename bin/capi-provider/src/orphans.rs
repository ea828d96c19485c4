//! Hosts that are paid for and belong to nobody, and claims that hold nothing.
//!
//! Nothing is done about hosts here: a report cannot wipe anything. A finding counts only when it has been there for a while,
//! since lists lag behind and machines come and go.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use russet_api::values::{PoolPrefix, ServerId};
use russet_scaleway::ProjectId;

use crate::claims::Claims;
use crate::host::Inventory;
use crate::journal::later;
use crate::names::{CLAIM_MARKER, RELEASE_MARKER, is_pooled};

/// Holder of the claims under which orphans are put back into a pool; no machine has such a uid.
pub const RECLAIMER: &str = "orphan-reclaim";

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Why {
    /// Somebody began to take the host and is gone.
    AbandonedClaim,
    /// Somebody began to give the host back and is gone; it may not be wiped.
    AbandonedRelease,
    /// The machine that claimed the host is gone.
    HolderGone,
    /// Nobody knows the host.
    Unknown,
    /// The host is in use and looks free.
    OwnedInPool,
    /// The claim is for a host that does not exist.
    ClaimWithoutHost,
}

impl Why {
    /// Every one, for reports that must fall to zero.
    pub const ALL: [Self; 6] = [
        Self::AbandonedClaim,
        Self::AbandonedRelease,
        Self::HolderGone,
        Self::Unknown,
        Self::OwnedInPool,
        Self::ClaimWithoutHost,
    ];

    /// Value of a label `why`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AbandonedClaim => "abandoned_claim",
            Self::AbandonedRelease => "abandoned_release",
            Self::HolderGone => "holder_gone",
            Self::Unknown => "unknown",
            Self::OwnedInPool => "owned_in_pool",
            Self::ClaimWithoutHost => "claim_without_host",
        }
    }

    /// What to do about it.
    pub const fn advice(self) -> &'static str {
        match self {
            Self::AbandonedClaim => "nobody logged in to it: rename it into the pool",
            Self::AbandonedRelease | Self::HolderGone | Self::Unknown => {
                "reinstall it, and when it is ready again rename it into the pool, or delete it"
            }
            Self::OwnedInPool => {
                "nothing: its machine gives it its name back; if it stays, look at the machine's conditions"
            }
            Self::ClaimWithoutHost => "remove the claim object",
        }
    }
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Orphan {
    /// The host.
    pub server: ServerId,
    /// What is wrong.
    pub why: Why,
    /// Its name, if it exists; of a claim: its id.
    pub name: String,
}

/// A machine, as far as it matters here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// `metadata.uid`.
    pub uid: String,
    /// Every host it has, had in its spec, or works on.
    pub servers: BTreeSet<ServerId>,
    /// It serves with its host, rather than taking or giving it back.
    pub settled: bool,
}

/// All findings of a zone.
pub fn find(
    inventory: &Inventory,
    claims: &Claims,
    owners: &[Owner],
    pools: &BTreeSet<PoolPrefix>,
    project: &ProjectId,
) -> Vec<Orphan> {
    let is_pool = |name: &str| pools.iter().any(|pool| is_pooled(pool, name));
    let mut found = Vec::new();
    for host in inventory.hosts.iter().filter(|host| host.project == *project) {
        let holder = claims.get(&host.id).map(|claim| &claim.holder);
        // Somebody sees to it already.
        if holder.is_some_and(|holder| holder.uid == RECLAIMER) {
            continue;
        }
        let owner = owners.iter().find(|owner| match holder {
            Some(holder) => owner.uid == holder.uid,
            None => owner.servers.contains(&host.id),
        });
        let why = match (owner, holder) {
            (Some(owner), _) if owner.settled && owner.servers.contains(&host.id) && is_pool(&host.name) => {
                Why::OwnedInPool
            }
            (Some(_), _) => continue,
            (None, Some(_)) => Why::HolderGone,
            (None, None) if host.name.starts_with(CLAIM_MARKER) => Why::AbandonedClaim,
            (None, None) if host.name.starts_with(RELEASE_MARKER) => Why::AbandonedRelease,
            (None, None) if is_pool(&host.name) => continue,
            (None, None) => Why::Unknown,
        };
        found.push(Orphan {
            server: host.id.clone(),
            why,
            name: host.name.clone(),
        });
    }
    let machines = claims.iter().filter(|(_, claim)| claim.holder.uid != RECLAIMER);
    for (server, _) in machines.filter(|(server, _)| inventory.get(server).is_none()) {
        found.push(Orphan {
            server: server.clone(),
            why: Why::ClaimWithoutHost,
            name: String::new(),
        });
    }
    found
}

/// Claims of machines that do not exist. One comes about when a replica that was suspended takes a claim for a machine that was
/// deleted meanwhile, or when a finalizer is removed by force.
///
/// Once it has been there for as long as a call may be in flight, dropping it is safe: nothing was or can be done under it
/// any more, and whose the host is shows in its name alone. If that is no name of the pool, [`find`] reports the host.
pub fn dead_claims(claims: &Claims, owners: &[Owner]) -> Vec<Orphan> {
    claims
        .iter()
        .filter(|(_, claim)| claim.holder.uid != RECLAIMER)
        .filter(|(_, claim)| !owners.iter().any(|owner| owner.uid == claim.holder.uid))
        .map(|(server, claim)| Orphan {
            server: server.clone(),
            why: Why::HolderGone,
            name: claim.id.clone(),
        })
        .collect()
}

/// Whether an orphan may be wiped and put back: nobody knows it, and its name begins as those of our machines do. One that bears
/// a marker is on its way in some other cluster, for all we know.
pub fn may_reclaim(orphan: &Orphan, prefix: &str) -> bool {
    orphan.why == Why::Unknown && !prefix.is_empty() && orphan.name.starts_with(prefix)
}

/// Findings and since when they are there.
#[derive(Clone, Debug, Default)]
pub struct Watch(BTreeMap<Orphan, Timestamp>);

impl Watch {
    /// Takes the findings of now and returns those that have been there for `patience`.
    pub fn update(&mut self, found: Vec<Orphan>, now: Timestamp, patience: Duration) -> Vec<Orphan> {
        let old = std::mem::take(&mut self.0);
        self.0 = found
            .into_iter()
            .map(|orphan| (orphan.clone(), old.get(&orphan).copied().unwrap_or(now)))
            .collect();
        self.0
            .iter()
            .filter(|(_, since)| now >= later(**since, patience))
            .map(|(orphan, _)| orphan.clone())
            .collect()
    }
}
