//! What others do: the operator, the customer's colleagues, the vendor. Not part of the API, but what it then shows.

mod linux;
mod minis;

use crate::account::{ApiKey, PermissionSet, Project, Scope};
use crate::apple::catalog::Os;
use crate::apple::life::Fate;
use crate::apple::server::{Health, Status};
use crate::ids::{Id, Zone};
use crate::linux::BoxFate;
use crate::settings::Passwords;
use crate::world::{DEFAULT_ORGANIZATION, DEFAULT_PROJECT, World};
use jiff::Timestamp;
pub use linux::{NewInstances, NewMetals};
pub use minis::Minis;
use std::collections::BTreeSet;

/// A server by its id or its name.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Which {
    /// By id.
    Id(Id),
    /// By name; the oldest, if several have it.
    Name(String),
}

impl From<&Id> for Which {
    fn from(id: &Id) -> Self {
        Self::Id(id.clone())
    }
}

impl From<&str> for Which {
    fn from(name: &str) -> Self {
        Self::Name(name.to_owned())
    }
}

/// Which product a server belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Mini,
    Instance,
    Metal,
}

/// One thing somebody does.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(tag = "deed", rename_all = "snake_case", deny_unknown_fields)]
pub enum Deed {
    /// Minis appear. They do not come out of the stock.
    AddMinis(Minis),
    /// Instances appear.
    AddInstances(NewInstances),
    /// Elastic Metal servers appear, delivered and installed. They do not come out of the stock.
    AddMetals(NewMetals),
    /// A project appears, in the default organisation or another.
    AddProject {
        id: Id,
        name: String,
        #[serde(default)]
        organization_id: Option<Id>,
    },
    /// An API key appears, or changes.
    AddKey {
        /// The half that is shown.
        access_key: String,
        /// The half that authenticates.
        secret_key: String,
        #[serde(default)]
        organization_id: Option<Id>,
        /// Where it holds; none means the whole organisation.
        #[serde(default)]
        projects: Option<BTreeSet<Id>>,
        /// What it grants.
        permission_sets: BTreeSet<PermissionSet>,
        /// From when on it is refused.
        #[serde(default)]
        expires_at: Option<Timestamp>,
    },
    /// A key stops working now.
    ExpireKey { access_key: String },
    /// Somebody renames a server.
    Rename { server: Which, name: String },
    /// Somebody deletes a server, whatever its state and lease.
    Vanish { server: Which },
    /// The vendor puts a server into a state; what was under way is off.
    SetStatus { server: Which, status: Status },
    /// The credentials of a server are shown otherwise.
    SetPasswords { server: Which, passwords: Passwords },
    /// What a diagnostic will find.
    SetHealth { server: Which, health: Health },
    /// Changes that begin from now on end otherwise.
    Decide(Fate),
    /// The same for Linux servers.
    DecideBox(BoxFate),
    /// The vendor puts a Linux server into a state, by the word the API has for it; what was under way is off.
    SetState { server: Which, state: String },
    /// A change that is stuck ends well, now.
    Unstick { server: Which },
    /// The shelf is filled or emptied.
    SetStock {
        zone: Zone,
        #[serde(rename = "type")]
        server_type: String,
        count: u32,
    },
    /// An image is published, or changed.
    PublishOs { os: Os },
    /// An image is retired without notice.
    RetireOs { name: String },
    /// An image of Linux servers is retired without notice.
    RetireImage { label: String },
    /// It is there again.
    RestoreImage { label: String },
    /// Another image becomes the default of a type.
    SetDefaultOs {
        zone: Zone,
        #[serde(rename = "type")]
        server_type: String,
        name: String,
    },
}

/// Why a deed could not be done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeedError {
    /// No such server.
    #[error("there is no server {0:?}")]
    NoServer(Which),
    /// No such project.
    #[error("there is no project {0}; add it first")]
    NoProject(Id),
    /// No such key.
    #[error("there is no API key {0}")]
    NoKey(String),
    /// No such type.
    #[error("{server_type} is not offered in {zone}")]
    NoOffer { zone: Zone, server_type: String },
    /// No such image.
    #[error("there is no image called {0:?}")]
    NoOs(String),
    /// No such state.
    #[error("a server of this kind is never {0:?}; minis have set_status")]
    NoState(String),
    /// The deed is for another kind of server.
    #[error("{0:?} is not a mini")]
    NotAMini(Which),
    /// A constant is not what it should be.
    #[error(transparent)]
    Id(#[from] crate::ids::BadId),
}

impl World {
    /// Does a deed; answers the ids of servers that came of it.
    pub(crate) fn perform(&mut self, now: Timestamp, deed: Deed) -> Result<Vec<Id>, DeedError> {
        match deed {
            Deed::AddMinis(minis) => return self.add_minis(now, &minis),
            Deed::AddInstances(new) => return self.add_instances(now, &new),
            Deed::AddMetals(new) => return self.add_metals(now, &new),
            Deed::DecideBox(fate) => self.linux.fates.push(fate),
            Deed::SetState { server, state } => self.set_state(now, &server, &state)?,
            Deed::AddProject {
                id,
                name,
                organization_id,
            } => self.add_project(now, id, name, organization_id)?,
            Deed::AddKey {
                access_key,
                secret_key,
                organization_id,
                projects,
                permission_sets,
                expires_at,
            } => {
                let key = ApiKey {
                    access_key,
                    secret_key,
                    organization_id: owner(organization_id)?,
                    scope: projects.map_or(Scope::Organization, Scope::Projects),
                    permission_sets,
                    expires_at,
                };
                self.accounts.keys.insert(key.access_key.clone(), key);
            }
            Deed::ExpireKey { access_key } => {
                let key = self.accounts.keys.get_mut(&access_key);
                key.ok_or(DeedError::NoKey(access_key))?.expires_at = Some(now);
            }
            Deed::Vanish { server } => {
                let (kind, id) = self.which(&server)?;
                match kind {
                    Kind::Mini => self.remove_server(now, &id),
                    other => self.vanish_linux(now, other, &id),
                }
            }
            Deed::Decide(fate) => self.apple.fates.push(fate),
            Deed::SetStock {
                zone,
                server_type,
                count,
            } => *self.stock_mut(&zone, &server_type)? = count,
            Deed::PublishOs { os } => {
                self.apple.catalog.systems.insert(os.id.clone(), os);
            }
            Deed::RetireOs { name } => {
                let id = self.os_named(&name)?;
                if let Some(os) = self.apple.catalog.systems.get_mut(&id) {
                    os.retired = true;
                }
            }
            Deed::RetireImage { label } => drop(self.linux.retired.insert(label)),
            Deed::RestoreImage { label } => drop(self.linux.retired.remove(&label)),
            Deed::SetDefaultOs {
                zone,
                server_type,
                name,
            } => {
                let id = self.os_named(&name)?;
                self.offered(&zone, &server_type)?.default_os = id;
            }
            Deed::Rename { server, name } => match self.which(&server)? {
                (Kind::Mini, _) => self.touch(now, &server, |server| server.name = name)?,
                (other, id) => self.rename_linux(now, other, &id, name),
            },
            Deed::SetPasswords { server, passwords } => {
                self.touch(now, &server, |server| server.passwords = passwords)?;
            }
            Deed::SetHealth { server, health } => self.touch(now, &server, |server| server.health = health)?,
            Deed::SetStatus { server, status } => self.touch(now, &server, |server| {
                server.status = status;
                server.pending = None;
            })?,
            Deed::Unstick { server } => match self.which(&server)? {
                (Kind::Mini, _) => self.touch(now, &server, |server| {
                    let change = server.pending.as_mut().map(|pending| &mut pending.at);
                    let toggle = server.vpc_pending.as_mut().map(|pending| &mut pending.at);
                    for at in [change, toggle].into_iter().flatten() {
                        *at = Some(now);
                    }
                })?,
                (other, id) => self.unstick_linux(now, other, &id),
            },
        }
        Ok(Vec::new())
    }

    /// The id of a server, and whose product it is. Of several with one name, the oldest.
    pub(crate) fn which(&self, which: &Which) -> Result<(Kind, Id), DeedError> {
        let minis = self.apple.servers.iter();
        let minis = minis.map(|server| (server.created_at, Kind::Mini, &server.id, &server.name));
        let instances = self.instance.servers.iter();
        let instances = instances.map(|server| (server.created_at, Kind::Instance, &server.id, &server.name));
        let metals = self.metal.servers.iter();
        let metals = metals.map(|server| (server.created_at, Kind::Metal, &server.id, &server.name));
        minis
            .chain(instances)
            .chain(metals)
            .filter(|(_, _, id, name)| match which {
                Which::Id(wanted) => wanted == *id,
                Which::Name(wanted) => wanted == *name,
            })
            .min_by_key(|(at, _, id, _)| (*at, *id))
            .map(|(_, kind, id, _)| (kind, id.clone()))
            .ok_or_else(|| DeedError::NoServer(which.clone()))
    }

    fn touch(
        &mut self,
        now: Timestamp,
        which: &Which,
        change: impl FnOnce(&mut crate::apple::server::Server),
    ) -> Result<(), DeedError> {
        let (Kind::Mini, id) = self.which(which)? else {
            return Err(DeedError::NotAMini(which.clone()));
        };
        self.apple.servers.change(now, &id, |server| {
            change(server);
            server.updated_at = now;
        });
        Ok(())
    }

    fn offered(&mut self, zone: &Zone, server_type: &str) -> Result<&mut crate::apple::catalog::Offer, DeedError> {
        let missing = || DeedError::NoOffer {
            zone: zone.clone(),
            server_type: server_type.to_owned(),
        };
        self.apple.catalog.offer_mut(zone, server_type).ok_or_else(missing)
    }

    /// How many servers of a type can still be ordered, whichever product has it.
    pub(crate) fn stock(&self, zone: &Zone, server_type: &str) -> Option<u32> {
        let mini = self.apple.catalog.offer(zone, server_type).map(|offer| offer.stock);
        mini.or_else(|| {
            let instance = self.instance.catalog.commercial_type(zone, server_type);
            instance.map(|offered| offered.stock)
        })
        .or_else(|| self.metal.catalog.left(zone, server_type))
    }

    fn stock_mut(&mut self, zone: &Zone, server_type: &str) -> Result<&mut u32, DeedError> {
        let mini = self
            .apple
            .catalog
            .offer_mut(zone, server_type)
            .map(|offer| &mut offer.stock);
        let instance = self.instance.catalog.commercial_type_mut(zone, server_type);
        let instance = instance.map(|offered| &mut offered.stock);
        let metal = self.metal.catalog.left_mut(zone, server_type);
        mini.or(instance).or(metal).ok_or_else(|| DeedError::NoOffer {
            zone: zone.clone(),
            server_type: server_type.to_owned(),
        })
    }

    fn os_named(&self, name: &str) -> Result<Id, DeedError> {
        let found = self.apple.catalog.os_named(name);
        found
            .map(|os| os.id.clone())
            .ok_or_else(|| DeedError::NoOs(name.to_owned()))
    }

    fn add_project(
        &mut self,
        now: Timestamp,
        id: Id,
        name: String,
        organization_id: Option<Id>,
    ) -> Result<(), DeedError> {
        let project = Project {
            id: id.clone(),
            name,
            organization_id: owner(organization_id)?,
            created_at: now,
        };
        self.accounts.projects.insert(id, project);
        Ok(())
    }
}

/// The project things are seeded in.
fn owner_project(world: &World, project: Option<&Id>) -> Result<Id, DeedError> {
    let id = match project {
        Some(id) => id.clone(),
        None => DEFAULT_PROJECT.parse()?,
    };
    if world.accounts.projects.contains_key(&id) {
        Ok(id)
    } else {
        Err(DeedError::NoProject(id))
    }
}

fn owner(organization: Option<Id>) -> Result<Id, DeedError> {
    match organization {
        Some(id) => Ok(id),
        None => Ok(DEFAULT_ORGANIZATION.parse()?),
    }
}
