//! Putting orphans back into a pool: wiped, seen wiped, then pooled.
//!
//! ```text
//!   orphan ──▶ claim under our own name, with the record in it ──▶ no machine has it? ──▶ as a release ──▶ claim dropped
//!                       │                                               │ one has
//!                       └── any machine that comes later meets it       └──▶ claim dropped, nothing was done
//! ```
//!
//! The steps and their order are those of [`crate::decide`], driven by [`crate::flight`]; only the record is kept in another place,
//! since there is no machine to keep it in. A provider that dies on the way leaves a claim that says how far it was.

mod record;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt as _};
use russet_api::ScalewayAppleSiliconMachine;
use russet_api::values::{PoolPrefix, ServerId, Zone};
use russet_controller::Scope;
use russet_scaleway::ProjectId;
use tracing::{info, warn};

use crate::claims::Claims;
use crate::claims_store::ClaimStore;
use crate::clock::{Clock, left};
use crate::decide::{Action, Decision, Need, Seen, reclaim};
use crate::flight::{Ask, Flight, Plan};
use crate::host::Sight;
use crate::inventory::Inventories;
use crate::journal::{Journal, Release, Step, Wipe, Work, later};
use crate::metrics::ProviderMetrics;
use crate::orphan_report::owner;
use crate::orphans::{Orphan, may_reclaim};
use crate::rules::Rules;

use record::Record;

/// More than any way from an orphan to the pool takes at once.
const STEPS: usize = 16;
/// Hosts that are on their way at once: an error in a prefix should be seen before it has wiped a fleet.
const AT_ONCE: usize = 3;

/// What it works with.
#[derive(Clone)]
pub struct Reclaimer {
    /// Only hosts whose names begin like this.
    pub prefix: String,
    /// Where they go.
    pub pool: PoolPrefix,
    /// For listing machines past every cache.
    pub client: Client,
    /// Where our machines are.
    pub scope: Scope,
    /// The claims.
    pub claims: ClaimStore,
    /// The Macs.
    pub inventories: Inventories,
    /// Our project.
    pub project: ProjectId,
    /// How long things may take.
    pub rules: Rules,
    /// What decisions are made at.
    pub clock: Arc<dyn Clock>,
    /// Longest time one exchange may take.
    pub call_timeout: Duration,
    /// Metrics.
    pub metrics: ProviderMetrics,
}

impl std::fmt::Debug for Reclaimer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reclaimer")
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

impl Reclaimer {
    /// Goes on with what was begun and begins with these orphans. How many are on their way after that.
    pub async fn work(&self, orphans: &[Orphan], zones: &BTreeMap<ServerId, Zone>) -> Result<usize, kube::Error> {
        let mut under_way = 0;
        for record in record::all(&self.claims).await? {
            under_way += usize::from(!self.go_on(record).await?);
        }
        for orphan in orphans.iter().filter(|orphan| may_reclaim(orphan, &self.prefix)) {
            let Some(zone) = zones.get(&orphan.server).filter(|_| under_way < AT_ONCE) else {
                continue;
            };
            let Some(record) = self.begin(orphan, zone).await? else {
                continue;
            };
            under_way += usize::from(!self.go_on(record).await?);
        }
        Ok(under_way)
    }

    /// Claims an orphan. None: somebody has it by now.
    async fn begin(&self, orphan: &Orphan, zone: &Zone) -> Result<Option<Record>, kube::Error> {
        if !self.is_nobodys(&orphan.server, &orphan.name).await? {
            return Ok(None);
        }
        let release = Release {
            pool: self.pool.clone(),
            from: orphan.name.clone(),
            wipe: Wipe::Needed,
            image: None,
        };
        let id = format!("{:032x}", rand::random::<u128>());
        let journal = Journal::new(&orphan.server, &id, Work::Release(release), self.clock.now());
        let record = record::create(&self.claims, zone, &orphan.name, journal).await?;
        if record.is_some() {
            info!(%zone, server = %orphan.server, name = orphan.name, "an orphan goes back to the pool; it is wiped first");
        }
        Ok(record)
    }

    /// Does what can be done about one now; whether that was all.
    async fn go_on(&self, mut record: Record) -> Result<bool, kube::Error> {
        let mut host = None;
        let mut inventory = false;
        for _ in 0..STEPS {
            match self.decide(&record, host.as_ref(), inventory) {
                Decision::Look(Need::Host(server)) => match self.inventories.see(&record.zone, &server).await {
                    Ok((sight, _)) => host = Some(sight),
                    Err(error) => {
                        warn!(%server, %error, "an orphan could not be looked at, trying again");
                        return Ok(false);
                    }
                },
                Decision::Look(Need::Inventory) => {
                    if self.inventories.ask(&record.zone).read().inventory().is_none() {
                        return Ok(false);
                    }
                    inventory = true;
                }
                Decision::Act(Action::WriteJournal(Some(journal))) => {
                    match record::write(&self.claims, &record, *journal).await? {
                        Some(written) => record = written,
                        None => return Ok(false),
                    }
                    host = None;
                }
                Decision::Fly(plan) => {
                    // Asked again with the claim taken: a machine that comes after this meets it.
                    let from = plan.guard.name.as_str();
                    if plan.attempt.step == Step::Mark && !self.is_nobodys(&record.journal.server, from).await? {
                        warn!(server = %record.journal.server, "a machine has this host by now; nothing was done to it");
                        self.claims.remove(&record.journal.server, &record.journal.id).await?;
                        return Ok(true);
                    }
                    match self.fly(record, *plan).await? {
                        Some(flown) => record = flown,
                        None => return Ok(false),
                    }
                    host = None;
                }
                Decision::Act(Action::DropClaim { server, id }) => {
                    let why = record.journal.message.clone().unwrap_or_default();
                    self.claims.remove(&server, &id).await?;
                    if why.ends_with("is in the pool") {
                        self.metrics.reclaimed();
                        info!(%server, "an orphan is back in the pool");
                    } else {
                        warn!(%server, why, "an orphan is not put back");
                    }
                    return Ok(true);
                }
                _ => return Ok(false),
            }
        }
        Ok(false)
    }

    fn decide(&self, record: &Record, host: Option<&Sight>, inventory: bool) -> Decision {
        let zone = self.inventories.ask(&record.zone);
        let zone = zone.read();
        let fresh = format!("{:032x}", rand::random::<u128>());
        let seen = Seen {
            project: &self.project,
            claims: &Claims::default(),
            claims_are_live: false,
            inventory: inventory.then(|| zone.inventory()).flatten(),
            host,
            images: None,
            now: self.clock.now(),
            rules: &self.rules,
            fresh: &fresh,
        };
        reclaim(&record.journal, &seen)
    }

    /// Whether no machine has the host or bears its name, asked past every cache.
    async fn is_nobodys(&self, server: &ServerId, name: &str) -> Result<bool, kube::Error> {
        for place in self.scope.places() {
            let api: Api<ScalewayAppleSiliconMachine> = place.api(&self.client);
            let machines = api.list(&ListParams::default()).await?.items;
            if machines
                .iter()
                .any(|mac| mac.name_any() == name || owner(mac).servers.contains(server))
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// One call. None: somebody else works on it.
    async fn fly(&self, mut record: Record, plan: Plan) -> Result<Option<Record>, kube::Error> {
        let send_by = later(later(plan.attempt.at, self.rules.send_within), self.call_timeout);
        let mut flight = Flight::new(plan, &self.rules);
        let mut written = false;
        loop {
            match flight.ask(self.clock.now()) {
                Ask::Write(journal) => {
                    match record::write(&self.claims, &record, *journal).await? {
                        Some(newer) => (record, written) = (newer, true),
                        None => return Ok(None),
                    }
                    flight.wrote(true);
                }
                Ask::Get(server) => {
                    let sight = self.inventories.see(&record.zone, &server).await;
                    flight.got(sight.ok().map(|(sight, _)| sight).as_ref(), self.clock.now());
                }
                Ask::Send(server, call) => {
                    let within = left(send_by, self.clock.now());
                    let answer = self.inventories.send(&record.zone, &server, &call, within).await;
                    info!(%server, ?call, ?answer, "called Scaleway for an orphan");
                    flight.answered(&answer, self.clock.now());
                }
                Ask::Settle(journal) => {
                    // Nobody else writes while an attempt stands, so a conflict means that it does not stand any more.
                    match record::write(&self.claims, &record, *journal).await? {
                        Some(newer) => record = newer,
                        None => return Ok(None),
                    }
                    flight.settled();
                }
                Ask::End => return Ok(written.then_some(record)),
            }
        }
    }
}
