//! A provider that does one read or write at a time and can be killed between any two. It remembers what it saw as the real one
//! does.

use std::net::IpAddr;
use std::time::Duration;

use jiff::Timestamp;
use russet_api::machine::Intent;
use russet_api::values::ServerId;
use russet_capi_provider::claims::Claims;
use russet_capi_provider::flight::{Ask, Flight};
use russet_capi_provider::host::Inventory;
use russet_capi_provider::linux::call::{Call, Sight, Target};
use russet_capi_provider::linux::decide::{Action, Decision, Machine, Need, Seen, decide};
use russet_capi_provider::linux::plan::{Answer, Plan};
use russet_capi_provider::linux::server::{Attachment, Server};
use russet_capi_provider::linux::sightings::Sightings;
use russet_capi_provider::linux::situation::Situation;
use russet_capi_provider::linux::wanted::{Catalog, NetworkSight};
use russet_capi_provider::orphans::{Owner, Watch, dead_claims};
use tokio::time::Instant;

use super::world::{World, project};
use crate::replica::Fault;

#[derive(Debug)]
struct View {
    uid: String,
    version: u64,
    machine: Machine,
    claims: Claims,
    claims_are_live: bool,
    inventory: Option<Inventory<Server>>,
    mine: Option<Vec<Server>>,
    server: Option<(ServerId, Option<Box<Server>>)>,
    attachments: Option<Vec<Attachment>>,
    network: Option<NetworkSight>,
    catalog: Option<Catalog>,
    #[expect(clippy::option_option, reason = "not looked is not the same as not there")]
    address: Option<Option<IpAddr>>,
    hash: Option<String>,
}

#[derive(Debug)]
enum Doing {
    Nothing,
    Deciding(Box<View>),
    Dropping(ServerId, String),
    Flying {
        uid: String,
        version: u64,
        flight: Box<Flight<Plan>>,
    },
}

#[derive(Debug)]
pub(crate) struct Replica {
    doing: Doing,
    pub(crate) cloud_init: bool,
    pub(crate) rests: Option<Situation>,
    memory: Claims,
    looks: Looks,
}

/// What it saw, on the clock of the world.
#[derive(Debug)]
struct Looks {
    began: Instant,
    sightings: Sightings,
}

impl Looks {
    fn new() -> Self {
        Self {
            began: Instant::now(),
            sightings: Sightings::new(Duration::MAX),
        }
    }

    fn at(&self, time: Timestamp) -> Instant {
        let since = time.duration_since(Timestamp::UNIX_EPOCH);
        self.began + Duration::try_from(since).unwrap()
    }

    /// What was seen some seconds ago and after our last call.
    #[expect(clippy::option_option, reason = "not looked is not the same as not there")]
    fn known(&self, world: &World, id: &ServerId) -> Option<Option<Box<Server>>> {
        let now = self.at(world.now);
        if let Some(seen) = self.sightings.server(id, now) {
            return Some(seen.map(Box::new));
        }
        let list = world.inventory();
        let listed = list.get(id)?;
        let holds = self.sightings.believes_list(id, self.at(list.at?), now);
        holds.then(|| Some(Box::new(listed.clone())))
    }

    fn see(&mut self, world: &World, id: &ServerId) -> Option<Box<Server>> {
        let found = world.boxes.get(id).map(|it| &it.server);
        self.sightings.saw(id, self.at(world.now), found);
        found.map(|server| Box::new(server.clone()))
    }

    fn calls(&mut self, world: &World, uid: &str, server: Option<&ServerId>, call: &Call) {
        self.sightings.called(uid, server, self.at(world.now));
        if let (Some(id), Call::Attach(_) | Call::Detach(_)) = (server, call) {
            self.sightings.forget_attachments(id);
        }
    }

    /// A call may have had an effect that nobody was told of.
    fn forget(&mut self, world: &World, machine: &Machine) {
        let now = self.at(world.now);
        self.sightings.called(&machine.holder.uid, None, now);
        let worked_on = machine.journal.as_ref().and_then(|journal| journal.server().cloned());
        let all = [machine.server.clone(), machine.provider_server.clone(), worked_on];
        for id in all.into_iter().flatten() {
            self.sightings.called(&machine.holder.uid, Some(&id), now);
            self.sightings.forget_attachments(&id);
        }
    }
}

impl Replica {
    pub(crate) fn new(cloud_init: bool) -> Self {
        Self {
            doing: Doing::Nothing,
            cloud_init,
            rests: None,
            memory: Claims::default(),
            looks: Looks::new(),
        }
    }

    /// Lets whatever it is at fall, and forgets nothing.
    fn rest(&mut self) {
        self.doing = Doing::Nothing;
    }

    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.doing, Doing::Nothing)
    }

    pub(crate) fn step(&mut self, world: &mut World, pick: usize, fault: Fault) {
        self.doing = match std::mem::replace(&mut self.doing, Doing::Nothing) {
            Doing::Nothing => self.pick(world, pick, fault),
            Doing::Deciding(view) => self.decide(world, view, fault),
            Doing::Dropping(server, id) => {
                if fault.happens() {
                    world.claims.remove(&server, &id);
                }
                Doing::Nothing
            }
            Doing::Flying { uid, version, flight } => fly(&mut self.looks, world, uid, version, flight, fault),
        };
        if fault.crashes() {
            self.looks = Looks::new();
        }
    }

    fn pick(&mut self, world: &World, pick: usize, fault: Fault) -> Doing {
        let count = world.objects.len();
        if count == 0 {
            return Doing::Nothing;
        }
        let (uid, object) = world.objects.iter().nth(pick % count).unwrap();
        self.rests = None;
        let machine = world.machine(object);
        if machine
            .journal
            .as_ref()
            .is_some_and(|journal| journal.attempt.is_some())
        {
            self.looks.forget(world, &machine);
        }
        // A cache that lags behind shows claims of a while ago.
        let lagging = std::mem::replace(&mut self.memory, world.claims.clone());
        Doing::Deciding(Box::new(View {
            uid: uid.clone(),
            version: object.version,
            machine,
            claims: if fault == Fault::None {
                world.claims.clone()
            } else {
                lagging
            },
            claims_are_live: false,
            inventory: Some(world.inventory()),
            mine: None,
            server: None,
            attachments: None,
            network: None,
            catalog: None,
            address: None,
            hash: None,
        }))
    }

    fn decide(&mut self, world: &mut World, mut view: Box<View>, fault: Fault) -> Doing {
        let fresh = world.fresh();
        let decision = decide(
            &view.machine,
            &Seen {
                project: &project(),
                claims: &view.claims,
                claims_are_live: view.claims_are_live,
                inventory: view.inventory.as_ref(),
                mine: view.mine.as_deref(),
                server: view.server.as_ref(),
                attachments: view.attachments.as_deref(),
                network: view.network.as_ref(),
                catalog: view.catalog.as_ref(),
                private_address: view.address,
                config_hash: view.hash.as_deref(),
                now: world.now,
                rules: &world.rules.clone(),
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
                self.look(world, &mut view, need);
                Doing::Deciding(view)
            }
            Decision::Fly(plan) => Doing::Flying {
                uid: view.uid,
                version: view.version,
                flight: Box::new(Flight::new(*plan, &world.rules.calls)),
            },
            Decision::Act(action) => {
                let next = if fault.happens() {
                    act(world, &view, action)
                } else {
                    Doing::Nothing
                };
                if fault.crashes() { Doing::Nothing } else { next }
            }
        }
    }

    fn look(&mut self, world: &World, view: &mut View, need: Need) {
        let now = self.looks.at(world.now);
        match need {
            Need::Claims => {
                view.claims = world.claims.clone();
                view.claims_are_live = true;
            }
            Need::Inventory => view.inventory = Some(world.inventory()),
            Need::Mine => {
                let known = self.looks.sightings.mine(&view.uid, now);
                let mine = known.unwrap_or_else(|| {
                    let mine = world.mine(&view.uid);
                    self.looks.sightings.saw_mine(&view.uid, now, &mine);
                    mine
                });
                view.mine = Some(mine);
            }
            Need::Server(id) => {
                let known = self.looks.known(world, &id);
                let found = known.unwrap_or_else(|| self.looks.see(world, &id));
                view.server = Some((id, found));
            }
            Need::Attachments(id) => {
                let known = self.looks.sightings.attachments(&id, now);
                let found = known.unwrap_or_else(|| {
                    let there = world.boxes.get(&id).map(|it| it.attachments.clone());
                    let there = there.unwrap_or_default();
                    self.looks.sightings.saw_attachments(&id, now, there)
                });
                view.attachments = Some(found);
            }
            Need::Network => view.network = Some(world.network()),
            Need::Catalog => {
                let cloud_init = self.cloud_init;
                view.catalog = Some(if world.stock.is_some_and(|stock| world.created >= stock) {
                    Catalog::OutOfStock { cloud_init }
                } else {
                    Catalog::Available {
                        cloud_init,
                        images: vec!["noble".to_owned()],
                    }
                });
            }
            Need::PrivateAddress(..) => view.address = Some(Some([172, 16, 0, 2].into())),
            Need::ConfigHash => view.hash = Some("h1".to_owned()),
        }
    }
}

fn act(world: &mut World, view: &View, action: Action) -> Doing {
    let now = world.now;
    let mut write = |change: &mut dyn FnMut(&mut super::world::Object)| {
        world.write(&view.uid, view.version, |object| change(object))
    };
    match action {
        Action::TakeClaim { server, id } => {
            let _ = world.claims.take(server, view.machine.holder.clone(), id);
        }
        Action::DropClaim { server, id } => {
            let object = world.objects.get(&view.uid);
            if object.is_some_and(|o| o.version == view.version) {
                return Doing::Dropping(server, id);
            }
        }
        Action::AddFinalizer => drop(write(&mut |o| o.finalizer = !o.deleting)),
        Action::WriteJournal(journal) => drop(write(&mut |o| o.intent = journal.as_deref().map(Intent::from))),
        Action::RecordServer(id) => drop(write(&mut |o| {
            o.server = Some(id.clone());
            o.intent = None;
        })),
        Action::RecordUp { .. } => drop(write(&mut |o| o.progress.up_since = Some(now))),
        Action::SetProviderId(id) => drop(write(&mut |o| {
            assert!(o.provider.is_none(), "the provider id was rewritten");
            o.provider = Some(id.clone());
        })),
        Action::MarkProvisioned => drop(write(&mut |o| o.progress.provisioned = true)),
        // The script over SSH: nothing fences it but that it is the machine's server.
        Action::Join(server) | Action::Inspect(server) => {
            if let Some(it) = world.boxes.get_mut(&server.id) {
                it.joined = true;
            }
        }
        Action::Update(_) => unreachable!("nothing changed"),
        Action::DressNode { private_address, stamp } => drop(write(&mut |o| {
            o.labelled |= private_address.is_some();
            o.dressed |= stamp;
        })),
        Action::MarkJoined => drop(write(&mut |o| o.progress.joined = true)),
        Action::ForgetServer => drop(write(&mut |o| {
            o.server = None;
            o.intent = None;
        })),
        Action::CleanUp => drop(write(&mut |o| o.cleaned_up = true)),
        Action::RemoveFinalizer => drop(write(&mut |o| o.finalizer = false)),
    }
    Doing::Nothing
}

fn fly(
    looks: &mut Looks,
    world: &mut World,
    uid: String,
    version: u64,
    mut flight: Box<Flight<Plan>>,
    fault: Fault,
) -> Doing {
    let may_remember = flight.plan().call.is_safe_to_repeat();
    match flight.ask(world.now) {
        Ask::Write(journal) => {
            let written = fault.happens() && world.write(&uid, version, |o| o.intent = Some(Intent::from(&*journal)));
            flight.wrote(written && fault == Fault::None);
        }
        Ask::Get(target) => {
            let sight = match target {
                Target::Mine => Sight::Mine(world.mine(&uid)),
                Target::Server(id) => {
                    let known = looks.known(world, &id).filter(|_| may_remember);
                    Sight::Server(known.unwrap_or_else(|| looks.see(world, &id)))
                }
                Target::Network => Sight::Network(!world.networks.is_empty()),
                Target::Nothing => Sight::Nothing,
            };
            flight.got((fault == Fault::None).then_some(&sight), world.now);
        }
        Ask::Send(target, call) => {
            let server = match target {
                Target::Server(id) => Some(id),
                _ => None,
            };
            looks.calls(world, &uid, server.as_ref(), &call);
            let latest = flight.plan().at.checked_add(world.rules.calls.flight).unwrap();
            let answer = match fault {
                Fault::None | Fault::CrashAfter => world.call(&uid, server.as_ref(), &call),
                Fault::CrashBefore => Answer::Unknown,
                Fault::FailBefore => Answer::NotDone {
                    reason: "Unavailable".into(),
                    why: "503".into(),
                    retry: Duration::from_secs(15),
                },
                Fault::FailAfter => {
                    world.call(&uid, server.as_ref(), &call);
                    Answer::Unknown
                }
                Fault::Late | Fault::CrashLate => {
                    world.delay(&uid, server, call, before(latest));
                    Answer::Unknown
                }
            };
            flight.answered(&answer, world.now);
        }
        Ask::Settle(ending) => {
            if fault.happens() {
                settle(world, &uid, &flight, &ending);
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

fn settle(world: &mut World, uid: &str, flight: &Flight<Plan>, ending: &russet_capi_provider::linux::plan::Ending) {
    let Some(object) = world.objects.get(uid) else { return };
    let stored = object.journal().and_then(|journal| journal.attempt);
    let (version, now) = (object.version, world.now);
    if stored.is_some_and(|stored| stored.id == flight.plan().attempt) {
        world.write(uid, version, |o| {
            o.intent = ending.journal.as_ref().map(Intent::from);
            if let Some(done) = &ending.done {
                World::note(o, done, now);
            }
        });
    }
}

fn before(time: Timestamp) -> Timestamp {
    time.checked_sub(Duration::from_millis(1)).unwrap()
}

fn owner(object: &super::world::Object) -> Owner {
    Owner {
        uid: object.holder.uid.clone(),
        servers: object.server.iter().cloned().collect(),
        settled: object.intent.is_none(),
    }
}

/// Lets one replica work, undisturbed, until nothing changes any more.
pub(crate) fn run_to_rest(world: &mut World, cloud_init: bool) {
    let mut quiet = 0;
    let mut dead = Watch::default();
    let mut replica = Replica::new(cloud_init);
    for round in 0..2_000 {
        let before = (world.objects.clone(), world.boxes.clone(), world.claims.clone());
        for machine in 0..world.objects.len() {
            replica.rest();
            for _ in 0..16 {
                replica.step(world, machine, Fault::None);
                if replica.is_idle() {
                    break;
                }
            }
        }
        // A replica that was suspended takes a claim for a machine that is gone meanwhile; the report removes it.
        let owners: Vec<Owner> = world.objects.values().map(owner).collect();
        for orphan in dead.update(dead_claims(&world.claims, &owners), world.now, world.rules.calls.flight) {
            world.claims.remove(&orphan.server, &orphan.name);
        }
        world.pass(Duration::from_mins(1));
        world.refresh_list();
        let same = before.0 == world.objects && before.1 == world.boxes && before.2 == world.claims;
        quiet = if same { quiet + 1 } else { 0 };
        if quiet > 7 {
            return;
        }
        assert!(round < 1_900, "the world never comes to rest: {world:#?}");
    }
}
