//! What is done next about one Linux machine.
//!
//! ```text
//!            ┌───────────── network ─────────────┐
//!  Instance: create ─► NIC ─► script ─► power on ─┐
//!  ordered:  order ─► networking, attach, VLAN ─► script ─► install ─┤
//!  adopted:  claim ─► tag ─► networking, attach, VLAN ───────────────┴─► provider id ─► Node ─► forget the script ─► serve
//! ```
//!
//! The caller gathers what it has, asks, does the one thing it is told, and asks again, as for Macs ([`crate::decide`]).
//! A server is found again by the tag with the machine's uid, which it bears from the moment it exists; whether a lost call made
//! one is decided by a list past every cache, after the call can no longer arrive.

mod adopt;
mod join;
mod provision;
mod release;

pub(crate) use join::is_overdue;

use std::net::IpAddr;
use std::time::Duration;

use jiff::Timestamp;
use russet_api::values::{ServerId, Zone};
use russet_scaleway::{PrivateNetworkId, ProjectId};

use super::call::{Call, Guard, Target};
use super::journal::{Journal, Work};
use super::plan::Plan;
use super::server::{Attachment, Product, Server, machine_tag};
use super::situation::{Pace, Situation, SpecProblem};
use super::wanted::{Catalog, NetworkSight, Wanted};
use crate::claims::{Claims, Holder};
use crate::decide::Standing;
use crate::host::Inventory;
use crate::journal::later;
use crate::waiting::Turn;

/// A machine as its object and the objects around it show it.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Who it is.
    pub holder: Holder,
    /// What its server is.
    pub product: Product,
    /// The zone of its server.
    pub zone: Zone,
    /// What it wants, or why that cannot be worked with.
    pub wanted: Result<Wanted, SpecProblem>,
    /// What has been written on it by Kubernetes and core.
    pub standing: Standing,
    /// The server it has: `status.serverID`.
    pub server: Option<ServerId>,
    /// The server in `spec.providerID`, which never changes once it is there.
    pub provider_server: Option<ServerId>,
    /// What is being done.
    pub journal: Option<Journal>,
    /// How far the server is.
    pub progress: Progress,
    /// Its Node.
    pub node: Node,
}

/// Where the script of a first boot is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UserData {
    /// The server never had one.
    #[default]
    None,
    /// It has one, since then.
    Given(Timestamp),
    /// It was taken away again.
    Gone,
}

/// How far a server is, as the machine's status says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Its script.
    pub user_data: UserData,
    /// Since when it is up, with an address.
    pub up_since: Option<Timestamp>,
    /// When the script last ended well over SSH.
    pub script_ran: Option<Timestamp>,
    /// When its installation was asked for.
    pub install_asked: Option<Timestamp>,
    /// When it was switched on.
    pub switched_on: Option<Timestamp>,
    /// When it was switched off.
    pub switched_off: Option<Timestamp>,
    /// Core was told that it is provisioned.
    pub provisioned: bool,
    /// It joined, and everything that follows was done.
    pub joined: bool,
    /// When something was last done for it that ended well.
    pub moved: Option<Timestamp>,
}

/// The Node of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Node {
    /// There is none of its name.
    #[default]
    Missing,
    /// There is one that belongs to another server.
    Foreign {
        /// What it says.
        provider_id: String,
    },
    /// There it is.
    Joined {
        /// Its kubelet says it is ready.
        ready: bool,
        /// Its label with the private address.
        private_address: Option<String>,
        /// Its annotation with the hash of the kubelet's configuration.
        config_hash: Option<String>,
    },
}

/// How patient to be.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Those of every call.
    pub calls: crate::rules::Rules,
    /// A script is rendered anew if the server did not start within this time: the token in it ends.
    pub user_data_for: Duration,
    /// After this long an installation that was asked for must show.
    pub install_begins: Duration,
    /// After this long a server that was switched on or off must show it.
    pub power_shows: Duration,
    /// A list older than this says nothing of what takes seconds.
    pub list_holds: Duration,
    /// After this long something that Scaleway does in seconds is stuck: a start, a stop, an attachment.
    pub boot_deadline: Duration,
    /// After this long something that takes it an hour is: a delivery, an installation, a wipe.
    pub install_deadline: Duration,
    /// After this long without a Node it is asked over SSH how the join goes.
    pub inspect_after: Duration,
    /// After this long without a Node something is wrong, whatever it says.
    pub join_deadline: Duration,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            calls: crate::rules::Rules::default(),
            user_data_for: Duration::from_hours(4),
            install_begins: Duration::from_mins(10),
            power_shows: Duration::from_mins(1),
            list_holds: Duration::from_mins(1),
            boot_deadline: Duration::from_mins(20),
            install_deadline: Duration::from_hours(3),
            inspect_after: Duration::from_mins(3),
            join_deadline: Duration::from_mins(20),
        }
    }
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
    /// The servers of the zone, if the shared poll has them.
    pub inventory: Option<&'a Inventory<Server>>,
    /// The servers of this machine, past every cache, if they were listed since the last change.
    pub mine: Option<&'a [Server]>,
    /// The one server that matters, if it was looked at since the last change; none inside: it does not exist.
    pub server: Option<&'a (ServerId, Option<Box<Server>>)>,
    /// Its attachments.
    pub attachments: Option<&'a [Attachment]>,
    /// The Private Network.
    pub network: Option<&'a NetworkSight>,
    /// What Scaleway has to offer.
    pub catalog: Option<&'a Catalog>,
    /// The server's address on the Private Network; none inside: not known yet.
    pub private_address: Option<Option<IpAddr>>,
    /// The hash of the kubelet's configuration as it would be rendered now.
    pub config_hash: Option<&'a str>,
    /// Now.
    pub now: Timestamp,
    /// How patient to be.
    pub rules: &'a Rules,
    /// An id that was never used.
    pub fresh: &'a str,
}

/// Something the caller has to read before a decision is possible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Need {
    /// The claims, past every cache.
    Claims,
    /// The servers of the zone.
    Inventory,
    /// The servers of this machine, past every cache.
    Mine,
    /// This server, now.
    Server(ServerId),
    /// What this server is attached to.
    Attachments(ServerId),
    /// The Private Network.
    Network,
    /// What Scaleway has to offer.
    Catalog,
    /// The private address of this server on this network.
    PrivateAddress(ServerId, PrivateNetworkId),
    /// The hash of the kubelet's configuration.
    ConfigHash,
}

/// One write to Kubernetes, or work that takes long and is done elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Add the finalizer, before anything else happens.
    AddFinalizer,
    /// Create the claim for this under this id.
    TakeClaim {
        /// The server, or the stand-in of a network.
        server: ServerId,
        /// The id.
        id: String,
    },
    /// Remove the claim if it has this id and the machine is still as it was read.
    DropClaim {
        /// The server, or the stand-in of a network.
        server: ServerId,
        /// The id.
        id: String,
    },
    /// Write this record, or none.
    WriteJournal(Option<Box<Journal>>),
    /// The server is ours: `status.serverID`, and no record any more.
    RecordServer(ServerId),
    /// The server is up: its addresses, its network, since when.
    RecordUp {
        /// The server.
        server: Box<Server>,
        /// Its place on the Private Network.
        attachment: Option<Box<Attachment>>,
    },
    /// Write `spec.providerID`, which can never be changed.
    SetProviderId(ServerId),
    /// Tell core that the server is provisioned.
    MarkProvisioned,
    /// Run the join script over SSH, or go on running it.
    Join(Box<Server>),
    /// Ask over SSH how the join goes; if it failed, run the script again.
    Inspect(Box<Server>),
    /// Label and annotate the Node.
    DressNode {
        /// The private address.
        private_address: Option<IpAddr>,
        /// The hash of the configuration it was set up with is written there too.
        stamp: bool,
    },
    /// It joined, and everything that follows was done.
    MarkJoined,
    /// The kubelet's configuration is another by now: run the script again.
    Update(Box<Server>),
    /// Forget the server: it is given up.
    ForgetServer,
    /// Remove Node, identity and Secrets.
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

/// Decides about one machine.
pub fn decide(machine: &Machine, seen: &Seen<'_>) -> Decision {
    if let Some(waiting) = machine.standing.is_held() {
        return Decision::Rest(Situation::Waiting(waiting));
    }
    if let Some(until) = machine
        .journal
        .as_ref()
        .and_then(|journal| journal.in_flight_until(seen.rules.calls.flight, seen.now))
    {
        return Decision::Rest(Situation::CallInFlight { until });
    }
    if let Some(drop) = drop_void_claim(machine, seen) {
        return drop;
    }
    not_for_ever(machine, patiently(machine, next(machine, seen), seen), seen)
}

/// What should have ended long ago is something to tell people, not to wait for in silence.
fn not_for_ever(machine: &Machine, next: Decision, seen: &Seen<'_>) -> Decision {
    let Decision::Rest(situation) = next else { return next };
    let limit = match situation.pace() {
        Pace::Quick => seen.rules.boot_deadline,
        Pace::Slow => seen.rules.install_deadline,
        Pace::Ours => return Decision::Rest(situation),
    };
    // A server that served and is started again says nothing of since when.
    if machine.progress.joined && !machine.standing.deleting {
        return Decision::Rest(situation);
    }
    let began = machine.journal.as_ref().map(|journal| journal.started_at);
    match machine.progress.moved.max(began) {
        Some(since) if due(since, limit, seen.now).is_ok() => Decision::Rest(Situation::Stuck {
            at: Box::new(situation),
            since,
        }),
        _ => Decision::Rest(situation),
    }
}

fn next(machine: &Machine, seen: &Seen<'_>) -> Decision {
    match machine.standing.turn() {
        Err(waiting) => Decision::Rest(Situation::Waiting(waiting)),
        Ok(Turn::Finish) => release::finish(machine, seen),
        Ok(Turn::Delete) => release::delete(machine, seen),
        Ok(Turn::Protect) => Decision::Act(Action::AddFinalizer),
        Ok(Turn::Serve) => match &machine.server {
            Some(server) => provision::go_on(machine, server, seen),
            None => provision::begin(machine, seen),
        },
    }
}

/// What was refused a moment ago is not asked for again at once, and a record of something that is not needed any more goes.
fn patiently(machine: &Machine, next: Decision, seen: &Seen<'_>) -> Decision {
    let Some(journal) = &machine.journal else { return next };
    match next {
        Decision::Fly(plan) => match &journal.refusal {
            Some(refusal) if refusal.step == plan.call.step() && seen.now < refusal.retry_at => {
                Decision::Rest(Situation::Refused(refusal.clone()))
            }
            _ => Decision::Fly(plan),
        },
        Decision::Look(need) => Decision::Look(need),
        // A record that is written, or dropped with the server it is about.
        Decision::Act(
            action @ (Action::WriteJournal(_)
            | Action::RecordServer(_)
            | Action::ForgetServer
            | Action::TakeClaim { .. }
            | Action::DropClaim { .. }
            | Action::CleanUp
            | Action::RemoveFinalizer),
        ) => Decision::Act(action),
        _ if journal.work == Work::Step => Decision::Act(Action::WriteJournal(None)),
        other => other,
    }
}

/// A call about a server, or about none yet.
fn fly(machine: &Machine, call: Call, target: Target, seen: &Seen<'_>) -> Decision {
    let about = match &target {
        Target::Server(server) => server.to_string(),
        _ => machine_tag(&machine.holder.uid),
    };
    let journal = match &machine.journal {
        Some(journal) if journal.work != Work::Step => journal.clone(),
        // Its refusals count.
        Some(journal) if journal.refusal.as_ref().is_some_and(|r| r.step == call.step()) => journal.clone(),
        _ => Journal::new(about, seen.fresh, Work::Step, seen.now),
    };
    fly_under(machine, journal, call, target, seen)
}

fn fly_under(machine: &Machine, journal: Journal, call: Call, target: Target, seen: &Seen<'_>) -> Decision {
    let named = matches!(&target, Target::Server(server) if machine.provider_server.as_ref() == Some(server));
    Decision::Fly(Box::new(Plan {
        journal: journal.attempting(&call, seen.fresh, seen.now),
        attempt: seen.fresh.to_owned(),
        at: seen.now,
        call,
        target,
        guard: Guard {
            uid: machine.holder.uid.clone(),
            project: seen.project.clone(),
            named,
        },
    }))
}

/// The server, if it was looked at; else what to say instead. None inside: it does not exist.
fn look<'a>(server: &ServerId, seen: &Seen<'a>) -> Result<Option<&'a Server>, Decision> {
    match seen.server {
        Some((id, sight)) if id == server => Ok(sight.as_deref()),
        _ => Err(Decision::Look(Need::Server(server.clone()))),
    }
}

/// The server as the shared poll shows it, if that is no older than what takes seconds. It is good for waiting, not for calls.
fn listed<'a>(server: &ServerId, seen: &Seen<'a>) -> Option<&'a Server> {
    let inventory = seen.inventory?;
    let holds = due(inventory.at?, seen.rules.list_holds, seen.now).is_err();
    inventory.get(server).filter(|_| holds)
}

/// Whether a call was made so short a time ago that a server need not show it yet.
fn is_fresh(asked: Option<Timestamp>, patience: Duration, seen: &Seen<'_>) -> bool {
    asked.is_some_and(|at| due(at, patience, seen.now).is_err())
}

/// What stands for a network among the claims: two machines must not both make it. The name is hashed, because claims are named
/// after ids.
pub fn network_claim(zone: &Zone, name: &str) -> Option<ServerId> {
    let text = format!("{}/{name}", zone.region());
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("network-{hash:016x}").parse().ok()
}

/// Claims of this machine for what it neither has nor works on.
fn drop_void_claim(machine: &Machine, seen: &Seen<'_>) -> Option<Decision> {
    let worked_on = machine.journal.as_ref().and_then(Journal::server);
    let network = provision::wanted_network_claim(machine).filter(|_| machine.progress.up_since.is_none());
    let meant = [
        machine.server.as_ref(),
        machine.provider_server.as_ref(),
        worked_on,
        network.as_ref(),
    ];
    let void = seen
        .claims
        .of(&machine.holder.uid)
        .find(|(server, _)| !meant.contains(&Some(*server)));
    void.map(|(server, claim)| drop_claim(server, &claim.id))
}

fn drop_claim(server: &ServerId, id: &str) -> Decision {
    Decision::Act(Action::DropClaim {
        server: server.clone(),
        id: id.to_owned(),
    })
}

/// Whether this claim is ours; else what to do about it.
fn ensure_claim(machine: &Machine, server: &ServerId, seen: &Seen<'_>) -> Result<(), Decision> {
    match seen.claims.get(server) {
        Some(claim) if claim.holder.uid == machine.holder.uid => Ok(()),
        Some(_) if !seen.claims_are_live => Err(Decision::Look(Need::Claims)),
        Some(claim) => Err(Decision::Rest(Situation::ClaimedByAnother {
            holder: claim.holder.clone(),
        })),
        None => Err(Decision::Act(Action::TakeClaim {
            server: server.clone(),
            id: seen.fresh.to_owned(),
        })),
    }
}

/// Whether a time has come; else when it will.
fn due(since: Timestamp, patience: Duration, now: Timestamp) -> Result<(), Timestamp> {
    let at = later(since, patience);
    if now < at { Err(at) } else { Ok(()) }
}
