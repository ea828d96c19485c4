//! What is done next about one machine.
//!
//! The caller gathers what it has, asks, does the one thing it is told, and asks again. `Look` comes first: whatever a
//! decision needs and the caller does not have is asked for, so that nothing is read that is not needed. A host that was
//! looked at before something was done to it must be looked at again.

mod adopt;
mod keep;
mod release;

use jiff::Timestamp;
use russet_api::values::{ServerId, Zone};
use russet_scaleway::ProjectId;

use crate::candidates::Wanted;
use crate::claims::{Claims, Holder};
use crate::flight::Plan;
use crate::host::{Host, Image, Inventory, Sight};
use crate::journal::{Journal, Work};
use crate::names::is_pooled;
use crate::rules::Rules;
use crate::situation::{Situation, SpecProblem};
use crate::waiting::Turn;

/// A machine as its object and the objects around it show it.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Whose claims are its claims.
    pub holder: Holder,
    /// The zone of its host.
    pub zone: Zone,
    /// What it wants, or why that cannot be worked with.
    pub wanted: Result<Wanted, SpecProblem>,
    /// What has been written on it by Kubernetes and core.
    pub standing: Standing,
    /// The host it has: `status.serverID`.
    pub server: Option<ServerId>,
    /// The host in `spec.providerID`, which never changes once it is there.
    pub provider_server: Option<ServerId>,
    /// Hosts it gave back because they could not be set up: `status.givenBack`.
    pub given_back: Vec<ServerId>,
    /// What is being done to a host.
    pub journal: Option<Journal>,
    /// How far the host is set up.
    pub setup: Setup,
}

/// What Kubernetes and core say about a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent facts, each read from another place"
)]
pub struct Standing {
    /// It, or its Cluster, is paused.
    pub paused: bool,
    /// It is being deleted.
    pub deleting: bool,
    /// It is being deleted because `clusterctl move` took it elsewhere: the host stays.
    pub moved_away: bool,
    /// It carries our finalizer.
    pub finalizer: bool,
    /// A Machine owns it.
    pub owned: bool,
    /// Its Cluster's infrastructure is provisioned.
    pub cluster_ready: bool,
    /// The Machine has bootstrap data.
    pub bootstrap_data: bool,
    /// Node, identity, Secrets and Services of it are gone; only asked about while it is being deleted.
    pub cleaned_up: bool,
}

/// How far a host is set up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent facts, each read from another place"
)]
pub struct Setup {
    /// Its credentials are stored.
    pub credentials: bool,
    /// It was set up over SSH.
    pub bootstrapped: bool,
    /// Core was told that it is provisioned.
    pub provisioned: bool,
    /// Failed attempts to set it up.
    pub attempts: u32,
    /// It was rebooted once for that.
    pub rebooted: bool,
}

/// What is known about the world.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// Our project.
    pub project: &'a ProjectId,
    /// The claims.
    pub claims: &'a Claims,
    /// The claims were read after the machine and past every cache.
    pub claims_are_live: bool,
    /// The Macs of the zone, if the shared poll has them.
    pub inventory: Option<&'a Inventory>,
    /// The one host that matters, if it was looked at since the last change.
    pub host: Option<&'a Sight>,
    /// The images for the machine's hardware, if they were read.
    pub images: Option<&'a [Image]>,
    /// Now.
    pub now: Timestamp,
    /// How long things may take.
    pub rules: &'a Rules,
    /// An id that was never used. Two decisions never get the same.
    pub fresh: &'a str,
}

/// Something the caller has to read before a decision is possible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Need {
    /// The claims, past every cache.
    Claims,
    /// The Macs of the zone.
    Inventory,
    /// This host, now.
    Host(ServerId),
    /// The images for the machine's hardware.
    Images,
}

/// One write to Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Add the finalizer, before anything else happens.
    AddFinalizer,
    /// Create the claim for this host under this id. If there is one already, read the claims again.
    TakeClaim {
        /// The host.
        server: ServerId,
        /// The id.
        id: String,
    },
    /// Remove the claim for this host if it has this id and the machine is still as it was read, which has to be asked
    /// right before: a claim read after the machine may belong to what the machine does by now.
    DropClaim {
        /// The host.
        server: ServerId,
        /// The id.
        id: String,
    },
    /// Write this record, or none.
    WriteJournal(Option<Box<Journal>>),
    /// The host is ours: `status.serverID` and its address, and no record any more; counters start again.
    RecordHost(Box<Host>),
    /// Store the credentials of the host. Rebuilt from Scaleway whenever they are missing.
    StoreCredentials(ServerId),
    /// Have the host set up over SSH, or go on having it set up.
    Bootstrap(Box<Host>),
    /// The reboot was made or may have been: note it, and no record any more.
    NoteReboot,
    /// Write `spec.providerID`. Only now, because it can never be changed, and a host that cannot be set up is exchanged.
    SetProviderId(ServerId),
    /// Tell core that the host is provisioned.
    MarkProvisioned,
    /// Forget the host, to take another: no server id, no record, no credentials, counters at zero.
    ForgetHost,
    /// Remove Node, identity, Secrets and Services.
    CleanUp,
    /// Remove the finalizer.
    RemoveFinalizer,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Read this and ask again.
    Look(Need),
    /// Do this.
    Act(Action),
    /// Make this call.
    Fly(Box<Plan>),
    /// Nothing now.
    Rest(Situation),
}

impl Decision {
    fn write(journal: Journal) -> Self {
        Self::Act(Action::WriteJournal(Some(Box::new(journal))))
    }

    fn drop_journal() -> Self {
        Self::Act(Action::WriteJournal(None))
    }

    fn drop_claim(server: &ServerId, id: &str) -> Self {
        Self::Act(Action::DropClaim {
            server: server.clone(),
            id: id.to_owned(),
        })
    }
}

/// Decides about one machine.
pub fn decide(machine: &Machine, seen: &Seen<'_>) -> Decision {
    if let Some(waiting) = machine.standing.is_held() {
        return Decision::Rest(Situation::Waiting(waiting));
    }
    if let Some(journal) = &machine.journal {
        if let Some(until) = journal.in_flight_until(seen.rules.flight, seen.now) {
            return Decision::Rest(Situation::CallInFlight { until });
        }
        if let Some(drop) = drop_void_claim(machine, seen) {
            return drop;
        }
        return go_on(machine, journal, seen);
    }
    if let Some(drop) = drop_void_claim(machine, seen) {
        return drop;
    }
    match machine.standing.turn() {
        Err(waiting) => Decision::Rest(Situation::Waiting(waiting)),
        Ok(Turn::Finish) => release::finish(machine, seen),
        Ok(Turn::Delete) => release::delete(machine, seen),
        Ok(Turn::Protect) => Decision::Act(Action::AddFinalizer),
        Ok(Turn::Serve) => match &machine.server {
            Some(server) => keep::keep(machine, server, seen),
            None => adopt::begin(machine, seen),
        },
    }
}

/// Decides about a host that belongs to nobody and is given back under a claim of its own. Its record is kept with the claim.
pub fn reclaim(journal: &Journal, seen: &Seen<'_>) -> Decision {
    if let Some(until) = journal.in_flight_until(seen.rules.flight, seen.now) {
        return Decision::Rest(Situation::CallInFlight { until });
    }
    match &journal.work {
        Work::Release(release) => release::go_on(journal, release, seen),
        _ => Decision::drop_claim(&journal.server, &journal.id),
    }
}

fn go_on(machine: &Machine, journal: &Journal, seen: &Seen<'_>) -> Decision {
    match &journal.work {
        Work::Claim(claim) if machine.standing.deleting => release::undo_claim(machine, journal, claim, seen),
        Work::Claim(claim) => adopt::go_on(machine, journal, claim, seen),
        Work::Release(release) => release::go_on(journal, release, seen),
        Work::Over => release::after(machine, journal, seen),
        Work::Restore { from } => keep::restore(machine, journal, from, seen),
        // The answer is in, or lost for good; either way it counts as the one reboot.
        Work::Reboot => Decision::Act(Action::NoteReboot),
    }
}

/// The host, if it was looked at; else what to say instead.
fn look<'a>(server: &ServerId, seen: &Seen<'a>) -> Result<&'a Sight, Decision> {
    match seen.host {
        Some(sight) if !matches!(sight, Sight::There(host) if host.id != *server) => Ok(sight),
        _ => Err(Decision::Look(Need::Host(server.clone()))),
    }
}

/// Claims of this machine for hosts that it neither has nor works on. A replica that was suspended leaves such.
fn drop_void_claim(machine: &Machine, seen: &Seen<'_>) -> Option<Decision> {
    let worked_on = machine.journal.as_ref().map(|journal| &journal.server);
    let meant = [machine.server.as_ref(), machine.provider_server.as_ref(), worked_on];
    let void = seen
        .claims
        .of(&machine.holder.uid)
        .find(|(server, _)| !meant.contains(&Some(*server)));
    void.map(|(server, claim)| Decision::drop_claim(server, &claim.id))
}

/// Whether the claim of a host is ours; else what to do about it.
fn ensure_claim(machine: &Machine, server: &ServerId, seen: &Seen<'_>) -> Result<(), Decision> {
    match seen.claims.get(server) {
        Some(claim) if claim.holder.uid == machine.holder.uid => Ok(()),
        Some(claim) => Err(Decision::Rest(Situation::ClaimedByAnother {
            holder: claim.holder.clone(),
        })),
        None => Err(Decision::Act(Action::TakeClaim {
            server: server.clone(),
            id: seen.fresh.to_owned(),
        })),
    }
}

/// Whether the machine's own name would make its host look free.
fn name_looks_pooled(machine: &Machine, wanted: &Wanted) -> bool {
    is_pooled(&wanted.pool, &machine.holder.name)
}
