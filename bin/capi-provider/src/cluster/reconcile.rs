//! One pass over a cluster: whose it is, where its API server is, how core reaches it, what to tell.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams};
use russet_api::annotations::cluster_api::{MANAGED_BY, PAUSED};
use russet_api::conditions::reasons::cluster::ENDPOINT_UNKNOWN;
use russet_api::groups::CLUSTER_API;
use russet_api::{ScalewayAppleSiliconCluster, apple_silicon_cluster::ControlPlaneEndpoint};
use russet_controller::{Applier, Cache, Class, Classify as _, Outcome};
use serde_json::json;
use tracing::info;

use super::connection::Finding;
use super::probe::Probes;
use super::status::{self, Facts};
use super::{Error, Settings};
use crate::api_server::{self, ApiServer};
use crate::capi::Cluster;

/// How soon to look again while something is wrong.
const MENDING: Duration = Duration::from_secs(15);

/// What a pass needs.
pub(super) struct Context {
    pub(super) applier: Applier,
    pub(super) client: kube::Client,
    pub(super) clusters: Cache<Cluster>,
    pub(super) settings: Settings,
    pub(super) probes: Probes,
}

pub(super) async fn reconcile(
    infra: Arc<ScalewayAppleSiliconCluster>,
    context: Arc<Context>,
) -> Result<Outcome, Error> {
    // Nothing of ours outlives it: the Secret belongs to the Cluster.
    if infra.metadata.deletion_timestamp.is_some() {
        return Ok(Outcome::Done);
    }
    // Somebody else fills in everything, status included.
    if infra.annotations().contains_key(MANAGED_BY) {
        return Ok(Outcome::Done);
    }
    let Some(cluster) = context.owner(&infra) else {
        context.tell(&infra, &Facts::Unowned).await?;
        return Ok(Outcome::Waiting {
            what: "a Cluster that refers to it".to_owned(),
            poll: context.settings.poll,
        });
    };
    if let Some(why) = paused(&infra, &cluster) {
        context.tell(&infra, &Facts::Paused { why }).await?;
        return Ok(Outcome::Done);
    }
    let server = context.server().await?;
    let (infra, endpoint) = context.endpoint(&infra, server.as_ref()).await?;
    let connection = context.connect(&cluster, server.as_ref()).await?;
    let facts = Facts::Seen {
        no_endpoint: endpoint.as_ref().err(),
        connection: &connection,
        zones: &context.settings.zones,
    };
    context.tell(&infra, &facts).await?;
    let bad = |finding: &Finding| matches!(finding, Finding::Bad { .. });
    let wrong = endpoint.is_err() || bad(&connection.secret) || bad(&connection.rights) || bad(&connection.answers);
    Ok(Outcome::After(if wrong {
        context.settings.poll.min(MENDING)
    } else {
        context.settings.poll
    }))
}

impl Context {
    /// The Cluster that refers to it. Core writes the reference of ownership; before it did, there is nothing to do.
    fn owner(&self, infra: &ScalewayAppleSiliconCluster) -> Option<Cluster> {
        let of_core = |api_version: &str| api_version.split('/').next() == Some(CLUSTER_API);
        let owner = infra
            .owner_references()
            .iter()
            .find(|owner| owner.kind == "Cluster" && of_core(&owner.api_version))?;
        self.clusters
            .get(infra.namespace().as_deref(), &owner.name)
            .filter(|cluster| cluster.uid().as_deref() == Some(&owner.uid))
    }

    /// The API server; a finding instead, if a person has to say where it is.
    async fn server(&self) -> Result<Result<ApiServer, Finding>, Error> {
        match ApiServer::find(&self.client, &self.settings.server).await {
            Ok(server) => Ok(Ok(server)),
            Err(error @ api_server::Error::Read { .. }) if error.class() != Class::Forbidden => Err(error.into()),
            Err(error) => Ok(Err(Finding::Bad {
                reason: ENDPOINT_UNKNOWN,
                message: error.to_string(),
            })),
        }
    }

    /// Fills in the endpoint, if nobody did.
    async fn endpoint(
        &self,
        infra: &ScalewayAppleSiliconCluster,
        server: Result<&ApiServer, &Finding>,
    ) -> Result<(ScalewayAppleSiliconCluster, Result<(), Finding>), Error> {
        let known = infra
            .spec
            .control_plane_endpoint
            .as_ref()
            .and_then(ControlPlaneEndpoint::known);
        if known.is_some() {
            return Ok((infra.clone(), Ok(())));
        }
        let unknown = || Finding::Bad {
            reason: ENDPOINT_UNKNOWN,
            message: "the address of the API server names no host; set spec.controlPlaneEndpoint".to_owned(),
        };
        let (host, port) = match server.map(ApiServer::endpoint) {
            Ok(Some(endpoint)) => endpoint,
            Ok(None) => return Ok((infra.clone(), Err(unknown()))),
            Err(finding) => return Ok((infra.clone(), Err(finding.clone()))),
        };
        let name = infra.name_any();
        let infras: Api<ScalewayAppleSiliconCluster> =
            Api::namespaced(self.client.clone(), &infra.namespace().unwrap_or_default());
        let patch = json!({
            "metadata": { "resourceVersion": infra.resource_version(), "uid": infra.uid() },
            "spec": { "controlPlaneEndpoint": { "host": host, "port": port } },
        });
        let written = infras
            .patch(&name, &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .map_err(Error::request(
                "write the endpoint of",
                format!("ScalewayAppleSiliconCluster {name}"),
            ))?;
        info!(cluster = name, host, port, "filled in the endpoint");
        Ok((written, Ok(())))
    }

    async fn tell(&self, infra: &ScalewayAppleSiliconCluster, facts: &Facts<'_>) -> Result<(), Error> {
        let mut status = infra.status.clone().unwrap_or_default();
        status::tell(&mut status, facts, infra.metadata.generation, Timestamp::now());
        self.applier.write_status(infra, &status).await?;
        Ok(())
    }
}

/// Why it is to be left alone, if so.
fn paused(infra: &ScalewayAppleSiliconCluster, cluster: &Cluster) -> Option<&'static str> {
    if cluster.spec.paused == Some(true) {
        Some("the Cluster is paused")
    } else if infra.annotations().contains_key(PAUSED) {
        Some("the annotation cluster.x-k8s.io/paused is set")
    } else {
        None
    }
}
