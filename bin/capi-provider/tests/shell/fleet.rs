//! The objects of a fleet: a Cluster whose control plane is there, a template and a MachineDeployment.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::discovery::ApiResource;
use kube::{Client, ResourceExt as _};
use russet_api::ScalewayAppleSiliconMachine;
use russet_api::conditions::{self, Condition};
use russet_testkit::Sandbox;
use russet_testkit::wait::{self, Look, PATIENCE};
use serde_json::{Value, json};

const INFRA: &str = "infrastructure.cluster.x-k8s.io";

pub(crate) struct Fleet {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    name: String,
}

impl Fleet {
    /// Made and provisioned, with one MachineDeployment of so many replicas.
    pub(crate) async fn create(sandbox: &Sandbox<'_>, replicas: u32, spec: Value) -> Result<Self> {
        Self::of("ScalewayAppleSiliconMachine", sandbox, replicas, spec).await
    }

    /// The same of another kind of machine.
    pub(crate) async fn of(kind: &str, sandbox: &Sandbox<'_>, replicas: u32, spec: Value) -> Result<Self> {
        let template = format!("{kind}Template");
        let fleet = Self {
            client: sandbox.client().await?,
            namespace: sandbox.namespace().to_owned(),
            // Nodes have no namespace, so names must not repeat between tests.
            name: sandbox.namespace().to_owned(),
        };
        fleet.kubeconfig(sandbox).await?;
        let name = &fleet.name;
        fleet
            .make(
                INFRA,
                "v1alpha1",
                "ScalewayAppleSiliconCluster",
                json!({
                    "metadata": {"name": name},
                    "spec": {"controlPlaneEndpoint": {"host": "127.0.0.1", "port": 6443}},
                }),
            )
            .await?;
        let reference = json!({"apiGroup": INFRA, "kind": "ScalewayAppleSiliconCluster", "name": name});
        fleet
            .make(
                "cluster.x-k8s.io",
                "v1beta2",
                "Cluster",
                json!({
                    "metadata": {"name": name},
                    "spec": {"infrastructureRef": reference, "controlPlaneRef": reference},
                }),
            )
            .await?;
        fleet.provision().await?;
        fleet
            .make(
                INFRA,
                "v1alpha1",
                &template,
                json!({
                    "metadata": {"name": name},
                    "spec": {"template": {"spec": spec}},
                }),
            )
            .await?;
        let labels = json!({"fleet": name});
        fleet
            .make(
                "cluster.x-k8s.io",
                "v1beta2",
                "MachineDeployment",
                json!({
                    "metadata": {"name": name},
                    "spec": {
                        "clusterName": name, "replicas": replicas,
                        "selector": {"matchLabels": labels},
                        "template": {"metadata": {"labels": labels}, "spec": {
                            "clusterName": name,
                            "bootstrap": {"dataSecretName": "noop-bootstrap"},
                            "infrastructureRef": {"apiGroup": INFRA, "kind": template, "name": name},
                        }},
                    },
                }),
            )
            .await?;
        Ok(fleet)
    }

    /// What the cluster controller writes.
    async fn provision(&self) -> Result<()> {
        let now = jiff::Timestamp::now().to_string();
        let ready = |kind: &str| json!({"type": kind, "status": "True", "reason": "Ready", "message": "", "lastTransitionTime": now});
        let status = json!({"status": {
            "ready": true,
            "initialization": {"provisioned": true, "controlPlaneInitialized": true},
            "externalManagedControlPlane": true,
            "conditions": [ready("Ready"), ready("Available")],
        }});
        let api = self.api(INFRA, "v1alpha1", "ScalewayAppleSiliconCluster");
        api.patch_status(&self.name, &PatchParams::default(), &Patch::Merge(&status))
            .await?;
        Ok(())
    }

    /// With it core drains and deletes Nodes.
    async fn kubeconfig(&self, sandbox: &Sandbox<'_>) -> Result<()> {
        let admin = std::fs::read_to_string(sandbox.cluster().control_plane().admin_kubeconfig())?;
        self.make(
            "",
            "v1",
            "Secret",
            json!({
                "metadata": {
                    "name": format!("{}-kubeconfig", self.name),
                    "labels": {"cluster.x-k8s.io/cluster-name": self.name},
                },
                "type": "cluster.x-k8s.io/secret",
                "stringData": {"value": admin},
            }),
        )
        .await?;
        Ok(())
    }

    pub(crate) fn api(&self, group: &str, version: &str, kind: &str) -> Api<DynamicObject> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
    }

    async fn make(&self, group: &str, version: &str, kind: &str, mut object: Value) -> Result<DynamicObject> {
        let api_version = if group.is_empty() {
            version.to_owned()
        } else {
            format!("{group}/{version}")
        };
        object["apiVersion"] = json!(api_version);
        object["kind"] = json!(kind);
        let object: DynamicObject = serde_json::from_value(object)?;
        let made = self
            .api(group, version, kind)
            .create(&PostParams::default(), &object)
            .await;
        made.with_context(|| format!("failed to make a {kind}"))
    }

    /// A template under a new name, as people correct one.
    pub(crate) async fn correct(&self, kind: &str, spec: Value) -> Result<()> {
        let (template, name) = (format!("{kind}Template"), format!("{}-2", self.name));
        let object = json!({"metadata": {"name": name}, "spec": {"template": {"spec": spec}}});
        self.make(INFRA, "v1alpha1", &template, object).await?;
        let api = self.api("cluster.x-k8s.io", "v1beta2", "MachineDeployment");
        // The old machine goes first: otherwise core waits until it believes the new Node, which with the clusters of many tests can
        // take it minutes.
        let rolling = json!({"maxSurge": 0, "maxUnavailable": 1});
        let patch = json!({"spec": {
            "rollout": {"strategy": {"type": "RollingUpdate", "rollingUpdate": rolling}},
            "template": {"spec": {"infrastructureRef": {"name": name}}},
        }});
        api.patch(&self.name, &PatchParams::default(), &Patch::Merge(&patch))
            .await?;
        Ok(())
    }

    pub(crate) async fn scale(&self, replicas: u32) -> Result<()> {
        let api = self.api("cluster.x-k8s.io", "v1beta2", "MachineDeployment");
        let patch = json!({"spec": {"replicas": replicas}});
        api.patch(&self.name, &PatchParams::default(), &Patch::Merge(&patch))
            .await?;
        Ok(())
    }

    pub(crate) async fn pause(&self, paused: bool) -> Result<()> {
        let api = self.api("cluster.x-k8s.io", "v1beta2", "Cluster");
        let patch = json!({"spec": {"paused": paused}});
        api.patch(&self.name, &PatchParams::default(), &Patch::Merge(&patch))
            .await?;
        Ok(())
    }

    pub(crate) fn macs(&self) -> Api<ScalewayAppleSiliconMachine> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(crate) fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    /// All our machines.
    pub(crate) async fn all(&self) -> Result<Vec<ScalewayAppleSiliconMachine>> {
        Ok(self.macs().list(&ListParams::default()).await?.items)
    }

    /// Waits until there are so many machines and all of them are as wanted.
    pub(crate) async fn until(
        &self,
        what: &str,
        count: usize,
        holds: impl Fn(&ScalewayAppleSiliconMachine) -> bool,
    ) -> Result<Vec<ScalewayAppleSiliconMachine>> {
        wait::until(what, PATIENCE, || async {
            let macs = self.all().await?;
            Ok(if macs.len() == count && macs.iter().all(&holds) {
                Look::Done(macs)
            } else {
                let seen: Vec<_> = macs
                    .iter()
                    .map(|mac| (mac.name_any(), mac.metadata.clone().finalizers, mac.status.clone()))
                    .collect();
                Look::not_yet(seen)
            })
        })
        .await
    }

    /// The phases of the Machines of core.
    pub(crate) async fn machine_phases(&self) -> Result<Vec<String>> {
        let list = self
            .api("cluster.x-k8s.io", "v1beta2", "Machine")
            .list(&ListParams::default())
            .await?;
        let phase = |machine: &DynamicObject| {
            machine
                .data
                .pointer("/status/phase")
                .and_then(Value::as_str)
                .map(ToOwned::to_owned)
        };
        Ok(list
            .items
            .iter()
            .map(|machine| phase(machine).unwrap_or_default())
            .collect())
    }
}

pub(crate) fn condition<'a>(mac: &'a ScalewayAppleSiliconMachine, type_: &str) -> Option<&'a Condition> {
    conditions::find(&mac.status.as_ref()?.conditions, type_)
}

pub(crate) fn reason<'a>(mac: &'a ScalewayAppleSiliconMachine, type_: &str) -> &'a str {
    condition(mac, type_)
        .and_then(|condition| condition.reason.as_deref())
        .unwrap_or_default()
}

pub(crate) fn is_ready(mac: &ScalewayAppleSiliconMachine) -> bool {
    mac.status.as_ref().is_some_and(|status| {
        status.ready == Some(true)
            && status
                .initialization
                .as_ref()
                .is_some_and(|init| init.provisioned == Some(true))
            && conditions::is_true(&status.conditions, "Ready")
    })
}
