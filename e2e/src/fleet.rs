//! A whole fleet for tests: real Cluster API core, the real provider as a process, emulated minis that really join.
//!
//! ```text
//!   TestCluster (etcd, kube-apiserver, controller-manager, capi-core)
//!        ▲                       ▲
//!   capi-provider (child)     Macs (in this process): CSR, Node, Lease, status
//!        │ SCW_API_URL           ▲ events
//!        └──────▶ Sim (in this process, fast clock)
//! ```
//!
//! Tests share one; each has a namespace with a Cluster and MachineDeployments of its own, and minis under a pool prefix of its own.

pub mod chart;
pub mod over_ssh;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{Namespace, Node, Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::{Api, DynamicObject, ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::discovery::ApiResource;
use kube::{Client, ResourceExt};
use russet_api::ScalewayAppleSiliconMachine;
use russet_cluster::process::{Probe, Restart, Spec};
use russet_sim_mac::Fleet as Macs;
use russet_sim_scaleway::{
    BoxFactory, DEFAULT_ACCESS_KEY, DEFAULT_PROJECT, DEFAULT_SECRET_KEY, Factor, Id, Minis, NoBoxes,
    Options as SimOptions, Settings, Sim,
};
use serde_json::{Value, json};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::OnceCell;

use crate::cluster::{Extras, TestCluster};
use crate::crds;
use crate::identity::rule;
use crate::wait::{self, Look, PATIENCE};
use over_ssh::Doors;

/// The group of our kinds.
pub const INFRA: &str = "infrastructure.cluster.x-k8s.io";
/// Core's group.
pub const CORE: &str = "cluster.x-k8s.io";
/// What the emulated Nodes report, and so what Machines must want.
pub const KUBELET: &str = russet_sim_mac::DEFAULT_KUBELET_VERSION;

/// Our kinds of machines.
const KINDS: [&str; 3] = [
    "ScalewayAppleSiliconMachine",
    "ScalewayElasticMetalMachine",
    "ScalewayInstanceMachine",
];

/// How many emulated seconds pass in one.
pub const FACTOR: f64 = 600.0;

/// The pace of the emulated account.
pub fn clock() -> Result<Factor> {
    Ok(Factor::try_from(FACTOR)?)
}

/// The program of the provider: beside the one that runs, or one folder up, where tests have theirs.
pub fn provider_program() -> Result<PathBuf> {
    program(PROVIDER, "russet-capi-provider")
}

/// One of our programs: beside the one that runs, or one folder up, where tests have theirs.
pub fn program(name: &str, package: &str) -> Result<PathBuf> {
    let ours = std::env::current_exe().context("failed to find the running program")?;
    ours.ancestors()
        .skip(1)
        .take(2)
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
        .with_context(|| {
            format!("there is no {name} beside this program; make it with `cargo build --package {package}`")
        })
}

/// How a fleet runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Manner {
    /// As fast as a few machines can, and with much to read afterwards.
    #[default]
    Test,
    /// As it would in earnest: core at its own pace, the provider with its own defaults.
    Earnest,
}

impl Manner {
    /// Flags that make the provider quick.
    fn provider_args(self) -> &'static [&'static str] {
        match self {
            Self::Test => &["--inventory-interval=500ms"],
            Self::Earnest => &[],
        }
    }

    fn log(self) -> &'static str {
        match self {
            Self::Test => "info,russet_capi_provider=debug",
            Self::Earnest => "info",
        }
    }
}

/// Everything, running.
#[derive(Debug)]
pub struct Fleet {
    // Field order is drop order.
    pub sim: Sim,
    pub macs: Macs,
    /// How the provider gets onto Macs, if it does so over SSH.
    doors: Option<Doors>,
    pub cluster: TestCluster,
    /// The provider, as the audit log names it; empty until it runs. It may do everything unless a test starts it otherwise.
    pub provider_user: String,
    health: SocketAddr,
    metrics: SocketAddr,
    manner: Manner,
    count: AtomicUsize,
}

static SHARED: OnceCell<Fleet> = OnceCell::const_new();

impl Fleet {
    /// The one that all tests of a binary share. Its emulators live on a runtime of their own, since each test has its own and ends it.
    pub async fn shared() -> Result<&'static Self> {
        SHARED
            .get_or_try_init(|| async {
                let (sender, receiver) = tokio::sync::oneshot::channel();
                std::thread::Builder::new()
                    .name("fleet".to_owned())
                    .spawn(move || {
                        let runtime = tokio::runtime::Builder::new_multi_thread()
                            .worker_threads(1)
                            .enable_all()
                            .build()?;
                        let _ = sender.send(runtime.block_on(Self::start(&[])));
                        runtime.block_on(std::future::pending::<()>());
                        Ok::<_, std::io::Error>(())
                    })
                    .context("failed to start a thread")?;
                receiver.await.context("the thread of the fleet ended")?
            })
            .await
    }

    /// One of its own, with further flags for the provider, which may do everything.
    pub async fn start(args: &[&str]) -> Result<Self> {
        Self::start_in(Manner::Test, args).await
    }

    /// The same, run as the caller likes.
    pub async fn start_in(manner: Manner, args: &[&str]) -> Result<Self> {
        Self::without_provider_in(manner).await?.with_provider(args).await
    }

    /// One around a cluster that runs with core, on an emulated Scaleway with these settings, whose Linux servers are somebody's.
    pub async fn start_around(
        cluster: TestCluster,
        manner: Manner,
        settings: Settings,
        boxes: impl BoxFactory,
        args: &[&str],
    ) -> Result<Self> {
        let fleet = Self::around(cluster, manner, settings, boxes).await?;
        fleet.with_provider(args).await
    }

    /// Starts the provider, which may do everything.
    async fn with_provider(mut self, args: &[&str]) -> Result<Self> {
        remote_account(&self.cluster).await?;
        let granted = {
            let sandbox = self.cluster.sandbox("provider").await?;
            let all = rule("*", &["*"], &["*"]);
            sandbox.identity(PROVIDER).everywhere(vec![all]).grant().await?
        };
        self.provider_user = granted.username;
        let args: Vec<&str> = [&["--leader-elect=false"], args].concat();
        self.start_provider(&granted.kubeconfig, &args).await?;
        Ok(self)
    }

    /// One whose provider is still to be started, under rights of the caller's choice; nobody is granted anything yet.
    pub async fn without_provider() -> Result<Self> {
        Self::without_provider_in(Manner::Test).await
    }

    async fn without_provider_in(manner: Manner) -> Result<Self> {
        let cluster = TestCluster::start(Extras {
            controller_manager: true,
            cluster_api: true,
            cluster_api_in_earnest: manner == Manner::Earnest,
            ..Extras::default()
        })
        .await?;
        Self::around(cluster, manner, Settings::default(), NoBoxes).await
    }

    /// One around a cluster that runs with core, on an emulated Scaleway with these settings, whose Linux servers are somebody's.
    pub(crate) async fn around(
        cluster: TestCluster,
        manner: Manner,
        settings: Settings,
        boxes: impl BoxFactory,
    ) -> Result<Self> {
        Self::assembled(cluster, manner, settings, boxes, None).await
    }

    async fn assembled(
        cluster: TestCluster,
        manner: Manner,
        settings: Settings,
        boxes: impl BoxFactory,
        doors: Option<Doors>,
    ) -> Result<Self> {
        crds::install(&cluster.client().await?, &russet_api::all_crds()).await?;
        let mut minis = russet_sim_mac::Options::default();
        let mut options = SimOptions {
            clock_factor: clock()?,
            settings,
            ..SimOptions::default()
        };
        if let Some(doors) = &doors {
            minis.macos = Some(doors.emulator().await?);
            options.addresses = doors.addresses();
        }
        let macs = Macs::new(minis).await?;
        let sim = Sim::start_with_boxes(options, macs.clone(), boxes).await?;
        let ports = russet_cluster::ports::Ports::pick(cluster.dir(), Ipv4Addr::LOCALHOST, &["health", "metrics"])?;
        Ok(Self {
            sim,
            macs,
            doors,
            cluster,
            provider_user: String::new(),
            health: ports.socket("health"),
            metrics: ports.socket("metrics"),
            manner,
            count: AtomicUsize::new(0),
        })
    }

    /// Starts the provider as whoever the kubeconfig names.
    pub async fn start_provider(&self, kubeconfig: &Path, args: &[&str]) -> Result<()> {
        let control_plane = self.cluster.control_plane();
        let spec = Spec::new(
            PROVIDER,
            provider_program()?,
            self.cluster.dir().join("capi-provider.log"),
        )
        .args([
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--api-server-url={}", control_plane.server()),
            format!("--health-probe-bind-address={}", self.health),
            format!("--metrics-bind-address={}", self.metrics),
            // No other cluster takes these minis, and a wipe takes a second here.
            "--claim-settle-time=0s".to_owned(),
            "--min-wipe-time=200ms".to_owned(),
        ])
        .args(match &self.doors {
            Some(doors) => doors.provider_args(),
            None => vec![
                format!("--stand-in-port={}", self.macs.port()),
                "--host-bootstrap=stand-in".to_owned(),
            ],
        })
        .args(self.manner.provider_args().iter().map(|arg| (*arg).to_owned()))
        .args(args.iter().map(|arg| (*arg).to_owned()))
        .env("SCW_API_URL", self.sim.url())
        .env("SCW_ACCESS_KEY", DEFAULT_ACCESS_KEY)
        .env("SCW_SECRET_KEY", DEFAULT_SECRET_KEY)
        .env("SCW_DEFAULT_PROJECT_ID", DEFAULT_PROJECT)
        .env("RUST_LOG", self.manner.log())
        .listens(self.health)
        .probe(Probe::Http {
            url: format!("http://{}/readyz", self.health),
        })
        .restart(Restart::Never);
        self.cluster.supervisor().start(spec).await?;
        Ok(())
    }

    /// What the provider has said so far.
    pub fn provider_log(&self) -> String {
        std::fs::read_to_string(self.cluster.dir().join("capi-provider.log")).unwrap_or_default()
    }

    /// The provider's process.
    pub fn provider_pid(&self) -> Option<u32> {
        let parts = self.cluster.supervisor().snapshot();
        parts.into_iter().find(|part| part.name == PROVIDER)?.pid
    }

    /// A namespace with a Cluster, and so many minis that only it may take.
    pub async fn yard(&self, name: &str, minis: u32) -> Result<Yard<'_>> {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let namespace = format!("{name}-{number}");
        let client = self.cluster.client().await?;
        let object = Namespace {
            metadata: ObjectMeta {
                name: Some(namespace.clone()),
                ..ObjectMeta::default()
            },
            ..Namespace::default()
        };
        Api::<Namespace>::all(client.clone())
            .create(&PostParams::default(), &object)
            .await?;
        let yard = Yard {
            fleet: self,
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

const PROVIDER: &str = "capi-provider";

/// The account that core acts as, with the rights that the chart gives it, and the one of machines that want to join.
async fn remote_account(cluster: &TestCluster) -> Result<()> {
    let client = cluster.client().await?;
    let subject = json!({"kind": "ServiceAccount", "name": "capi-remote", "namespace": "default"});
    let group = json!({
        "kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "system:bootstrappers:tuist-applesilicon",
    });
    let binding = |name: &str, role: &str, subject: &Value| {
        json!({
            "metadata": {"name": name}, "subjects": [subject],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        })
    };
    let rules = |groups: &[&str], resources: &[&str], verbs: &[&str]| json!({"apiGroups": groups, "resources": resources, "verbs": verbs});
    let role: ClusterRole = serde_json::from_value(json!({"metadata": {"name": "capi-remote"}, "rules": [
        rules(&[""], &["nodes"], &["list", "watch", "patch", "delete"]),
        rules(&[""], &["pods"], &["get", "list"]),
        rules(&[""], &["pods/eviction"], &["create"]),
        rules(&[""], &["namespaces"], &["list", "watch"]),
        rules(&[""], &["persistentvolumes"], &["list"]),
        rules(&["apps"], &["daemonsets"], &["get"]),
        rules(&["storage.k8s.io"], &["volumeattachments"], &["list"]),
        {"nonResourceURLs": ["/"], "verbs": ["get"]},
    ]}))?;
    let account: ServiceAccount = serde_json::from_value(json!({"metadata": {"name": "capi-remote"}}))?;
    let post = PostParams::default();
    Api::<ServiceAccount>::namespaced(client.clone(), "default")
        .create(&post, &account)
        .await?;
    Api::<ClusterRole>::all(client.clone()).create(&post, &role).await?;
    let bindings: Api<ClusterRoleBinding> = Api::all(client);
    for object in [
        binding("capi-remote", "capi-remote", &subject),
        binding("mac-bootstrappers", "system:node-bootstrapper", &group),
    ] {
        bindings.create(&post, &serde_json::from_value(object)?).await?;
    }
    Ok(())
}

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

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

/// A condition of an object, by type.
pub fn condition<'o>(object: &'o DynamicObject, kind: &str) -> Option<&'o Value> {
    let all = object.data.pointer("/status/conditions")?.as_array()?;
    all.iter().find(|condition| condition["type"] == kind)
}

/// Whether a condition is there and true.
pub fn is_true(object: &DynamicObject, kind: &str) -> bool {
    condition(object, kind).is_some_and(|condition| condition["status"] == "True")
}
