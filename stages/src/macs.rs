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
pub mod host;
pub mod over_ssh;
pub mod rack;
pub mod rights;
mod yard;

use std::path::Path;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::{Api, DynamicObject, PostParams};
use russet_cluster::process::{Probe, Restart, Spec};
use russet_sim_mac::Fleet as Macs;
use russet_sim_scaleway::{
    BoxFactory, DEFAULT_ACCESS_KEY, DEFAULT_PROJECT, DEFAULT_SECRET_KEY, Factor, NoBoxes, Options as SimOptions,
    Settings, Sim,
};
use russet_testkit::cluster::{Extras, TestCluster};
use russet_testkit::crds;
use russet_testkit::identity::rule;
use russet_testkit::program::provider_program;
use serde_json::{Value, json};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::OnceCell;

use over_ssh::Doors;
pub use yard::Yard;

/// The group of our kinds.
pub const INFRA: &str = "infrastructure.cluster.x-k8s.io";
/// Core's group.
pub const CORE: &str = "cluster.x-k8s.io";
/// What the emulated Nodes report, and so what Machines must want.
pub const KUBELET: &str = russet_sim_mac::DEFAULT_KUBELET_VERSION;

/// How many emulated seconds pass in one.
pub const FACTOR: f64 = 600.0;

/// The pace of the emulated account.
pub fn clock() -> Result<Factor> {
    Ok(Factor::try_from(FACTOR)?)
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
        Yard::open(self, name, number, minis).await
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

/// A condition of an object, by type.
pub fn condition<'o>(object: &'o DynamicObject, kind: &str) -> Option<&'o Value> {
    let all = object.data.pointer("/status/conditions")?.as_array()?;
    all.iter().find(|condition| condition["type"] == kind)
}

/// Whether a condition is there and true.
pub fn is_true(object: &DynamicObject, kind: &str) -> bool {
    condition(object, kind).is_some_and(|condition| condition["status"] == "True")
}
