//! The objects of a fleet: a Cluster whose control plane is there, a template and a MachineDeployment.

use anyhow::Result;
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams};
use russet_api::ScalewayAppleSiliconMachine;
use russet_api::conditions::{self, Condition, ConditionStatus};
use russet_controller::scope::Namespaced;
use russet_testkit::Sandbox;
use russet_testkit::object;
use russet_testkit::wait::{self, Look, PATIENCE};
use serde::Serialize;
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
        object::api(&self.client, Some(&self.namespace), &api_version(group, version), kind)
    }

    async fn make(&self, group: &str, version: &str, kind: &str, mut object: Value) -> Result<()> {
        object["apiVersion"] = json!(api_version(group, version));
        object["kind"] = json!(kind);
        object::create(&self.client, Some(&self.namespace), object).await?;
        Ok(())
    }

    /// A template under a new name, as people correct one.
    pub(crate) async fn correct(&self, kind: &str, spec: Value) -> Result<()> {
        let (template, name) = (format!("{kind}Template"), format!("{}-2", self.name));
        let object = json!({"metadata": {"name": name}, "spec": {"template": {"spec": spec}}});
        self.make(INFRA, "v1alpha1", &template, object).await?;
        // The old machine goes first: otherwise core waits until it believes the new Node, which with the clusters of many tests can
        // take it minutes.
        let rolling = json!({"maxSurge": 0, "maxUnavailable": 1});
        let spec = json!({
            "rollout": {"strategy": {"type": "RollingUpdate", "rollingUpdate": rolling}},
            "template": {"spec": {"infrastructureRef": {"name": name}}},
        });
        self.patch("MachineDeployment", spec).await
    }

    /// Changes the spec of an object of core's.
    async fn patch(&self, kind: &str, spec: Value) -> Result<()> {
        let patch = Patch::Merge(json!({"spec": spec}));
        let api = self.api("cluster.x-k8s.io", "v1beta2", kind);
        api.patch(&self.name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    pub(crate) async fn scale(&self, replicas: u32) -> Result<()> {
        self.patch("MachineDeployment", json!({"replicas": replicas})).await
    }

    pub(crate) async fn pause(&self, paused: bool) -> Result<()> {
        self.patch("Cluster", json!({"paused": paused})).await
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

    /// Waits until there are so many Macs and all of them are as wanted.
    pub(crate) async fn until(
        &self,
        what: &str,
        count: usize,
        holds: impl Fn(&ScalewayAppleSiliconMachine) -> bool,
    ) -> Result<Vec<ScalewayAppleSiliconMachine>> {
        self.until_of(what, count, holds).await
    }

    /// The same of any kind of machine.
    pub(crate) async fn until_of<K: Namespaced + Serialize>(
        &self,
        what: &str,
        count: usize,
        holds: impl Fn(&K) -> bool,
    ) -> Result<Vec<K>> {
        let api: Api<K> = Api::namespaced(self.client.clone(), &self.namespace);
        wait::until(what, PATIENCE, || async {
            let found = api.list(&ListParams::default()).await?.items;
            if found.len() == count && found.iter().all(&holds) {
                return Ok(Look::Done(found));
            }
            let seen = found
                .iter()
                .map(|machine| (machine.meta().finalizers.clone(), status(machine)));
            Ok(Look::not_yet(seen.collect::<Vec<_>>()))
        })
        .await
    }

    /// The phases of the Machines of core.
    pub(crate) async fn machine_phases(&self) -> Result<Vec<String>> {
        let machines = self.api("cluster.x-k8s.io", "v1beta2", "Machine");
        let all = machines.list(&ListParams::default()).await?.items;
        let phase = |machine: &DynamicObject| machine.data["status"]["phase"].as_str().unwrap_or_default().to_owned();
        Ok(all.iter().map(phase).collect())
    }
}

fn api_version(group: &str, version: &str) -> String {
    format!("{group}/{version}").trim_start_matches('/').to_owned()
}

fn status(machine: &(impl Namespaced + Serialize)) -> Value {
    serde_json::to_value(machine).unwrap_or_default()["status"].take()
}

pub(crate) fn condition(machine: &(impl Namespaced + Serialize), type_: &str) -> Option<Condition> {
    let conditions: Vec<Condition> = serde_json::from_value(status(machine)["conditions"].take()).ok()?;
    conditions::find(&conditions, type_).cloned()
}

pub(crate) fn reason(machine: &(impl Namespaced + Serialize), type_: &str) -> String {
    let condition = condition(machine, type_);
    condition.and_then(|condition| condition.reason).unwrap_or_default()
}

pub(crate) fn message(machine: &(impl Namespaced + Serialize), type_: &str) -> String {
    let condition = condition(machine, type_);
    condition.and_then(|condition| condition.message).unwrap_or_default()
}

pub(crate) fn is_ready(machine: &(impl Namespaced + Serialize)) -> bool {
    let status = status(machine);
    let ready = condition(machine, "Ready").is_some_and(|ready| ready.status == ConditionStatus::True);
    status["ready"] == true && status["initialization"]["provisioned"] == true && ready
}
