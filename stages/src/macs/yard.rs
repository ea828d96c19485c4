//! One test's corner of a fleet: a namespace with a Cluster and MachineDeployments of its own, and minis that only it may take.

use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{Node, Secret};
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::discovery::ApiResource;
use kube::{Client, ResourceExt};
use russet_api::ScalewayAppleSiliconMachine;
use russet_sim_scaleway::{Id, Minis};
use russet_testkit::overlay::merge;
use russet_testkit::wait::{self, Look, PATIENCE};
use serde_json::{Value, json};

use super::{CORE, Fleet, INFRA, KUBELET, is_true};

/// Our kinds of machines.
const KINDS: [&str; 3] = [
    "ScalewayAppleSiliconMachine",
    "ScalewayElasticMetalMachine",
    "ScalewayInstanceMachine",
];

/// What every Machine names as its bootstrap data; core never reads it.
fn bootstrap_secret() -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "noop-bootstrap"}, "data": {"value": ""}})
}

/// One test's corner.
pub struct Yard<'a> {
    pub fleet: &'a Fleet,
    pub client: Client,
    pub namespace: String,
    /// How the names of its minis begin while they are free.
    pub pool: String,
    minis: Mutex<Vec<Id>>,
}

impl std::fmt::Debug for Yard<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Yard")
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}

impl Drop for Yard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.fleet.provider_log();
            let ours: Vec<&str> = log.lines().filter(|line| line.contains(&self.namespace)).collect();
            let tail = ours.get(ours.len().saturating_sub(40)..).unwrap_or_default().join("\n");
            eprintln!("--- {} failed; the provider said of it:\n{tail}", self.namespace);
        }
    }
}

impl<'a> Yard<'a> {
    /// A namespace that is there, with so many minis that only it may take.
    pub(super) async fn open(fleet: &'a Fleet, namespace: String, number: usize, minis: u32) -> Result<Self> {
        let client = fleet.cluster.client().await?;
        let yard = Self {
            fleet,
            pool: format!("pool-{number}-"),
            namespace,
            client,
            minis: Mutex::default(),
        };
        yard.stock(minis)?;
        yard.apply(bootstrap_secret()).await?;
        Ok(yard)
    }
}

impl Yard<'_> {
    /// Adds minis to the pool of this yard.
    pub fn stock(&self, count: u32) -> Result<Vec<Id>> {
        if count == 0 {
            return Ok(Vec::new());
        }
        let minis = Minis {
            count,
            name: format!("{}mini", self.pool),
            ..Minis::default()
        };
        let made = self.fleet.sim.handle().add_minis(minis)?;
        if let Ok(mut all) = self.minis.lock() {
            all.extend(made.iter().cloned());
        }
        Ok(made)
    }

    /// How a mini is called now.
    pub fn name_of(&self, mini: &Id) -> Result<String> {
        let all = self.fleet.sim.handle().servers();
        let id = mini.to_string();
        let server = all
            .iter()
            .find(|server| server["id"] == id)
            .context("the mini is gone")?;
        Ok(server["name"].as_str().unwrap_or_default().to_owned())
    }

    /// The minis that were made for this yard, wherever they are by now.
    pub fn minis(&self) -> Vec<Id> {
        self.minis.lock().map(|minis| minis.clone()).unwrap_or_default()
    }

    /// The API of a kind of this namespace.
    pub fn api(&self, group: &str, version: &str, kind: &str) -> Api<DynamicObject> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
    }

    pub fn machines(&self) -> Api<DynamicObject> {
        self.api(CORE, "v1beta2", "Machine")
    }

    pub fn deployments(&self) -> Api<DynamicObject> {
        self.api(CORE, "v1beta2", "MachineDeployment")
    }

    pub fn clusters(&self) -> Api<DynamicObject> {
        self.api(CORE, "v1beta2", "Cluster")
    }

    pub fn infra_clusters(&self) -> Api<DynamicObject> {
        self.api(INFRA, "v1alpha1", "ScalewayAppleSiliconCluster")
    }

    pub fn macs(&self) -> Api<ScalewayAppleSiliconMachine> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    /// Applies an object of any kind.
    pub async fn apply(&self, object: Value) -> Result<DynamicObject> {
        let object: DynamicObject = serde_json::from_value(object)?;
        let types = object.types.as_ref().context("the object has no kind")?;
        let (group, version) = types.api_version.split_once('/').unwrap_or(("", &types.api_version));
        let api = self.api(group, version, &types.kind);
        let params = PatchParams::apply("test").force();
        Ok(api.patch(&object.name_any(), &params, &Patch::Apply(&object)).await?)
    }

    /// Our cluster object, and a Cluster that names it twice.
    pub async fn cluster(&self) -> Result<()> {
        self.apply(self.infra_cluster()).await?;
        self.apply(self.core_cluster()).await?;
        Ok(())
    }

    pub fn infra_cluster(&self) -> Value {
        json!({
            "apiVersion": format!("{INFRA}/v1alpha1"), "kind": "ScalewayAppleSiliconCluster",
            "metadata": {"name": "fleet"}, "spec": {"controlPlaneEndpoint": {"host": "192.0.2.1", "port": 6443}},
        })
    }

    pub fn core_cluster(&self) -> Value {
        let reference = json!({"apiGroup": INFRA, "kind": "ScalewayAppleSiliconCluster", "name": "fleet"});
        json!({
            "apiVersion": format!("{CORE}/v1beta2"), "kind": "Cluster", "metadata": {"name": "fleet"},
            "spec": {"infrastructureRef": reference, "controlPlaneRef": reference},
        })
    }

    /// A template with this spec on top of the pool's prefix.
    pub async fn template(&self, name: &str, spec: Value) -> Result<()> {
        let mut all = json!({"adoptPoolPrefix": self.pool, "fleetName": "macos"});
        merge(&mut all, spec);
        self.apply(json!({
            "apiVersion": format!("{INFRA}/v1alpha1"), "kind": "ScalewayAppleSiliconMachineTemplate",
            "metadata": {"name": name}, "spec": {"template": {"spec": all}},
        }))
        .await?;
        Ok(())
    }

    /// A MachineDeployment over a template.
    pub async fn deployment(&self, name: &str, template: &str, replicas: u32) -> Result<()> {
        self.apply(self.deployment_of(name, template, replicas)).await?;
        Ok(())
    }

    pub fn deployment_of(&self, name: &str, template: &str, replicas: u32) -> Value {
        json!({
            "apiVersion": format!("{CORE}/v1beta2"), "kind": "MachineDeployment", "metadata": {"name": name},
            "spec": {
                "clusterName": "fleet", "replicas": replicas,
                "selector": {"matchLabels": {"fleet": name}},
                "rollout": {"strategy": {"type": "OnDelete"}},
                "template": {
                    "metadata": {"labels": {"fleet": name, "node.cluster.x-k8s.io/pool": name}},
                    "spec": {
                        "clusterName": "fleet", "version": KUBELET,
                        "bootstrap": {"dataSecretName": "noop-bootstrap"},
                        "infrastructureRef": {"apiGroup": INFRA, "kind": "ScalewayAppleSiliconMachineTemplate", "name": template},
                    },
                },
            },
        })
    }

    /// Cluster, template and MachineDeployment `macos`, available.
    pub async fn running(&self, replicas: u32) -> Result<()> {
        self.cluster().await?;
        self.template("macos", json!({})).await?;
        self.deployment("macos", "macos", replicas).await?;
        self.available("macos", replicas).await
    }

    pub async fn scale(&self, deployment: &str, replicas: u32) -> Result<()> {
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        self.deployments()
            .patch(deployment, &PatchParams::default(), &patch)
            .await?;
        Ok(())
    }

    /// Waits until a MachineDeployment has exactly these replicas, all available, and says so itself.
    pub async fn available(&self, deployment: &str, replicas: u32) -> Result<()> {
        self.available_within(deployment, replicas, PATIENCE).await
    }

    /// The same, for what takes longer.
    pub async fn available_within(&self, deployment: &str, replicas: u32, patience: Duration) -> Result<()> {
        let api = self.deployments();
        let what = format!("MachineDeployment {deployment} to have {replicas} available replicas");
        wait::until(&what, patience, || async {
            let object = api.get(deployment).await?;
            let number = |pointer: &str| object.data.pointer(pointer).and_then(Value::as_u64).unwrap_or(0);
            let wanted = u64::from(replicas);
            let whole = number("/status/replicas") == wanted
                && number("/status/availableReplicas") == wanted
                && is_true(&object, "Available");
            if whole {
                return Ok(Look::Done(()));
            }
            let mut said = Vec::new();
            for kind in KINDS {
                let machines = self.api(INFRA, "v1alpha1", kind).list(&ListParams::default()).await?;
                said.extend(
                    machines
                        .items
                        .into_iter()
                        .filter_map(|machine| machine.data.get("status").cloned()),
                );
            }
            Ok(Look::NotYet(format!(
                "{} {}",
                json!(object.data.get("status")),
                json!(said)
            )))
        })
        .await
    }

    /// The Machines of a MachineDeployment, by name.
    pub async fn machines_of(&self, deployment: &str) -> Result<Vec<DynamicObject>> {
        let params = ListParams::default().labels(&format!("fleet={deployment}"));
        Ok(self.machines().list(&params).await?.items)
    }

    /// Our machines.
    pub async fn all_macs(&self) -> Result<Vec<ScalewayAppleSiliconMachine>> {
        Ok(self.macs().list(&ListParams::default()).await?.items)
    }

    /// The one machine of this yard.
    pub async fn only_mac(&self) -> Result<ScalewayAppleSiliconMachine> {
        let mut all = self.all_macs().await?;
        anyhow::ensure!(all.len() == 1, "expected one machine, found {}", all.len());
        all.pop().context("there is none")
    }

    /// Waits until our one machine satisfies a condition.
    pub async fn mac_until(
        &self,
        what: &str,
        holds: impl Fn(&ScalewayAppleSiliconMachine) -> bool,
    ) -> Result<ScalewayAppleSiliconMachine> {
        wait::until(what, PATIENCE, || async {
            let mac = self.only_mac().await?;
            Ok(if holds(&mac) {
                Look::Done(mac)
            } else {
                Look::NotYet(json!(mac).to_string())
            })
        })
        .await
    }

    /// Waits until no mini of this yard is anything but free, ready and wiped since it was last used.
    pub async fn all_pooled(&self, count: usize) -> Result<()> {
        let what = format!("{count} minis of {} to be back in the pool", self.pool);
        wait::until(&what, PATIENCE, || async {
            let servers = self.servers();
            let free = servers
                .iter()
                .filter(|(name, status)| name.starts_with(&self.pool) && status == "ready");
            Ok(if free.count() == count {
                Look::Done(())
            } else {
                Look::not_yet(&servers)
            })
        })
        .await
    }

    /// Name and status of every mini in the account.
    pub fn servers(&self) -> Vec<(String, String)> {
        let text = |server: &Value, field: &str| server[field].as_str().unwrap_or_default().to_owned();
        let all = self.fleet.sim.handle().servers();
        all.iter()
            .map(|server| (text(server, "name"), text(server, "status")))
            .collect()
    }

    pub async fn secret_named(&self, name: &str) -> Result<Option<Secret>> {
        Ok(Api::<Secret>::namespaced(self.client.clone(), &self.namespace)
            .get_opt(name)
            .await?)
    }
}
