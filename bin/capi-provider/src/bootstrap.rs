//! Setting up a host: what is asked for, by whom it is done, and the pool in which that happens.
//!
//! Nothing of this runs on a reconcile worker. A reconcile asks the [`Pool`] how a host stands, writes that down, and is woken
//! when it changes; the [`Bootstrapper`] works for as long as it takes.

mod adapters;
mod args;
mod pool;
mod services;
mod ssh;
mod stand_in;

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Taint;
use russet_api::apple_silicon_machine::GhActionsRunner;
use russet_api::machine::StepState;
use russet_bootstrap::mac::ApiServer;
use russet_telemetry::Secret;
use tokio_util::sync::CancellationToken;

use crate::claims::Holder;

pub use args::{BootstrapArgs, HostBootstrap};
pub(crate) use pool::note_step;
pub use pool::{Pool, Seat, Work};
pub use services::{Egress, FleetKeys, Identities, LoginKey, Networks, Problem, RunnerTokens, Services, TailnetKeys};
pub(crate) use ssh::LOGIN_STEP;
pub use ssh::{BadHostFlag, Recipe, Ssh};
pub use stand_in::StandIn;

/// What the configuration of a host depends on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostFacts {
    /// Hardware.
    pub type_: String,
    /// Its fleet.
    pub fleet: Option<String>,
    /// CPU cores the Node offers, if the spec says.
    pub cpu: Option<i64>,
    /// Memory the Node offers in MB, if the spec says.
    pub memory_mb: Option<i64>,
    /// Where its Node finds the API server; none leaves it to what it joins with.
    pub api_server: Option<Arc<ApiServer>>,
}

/// Hash of everything a host is set up with. A host with another one is out of date.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostConfigHash(String);

impl HostConfigHash {
    /// From its text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text in `status.hostConfigHash`.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for HostConfigHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a host is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It never was for this machine.
    First,
    /// It was, with something else. Running work is not disturbed more than needed.
    Update,
}

/// Everything needed to set up one host.
#[derive(Clone, Debug)]
pub struct Job {
    /// First time, or again.
    pub kind: Kind,
    /// Whose host.
    pub machine: Holder,
    /// Where it is.
    pub address: IpAddr,
    /// Who to log in as.
    pub ssh_user: String,
    /// The administrator password, if it is known.
    pub sudo_password: Option<Secret<String>>,
    /// The host key seen last time; another one is not trusted.
    pub fingerprint: Option<String>,
    /// The key to log in with.
    pub key: Option<LoginKey>,
    /// Name of the Node.
    pub node_name: String,
    /// `spec.providerID` of the Node.
    pub provider_id: String,
    /// Labels of the Node.
    pub labels: BTreeMap<String, String>,
    /// Taints of the Node.
    pub taints: Vec<Taint>,
    /// What the Node joins with.
    pub join_kubeconfig: Option<Secret<String>>,
    /// What the host joins the tailnet with.
    pub tailnet_key: Option<Secret<String>>,
    /// VLAN of the private network of caches.
    pub vlan: Option<u16>,
    /// The GitHub runner of the host.
    pub runner: Option<(GhActionsRunner, Secret<String>)>,
    /// What its configuration depends on.
    pub facts: HostFacts,
    /// The hash of that configuration.
    pub hash: HostConfigHash,
}

/// A host that is set up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Its host key.
    pub fingerprint: Option<String>,
    /// SHA-256 of the tart-kubelet on it.
    pub kubelet_sha: Option<String>,
    /// What it took.
    pub effort: Effort,
    /// It was only looked at: this says nothing about its configuration.
    pub looked: bool,
}

/// What a set-up took on the wire, the connection itself apart. A host that is as it should be takes a look and nothing else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effort {
    /// Commands, each of which is one round trip.
    pub commands: u32,
    /// Bytes of files that were uploaded.
    pub uploaded: u64,
}

/// A host that could not be set up. The text has no secrets in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("step {step}: {message}")]
pub struct Failed {
    /// What failed.
    pub step: String,
    /// Why, in a sentence that says what to do.
    pub message: String,
    /// Its host key, if it got that far.
    pub fingerprint: Option<String>,
}

/// Why an attempt did not end well.
#[derive(Clone, Debug)]
pub enum Trouble {
    /// The host: this counts as an attempt, and after some it is rebooted or exchanged.
    Host(Failed),
    /// Something it would have needed; the host was not touched.
    Preparation(Problem),
    /// There are no credentials of the host any more; they are read again.
    NoCredentials,
    /// We were told to stop.
    Stopped,
}

/// Tells how far a set-up is. Cheap to clone.
#[derive(Clone)]
pub struct Progress(Arc<Listener>);

type Listener = dyn Fn(&str, StepState, Option<String>) + Send + Sync;

impl Progress {
    /// Tells it to `listener`.
    pub fn new(listener: impl Fn(&str, StepState, Option<String>) + Send + Sync + 'static) -> Self {
        Self(Arc::new(listener))
    }

    /// A step is in this state. A message must hold no secrets: it becomes part of the status.
    pub fn step(&self, name: &str, state: StepState, message: Option<String>) {
        (self.0)(name, state, message);
    }
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Progress(..)")
    }
}

/// Sets up hosts.
pub trait Bootstrapper: Send + Sync + 'static {
    /// What a host should be set up with. Cheap: it is asked for each machine now and then.
    fn desired(&self, host: &HostFacts) -> HostConfigHash;

    /// Sets one up, from wherever it is; running it twice does no harm. Ends soon after `stop`.
    fn run(&self, job: Job, progress: Progress, stop: CancellationToken) -> BoxFuture<'static, Result<Done, Failed>>;

    /// Looks at what changes on a host by itself, and changes nothing. Only steps that are not as they should be are told.
    fn look(&self, _job: Job, _progress: Progress, _stop: CancellationToken) -> BoxFuture<'static, Result<(), Failed>> {
        Box::pin(async { Ok(()) })
    }
}
