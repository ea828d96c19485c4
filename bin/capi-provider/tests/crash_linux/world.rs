//! What one case happens in: a namespace, an emulator, a machine, and what must hold when all is quiet.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::discovery::ApiResource;
use kube::{Client, ResourceExt as _};
use russet_e2e::wait::{self, Look};
use russet_e2e::{Extras, TestCluster, crds};
use russet_sim_scaleway::{
    BoxKind, DEFAULT_ACCESS_KEY, DEFAULT_PROJECT, DEFAULT_SECRET_KEY, Deed, Delays, Factor, Handle, LinuxBox,
    NewMetals, Options, Power, Settings, Sim,
};
use serde_json::{Value, json};
use tokio::sync::OnceCell;
use tokio::task::JoinHandle;

const CORE: &str = "cluster.x-k8s.io";
const INFRA: &str = "infrastructure.cluster.x-k8s.io";
/// A lost call has to be waited for, and all cases run at once.
pub(crate) const PATIENCE: Duration = Duration::from_secs(240);
pub(crate) const PREFIX: &str = "tuist-kura-em-";

/// What a case is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Instance,
    Ordered,
    Adopted,
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::Instance, Self::Ordered, Self::Adopted];

    fn kind(self) -> &'static str {
        match self {
            Self::Instance => "ScalewayInstanceMachine",
            Self::Ordered | Self::Adopted => "ScalewayElasticMetalMachine",
        }
    }

    fn spec(self) -> Value {
        let mut spec = json!({"privateNetworkName": "cache", "privateNetworkCIDR": "172.16.0.0/22"});
        if self == Self::Adopted {
            spec["adoptNamePrefix"] = json!(PREFIX);
        }
        spec
    }
}

fn core_crd(kind: &str, plural: &str) -> Result<CustomResourceDefinition> {
    Ok(serde_json::from_value(json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{CORE}"),
            "annotations": {"api-approved.kubernetes.io": "unapproved, test only"}},
        "spec": {
            "group": CORE,
            "scope": "Namespaced",
            "names": {"kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": kind.to_lowercase()},
            "versions": [{"name": "v1beta2", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    }))?)
}

static CLUSTER: OnceCell<TestCluster> = OnceCell::const_new();

/// The cluster of all cases. Core itself does not run here: its objects are stored, and that is all that is needed of them.
pub(crate) async fn cluster() -> Result<&'static TestCluster> {
    CLUSTER
        .get_or_try_init(async || {
            let cluster = TestCluster::start(Extras::default()).await?;
            let client = cluster.client().await?;
            crds::install(&client, &russet_api::all_crds()).await?;
            let core = [core_crd("Cluster", "clusters")?, core_crd("Machine", "machines")?];
            crds::install(&client, &core).await?;
            anyhow::Ok(cluster)
        })
        .await
}

pub(crate) struct World {
    pub(crate) sim: Sim,
    pub(crate) kind: Kind,
    pub(crate) namespace: String,
    pub(crate) kubeconfig: PathBuf,
    pub(crate) client: Client,
    /// Who vouches for the API server, in base64.
    pub(crate) authority: String,
    /// The key that servers are installed with.
    pub(crate) key: russet_scaleway::SshKeyId,
    /// Servers that were there before.
    before: BTreeSet<String>,
    boots: JoinHandle<()>,
}

impl Drop for World {
    fn drop(&mut self) {
        self.boots.abort();
    }
}

/// The identity of an emulated server.
pub(crate) fn provider_id(row: &LinuxBox) -> String {
    let product = match row.kind {
        BoxKind::Instance => "instance",
        BoxKind::Metal => "baremetal",
    };
    format!("scaleway://{product}/{}/{}", row.zone, row.server_id)
}

/// A Node as a kubelet registers and reports it.
pub(crate) async fn join(client: &Client, name: &str, provider_id: &str) -> Result<(), kube::Error> {
    let nodes: Api<Node> = Api::all(client.clone());
    let node = json!({"metadata": {"name": name}, "spec": {"providerID": provider_id}});
    let node: Node = serde_json::from_value(node).unwrap();
    match nodes.create(&PostParams::default(), &node).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => {}
        other => drop(other?),
    }
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    nodes
        .patch_status(name, &PatchParams::default(), &Patch::Merge(&ready))
        .await
        .map(drop)
}

/// Servers that are up with a script join, once per boot: a kubelet registers when it starts.
async fn boot(handle: Handle, client: Client) {
    let mut booted: BTreeSet<(String, u32, u32)> = BTreeSet::new();
    let up = |row: &LinuxBox| {
        let script = row.user_data.as_deref().unwrap_or_default();
        row.power == Power::On && row.public_ip.is_some() && script.contains("/opt/bootstrap-node.sh")
    };
    loop {
        for row in handle.boxes().iter().filter(|row| up(row)) {
            let this = (row.server_id.to_string(), row.generation, row.boots);
            if !booted.contains(&this) && join(&client, &row.name, &provider_id(row)).await.is_ok() {
                booted.insert(this);
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

impl World {
    pub(crate) async fn new(cluster: &TestCluster, name: &str, kind: Kind) -> Result<Self> {
        let sandbox = cluster.sandbox(name).await?;
        let moment = Duration::from_millis(100);
        let sim = Sim::start(Options {
            clock_factor: Factor::REAL,
            settings: Settings {
                delays: Delays {
                    instance_boot: moment,
                    instance_stop: moment,
                    nic: moment,
                    nic_release: moment,
                    volume: moment,
                    ipam: moment,
                    attach: moment,
                    detach: moment,
                    metal_order: moment,
                    metal_delivery: moment,
                    metal_install_begins: moment,
                    metal_install: moment * 10,
                    metal_power: moment,
                    metal_option: moment,
                    metal_deletion: moment,
                    ..Delays::default()
                },
                ..Settings::default()
            },
            ..Options::default()
        })
        .await?;
        if kind == Kind::Adopted {
            sim.handle().perform(Deed::AddMetals(NewMetals {
                name: format!("{PREFIX}1"),
                ..NewMetals::default()
            }))?;
        }
        let public = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIIsCyEN9wuEFKDydEkZqBEFGHTdT6gKkQE4QV8t1bCrv tuist-capi-test";
        let key = scaleway(&sim)?.create_ssh_key("fleet", public).await?.id;
        let client = cluster.client().await?;
        let boots = tokio::spawn(boot(sim.handle().clone(), client.clone()));
        let world = Self {
            kind,
            namespace: sandbox.namespace().to_owned(),
            kubeconfig: cluster.control_plane().admin_kubeconfig().to_path_buf(),
            client,
            authority: authority(cluster.control_plane().admin_kubeconfig())?,
            before: sim.handle().bill().running().map(ToString::to_string).collect(),
            boots,
            key,
            sim,
        };
        world
            .make(CORE, "v1beta2", "Cluster", json!({"metadata": {"name": "c"}}))
            .await?;
        let status = json!({"status": {"initialization": {"infrastructureProvisioned": true}}});
        world
            .api(CORE, "v1beta2", "Cluster")
            .patch_status("c", &PatchParams::default(), &Patch::Merge(&status))
            .await?;
        Ok(world)
    }

    fn api(&self, group: &str, version: &str, kind: &str) -> Api<DynamicObject> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
    }

    fn machines(&self) -> Api<DynamicObject> {
        self.api(INFRA, "v1alpha1", self.kind.kind())
    }

    async fn make(&self, group: &str, version: &str, kind: &str, mut object: Value) -> Result<DynamicObject> {
        object["apiVersion"] = json!(format!("{group}/{version}"));
        object["kind"] = json!(kind);
        let object: DynamicObject = serde_json::from_value(object)?;
        let made = self
            .api(group, version, kind)
            .create(&PostParams::default(), &object)
            .await;
        made.with_context(|| format!("failed to make a {kind}"))
    }

    /// A machine as core would make it. Nodes have no namespace, so the name must not repeat.
    pub(crate) async fn add_machine(&self) -> Result<String> {
        let name = format!("{}-m", self.namespace);
        let machine = json!({
            "metadata": {"name": name},
            "spec": {
                "clusterName": "c",
                "bootstrap": {"dataSecretName": "data"},
                "infrastructureRef": {"kind": self.kind.kind(), "name": name},
            },
        });
        let machine = self.make(CORE, "v1beta2", "Machine", machine).await?;
        let owner =
            json!({"apiVersion": format!("{CORE}/v1beta2"), "kind": "Machine", "name": name, "uid": machine.uid()});
        let object = json!({"metadata": {"name": name, "ownerReferences": [owner]}, "spec": self.kind.spec()});
        self.make(INFRA, "v1alpha1", self.kind.kind(), object).await?;
        Ok(name)
    }

    pub(crate) async fn delete_machine(&self, name: &str) -> Result<()> {
        match self.machines().delete(name, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            other => {
                other?;
                Ok(())
            }
        }
    }

    async fn until(&self, what: &str, name: &str, holds: impl Fn(Option<&DynamicObject>) -> bool) -> Result<()> {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let object = self.machines().get_opt(name).await?;
            if holds(object.as_ref()) {
                return Ok(());
            }
            if tokio::time::Instant::now() > deadline {
                let seen = object.map(|object| (object.metadata.finalizers, object.data["status"].clone()));
                bail!("waited {PATIENCE:?} for {name} to be {what}; last seen: {seen:?}");
            }
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    }

    pub(crate) async fn until_ready(&self, name: &str) -> Result<()> {
        let ready = |object: Option<&DynamicObject>| {
            object.is_some_and(|object| {
                let status = &object.data["status"];
                status["ready"] == true && status.get("intent").is_none()
            })
        };
        self.until("ready", name, ready).await
    }

    pub(crate) async fn until_gone(&self, name: &str) -> Result<()> {
        self.until("gone", name, |object| object.is_none()).await
    }

    /// While a machine serves: one server, nothing besides, the script gone.
    pub(crate) fn check_serving(&self) -> Result<()> {
        let handle = self.sim.handle();
        let rows = handle.boxes();
        ensure!(rows.len() == 1, "{} servers: {rows:?}", rows.len());
        ensure!(rows[0].user_data.is_none(), "the script is still there");
        ensure!(rows[0].private.is_some(), "it is on no network");
        self.check_doubles()
    }

    /// Whatever happened, nothing was ever there twice.
    fn check_doubles(&self) -> Result<()> {
        let handle = self.sim.handle();
        let most = usize::from(self.kind == Kind::Instance);
        ensure!(handle.volumes().len() <= most, "{:?}", handle.volumes());
        let ordered = match self.kind {
            Kind::Instance => handle.instances().len(),
            Kind::Ordered | Kind::Adopted => handle.metals().len(),
        };
        ensure!(ordered <= 1, "{ordered} servers");
        Ok(())
    }

    /// After the machine is gone only what was there before is there, and the bill says so too.
    pub(crate) async fn check_at_rest(&self) -> Result<()> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), &self.namespace);
        wait::until("all claims to be dropped", PATIENCE, || async {
            let held: Vec<String> = leases
                .list(&ListParams::default())
                .await?
                .items
                .iter()
                .map(kube::ResourceExt::name_any)
                .filter(|name| name.starts_with("linux-"))
                .collect();
            Ok(if held.is_empty() {
                Look::Done(())
            } else {
                Look::not_yet(held)
            })
        })
        .await?;
        let handle = self.sim.handle();
        wait::until("the bill to stop", PATIENCE, || async {
            let paid: BTreeSet<String> = handle.bill().running().map(ToString::to_string).collect();
            let same = paid == self.before && handle.volumes().is_empty() && handle.addresses().is_empty();
            Ok(if same {
                Look::Done(())
            } else {
                Look::not_yet((paid, handle.volumes(), handle.addresses()))
            })
        })
        .await?;
        ensure!(handle.instances().is_empty(), "{:?}", handle.instances());
        for metal in handle.metals() {
            ensure!(self.kind == Kind::Adopted, "a server is left: {metal}");
            ensure!(metal["tags"] == json!([]), "it is not free: {metal}");
            ensure!(metal["install"]["status"] == "completed", "it is not whole: {metal}");
        }
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        let secrets = secrets.list(&ListParams::default()).await?.items;
        ensure!(secrets.is_empty(), "Secrets are left: {}", secrets.len());
        let nodes: Api<Node> = Api::all(self.client.clone());
        let node = nodes.get_opt(&format!("{}-m", self.namespace)).await?;
        ensure!(node.is_none(), "the Node is left");
        Ok(())
    }
}

/// A client of the emulator, past every gate.
fn scaleway(sim: &Sim) -> Result<russet_scaleway::Client> {
    let key = russet_telemetry::Secret::from(DEFAULT_SECRET_KEY);
    let project = DEFAULT_PROJECT.to_string().parse()?;
    let mut config = russet_scaleway::Config::new(DEFAULT_ACCESS_KEY, key, project, sim.url())?;
    config.proxy = russet_scaleway::config::Proxy::Never;
    Ok(russet_scaleway::Client::new(
        &config,
        russet_scaleway::Context::default(),
    )?)
}

/// Who vouches for the API server of a kubeconfig, in base64.
fn authority(kubeconfig: &std::path::Path) -> Result<String> {
    let parsed = kube::config::Kubeconfig::read_from(kubeconfig)?;
    let cluster = parsed
        .clusters
        .into_iter()
        .find_map(|named| named.cluster)
        .context("no cluster")?;
    match (cluster.certificate_authority, cluster.certificate_authority_data) {
        (Some(path), _) => Ok(STANDARD.encode(std::fs::read(path)?)),
        (None, Some(data)) => Ok(data),
        (None, None) => bail!("no certificate authority"),
    }
}
