//! What one case happens in: a namespace, an emulator, machines, and what must hold when all is quiet.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Secret, Service};
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::discovery::ApiResource;
use kube::runtime::wait::await_condition;
use kube::{Client, ResourceExt};
use russet_api::ScalewayAppleSiliconMachine as Mac;
use russet_api::{conditions, labels};
use russet_capi_provider::identity::BOOTSTRAP_GROUP;
use russet_e2e::wait::{self, Look};
use russet_e2e::{Extras, TestCluster, crds};
use russet_scaleway::iam::SshKey;
use russet_sim_scaleway::{
    DEFAULT_ACCESS_KEY, DEFAULT_PROJECT, DEFAULT_SECRET_KEY, Delays, Factor, Minis, Options, Settings, Sim,
};
use serde_json::{Value, json};
use tokio::sync::{OnceCell, watch};

use crate::ledger::{Ledger, POOL};

const CORE: &str = "cluster.x-k8s.io";
/// The fleet of all machines here.
const FLEET: &str = "macs";
/// A configuration that no host can be brought to.
pub(crate) const BROKEN: &str = "broken";
/// A lost call has to be waited for, and all cases run at once.
pub(crate) const PATIENCE: Duration = Duration::from_secs(150);

/// Core itself does not run here: its objects are stored, and that is all that is needed of them.
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

pub(crate) fn core_crds() -> Result<Vec<CustomResourceDefinition>> {
    Ok(vec![core_crd("Cluster", "clusters")?, core_crd("Machine", "machines")?])
}

/// Whoever has a token of ours may ask for a certificate, as the chart says.
pub(crate) fn bootstrappers() -> Result<ClusterRoleBinding> {
    Ok(serde_json::from_value(json!({
        "metadata": {"name": "mac-bootstrappers"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:node-bootstrapper"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": BOOTSTRAP_GROUP}],
    }))?)
}

static CLUSTER: OnceCell<TestCluster> = OnceCell::const_new();

/// The cluster of all cases.
pub(crate) async fn cluster() -> Result<&'static TestCluster> {
    CLUSTER
        .get_or_try_init(async || {
            let cluster = TestCluster::start(Extras::default()).await?;
            let client = cluster.client().await?;
            crds::install(&client, &russet_api::all_crds()).await?;
            crds::install(&client, &core_crds()?).await?;
            let bindings: Api<ClusterRoleBinding> = Api::all(client);
            bindings.create(&PostParams::default(), &bootstrappers()?).await?;
            anyhow::Ok(cluster)
        })
        .await
}

pub(crate) struct World {
    pub(crate) sim: Sim,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) namespace: String,
    pub(crate) kubeconfig: PathBuf,
    /// Address of the API server.
    pub(crate) server: String,
    pub(crate) client: Client,
    /// Flags besides those of every provider here.
    pub(crate) flags: Vec<String>,
    /// Whether providers take the Lease first, as they do in production.
    pub(crate) elect: bool,
    /// How long a Node may be missing.
    pub(crate) rejoin_after: Duration,
    /// What hosts should be set up with.
    pub(crate) wanted: Arc<Mutex<String>>,
    /// Hosts let nobody in while this is false.
    pub(crate) doors: watch::Sender<bool>,
    servers: BTreeSet<String>,
}

impl World {
    pub(crate) async fn new(cluster: &TestCluster, name: &str, minis: u32) -> Result<Self> {
        let sandbox = cluster.sandbox(name).await?;
        let sim = Sim::start(Options {
            clock_factor: Factor::REAL,
            settings: Settings {
                delays: Delays {
                    reinstall: Duration::from_millis(300),
                    ..Delays::default()
                },
                ..Settings::default()
            },
            ..Options::default()
        })
        .await?;
        sim.handle().add_minis(Minis {
            name: format!("{POOL}0"),
            count: minis,
            ..Minis::default()
        })?;
        let world = Self {
            ledger: Arc::new(Ledger::new(sim.handle().clone())),
            namespace: sandbox.namespace().to_owned(),
            kubeconfig: cluster.control_plane().admin_kubeconfig().to_path_buf(),
            server: cluster.control_plane().server().to_owned(),
            client: cluster.client().await?,
            flags: Vec::new(),
            elect: false,
            rejoin_after: Duration::from_mins(2),
            wanted: Arc::new(Mutex::new("one".to_owned())),
            doors: watch::channel(true).0,
            servers: ids(&sim.handle().servers()),
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

    /// A client of the emulator, past every gate.
    pub(crate) fn scaleway(&self) -> Result<russet_scaleway::Client> {
        let project = DEFAULT_PROJECT.to_string().parse()?;
        let key = russet_telemetry::Secret::from(DEFAULT_SECRET_KEY);
        let mut config = russet_scaleway::Config::new(DEFAULT_ACCESS_KEY, key, project, self.sim.url())?;
        config.proxy = russet_scaleway::config::Proxy::Never;
        Ok(russet_scaleway::Client::new(
            &config,
            russet_scaleway::Context::default(),
        )?)
    }

    /// More hosts, somewhere else.
    pub(crate) fn add_minis(&mut self, minis: Minis) -> Result<()> {
        self.sim.handle().add_minis(minis)?;
        self.servers = ids(&self.sim.handle().servers());
        Ok(())
    }

    fn api(&self, group: &str, version: &str, kind: &str) -> Api<DynamicObject> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
    }

    async fn make(&self, group: &str, version: &str, kind: &str, mut object: Value) -> Result<DynamicObject> {
        object["apiVersion"] = json!(format!("{group}/{version}"));
        object["kind"] = json!(kind);
        let object: DynamicObject = serde_json::from_value(object)?;
        let api = self.api(group, version, kind);
        let made = api.create(&PostParams::default(), &object).await;
        made.with_context(|| format!("failed to make a {kind}"))
    }

    pub(crate) fn macs(&self) -> Api<Mac> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// A machine as core would make it. Nodes have no namespace, so the name must not repeat.
    pub(crate) async fn add_machine(&self, number: usize) -> Result<String> {
        self.add_machine_with(number, json!({})).await
    }

    pub(crate) async fn add_machine_with(&self, number: usize, mut spec: Value) -> Result<String> {
        spec["fleetName"] = json!(FLEET);
        let name = format!("{}-m{number}", self.namespace);
        let machine = json!({
            "metadata": {"name": name},
            "spec": {
                "clusterName": "c",
                "bootstrap": {"dataSecretName": "data"},
                "infrastructureRef": {"kind": "ScalewayAppleSiliconMachine", "name": name},
            },
        });
        let machine = self.make(CORE, "v1beta2", "Machine", machine).await?;
        let owner =
            json!({"apiVersion": format!("{CORE}/v1beta2"), "kind": "Machine", "name": name, "uid": machine.uid()});
        let mac = json!({"metadata": {"name": name, "ownerReferences": [owner]}, "spec": spec});
        self.make(
            "infrastructure.cluster.x-k8s.io",
            "v1alpha1",
            "ScalewayAppleSiliconMachine",
            mac,
        )
        .await?;
        Ok(name)
    }

    pub(crate) async fn delete_machine(&self, name: &str) -> Result<()> {
        self.ledger.deletes(name);
        match self.macs().delete(name, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            other => {
                other?;
                Ok(())
            }
        }
    }

    /// What is looked at seldom is looked at when the object changes.
    pub(crate) async fn touch(&self, name: &str) -> Result<()> {
        let touched = json!({"metadata": {"annotations": {"test": "touched"}}});
        let params = PatchParams::default();
        self.macs().patch(name, &params, &Patch::Merge(&touched)).await?;
        Ok(())
    }

    pub(crate) async fn until_ready(&self, name: &str) -> Result<()> {
        self.until("ready", name, |mac| mac.is_some_and(is_ready)).await
    }

    /// Ready, and reached over the tailnet.
    pub(crate) async fn until_serving(&self, name: &str) -> Result<()> {
        self.until_ready(name).await?;
        let services: Api<Service> = Api::namespaced(self.client.clone(), &self.namespace);
        let there = await_condition(services, name, |service: Option<&Service>| service.is_some());
        let reached = tokio::time::timeout(PATIENCE, there).await;
        reached.with_context(|| format!("{name} got no egress Service"))??;
        Ok(())
    }

    pub(crate) async fn until_gone(&self, name: &str) -> Result<()> {
        self.until("gone", name, |mac| mac.is_none()).await
    }

    /// By a watch: a hundred cases that look again and again would keep the API server busy with nothing else.
    pub(crate) async fn until(&self, what: &str, name: &str, holds: impl Fn(Option<&Mac>) -> bool) -> Result<()> {
        let reached = await_condition(self.macs(), name, |mac: Option<&Mac>| holds(mac));
        if let Ok(reached) = tokio::time::timeout(PATIENCE, reached).await {
            reached?;
            return Ok(());
        }
        let mac = self.macs().get_opt(name).await?;
        let seen = mac.map(|mac| (mac.metadata.finalizers.clone(), mac.status));
        bail!("waited {PATIENCE:?} for {name} to be {what}; last seen: {seen:?}")
    }

    /// How many machines serve.
    pub(crate) async fn serving(&self) -> Result<usize> {
        let macs = self.macs().list(&ListParams::default()).await?;
        let ready = |mac: &&Mac| mac.status.as_ref().is_some_and(|status| status.ready == Some(true));
        Ok(macs.items.iter().filter(ready).count())
    }

    pub(crate) async fn claims(&self) -> Result<Vec<String>> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), &self.namespace);
        let all = leases.list(&ListParams::default()).await?;
        let names = all.items.iter().map(ResourceExt::name_any);
        Ok(names.filter(|name| name.starts_with("mac-")).collect())
    }

    /// While a machine serves: one host bears its name and one claim is held for it.
    pub(crate) async fn check_serving(&self, name: &str) -> Result<()> {
        let servers = self.sim.handle().servers();
        let named: Vec<&Value> = servers.iter().filter(|server| server["name"] == name).collect();
        ensure!(named.len() == 1, "{} hosts are named {name}: {servers:?}", named.len());
        let claim = format!("mac-{}", named[0]["id"].as_str().unwrap_or_default());
        let claims = self.claims().await?;
        ensure!(claims.contains(&claim), "{claim} is missing in {claims:?}");
        ensure!(self.keys().await?.len() == 1, "the key of the fleet is not registered");
        self.check_bill()
    }

    /// The registrations at Scaleway: never more than one, and of no other key than the fleet has.
    async fn keys(&self) -> Result<Vec<SshKey>> {
        let keys = self.scaleway()?.list_ssh_keys().await?;
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        let secret = secrets.get_opt(&format!("{FLEET}-ssh")).await?;
        let data = secret.and_then(|secret| secret.data).unwrap_or_default();
        let public = data
            .get("id_ed25519.pub")
            .map(|public| public.0.clone())
            .unwrap_or_default();
        let public = String::from_utf8(public)?;
        ensure!(keys.len() <= 1, "registered twice: {keys:?}");
        ensure!(keys.iter().all(|key| key.is_key(&public)), "{keys:?} is not {public}");
        Ok(keys)
    }

    /// What machines that are gone could still be joined or reached by.
    async fn check_access(&self) -> Result<()> {
        let ours = |names: Vec<String>| -> Vec<String> {
            let start = format!("{}-m", self.namespace);
            names.into_iter().filter(|name| name.starts_with(&start)).collect()
        };
        let tokens: Api<Secret> = Api::namespaced(self.client.clone(), "kube-system");
        let tokens = tokens.list(&ListParams::default().labels(labels::MACHINE)).await?.items;
        let machines = tokens
            .iter()
            .filter_map(|token| token.labels().get(labels::MACHINE).cloned());
        let tokens = ours(machines.collect());
        ensure!(tokens.is_empty(), "tokens are left: {tokens:?}");
        let requests: Api<CertificateSigningRequest> = Api::all(self.client.clone());
        let requests = ours(names(&requests.list(&ListParams::default()).await?.items));
        ensure!(requests.is_empty(), "signing requests are left: {requests:?}");
        let services: Api<Service> = Api::namespaced(self.client.clone(), &self.namespace);
        let services = names(&services.list(&ListParams::default()).await?.items);
        ensure!(services.is_empty(), "Services are left: {services:?}");
        self.keys().await?;
        Ok(())
    }

    /// What is paid for is what there was: nothing ordered, nothing given up.
    fn check_bill(&self) -> Result<()> {
        let bill = self.sim.handle().bill();
        let paid: BTreeSet<String> = bill.running().map(ToString::to_string).collect();
        ensure!(paid == self.servers, "paid for {paid:?}, own {:?}", self.servers);
        ensure!(bill.lines.len() == self.servers.len(), "paid twice: {:?}", bill.lines);
        Ok(())
    }

    /// After all machines are gone: every host is free, wiped and ready, and nothing is left in the cluster.
    pub(crate) async fn check_at_rest(&self) -> Result<()> {
        wait::until("all claims to be dropped", PATIENCE, || async {
            let claims = self.claims().await?;
            Ok(if claims.is_empty() {
                Look::Done(())
            } else {
                Look::not_yet(claims)
            })
        })
        .await?;
        let servers = self.sim.handle().servers();
        ensure!(ids(&servers) == self.servers, "hosts came or went: {servers:?}");
        for server in &servers {
            let name = server["name"].as_str().unwrap_or_default();
            ensure!(name.starts_with(POOL), "{name} is lost");
            ensure!(server["status"] == "ready", "{name} is {}", server["status"]);
        }
        self.check_bill()?;
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        let secrets = secrets.list(&ListParams::default()).await?.items;
        // The fleet keeps its key for the machines that come next.
        let secrets: Vec<String> = names(&secrets)
            .into_iter()
            .filter(|name| *name != format!("{FLEET}-ssh"))
            .collect();
        ensure!(secrets.is_empty(), "Secrets are left: {secrets:?}");
        self.check_access().await?;
        let nodes = Api::<Node>::all(self.client.clone())
            .list(&ListParams::default())
            .await?
            .items;
        let left: Vec<String> = names(&nodes)
            .into_iter()
            .filter(|name| name.starts_with(&format!("{}-m", self.namespace)))
            .collect();
        ensure!(left.is_empty(), "Nodes are left: {left:?}");
        let wrongs = self.ledger.wrongs();
        ensure!(wrongs.is_empty(), "{wrongs:#?}");
        Ok(())
    }
}

fn is_ready(mac: &Mac) -> bool {
    mac.status.as_ref().is_some_and(|status| {
        status.ready == Some(true) && conditions::is_true(&status.conditions, "Provisioned") && status.intent.is_none()
    })
}

fn ids(servers: &[Value]) -> BTreeSet<String> {
    servers
        .iter()
        .filter_map(|server| server["id"].as_str())
        .map(ToOwned::to_owned)
        .collect()
}

fn names<K: kube::Resource>(objects: &[K]) -> Vec<String> {
    objects.iter().map(ResourceExt::name_any).collect()
}
