//! One Service per Mac, through which Pods reach it over the tailnet.
//!
//! The Service is written by two: we make it and keep our labels, annotations and ports in it; the Tailscale operator points it at
//! its proxies (`externalName`), adds annotations, conditions and a finalizer. So every change of ours is made to the object
//! as it was just read, under its version, and repeated at once when the operator was faster (incident
//! `egress-service-race`): that is an ordinary course of things, not an error.
//!
//! A Service lives in another namespace than its machine, where owner references do not reach; it is removed explicitly. All
//! requests are about single objects of one namespace, so a Role there suffices (incident `namespaced-informer`).

mod service;

use std::sync::atomic::{AtomicBool, Ordering};

use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, Preconditions};
use russet_controller::{Applier, Class, Classify, apply};
use serde::Serialize;
use tracing::debug;

use crate::api_server::brief;
use crate::machine_ref::MachineRef;

/// Flags of the egress Services.
#[derive(clap::Args, Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[command(next_help_heading = "Tailnet egress")]
pub struct EgressArgs {
    /// Tailscale ProxyGroup that carries traffic to the Macs. Empty: no egress Services.
    #[arg(
        long = "tailscale-egress-proxy-group",
        env = "CAPI_TAILSCALE_EGRESS_PROXY_GROUP",
        value_name = "NAME",
        default_value = ""
    )]
    pub proxy_group: String,

    /// Namespace of the egress Services.
    #[arg(
        long = "tailscale-egress-namespace",
        env = "CAPI_TAILSCALE_EGRESS_NAMESPACE",
        value_name = "NAMESPACE",
        default_value = "tailscale-operator"
    )]
    pub namespace: String,

    /// Suffix of the tailnet's names, such as `tail1234.ts.net`. Needed with a proxy group.
    #[arg(
        long = "tailscale-egress-magicdns-suffix",
        env = "CAPI_TAILSCALE_EGRESS_MAGICDNS_SUFFIX",
        value_name = "DOMAIN",
        default_value = ""
    )]
    pub magicdns_suffix: String,
}

/// Flags that do not fit together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// A proxy group without a tailnet.
    #[error(
        "--tailscale-egress-proxy-group needs --tailscale-egress-magicdns-suffix: the tailnet's domain, such as tail1234.ts.net (Tailscale console, DNS)"
    )]
    Suffix,
    /// A proxy group without a place.
    #[error(
        "--tailscale-egress-proxy-group needs --tailscale-egress-namespace: where the Tailscale operator looks for Services"
    )]
    Namespace,
}

/// Why a Service could not be brought about or removed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The name is taken.
    #[error(
        "Service {namespace}/{name} exists and is not ours; rename or delete it, or choose another --tailscale-egress-namespace"
    )]
    Foreign {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// A write failed.
    #[error(transparent)]
    Write(#[from] apply::Error),
    /// A request failed.
    #[error("failed to {verb} Service {namespace}/{name}: {}", brief(source))]
    Request {
        /// What was attempted.
        verb: &'static str,
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// Why.
        source: Box<kube::Error>,
    },
}

impl Classify for Error {
    fn class(&self) -> Class {
        match self {
            Self::Foreign { .. } => Class::Forbidden,
            Self::Write(error) => error.class(),
            Self::Request { source, .. } => source.class(),
        }
    }

    fn reason(&self) -> &'static str {
        russet_api::events::apple_silicon::EGRESS_SERVICE_FAILED
    }
}

/// Keeps the egress Services. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Egress {
    applier: Applier,
    tailnet: service::Tailnet,
}

impl Egress {
    /// From the flags; none when the feature is off.
    pub fn new(args: &EgressArgs, applier: Applier) -> Result<Option<Self>, Invalid> {
        let trimmed = |text: &str| text.trim().trim_matches('.').to_owned();
        let tailnet = service::Tailnet {
            proxy_group: trimmed(&args.proxy_group),
            namespace: trimmed(&args.namespace),
            suffix: trimmed(&args.magicdns_suffix),
        };
        if tailnet.proxy_group.is_empty() {
            return Ok(None);
        }
        if tailnet.suffix.is_empty() {
            return Err(Invalid::Suffix);
        }
        if tailnet.namespace.is_empty() {
            return Err(Invalid::Namespace);
        }
        Ok(Some(Self { applier, tailnet }))
    }

    /// Brings about the Service of a machine. Sends nothing when all is as wanted.
    pub async fn ensure(&self, machine: &MachineRef, fleet: Option<&str>) -> Result<(), Error> {
        let foreign = AtomicBool::new(false);
        let initial = service::named(&self.tailnet, machine);
        let shared = self
            .applier
            .update_shared(initial, |service| {
                // Called once per round; a name that was taken may have become free.
                foreign.store(service.uid().is_some() && !service::is_ours(service), Ordering::Relaxed);
                if !foreign.load(Ordering::Relaxed) {
                    service::shape(service, &self.tailnet, machine, fleet);
                }
            })
            .await?;
        if foreign.load(Ordering::Relaxed) {
            return Err(self.foreign(machine));
        }
        debug!(machine = %machine, change = ?shared.change, attempts = shared.attempts, "egress Service");
        Ok(())
    }

    /// Removes the Service of a machine. One that is gone, or that belongs to somebody else by now, is left alone.
    pub async fn remove(&self, machine: &MachineRef) -> Result<(), Error> {
        let services: Api<Service> = Api::namespaced(self.applier.client().clone(), &self.tailnet.namespace);
        let failed = |verb: &'static str| {
            move |source: kube::Error| Error::Request {
                verb,
                namespace: self.tailnet.namespace.clone(),
                name: machine.name.clone(),
                source: Box::new(source),
            }
        };
        let Some(live) = services.get_opt(&machine.name).await.map_err(failed("read"))? else {
            return Ok(());
        };
        // The operator's finalizer keeps a deleted Service for a while; that is its business.
        if !service::belongs(&live, machine) || live.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                uid: live.uid(),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        match services.delete(&machine.name, &params).await {
            Ok(_) => Ok(()),
            // Gone, or gone and made anew for somebody else.
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(()),
            Err(error) => Err(failed("delete")(error)),
        }
    }

    fn foreign(&self, machine: &MachineRef) -> Error {
        Error::Foreign {
            namespace: self.tailnet.namespace.clone(),
            name: machine.name.clone(),
        }
    }
}
