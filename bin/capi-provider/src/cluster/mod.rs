//! The cluster kind: what Cluster API core has to know about a control plane that is not made of Machines.
//!
//! ```text
//!   Cluster ── infrastructureRef, controlPlaneRef ──▶ ScalewayAppleSiliconCluster ──▶ status, endpoint   (contract)
//!      ▲                                                        │
//!      └── owns ── Secret <cluster>-kubeconfig ◀── token of ServiceAccount capi-remote, renewed at half its life
//! ```
//!
//! Core watches Nodes through the kubeconfig Secret even when the cluster is its own; without it no Machine finds its Node and every
//! deployment times out (incident `no-workload-kubeconfig`). So the Secret is made here, belongs to the Cluster (and not to a
//! hook that is deleted on every upgrade, incident `secret-dies-with-hook`), and is renewed long before it ends: core
//! reads a changed Secret only when it has to connect again, so the old token has to work until then.
//!
//! A Secret that somebody else supplies (without our label) is never written. It is tried, and what it lacks stands in a condition.

mod capi;
mod connection;
mod error;
mod probe;
mod reconcile;
mod secret;
mod status;

use std::sync::Arc;
use std::time::Duration;

use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher;
use russet_api::ScalewayAppleSiliconCluster;
use russet_controller::{Component, Manager};

use crate::api_server;
use capi::Cluster;
pub use error::Error;

/// Field manager and name of the controller.
const NAME: &str = "capi-cluster";

/// Name of the ServiceAccount that Cluster API core acts as, unless said otherwise.
pub const SERVICE_ACCOUNT: &str = "capi-remote";

/// How the controller works.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where the API server is.
    pub server: api_server::Settings,
    /// Namespace of the ServiceAccount that core acts as.
    pub account_namespace: String,
    /// Its name.
    pub account: String,
    /// Zones machines can be placed in; shown to core as failure domains. None: not shown.
    pub zones: Vec<String>,
    /// How long a token for core is asked for. It is renewed at half of what was granted.
    pub token_lifetime: Duration,
    /// How often the Secret is looked at.
    pub poll: Duration,
    /// How long a connection that worked is believed to work.
    pub believed: Duration,
}

impl Settings {
    /// The defaults, with the ServiceAccount in this namespace.
    pub fn new(account_namespace: String) -> Self {
        Self {
            server: api_server::Settings::default(),
            account_namespace,
            account: SERVICE_ACCOUNT.to_owned(),
            zones: Vec::new(),
            token_lifetime: Duration::from_hours(24),
            poll: Duration::from_mins(1),
            believed: Duration::from_mins(10),
        }
    }
}

/// The controller, as a part of the provider's process.
pub fn component(manager: &Manager, settings: Settings) -> Component {
    let mut runner = manager.runner::<ScalewayAppleSiliconCluster>(NAME, &watcher::Config::default());
    // Secrets are not watched: that would need the right to list them wherever a Cluster may be.
    let clusters = runner.watches::<Cluster>(&watcher::Config::default(), |cluster| {
        let namespace = cluster.metadata.namespace.clone().unwrap_or_default();
        let refs = [&cluster.spec.infrastructure_ref, &cluster.spec.control_plane_ref];
        let ours = refs.into_iter().flatten().filter(|to| to.is_ours());
        ours.map(|to| ObjectRef::new(&to.name).within(&namespace)).collect()
    });
    let context = reconcile::Context {
        applier: manager.applier(NAME),
        client: manager.client(),
        clusters,
        settings,
        probes: probe::Probes::default(),
    };
    Component::controller(runner, Arc::new(context), reconcile::reconcile)
}
