//! Scaleway and Kubernetes as plain data.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use russet_api::machine::Intent;
use russet_api::values::{ServerId, Zone};
use russet_capi_provider::claims::{Claims, Holder};
use russet_capi_provider::decide::Standing;
use russet_capi_provider::host::Inventory;
use russet_capi_provider::linux::call::Call;
use russet_capi_provider::linux::decide::{Machine, Node, Progress, Rules, UserData};
use russet_capi_provider::linux::journal::Journal;
use russet_capi_provider::linux::plan::{Answer, Done};
use russet_capi_provider::linux::server::{
    ADOPTED_TAG, Attachment, AttachmentState, NETWORKING_TAG, Networking, Product, Server, State, TAG, Volume,
    VolumeKind, machine_tag,
};
use russet_capi_provider::linux::wanted::{Network, NetworkSight, Source, Wanted};
use russet_scaleway::{PrivateNetworkId, ProjectId};

pub(crate) const PREFIX: &str = "em-";
/// Longer than anything takes that ends by itself.
const TAKES: Duration = Duration::from_secs(40);

pub(crate) fn project() -> ProjectId {
    "p1".parse().unwrap()
}

/// A server with what decisions are not told.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Box_ {
    pub(crate) server: Server,
    pub(crate) attachments: Vec<Attachment>,
    pub(crate) script: bool,
    pub(crate) wipes: u32,
    /// Its kubelet runs: there is a Node.
    pub(crate) joined: bool,
    changes: Option<Timestamp>,
}

/// A machine as the API server stores it.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "what is true of an object")]
pub(crate) struct Object {
    pub(crate) holder: Holder,
    pub(crate) wanted: Wanted,
    pub(crate) version: u64,
    pub(crate) finalizer: bool,
    pub(crate) deleting: bool,
    pub(crate) cleaned_up: bool,
    pub(crate) server: Option<ServerId>,
    pub(crate) provider: Option<ServerId>,
    pub(crate) intent: Option<Intent>,
    pub(crate) progress: Progress,
    pub(crate) dressed: bool,
    pub(crate) labelled: bool,
}

impl Object {
    pub(crate) fn journal(&self) -> Option<Journal> {
        self.intent.as_ref().map(|intent| Journal::try_from(intent).unwrap())
    }
}

#[derive(Clone, Debug)]
struct Late {
    at: Timestamp,
    uid: String,
    server: Option<ServerId>,
    call: Call,
}

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) now: Timestamp,
    pub(crate) rules: Rules,
    pub(crate) boxes: BTreeMap<ServerId, Box_>,
    pub(crate) volumes: BTreeSet<Volume>,
    pub(crate) networks: Vec<PrivateNetworkId>,
    pub(crate) objects: BTreeMap<String, Object>,
    pub(crate) claims: Claims,
    pub(crate) created: u32,
    /// How many can be made; none: any number.
    pub(crate) stock: Option<u32>,
    list: Inventory<Server>,
    late: Vec<Late>,
    ids: u64,
}

impl World {
    pub(crate) fn new() -> Self {
        Self {
            now: Timestamp::UNIX_EPOCH,
            rules: Rules {
                install_begins: Duration::from_mins(2),
                ..Rules::default()
            },
            boxes: BTreeMap::new(),
            volumes: BTreeSet::new(),
            networks: Vec::new(),
            objects: BTreeMap::new(),
            claims: Claims::default(),
            created: 0,
            stock: None,
            list: Inventory {
                at: Some(Timestamp::UNIX_EPOCH),
                hosts: Vec::new(),
            },
            late: Vec::new(),
            ids: 0,
        }
    }

    pub(crate) fn fresh(&mut self) -> String {
        self.ids += 1;
        format!("id-{}", self.ids)
    }

    /// A server that somebody ordered and installed.
    pub(crate) fn add_adoptable(&mut self, number: u32) {
        let id: ServerId = format!("pre-{number}").parse().unwrap();
        let server = Server {
            name: format!("{PREFIX}{number}"),
            networking: Networking::Off,
            state: State::Running,
            ..blank(&id, "em", Product::Metal)
        };
        self.boxes.insert(id, unboxed(server));
        self.refresh_list();
    }

    pub(crate) fn add_machine(&mut self, name: &str, product: Product, source: Source) -> String {
        let uid = format!("uid-{name}");
        let object = Object {
            holder: Holder {
                uid: uid.clone(),
                namespace: "n".into(),
                name: name.into(),
            },
            wanted: Wanted {
                product,
                type_: "em".into(),
                image: "noble".into(),
                root_volume_gb: 50,
                source,
                network: Some(Network::Name {
                    name: "cache".into(),
                    cidr: None,
                }),
            },
            version: 1,
            finalizer: false,
            deleting: false,
            cleaned_up: false,
            server: None,
            provider: None,
            intent: None,
            progress: Progress::default(),
            dressed: false,
            labelled: false,
        };
        self.objects.insert(uid.clone(), object);
        uid
    }

    pub(crate) fn delete_machine(&mut self, uid: &str) {
        if let Some(object) = self.objects.get_mut(uid) {
            object.deleting = true;
            object.version += 1;
            if !object.finalizer {
                self.objects.remove(uid);
            }
        }
    }

    pub(crate) fn machine(&self, object: &Object) -> Machine {
        let node = object.server.as_ref().and_then(|id| self.boxes.get(id));
        let joined = node.is_some_and(|node| node.joined) && object.provider.is_some();
        Machine {
            holder: object.holder.clone(),
            product: object.wanted.product,
            zone: Zone::default(),
            wanted: Ok(object.wanted.clone()),
            standing: Standing {
                paused: false,
                deleting: object.deleting,
                moved_away: false,
                finalizer: object.finalizer,
                owned: true,
                cluster_ready: true,
                bootstrap_data: true,
                cleaned_up: object.cleaned_up,
            },
            server: object.server.clone(),
            provider_server: object.provider.clone(),
            journal: object.journal(),
            progress: object.progress,
            node: if joined {
                Node::Joined {
                    ready: true,
                    private_address: object.labelled.then(|| "172.16.0.2".to_owned()),
                    config_hash: object.dressed.then(|| "h1".to_owned()),
                }
            } else {
                Node::Missing
            },
        }
    }

    /// A write that only succeeds on the version that was read.
    pub(crate) fn write(&mut self, uid: &str, version: u64, change: impl FnOnce(&mut Object)) -> bool {
        let Some(object) = self.objects.get_mut(uid).filter(|object| object.version == version) else {
            return false;
        };
        change(object);
        object.version += 1;
        if object.deleting && !object.finalizer {
            self.objects.remove(uid);
        }
        true
    }

    /// What a call that ended well leaves in the status.
    pub(crate) fn note(object: &mut Object, done: &Done, now: Timestamp) {
        match done.call {
            Call::Create | Call::Tag => object.server.clone_from(&done.server),
            Call::GiveUserData => object.progress.user_data = UserData::Given(now),
            Call::DropUserData => object.progress.user_data = UserData::Gone,
            Call::Install => object.progress.install_asked = Some(now),
            Call::PowerOn => object.progress.switched_on = Some(now),
            Call::PowerOff => object.progress.switched_off = Some(now),
            _ => {}
        }
    }

    pub(crate) fn mine(&self, uid: &str) -> Vec<Server> {
        let servers = self.boxes.values().map(|it| it.server.clone());
        servers.filter(|server| server.owner() == Some(uid)).collect()
    }

    pub(crate) fn inventory(&self) -> Inventory<Server> {
        self.list.clone()
    }

    pub(crate) fn refresh_list(&mut self) {
        self.list.at = Some(self.now);
        self.list.hosts = self.boxes.values().map(|it| it.server.clone()).collect();
    }

    pub(crate) fn network(&self) -> NetworkSight {
        match self.networks.as_slice() {
            [] => NetworkSight::Missing,
            [one] => NetworkSight::Found(one.clone()),
            several => NetworkSight::Several(several.iter().map(ToString::to_string).collect()),
        }
    }

    pub(crate) fn delay(&mut self, uid: &str, server: Option<ServerId>, call: Call, at: Timestamp) {
        self.late.push(Late {
            at,
            uid: uid.to_owned(),
            server,
            call,
        });
    }

    /// Time passes: what ends by itself ends, and late calls arrive.
    pub(crate) fn pass(&mut self, time: Duration) {
        let until = self.now.checked_add(time).unwrap();
        let (due, late): (Vec<Late>, Vec<Late>) = std::mem::take(&mut self.late)
            .into_iter()
            .partition(|late| late.at <= until);
        self.late = late;
        for call in due {
            self.now = self.now.max(call.at);
            self.call(&call.uid, call.server.as_ref(), &call.call);
        }
        self.now = until;
        let mut gone = Vec::new();
        for (id, it) in &mut self.boxes {
            for attachment in &mut it.attachments {
                attachment.state = AttachmentState::Attached;
            }
            if it.server.networking == Networking::Enabling {
                it.server.networking = Networking::On;
            }
            if it.changes.is_none_or(|at| at > until) {
                continue;
            }
            it.changes = None;
            match it.server.state {
                State::Ordered => it.server.state = State::Bare,
                State::Starting | State::Installing => {
                    it.server.state = State::Running;
                    it.server.address = Some([10, 0, 0, 1].into());
                    it.joined = it.script;
                }
                State::Stopping => {
                    it.server.state = State::Stopped;
                    it.joined = false;
                }
                State::Deleting => gone.push(id.clone()),
                _ => {}
            }
        }
        for id in gone {
            self.boxes.remove(&id);
        }
    }

    fn refuse(why: &str) -> Answer {
        Answer::NotDone {
            reason: "Refused".into(),
            why: why.into(),
            retry: Duration::from_secs(5),
        }
    }

    /// Scaleway does as it is told, if it can. It does not know who asks; the test does, and watches.
    #[expect(clippy::too_many_lines, reason = "one arm per call")]
    pub(crate) fn call(&mut self, uid: &str, server: Option<&ServerId>, call: &Call) -> Answer {
        let done = Answer::Done { made: None };
        let at = self.now.checked_add(TAKES).unwrap();
        match call {
            Call::CreateNetwork => {
                let id = self.fresh().parse().unwrap();
                self.networks.push(id);
                return done;
            }
            Call::DeleteVolume(volume) => {
                self.volumes.remove(volume);
                return done;
            }
            Call::DeleteIp(_) => return done,
            Call::Create => {
                let id: ServerId = format!("srv-{}", self.fresh()).parse().unwrap();
                let product = self.objects.get(uid).map_or(Product::Instance, |o| o.wanted.product);
                let mut server = Server {
                    tags: vec![TAG.to_owned(), machine_tag(uid)],
                    ..blank(&id, "em", product)
                };
                if product == Product::Instance {
                    let volume = Volume {
                        id: format!("vol-{id}"),
                        kind: VolumeKind::Block,
                    };
                    self.volumes.insert(volume.clone());
                    server.volumes = vec![volume];
                }
                let mut it = unboxed(server);
                it.changes = (product == Product::Metal).then_some(at);
                self.boxes.insert(id.clone(), it);
                self.created += 1;
                return Answer::Done { made: Some(id) };
            }
            _ => {}
        }
        let Some(id) = server else {
            unreachable!("{call:?} about nothing");
        };
        let Some(it) = self.boxes.get_mut(id) else {
            return if call.is_removal() { done } else { Self::refuse("404") };
        };
        let owner = it.server.owner().map(ToOwned::to_owned);
        if *call != Call::Tag && owner.as_deref() != Some(uid) {
            // A late untag of a server that is free by now changes nothing; anything else would be somebody else's loss.
            assert!(
                matches!(call, Call::Untag) && owner.is_none(),
                "{call:?} for {uid} about a server of {owner:?}"
            );
        }
        let free = |it: &Box_| it.changes.is_none();
        match call {
            Call::Tag => {
                assert!(
                    owner.is_none() || owner.as_deref() == Some(uid),
                    "{uid} takes the server of {owner:?}"
                );
                if owner.is_none() {
                    let lent = it.server.networking == Networking::Off;
                    it.server.tags = vec![TAG.to_owned(), ADOPTED_TAG.to_owned(), machine_tag(uid)];
                    it.server.tags.extend(lent.then(|| NETWORKING_TAG.to_owned()));
                }
            }
            Call::Untag => it.server.tags.clear(),
            Call::EnableNetworking => it.server.networking = Networking::Enabling,
            Call::DisableNetworking => it.server.networking = Networking::Off,
            // Whoever saw it before another put it there asks again, and is told.
            Call::Attach(_) if !it.attachments.is_empty() => return Self::refuse("it is there already"),
            Call::Attach(network) => {
                it.attachments.push(Attachment {
                    id: format!("nic-{id}"),
                    network: network.clone(),
                    state: AttachmentState::Pending,
                    mac: None,
                    vlan: Some(7),
                });
            }
            Call::Detach(place) => it
                .attachments
                .retain(|attachment| attachment.id != *place && attachment.network.as_str() != place),
            Call::GiveUserData => it.script = true,
            Call::DropUserData => it.script = false,
            Call::PowerOn if it.server.state == State::Stopped => {
                it.server.state = State::Starting;
                it.changes = Some(at);
            }
            Call::Install if it.server.state == State::Bare => {
                it.server.state = State::Installing;
                it.changes = Some(at);
            }
            Call::PowerOff if it.server.state == State::Running => {
                it.server.state = State::Stopping;
                it.changes = Some(at);
            }
            Call::Delete
                if matches!(it.server.state, State::Stopped | State::Bare)
                    || free(it) && it.attachments.is_empty() && it.server.volumes.is_empty() =>
            {
                assert!(!it.server.is_adopted(), "a server that was only taken is deleted");
                it.server.state = State::Deleting;
                it.changes = Some(at);
            }
            Call::Wipe if it.server.state == State::Running => {
                it.server.state = State::Installing;
                it.changes = Some(at);
                it.wipes += 1;
                it.script = false;
                it.joined = false;
            }
            _ => return Self::refuse("not in this state"),
        }
        done
    }

    /// Nothing is doubled, and what serves is whole.
    pub(crate) fn check(&self) {
        assert!(self.networks.len() <= 1, "{:?}", self.networks);
        for (uid, object) in &self.objects {
            assert!(self.mine(uid).len() <= 1, "two servers of {uid}");
            if object.progress.joined && !object.deleting {
                let it = &self.boxes[object.server.as_ref().unwrap()];
                assert!(!it.script, "the script of {uid} is still there");
                assert!(object.labelled && object.dressed);
                assert_eq!(it.attachments.len(), 1);
            }
        }
    }

    /// Without machines only what was there before is there, free and wiped if anybody could have been on it.
    pub(crate) fn check_empty(&self) {
        self.check();
        assert!(self.objects.is_empty(), "{:#?}", self.objects);
        assert!(self.volumes.is_empty(), "{:?}", self.volumes);
        assert_eq!(self.claims, Claims::default());
        for (id, it) in &self.boxes {
            assert!(id.as_str().starts_with("pre-"), "{id} is left");
            assert_eq!((&it.server.state, it.server.tags.len()), (&State::Running, 0), "{id}");
            assert!(it.attachments.is_empty(), "{id}");
            assert_eq!(it.server.networking, Networking::Off, "{id} is as it was");
        }
    }
}

fn blank(id: &ServerId, type_: &str, product: Product) -> Server {
    Server {
        id: id.clone(),
        name: id.to_string(),
        project: project(),
        tags: Vec::new(),
        type_: type_.into(),
        os: Some("noble".into()),
        user: "ubuntu".into(),
        state: match product {
            Product::Instance => State::Stopped,
            Product::Metal => State::Ordered,
        },
        address: (product == Product::Metal).then(|| [10, 0, 0, 1].into()),
        networking: match product {
            Product::Instance => Networking::On,
            Product::Metal => Networking::Off,
        },
        volumes: Vec::new(),
        ips: Vec::new(),
    }
}

fn unboxed(server: Server) -> Box_ {
    Box_ {
        server,
        attachments: Vec::new(),
        script: false,
        wipes: 0,
        joined: false,
        changes: None,
    }
}
