//! A provider that does one read or write at a time and can be killed between any two.

use std::time::Duration;

use jiff::Timestamp;
use russet_api::values::ServerId;
use russet_capi_provider::claims::Claims;
use russet_capi_provider::decide::{Action, Decision, Machine, Need, Seen, Setup, decide};
use russet_capi_provider::flight::{Answer, Ask, Flight};
use russet_capi_provider::host::{Image, Inventory, Sight};
use russet_capi_provider::journal::Journal;
use russet_capi_provider::orphans::{Owner, Watch, dead_claims};
use russet_capi_provider::situation::Situation;

use crate::world::{Cluster, Object, World, project, tahoe};

/// What goes wrong with one read or write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// The replica dies before it.
    CrashBefore,
    /// The replica dies after it; a call to Scaleway arrives.
    CrashAfter,
    /// It fails and has no effect.
    FailBefore,
    /// It has its effect, and the answer is lost.
    FailAfter,
    /// No answer; a call to Scaleway arrives as late as it can.
    Late,
    /// The replica dies after sending; the call arrives as late as it can.
    CrashLate,
}

pub(crate) const FAULTS: [Fault; 6] = [
    Fault::CrashBefore,
    Fault::CrashAfter,
    Fault::FailBefore,
    Fault::FailAfter,
    Fault::Late,
    Fault::CrashLate,
];

impl Fault {
    pub(crate) fn crashes(self) -> bool {
        matches!(self, Self::CrashBefore | Self::CrashAfter | Self::CrashLate)
    }

    pub(crate) fn happens(self) -> bool {
        !matches!(self, Self::CrashBefore | Self::FailBefore)
    }
}

/// What a replica knows about the machine it works on.
#[derive(Debug)]
struct View {
    uid: String,
    version: u64,
    machine: Machine,
    claims: Claims,
    claims_are_live: bool,
    inventory: Option<Inventory>,
    host: Option<Sight>,
    host_key: u32,
    images: Option<Vec<Image>>,
}

#[derive(Debug)]
enum Doing {
    Nothing,
    Deciding(Box<View>),
    /// The machine was found to be as it was read; the claim goes next.
    Dropping(ServerId, String),
    Flying {
        uid: String,
        version: u64,
        flight: Box<Flight>,
    },
}

#[derive(Debug)]
pub(crate) struct Replica {
    pub(crate) cluster: usize,
    doing: Doing,
    /// Whether the next set-up of a host succeeds.
    pub(crate) setup_works: bool,
    /// The last thing a machine was told to wait for.
    pub(crate) rests: Option<Situation>,
    memory: Claims,
}

impl Replica {
    pub(crate) fn new(cluster: usize) -> Self {
        Self {
            cluster,
            doing: Doing::Nothing,
            setup_works: true,
            rests: None,
            memory: Claims::default(),
        }
    }

    /// Does one thing: starts on a machine, or makes one read or write.
    pub(crate) fn step(&mut self, world: &mut World, pick: usize, fault: Fault) {
        self.doing = match std::mem::replace(&mut self.doing, Doing::Nothing) {
            Doing::Nothing => self.pick(world, pick, fault),
            Doing::Deciding(view) => self.decide(world, view, fault),
            Doing::Dropping(server, id) => {
                if fault.happens() {
                    world.clusters[self.cluster].claims.remove(&server, &id);
                }
                Doing::Nothing
            }
            Doing::Flying { uid, version, flight } => self.fly(world, uid, version, flight, fault),
        };
    }

    /// Whether it is between two machines.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.doing, Doing::Nothing)
    }

    /// Drops what it was doing; its cache of claims stays as it is.
    pub(crate) fn forget_all_but_claims(&mut self) {
        self.doing = Doing::Nothing;
    }

    fn pick(&mut self, world: &World, pick: usize, fault: Fault) -> Doing {
        let cluster = &world.clusters[self.cluster];
        let count = cluster.objects.len();
        if count == 0 {
            return Doing::Nothing;
        }
        let (uid, object) = cluster.objects.iter().nth(pick % count).unwrap();
        self.rests = None;
        // A cache that lags behind shows claims of a while ago.
        let fresh = cluster.claims.clone();
        let lagging = std::mem::replace(&mut self.memory, fresh.clone());
        let claims = if fault == Fault::None { fresh } else { lagging };
        Doing::Deciding(Box::new(View {
            uid: uid.clone(),
            version: object.version,
            machine: object.machine(),
            claims,
            claims_are_live: false,
            inventory: None,
            host: None,
            host_key: object.host_key,
            images: None,
        }))
    }

    fn decide(&mut self, world: &mut World, mut view: Box<View>, fault: Fault) -> Doing {
        let fresh = world.fresh();
        let rules = world.rules.clone();
        let decision = decide(
            &view.machine,
            &Seen {
                project: &project(),
                claims: &view.claims,
                claims_are_live: view.claims_are_live,
                inventory: view.inventory.as_ref(),
                host: view.host.as_ref(),
                images: view.images.as_deref(),
                now: world.now,
                rules: &rules,
                fresh: &fresh,
            },
        );
        match decision {
            Decision::Rest(situation) => {
                self.rests = Some(situation);
                Doing::Nothing
            }
            Decision::Look(_) if fault != Fault::None => Doing::Nothing,
            Decision::Look(need) => {
                match need {
                    Need::Inventory => {
                        view.inventory = Some(world.inventory());
                        // And may also be ahead of the machine.
                        view.claims = world.clusters[self.cluster].claims.clone();
                    }
                    Need::Claims => {
                        view.claims = world.clusters[self.cluster].claims.clone();
                        view.claims_are_live = true;
                    }
                    Need::Images => view.images = Some(vec![tahoe()]),
                    Need::Host(server) => view.host = Some(world.look(&server)),
                }
                Doing::Deciding(view)
            }
            Decision::Fly(plan) => Doing::Flying {
                uid: view.uid,
                version: view.version,
                flight: Box::new(Flight::new(*plan, &world.rules)),
            },
            Decision::Act(action) => {
                let next = if fault.happens() {
                    self.act(world, &view, action)
                } else {
                    Doing::Nothing
                };
                if fault.crashes() { Doing::Nothing } else { next }
            }
        }
    }

    fn act(&mut self, world: &mut World, view: &View, action: Action) -> Doing {
        let cluster = self.cluster;
        let mut write = |change: &mut dyn FnMut(&mut Object)| world.write(cluster, &view.uid, view.version, change);
        match action {
            Action::TakeClaim { server, id } => {
                let _ = world.clusters[cluster]
                    .claims
                    .take(server, view.machine.holder.clone(), id);
            }
            Action::DropClaim { server, id } => {
                let object = world.clusters[cluster].objects.get(&view.uid);
                if object.is_some_and(|o| o.version == view.version) {
                    return Doing::Dropping(server, id);
                }
            }
            Action::AddFinalizer => drop(write(&mut |o| o.finalizer = !o.deleting)),
            Action::WriteJournal(journal) => drop(write(&mut |o| o.note(journal.as_deref()))),
            Action::RecordHost(host) => drop(write(&mut |o| {
                o.server = Some(host.id.clone());
                o.intent = None;
                o.setup = Setup {
                    provisioned: o.setup.provisioned,
                    ..Setup::default()
                };
            })),
            Action::StoreCredentials(server) => {
                let key = world.servers.get(&server).map_or(0, |server| server.wipes);
                world.write(cluster, &view.uid, view.version, |o| {
                    o.setup.credentials = true;
                    o.host_key = key;
                });
            }
            Action::NoteReboot => drop(write(&mut |o| {
                o.setup.rebooted = true;
                o.intent = None;
            })),
            Action::SetProviderId(server) => drop(write(&mut |o| {
                assert!(o.provider.is_none(), "the provider id was rewritten");
                o.provider = Some(server.clone());
            })),
            Action::MarkProvisioned => drop(write(&mut |o| o.setup.provisioned = true)),
            Action::ForgetHost => drop(write(&mut |o| {
                o.server = None;
                o.intent = None;
                o.setup = Setup {
                    provisioned: o.setup.provisioned,
                    ..Setup::default()
                };
            })),
            Action::CleanUp => drop(write(&mut |o| o.cleaned_up = true)),
            Action::RemoveFinalizer => drop(write(&mut |o| o.finalizer = false)),
            Action::Bootstrap(host) => self.bootstrap(world, view, &host.id),
        }
        Doing::Nothing
    }

    /// SSH is not fenced by anything but the host key.
    fn bootstrap(&mut self, world: &mut World, view: &View, server: &ServerId) {
        let works = world.log_in(server, view.host_key) && self.setup_works;
        world.write(self.cluster, &view.uid, view.version, |o| {
            if works {
                o.setup.bootstrapped = true;
            } else {
                o.setup.attempts += 1;
            }
        });
    }

    fn fly(&mut self, world: &mut World, uid: String, version: u64, mut flight: Box<Flight>, fault: Fault) -> Doing {
        match flight.ask(world.now) {
            Ask::Write(journal) => {
                let written = fault.happens() && world.write(self.cluster, &uid, version, |o| o.note(Some(&journal)));
                // A write whose answer is lost is not known to have happened, so nothing is sent.
                flight.wrote(written && fault == Fault::None);
            }
            Ask::Get(server) => {
                let sight = (fault == Fault::None).then(|| world.look(&server));
                flight.got(sight.as_ref(), world.now);
            }
            Ask::Send(server, call) => {
                let latest = flight.plan().attempt.at.checked_add(world.rules.flight).unwrap();
                let answer = match fault {
                    Fault::None | Fault::CrashAfter => world.call(&server, &call),
                    Fault::CrashBefore => Answer::Unknown,
                    Fault::FailBefore => Answer::NotDone {
                        why: "503".into(),
                        busy_with: None,
                    },
                    Fault::FailAfter => {
                        world.call(&server, &call);
                        Answer::Unknown
                    }
                    Fault::Late | Fault::CrashLate => {
                        world.delay(&server, call, before(latest));
                        Answer::Unknown
                    }
                };
                flight.answered(&answer, world.now);
            }
            Ask::Settle(journal) => {
                if fault.happens() {
                    self.settle(world, &uid, flight.plan().attempt.id.as_str(), &journal);
                }
                flight.settled();
            }
            Ask::End => return Doing::Nothing,
        }
        if fault.crashes() {
            Doing::Nothing
        } else {
            Doing::Flying { uid, version, flight }
        }
    }

    fn settle(&self, world: &mut World, uid: &str, attempt: &str, journal: &Journal) {
        let Some(object) = world.clusters[self.cluster].objects.get(uid) else {
            return;
        };
        let stored = object.journal().and_then(|journal| journal.attempt);
        let version = object.version;
        if stored.is_some_and(|stored| stored.id == attempt) {
            world.write(self.cluster, uid, version, |o| o.note(Some(journal)));
        }
    }
}

fn before(time: Timestamp) -> Timestamp {
    time.checked_sub(Duration::from_millis(1)).unwrap()
}

/// Lets one replica per cluster work, undisturbed, until nothing changes any more.
pub(crate) fn run_to_rest(world: &mut World) {
    let mut quiet = 0;
    let mut dead = vec![Watch::default(); world.clusters.len()];
    for round in 0..3_000 {
        let before = (world.clusters.clone(), world.servers.clone());
        for cluster in 0..world.clusters.len() {
            for machine in 0..world.clusters[cluster].objects.len().max(1) {
                let mut replica = Replica::new(cluster);
                // Through the pick, reads, a call and its settlement.
                for _ in 0..12 {
                    replica.step(world, machine, Fault::None);
                    if replica.is_idle() {
                        break;
                    }
                }
            }
        }
        for (cluster, watch) in world.clusters.iter_mut().zip(&mut dead) {
            let found = dead_claims(&cluster.claims, &owners(cluster));
            for orphan in watch.update(found, world.now, world.rules.flight) {
                cluster.claims.remove(&orphan.server, &orphan.name);
            }
        }
        world.pass(Duration::from_mins(1));
        world.refresh_list();
        let same = before.0 == world.clusters && before.1 == world.servers;
        quiet = if same { quiet + 1 } else { 0 };
        // Longer than any wait there is.
        if quiet > 7 {
            return;
        }
        assert!(round < 2_900, "the world never comes to rest: {world:#?}");
    }
}

/// The machines of a cluster, as the report needs them.
pub(crate) fn owners(cluster: &Cluster) -> Vec<Owner> {
    let servers = |object: &Object| {
        let worked_on = object.journal().map(|journal| journal.server);
        object
            .server
            .iter()
            .chain(&object.provider)
            .cloned()
            .chain(worked_on)
            .collect()
    };
    cluster
        .objects
        .values()
        .map(|object| Owner {
            uid: object.holder.uid.clone(),
            servers: servers(object),
            settled: object.journal().is_none() && object.server.is_some(),
        })
        .collect()
}
