//! Everything there is, and who answers what.
//!
//! The world is a value: a call and a moment go in, an answer comes out, nothing else is read. The shell around it
//! ([`crate::core`]) has the lock, the clock and the wire.

use crate::account::{Accounts, Action, ApiKey, Owner, PermissionSet, Project, Resource, Scope};
use crate::apple::{self, Apple};
use crate::bill::Ledger;
use crate::block::{self, Block};
use crate::call::{Answer, Call};
use crate::dice::Dice;
use crate::host::{AddressPlan, Host, HostChange};
use crate::iam::{self, Iam};
use crate::ids::Id;
use crate::instance::{self, Instances};
use crate::ipam::{self, Ipam};
use crate::linux::Linux;
use crate::metal::{self, Metals};
use crate::refusal::{Reason, Refusal};
use crate::settings::Settings;
use crate::vpc::{self, Networks};
use crate::{marketplace, prices, projects};
use jiff::{SignedDuration, Timestamp};

/// The secret key everybody may use until a seed says otherwise.
pub const DEFAULT_SECRET_KEY: &str = "5ca1ab1e-0000-4000-a000-000000000001";
/// The access key that goes with it.
pub const DEFAULT_ACCESS_KEY: &str = "SCWRUSSETDEFAULTKEY0";
/// The organisation that exists from the start.
pub const DEFAULT_ORGANIZATION: &str = "0a11ce00-0000-4000-a000-000000000001";
/// Its first project.
pub const DEFAULT_PROJECT: &str = "0a11ce00-0000-4000-a000-000000000002";

/// All state.
#[derive(Clone, serde::Serialize, serde::Deserialize)]
pub(crate) struct World {
    pub(crate) dice: Dice,
    pub(crate) settings: Settings,
    pub(crate) addresses: AddressPlan,
    pub(crate) accounts: Accounts,
    pub(crate) apple: Apple,
    pub(crate) vpc: Networks,
    pub(crate) ipam: Ipam,
    pub(crate) iam: Iam,
    pub(crate) bill: Ledger,
    #[serde(default)]
    pub(crate) instance: Instances,
    #[serde(default)]
    pub(crate) block: Block,
    #[serde(default)]
    pub(crate) metal: Metals,
    #[serde(default)]
    pub(crate) linux: Linux,
    /// Whether the rows of Linux machines may have changed since they were last told.
    #[serde(skip, default = "yes")]
    pub(crate) stirred: bool,
    /// What whoever emulates the machines has not been told yet.
    #[serde(skip)]
    pub(crate) announcements: Vec<(HostChange, Host)>,
}

fn yes() -> bool {
    true
}

/// Who asks, and when.
#[derive(Debug)]
pub(crate) struct Caller {
    pub(crate) now: Timestamp,
    pub(crate) key: ApiKey,
}

impl World {
    /// A world with one organisation, one project, one key, full shelves and no servers.
    pub(crate) fn new(seed: u64, now: Timestamp, settings: Settings, addresses: AddressPlan) -> Self {
        let mut dice = Dice::new(seed);
        let apple = Apple::new(&mut dice);
        let mut accounts = Accounts::default();
        if let (Ok(organization_id), Ok(id)) = (DEFAULT_ORGANIZATION.parse::<Id>(), DEFAULT_PROJECT.parse::<Id>()) {
            let key = ApiKey {
                access_key: DEFAULT_ACCESS_KEY.to_owned(),
                secret_key: DEFAULT_SECRET_KEY.to_owned(),
                organization_id: organization_id.clone(),
                scope: Scope::Projects([id.clone()].into()),
                permission_sets: PermissionSet::PROVIDER.into(),
                expires_at: None,
            };
            accounts.keys.insert(key.access_key.clone(), key);
            let project = Project {
                id: id.clone(),
                name: "default".to_owned(),
                organization_id,
                created_at: now,
            };
            accounts.projects.insert(id, project);
        }
        Self {
            dice,
            settings,
            addresses,
            accounts,
            apple,
            vpc: Networks::default(),
            ipam: Ipam::default(),
            iam: Iam::default(),
            bill: Ledger::default(),
            instance: Instances::default(),
            block: Block::default(),
            metal: Metals::default(),
            linux: Linux::default(),
            stirred: true,
            announcements: Vec::new(),
        }
    }

    /// Answers a call. What is refused leaves the world as it was.
    pub(crate) fn answer(&mut self, now: Timestamp, call: &Call) -> Answer {
        let segments = call.segments()?;
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        if let ["product-catalog", "v2alpha1", rest @ ..] = segments.as_slice() {
            return prices::answer(self, rest, call);
        }
        if let ["marketplace", "v2", rest @ ..] = segments.as_slice() {
            return marketplace::answer(self, rest, call);
        }
        let key = self.accounts.authenticate(call.token.as_deref(), now)?.clone();
        let caller = Caller { now, key };
        match segments.as_slice() {
            ["apple-silicon", "v1alpha1", "zones", zone, rest @ ..] => apple::answer(self, &caller, zone, rest, call),
            ["vpc", "v2", "regions", region, rest @ ..] => vpc::answer(self, &caller, region, rest, call),
            ["ipam", "v1", "regions", region, rest @ ..] => ipam::answer(self, &caller, region, rest, call),
            ["iam", "v1alpha1", rest @ ..] => iam::answer(self, &caller, rest, call),
            ["account", "v3", rest @ ..] => projects::answer(self, &caller, rest, call),
            ["instance", "v1", "zones", zone, rest @ ..] => instance::answer(self, &caller, zone, rest, call),
            ["block", "v1", "zones", zone, rest @ ..] => block::answer(self, &caller, zone, rest, call),
            ["baremetal", "v1", "zones", zone, rest @ ..] => metal::answer(self, &caller, zone, rest, call),
            ["baremetal", "v3", "zones", zone, rest @ ..] => metal::answer_v3(self, &caller, zone, rest, call),
            ["baremetal" | "block", ..] => Err(Refusal::NotEmulated(call.path.clone())),
            _ => Err(Refusal::Route(format!("{} {}", call.method, call.path))),
        }
    }

    /// The moment lists show.
    pub(crate) fn lagging(&self, now: Timestamp) -> Timestamp {
        SignedDuration::try_from(self.settings.list_lag)
            .ok()
            .and_then(|lag| now.checked_sub(lag).ok())
            .unwrap_or(Timestamp::MIN)
    }

    /// Whether a caller may list a kind of thing: in the project it names, or wherever it can see.
    pub(crate) fn may_list(&self, caller: &Caller, resource: Resource, owner: &Owner) -> Result<(), Refusal> {
        match &owner.project {
            Some(project) => self
                .accounts
                .authorise(&caller.key, Action::List, resource, Some(project)),
            None => Accounts::authorise_somewhere(&caller.key, Action::List, resource),
        }
    }

    /// What was found and whose it is, if the caller may do this to it.
    pub(crate) fn permitted<'a, T>(
        &self,
        caller: &Caller,
        action: Action,
        resource: Resource,
        id: &Id,
        found: Option<(&'a T, &Id)>,
    ) -> Answer<&'a T> {
        let (row, project) = found.ok_or_else(|| Refusal::not_found(resource.as_str(), id.as_str()))?;
        self.accounts.authorise(&caller.key, action, resource, Some(project))?;
        Ok(row)
    }

    pub(crate) fn organization_of(&self, project: &Id) -> Id {
        let found = self.accounts.projects.get(project);
        found.map_or_else(|| project.clone(), |project| project.organization_id.clone())
    }
}

/// An id that is part of a path.
pub(crate) fn id_in_path(name: &str, text: &str) -> Result<Id, Refusal> {
    text.parse()
        .map_err(|error: crate::ids::BadId| Refusal::argument(name, Reason::Format, error.to_string()))
}
