//! Organisations, projects, API keys, and who may do what.
//!
//! A key holds permission sets, either for some projects or for the whole organisation. Whatever names a project is
//! checked against it; whatever names none concerns the organisation, which a key for projects may not touch. That is
//! how a list of SSH keys without `project_id` came to be refused.

use crate::ids::Id;
use crate::refusal::Refusal;
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// A project.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Project {
    pub id: Id,
    pub name: String,
    pub organization_id: Id,
    /// Since when.
    pub created_at: Timestamp,
}

/// What a policy can grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub enum PermissionSet {
    /// Everything about Mac minis.
    AppleSiliconFullAccess,
    /// Looking at Mac minis.
    AppleSiliconReadOnly,
    /// Everything about private networks.
    PrivateNetworksFullAccess,
    /// Looking at private networks.
    PrivateNetworksReadOnly,
    /// Looking at addresses.
    #[serde(rename = "IPAMReadOnly")]
    IpamReadOnly,
    /// Everything about addresses.
    #[serde(rename = "IPAMFullAccess")]
    IpamFullAccess,
    /// Everything about SSH keys.
    #[serde(rename = "SSHKeysFullAccess")]
    SshKeysFullAccess,
    /// Looking at SSH keys.
    #[serde(rename = "SSHKeysReadOnly")]
    SshKeysReadOnly,
    /// Looking at projects.
    ProjectReadOnly,
    /// Everything about Elastic Metal.
    ElasticMetalFullAccess,
    /// Everything about Instances.
    InstancesFullAccess,
    /// Everything about block storage.
    BlockStorageFullAccess,
}

impl PermissionSet {
    /// What the provider's key holds: see the chart's documentation.
    pub const PROVIDER: [Self; 8] = [
        Self::AppleSiliconFullAccess,
        Self::PrivateNetworksFullAccess,
        Self::IpamReadOnly,
        Self::SshKeysFullAccess,
        Self::ProjectReadOnly,
        Self::ElasticMetalFullAccess,
        Self::InstancesFullAccess,
        Self::BlockStorageFullAccess,
    ];
}

/// What is done to a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Read,
    List,
    Create,
    Update,
    Delete,
}

impl Action {
    fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::List => "list",
            Self::Create => "create",
            Self::Update => "update",
            Self::Delete => "delete",
        }
    }

    fn only_looks(self) -> bool {
        matches!(self, Self::Read | Self::List)
    }
}

/// What something is done to, by the name errors give it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resource {
    Server,
    PrivateNetwork,
    Vpc,
    Ip,
    SshKey,
    Project,
    Metal,
    InstanceServer,
    InstanceIp,
    InstanceVolume,
    BlockVolume,
}

impl Resource {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Server | Self::Metal => "server",
            Self::PrivateNetwork => "private_network",
            Self::Vpc => "vpc",
            Self::Ip => "ip",
            Self::SshKey => "ssh_key",
            Self::Project => "project",
            Self::InstanceServer => "instance_server",
            Self::InstanceIp => "instance_ip",
            Self::InstanceVolume => "instance_volume",
            Self::BlockVolume => "volume",
        }
    }

    /// The sets that allow everything, and those that allow looking.
    fn sets(self) -> (&'static [PermissionSet], &'static [PermissionSet]) {
        use PermissionSet as Set;
        match self {
            Self::Server => (&[Set::AppleSiliconFullAccess], &[Set::AppleSiliconReadOnly]),
            Self::PrivateNetwork | Self::Vpc => (&[Set::PrivateNetworksFullAccess], &[Set::PrivateNetworksReadOnly]),
            Self::Ip => (&[Set::IpamFullAccess], &[Set::IpamReadOnly]),
            Self::SshKey => (&[Set::SshKeysFullAccess], &[Set::SshKeysReadOnly]),
            Self::Project => (&[], &[Set::ProjectReadOnly]),
            Self::Metal => (&[Set::ElasticMetalFullAccess], &[]),
            Self::InstanceServer | Self::InstanceIp | Self::InstanceVolume => (&[Set::InstancesFullAccess], &[]),
            Self::BlockVolume => (&[Set::BlockStorageFullAccess], &[]),
        }
    }
}

/// Where the permissions of a key hold.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// In these projects.
    Projects(BTreeSet<Id>),
    /// In every project of the organisation, and in the organisation itself.
    Organization,
}

/// An API key.
#[derive(Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ApiKey {
    /// The half that may be shown, for example `SCWRUSSETDEFAULTKEY0`.
    pub access_key: String,
    /// The half that authenticates.
    pub secret_key: String,
    pub organization_id: Id,
    /// Where it holds.
    pub scope: Scope,
    /// What it grants there.
    pub permission_sets: BTreeSet<PermissionSet>,
    /// From when on it is refused.
    pub expires_at: Option<Timestamp>,
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiKey")
            .field("access_key", &self.access_key)
            .field("scope", &self.scope)
            .field("permission_sets", &self.permission_sets)
            .finish_non_exhaustive()
    }
}

impl ApiKey {
    fn holds(&self, action: Action, resource: Resource) -> bool {
        let (full, looking) = resource.sets();
        full.iter().any(|set| self.permission_sets.contains(set))
            || (action.only_looks() && looking.iter().any(|set| self.permission_sets.contains(set)))
    }

    /// Whether the key may see things of a project at all.
    pub(crate) fn sees(&self, project: &Project) -> bool {
        match &self.scope {
            Scope::Projects(projects) => projects.contains(&project.id),
            Scope::Organization => project.organization_id == self.organization_id,
        }
    }
}

/// All projects and keys.
#[derive(Debug, Clone, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct Accounts {
    pub(crate) projects: BTreeMap<Id, Project>,
    pub(crate) keys: BTreeMap<String, ApiKey>,
}

impl Accounts {
    /// The key behind a token.
    pub(crate) fn authenticate(&self, token: Option<&str>, now: Timestamp) -> Result<&ApiKey, Refusal> {
        let denied = |reason| Refusal::Authentication { reason };
        let token = token.unwrap_or_default();
        if token.is_empty() {
            return Err(denied("invalid_argument"));
        }
        let key = self
            .keys
            .values()
            .find(|key| key.secret_key == token)
            .ok_or_else(|| denied("not_found"))?;
        match key.expires_at {
            Some(end) if end <= now => Err(denied("expired")),
            _ => Ok(key),
        }
    }

    /// Whether a key may do something in a project, or, without one, in its organisation.
    pub(crate) fn authorise(
        &self,
        key: &ApiKey,
        action: Action,
        resource: Resource,
        project: Option<&Id>,
    ) -> Result<(), Refusal> {
        let in_scope = match project {
            Some(project) => self.projects.get(project).is_some_and(|project| key.sees(project)),
            None => key.scope == Scope::Organization,
        };
        if in_scope && key.holds(action, resource) {
            return Ok(());
        }
        Err(refuse(action, resource))
    }

    /// Whether a key may do something in at least one project it sees: what a list without a filter asks.
    pub(crate) fn authorise_somewhere(key: &ApiKey, action: Action, resource: Resource) -> Result<(), Refusal> {
        if key.holds(action, resource) {
            Ok(())
        } else {
            Err(refuse(action, resource))
        }
    }

    /// Whether things of a project are in a list: those the key sees, of the project or organisation asked for.
    pub(crate) fn lists(&self, key: &ApiKey, owner: &Id, filter: &Owner) -> bool {
        let Some(project) = self.projects.get(owner) else {
            return false;
        };
        key.sees(project)
            && filter.project.as_ref().is_none_or(|wanted| *wanted == project.id)
            && filter
                .organization
                .as_ref()
                .is_none_or(|wanted| *wanted == project.organization_id)
    }
}

fn refuse(action: Action, resource: Resource) -> Refusal {
    Refusal::Permissions {
        action: action.as_str(),
        resource: resource.as_str(),
    }
}

/// The filter by owner that every list has.
#[derive(Debug, Clone, Default)]
pub(crate) struct Owner {
    pub(crate) project: Option<Id>,
    pub(crate) organization: Option<Id>,
}

impl Owner {
    /// As the Instance API spells it.
    pub(crate) fn read_short(query: &mut crate::strict::Query) -> Self {
        Self {
            project: query.id("project"),
            organization: query.id("organization"),
        }
    }

    pub(crate) fn read(query: &mut crate::strict::Query) -> Self {
        Self {
            project: query.id("project_id"),
            organization: query.id("organization_id"),
        }
    }
}
