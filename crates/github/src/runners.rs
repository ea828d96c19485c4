//! The self-hosted runners of an organisation.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use reqwest::Method;
use russet_telemetry::Secret;
use serde::{Deserialize, Serialize};

use crate::call::{Bearer, Call, Effect, Endpoint};
use crate::client::Client;
use crate::error::{Error, Kind};
use crate::org::Org;

/// A list is read until two readings agree, at most this often.
const MAX_SWEEPS: u32 = 4;

static REGISTER: Endpoint = Endpoint {
    name: "actions.create_registration_token_for_org",
    method: Method::POST,
    effect: Effect::Repeatable,
    bearer: Bearer::Installation,
    success: 201,
};
static LIST: Endpoint = Endpoint {
    name: "actions.list_self_hosted_runners_for_org",
    method: Method::GET,
    effect: Effect::Read,
    bearer: Bearer::Installation,
    success: 200,
};
static REMOVE: Endpoint = Endpoint {
    name: "actions.delete_self_hosted_runner_from_org",
    method: Method::DELETE,
    effect: Effect::Repeatable,
    bearer: Bearer::Installation,
    success: 204,
};
static JIT: Endpoint = Endpoint {
    name: "actions.generate_runner_jitconfig_for_org",
    method: Method::POST,
    effect: Effect::Once,
    bearer: Bearer::Installation,
    success: 201,
};

/// What a host hands to `config.sh`, by stdin.
#[derive(Clone, Debug, Deserialize)]
pub struct RegistrationToken {
    /// The token.
    pub token: Secret<String>,
    /// When it ends.
    pub expires_at: Timestamp,
}

/// GitHub's number of a runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(transparent)]
pub struct RunnerId(pub u64);

/// A runner as GitHub knows it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Runner {
    /// Its number.
    pub id: RunnerId,
    /// Its name.
    pub name: String,
    /// `macos`, `linux`, `windows`, or `unknown` before it was first seen.
    #[serde(default)]
    pub os: String,
    /// `online` or `offline`.
    pub status: String,
    /// A job runs on it.
    #[serde(default)]
    pub busy: bool,
    /// Its labels.
    #[serde(default)]
    pub labels: Vec<Label>,
}

impl Runner {
    /// Whether GitHub hears from it.
    pub fn is_online(&self) -> bool {
        self.status == "online"
    }
}

/// A label of a runner.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Label {
    /// The text jobs ask for.
    pub name: String,
}

/// How a removal ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removed {
    /// It was there and is gone.
    Now,
    /// It was gone already.
    Before,
}

/// A runner that is registered for one job.
#[derive(Clone, Debug, Serialize)]
pub struct JitRequest {
    /// Name of the runner; unique in the organisation.
    pub name: String,
    /// Group of the runner. GitHub has no default here; 1 is the group `Default`.
    pub runner_group_id: u64,
    /// Labels, at least one.
    pub labels: Vec<String>,
    /// Folder of the job below that of the runner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub work_folder: Option<String>,
}

/// The answer to a [`JitRequest`].
#[derive(Clone, Debug, Deserialize)]
pub struct JitConfig {
    /// The runner, registered.
    pub runner: Runner,
    /// What the runner program is started with.
    pub encoded_jit_config: Secret<String>,
}

#[derive(Debug, Deserialize)]
struct Page {
    total_count: usize,
    runners: Vec<Runner>,
}

fn path(org: &Org, rest: &str) -> String {
    format!("/orgs/{org}/actions/runners{rest}")
}

impl Client {
    /// A token with which a host can register itself as a runner of the organisation, for an hour.
    pub async fn registration_token(&self, org: &Org) -> Result<RegistrationToken, Error> {
        let call = Call::new(&REGISTER, path(org, "/registration-token"));
        match self.fetch(&call).await {
            Ok(token) => Ok(token),
            Err(refused) => Err(self.explain(org, refused).await),
        }
    }

    /// All runners of the organisation. A row that moves between two pages while they are read is not lost: a list of
    /// several pages is read until two readings agree.
    pub async fn list_runners(&self, org: &Org) -> Result<Vec<Runner>, Error> {
        let mut before: Option<BTreeSet<RunnerId>> = None;
        for _ in 0..MAX_SWEEPS {
            let (rows, pages) = match self.sweep(org).await {
                Ok(swept) => swept,
                Err(refused) => return Err(self.explain(org, refused).await),
            };
            let ids: BTreeSet<RunnerId> = rows.keys().copied().collect();
            if pages <= 1 || before.as_ref() == Some(&ids) {
                return Ok(rows.into_values().collect());
            }
            before = Some(ids);
        }
        Err(Error {
            endpoint: LIST.name,
            kind: Kind::ListRestless { sweeps: MAX_SWEEPS },
            request_id: None,
        })
    }

    async fn sweep(&self, org: &Org) -> Result<(BTreeMap<RunnerId, Runner>, u32), Error> {
        let mut rows = BTreeMap::new();
        let mut page = 1;
        loop {
            let call = Call::new(&LIST, path(org, ""))
                .query("per_page", self.page_size().to_string())
                .query("page", page.to_string());
            let read: Page = self.fetch(&call).await?;
            let last = read.runners.is_empty();
            rows.extend(read.runners.into_iter().map(|runner| (runner.id, runner)));
            if last || rows.len() >= read.total_count {
                return Ok((rows, page));
            }
            page += 1;
        }
    }

    /// Removes a runner. One that runs a job is not removed: [`Kind::Invalid`].
    pub async fn remove_runner(&self, org: &Org, runner: RunnerId) -> Result<Removed, Error> {
        let call = Call::new(&REMOVE, path(org, &format!("/{}", runner.0)));
        let refused = match self.send(&call).await {
            Ok(()) => return Ok(Removed::Now),
            Err(refused) => self.explain(org, refused).await,
        };
        match refused.kind {
            Kind::NotFound { .. } => Ok(Removed::Before),
            _ => Err(refused),
        }
    }

    /// Registers a runner for one job. Sent once: after [`Kind::Unknown`] look for the name in [`Client::list_runners`].
    pub async fn generate_jit_config(&self, org: &Org, request: &JitRequest) -> Result<JitConfig, Error> {
        let body = serde_json::to_value(request).map_err(|e| Error {
            endpoint: JIT.name,
            kind: Kind::Invalid { message: e.to_string() },
            request_id: None,
        })?;
        let call = Call::new(&JIT, path(org, "/generate-jitconfig")).body(body);
        match self.fetch(&call).await {
            Ok(config) => Ok(config),
            Err(refused) => Err(self.explain(org, refused).await),
        }
    }
}
