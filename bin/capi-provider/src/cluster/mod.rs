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
use serde::Serialize;

use crate::api_server;
use crate::capi::Cluster;
pub use error::Error;

/// Field manager and name of the controller.
const NAME: &str = "capi-cluster";

/// Name of the ServiceAccount that Cluster API core acts as, unless said otherwise.
pub const SERVICE_ACCOUNT: &str = "capi-remote";

/// Flags of the cluster kind.
#[derive(clap::Args, Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[command(next_help_heading = "Cluster API core")]
pub struct ClusterArgs {
    /// The ServiceAccount that Cluster API core acts as, NAMESPACE/NAME; without it, capi-remote in the secrets namespace.
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = account)]
    pub remote_service_account: Option<String>,
}

fn account(text: &str) -> Result<String, String> {
    match text.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
            Ok(text.to_owned())
        }
        _ => Err("write NAMESPACE/NAME, such as russet-system/capi-remote".to_owned()),
    }
}

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
    /// From the flags; the ServiceAccount is looked for in this namespace unless they say otherwise.
    pub fn from_args(args: &ClusterArgs, secrets_namespace: &str, server: api_server::Settings) -> Self {
        let named = args
            .remote_service_account
            .as_deref()
            .and_then(|text| text.split_once('/'));
        let (namespace, account) = named.unwrap_or((secrets_namespace, SERVICE_ACCOUNT));
        Self {
            server,
            account: account.to_owned(),
            ..Self::new(namespace.to_owned())
        }
    }

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
        let ours = refs.into_iter().flatten().filter(|to| to.is_our_cluster());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_account_of_core_is_named_with_its_namespace_or_taken_from_the_secrets_namespace() {
        let of = |text: Option<&str>| {
            let args = ClusterArgs {
                remote_service_account: text.map(str::to_owned),
            };
            let settings = Settings::from_args(&args, "fleet", api_server::Settings::default());
            (settings.account_namespace, settings.account)
        };
        assert_eq!(of(None), ("fleet".into(), "capi-remote".into()));
        assert_eq!(of(Some("russet-system/core")), ("russet-system".into(), "core".into()));
        for bad in ["core", "/core", "a/", "a/b/c"] {
            assert!(account(bad).is_err(), "{bad}");
        }
    }
}
