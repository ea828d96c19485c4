//! Scaleway and Kubernetes as plain data, with everything that must never happen checked at every step.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use russet_api::machine::Intent;
use russet_api::values::{PoolPrefix, ServerId};
use russet_capi_provider::candidates::Wanted;
use russet_capi_provider::claims::{Claims, Holder};
use russet_capi_provider::decide::{Machine, Setup, Standing};
use russet_capi_provider::flight::{Answer, HostCall};
use russet_capi_provider::host::{Host, Image, Inventory, PasswordState, Sight};
use russet_capi_provider::journal::{Journal, Work};
use russet_capi_provider::names::{is_marker, is_pooled};
use russet_capi_provider::rules::Rules;
use russet_scaleway::ProjectId;
use russet_scaleway::apple_silicon::ServerStatus;

pub(crate) const WIPE_TAKES: Duration = Duration::from_mins(5);

pub(crate) fn pool() -> PoolPrefix {
    "tuist-pool-".parse().unwrap()
}

pub(crate) fn project() -> ProjectId {
    "ours".parse().unwrap()
}

pub(crate) fn tahoe() -> Image {
    Image {
        id: "os-tahoe".parse().unwrap(),
        name: "macos-tahoe-26.3".into(),
        family: "Tahoe".into(),
        version: "26.3".into(),
        is_beta: false,
    }
}

/// A Mac.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Server {
    pub(crate) host: Host,
    /// Somebody worked on it since it was last wiped.
    pub(crate) dirty: bool,
    pub(crate) wipes: u32,
    wiped_at: Option<Timestamp>,
}

/// A machine object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Object {
    pub(crate) holder: Holder,
    pub(crate) version: u64,
    pub(crate) deleting: bool,
    pub(crate) finalizer: bool,
    pub(crate) server: Option<ServerId>,
    pub(crate) provider: Option<ServerId>,
    pub(crate) given_back: Vec<ServerId>,
    pub(crate) intent: Option<Intent>,
    pub(crate) setup: Setup,
    pub(crate) cleaned_up: bool,
    pub(crate) wanted: Wanted,
    /// How often the host had been wiped when its credentials were stored: stands for its host key.
    pub(crate) host_key: u32,
}

impl Object {
    pub(crate) fn journal(&self) -> Option<Journal> {
        self.intent.as_ref().map(|intent| Journal::try_from(intent).unwrap())
    }

    /// Writes a record, and with it that a host is given back.
    pub(crate) fn note(&mut self, journal: Option<&Journal>) {
        self.intent = journal.map(Intent::from);
        if let Some(journal) = journal
            && matches!(journal.work, Work::Release(_))
            && !self.deleting
        {
            self.given_back.retain(|server| *server != journal.server);
            self.given_back.push(journal.server.clone());
        }
    }

    /// As a provider reads it.
    pub(crate) fn machine(&self) -> Machine {
        Machine {
            holder: self.holder.clone(),
            zone: "fr-par-1".parse().unwrap(),
            wanted: Ok(self.wanted.clone()),
            standing: Standing {
                paused: false,
                deleting: self.deleting,
                moved_away: false,
                finalizer: self.finalizer,
                owned: true,
                cluster_ready: true,
                bootstrap_data: true,
                cleaned_up: self.cleaned_up,
            },
            server: self.server.clone(),
            provider_server: self.provider.clone(),
            given_back: self.given_back.clone(),
            journal: self.journal(),
            setup: self.setup,
        }
    }

    /// Whether the machine uses this host, rather than taking it, giving it back, or being done with it.
    pub(crate) fn uses(&self, server: &ServerId) -> bool {
        let leaving = self
            .journal()
            .is_some_and(|j| matches!(j.work, Work::Release(_) | Work::Over));
        self.server.as_ref() == Some(server) && !leaving
    }
}

/// One Kubernetes cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Cluster {
    pub(crate) objects: BTreeMap<String, Object>,
    pub(crate) claims: Claims,
}

/// A call that was sent and has not arrived.
#[derive(Clone, Debug)]
struct OnItsWay {
    server: ServerId,
    call: HostCall,
    arrives: Timestamp,
}

#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) now: Timestamp,
    pub(crate) servers: BTreeMap<ServerId, Server>,
    pub(crate) clusters: Vec<Cluster>,
    pub(crate) rules: Rules,
    /// What a list shows until it is refreshed.
    listed: Vec<Host>,
    on_their_way: Vec<OnItsWay>,
    ids: u32,
    pub(crate) calls: u32,
    /// Strangers may do as they like, so their doings are no fault of ours.
    pub(crate) strangers: bool,
}

impl World {
    pub(crate) fn new(free: usize, clusters: usize, rules: Rules) -> Self {
        let mut world = Self {
            now: "2026-11-15T10:00:00Z".parse().unwrap(),
            servers: BTreeMap::new(),
            clusters: vec![Cluster::default(); clusters],
            rules,
            listed: Vec::new(),
            on_their_way: Vec::new(),
            ids: 0,
            calls: 0,
            strangers: false,
        };
        for index in 0..free {
            world.add_server(&format!("s{index}"), &format!("tuist-pool-{index}"), "ours", "M2-L");
        }
        // Hosts that must never be touched: another project's, another type's, and one that is none of our business.
        world.add_server("f1", "tuist-pool-foreign", "theirs", "M2-L");
        world.add_server("t1", "tuist-pool-big", "ours", "M4-L");
        world.add_server("u1", "somebodys-mac", "ours", "M2-L");
        world.refresh_list();
        world
    }

    fn add_server(&mut self, id: &str, name: &str, project: &str, type_: &str) {
        let host = Host {
            id: id.parse().unwrap(),
            name: name.into(),
            project: project.parse().unwrap(),
            type_: type_.into(),
            os: Some(tahoe()),
            status: ServerStatus::Ready,
            delivered: true,
            leaving: false,
            address: None,
            password: PasswordState::Known,
        };
        self.servers.insert(
            host.id.clone(),
            Server {
                host,
                dirty: false,
                wipes: 0,
                wiped_at: None,
            },
        );
    }

    pub(crate) fn add_machine(&mut self, cluster: usize, name: &str) {
        let uid = format!("uid-{cluster}-{name}");
        let object = Object {
            holder: Holder {
                uid: uid.clone(),
                namespace: "default".into(),
                name: name.into(),
            },
            version: 1,
            deleting: false,
            finalizer: false,
            server: None,
            provider: None,
            given_back: Vec::new(),
            intent: None,
            setup: Setup::default(),
            cleaned_up: false,
            host_key: 0,
            wanted: Wanted {
                type_: "M2-L".into(),
                os: "Tahoe".into(),
                pool: pool(),
            },
        };
        self.clusters[cluster].objects.insert(uid, object);
    }

    pub(crate) fn fresh(&mut self) -> String {
        self.ids += 1;
        format!("id{}", self.ids)
    }

    pub(crate) fn delete_machine(&mut self, cluster: usize, uid: &str) {
        if let Some(object) = self.clusters[cluster].objects.get_mut(uid) {
            object.deleting = true;
            object.version += 1;
            if !object.finalizer {
                self.clusters[cluster].objects.remove(uid);
            }
        }
    }

    /// Writes to an object if it is still as it was read.
    pub(crate) fn write(&mut self, cluster: usize, uid: &str, version: u64, change: impl FnOnce(&mut Object)) -> bool {
        let Some(object) = self.clusters[cluster].objects.get_mut(uid) else {
            return false;
        };
        if object.version != version {
            return false;
        }
        change(object);
        object.version += 1;
        if object.deleting && !object.finalizer {
            self.clusters[cluster].objects.remove(uid);
        }
        self.check();
        true
    }

    pub(crate) fn refresh_list(&mut self) {
        self.listed = self.servers.values().map(|server| server.host.clone()).collect();
    }

    /// Lists show this until they are refreshed.
    pub(crate) fn show_again(&mut self, inventory: Inventory) {
        self.listed = inventory.hosts;
    }

    pub(crate) fn inventory(&self) -> Inventory {
        Inventory {
            at: Some(self.now),
            hosts: self.listed.clone(),
        }
    }

    pub(crate) fn look(&mut self, server: &ServerId) -> Sight {
        self.calls += 1;
        self.servers
            .get(server)
            .map_or(Sight::Gone, |server| Sight::There(Box::new(server.host.clone())))
    }

    /// A call arrives now.
    pub(crate) fn call(&mut self, server: &ServerId, call: &HostCall) -> Answer {
        self.calls += 1;
        self.arrive(server, call)
    }

    /// A call is on its way and arrives later, but in time.
    pub(crate) fn delay(&mut self, server: &ServerId, call: HostCall, arrives: Timestamp) {
        self.calls += 1;
        self.on_their_way.push(OnItsWay {
            server: server.clone(),
            call,
            arrives,
        });
    }

    fn arrive(&mut self, id: &ServerId, call: &HostCall) -> Answer {
        let refused = |why: &str, busy_with: Option<&str>| Answer::NotDone {
            why: why.into(),
            busy_with: busy_with.map(str::to_owned),
        };
        let Some(server) = self.servers.get_mut(id) else {
            return refused("not found", None);
        };
        assert_eq!(server.host.project, project(), "touched a host of another project");
        match call {
            HostCall::Rename { to } => server.host.name.clone_from(to),
            HostCall::Reboot | HostCall::Reinstall { .. } if server.host.status != ServerStatus::Ready => {
                return refused("busy", Some(server.host.status.as_str()));
            }
            HostCall::Reboot => {}
            HostCall::Reinstall { .. } => {
                server.host.status = ServerStatus::Reinstalling;
                server.dirty = false;
                server.wipes += 1;
                server.wiped_at = Some(self.now);
                let status = server.host.status.clone();
                for object in self.clusters.iter().flat_map(|cluster| cluster.objects.values()) {
                    assert!(!object.uses(id), "wiped {id} under {}", object.holder.name);
                }
                return Answer::Done(status);
            }
        }
        let status = server.host.status.clone();
        self.check();
        Answer::Done(status)
    }

    /// Somebody works on a host over SSH. A host that was wiped since has another host key and refuses.
    pub(crate) fn log_in(&mut self, id: &ServerId, host_key: u32) -> bool {
        match self.servers.get_mut(id) {
            Some(server) if server.wipes == host_key && server.host.status == ServerStatus::Ready => {
                server.dirty = true;
                self.check();
                true
            }
            _ => false,
        }
    }

    pub(crate) fn pass(&mut self, time: Duration) {
        let end = self.now.checked_add(time).unwrap();
        loop {
            let due = self.on_their_way.iter().enumerate().filter(|(_, c)| c.arrives <= end);
            let Some(index) = due.min_by_key(|(_, c)| c.arrives).map(|(index, _)| index) else {
                break;
            };
            let late = self.on_their_way.remove(index);
            self.now = self.now.max(late.arrives);
            self.finish_wipes();
            self.arrive(&late.server, &late.call);
        }
        self.now = end;
        self.finish_wipes();
    }

    fn finish_wipes(&mut self) {
        for server in self.servers.values_mut() {
            if server
                .wiped_at
                .is_some_and(|at| self.now >= at.checked_add(WIPE_TAKES).unwrap())
            {
                server.wiped_at = None;
                server.host.status = ServerStatus::Ready;
            }
        }
    }

    /// What must hold at every moment.
    pub(crate) fn check(&self) {
        for (id, server) in &self.servers {
            let name = &server.host.name;
            let users: Vec<&Object> = self
                .clusters
                .iter()
                .flat_map(|cluster| cluster.objects.values())
                .filter(|object| object.uses(id))
                .collect();
            assert!(users.len() <= 1, "{id} is used by {} machines", users.len());
            if self.strangers {
                continue;
            }
            assert!(
                !(server.dirty && is_pooled(&pool(), name)),
                "{id} is in the pool and not wiped"
            );
            assert!(
                users.is_empty() || !is_pooled(&pool(), name),
                "{id} is in use and in the pool"
            );
            if ["f1", "t1", "u1"].contains(&id.as_str()) {
                assert!(
                    server.wipes == 0 && !server.dirty && users.is_empty(),
                    "{id} was touched"
                );
            }
        }
        for object in self.clusters.iter().flat_map(|cluster| cluster.objects.values()) {
            let named = self
                .servers
                .values()
                .filter(|server| server.host.name == object.holder.name)
                .count();
            assert!(named <= 1 || self.strangers, "{} has two hosts", object.holder.name);
        }
    }

    /// What must hold when nothing moves any more: every host is in use with its claim, or free and clean.
    pub(crate) fn check_at_rest(&self) {
        self.check();
        assert!(self.on_their_way.is_empty());
        let mut claimed = BTreeSet::new();
        for cluster in &self.clusters {
            for object in cluster.objects.values() {
                assert!(
                    !object.deleting,
                    "{} was never deleted: {object:#?}",
                    object.holder.name
                );
                assert_eq!(object.journal(), None, "{} is not at rest", object.holder.name);
                if let Some(server) = &object.server {
                    assert!(object.setup.provisioned, "{object:#?}");
                    assert_eq!(object.provider.as_ref(), Some(server));
                    assert_eq!(self.servers[server].host.name, object.holder.name);
                    assert_eq!(cluster.claims.get(server).map(|c| &c.holder), Some(&object.holder));
                }
            }
            for (server, claim) in cluster.claims.iter() {
                let holder = cluster.objects.get(&claim.holder.uid);
                assert!(
                    holder.is_some_and(|o| o.server.as_ref() == Some(server)),
                    "{server} is claimed for nothing"
                );
                claimed.insert(server.clone());
            }
        }
        for (id, server) in &self.servers {
            let name = &server.host.name;
            assert!(!is_marker(name), "{id} is lost as {name}");
            if !claimed.contains(id) && id.as_str() != "u1" {
                assert!(is_pooled(&pool(), name), "{id} is paid for and nobody's: {name}");
                assert_eq!(server.host.status, ServerStatus::Ready);
            }
        }
    }
}
