//! A fleet's cluster objects under real core, with our controller at work.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::Secret as KubeSecret;
use kube::Client;
use kube::api::{Api, DynamicObject};
use russet_api::ScalewayAppleSiliconCluster;
use russet_api::conditions::{self, Condition};
use russet_capi_provider::cluster::{self, Settings};
use russet_stages::macs::rights;
use russet_testkit::Sandbox;
use russet_testkit::identity::Granted;
use russet_testkit::object;
use russet_testkit::wait::{self, Look, PATIENCE};
use serde_json::{Value, json};

use crate::support::{self, POLL, Running};

pub(crate) struct World {
    pub(crate) admin: Client,
    pub(crate) who: Granted,
    pub(crate) infras: Api<ScalewayAppleSiliconCluster>,
    pub(crate) clusters: Api<DynamicObject>,
    pub(crate) secrets: Api<KubeSecret>,
    _running: Running,
}

/// Settings that look often.
pub(crate) fn settings(sandbox: &Sandbox<'_>) -> Settings {
    Settings {
        poll: POLL,
        believed: Duration::ZERO,
        ..Settings::new(sandbox.namespace().to_owned())
    }
}

/// The controller, in a namespace of its own.
pub(crate) async fn world(sandbox: &Sandbox<'_>, settings: Settings) -> Result<World> {
    let admin = sandbox.client().await?;
    let who = rights::provider(sandbox).await?.grant().await?;
    let running = support::run(sandbox, &who, |manager| vec![cluster::component(manager, settings)]).await?;
    Ok(World {
        infras: Api::namespaced(admin.clone(), sandbox.namespace()),
        clusters: object::api(&admin, Some(sandbox.namespace()), "cluster.x-k8s.io/v1beta2", "Cluster"),
        secrets: Api::namespaced(admin.clone(), sandbox.namespace()),
        admin,
        who,
        _running: running,
    })
}

impl World {
    /// A cluster object of ours, and a Cluster that names it twice.
    pub(crate) async fn fleet(&self, sandbox: &Sandbox<'_>, annotations: Value) -> Result<()> {
        self.infra(sandbox, annotations).await?;
        self.cluster(sandbox, json!({})).await
    }

    pub(crate) async fn infra(&self, sandbox: &Sandbox<'_>, annotations: Value) -> Result<()> {
        let infra = json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "ScalewayAppleSiliconCluster",
            "metadata": {"name": "fleet", "annotations": annotations}, "spec": {},
        });
        support::create(&self.admin, Some(sandbox.namespace()), infra).await?;
        Ok(())
    }

    pub(crate) async fn cluster(&self, sandbox: &Sandbox<'_>, more: Value) -> Result<()> {
        let reference = json!({"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "ScalewayAppleSiliconCluster", "name": "fleet"});
        let mut spec = json!({"infrastructureRef": reference, "controlPlaneRef": reference});
        for (key, value) in more.as_object().into_iter().flatten() {
            spec[key] = value.clone();
        }
        let cluster = json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": {"name": "fleet"}, "spec": spec,
        });
        support::create(&self.admin, Some(sandbox.namespace()), cluster).await?;
        Ok(())
    }

    /// Waits for a condition of ours.
    pub(crate) async fn condition(&self, type_: &str, status: &str, reason: &str) -> Result<Condition> {
        wait::until(&format!("{type_} {status} {reason}"), PATIENCE, || async {
            let found = self.infras.get("fleet").await?.status.unwrap_or_default().conditions;
            let condition = conditions::find(&found, type_).cloned();
            Ok(match condition {
                Some(condition)
                    if condition.status.as_str() == status && condition.reason.as_deref() == Some(reason) =>
                {
                    Look::Done(condition)
                }
                _ => Look::not_yet(found),
            })
        })
        .await
    }

    /// Waits for a condition that core sets on the Cluster.
    pub(crate) async fn core_says(&self, type_: &str, status: &str) -> Result<()> {
        wait::until(&format!("core to say {type_} {status}"), PATIENCE, || async {
            let cluster = self.clusters.get("fleet").await?;
            let conditions = cluster
                .data
                .pointer("/status/conditions")
                .and_then(Value::as_array)
                .cloned();
            let conditions = conditions.unwrap_or_default();
            let holds = conditions.iter().any(|c| c["type"] == type_ && c["status"] == status);
            Ok(Look::done_if(holds, conditions))
        })
        .await
    }

    pub(crate) async fn secret(&self) -> Result<KubeSecret> {
        wait::until("the kubeconfig Secret", PATIENCE, || async {
            Ok(match self.secrets.get_opt("fleet-kubeconfig").await? {
                Some(secret) => Look::Done(secret),
                None => Look::NotYet("none".to_owned()),
            })
        })
        .await
    }
}
