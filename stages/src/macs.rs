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
//! The provider runs as its chart deploys it: see [`chart`]. Several fleets share a cluster, each with a release, an emulated Scaleway, minis
//! and a provider of its own. Tests of one suite may share a fleet; each has a yard of it: a namespace with a Cluster and MachineDeployments
//! of its own, and minis under a pool prefix of its own.

mod chart;
mod cluster;

pub mod host;
pub mod over_ssh;
pub mod rack;
pub mod rights;
mod yard;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use anyhow::{Context, Result};
use kube::api::DynamicObject;
use russet_cluster::ports::Ports;
use russet_sim_mac::Fleet as Macs;
use russet_sim_scaleway::{BoxFactory, Factor, NoBoxes, Options as SimOptions, Settings, Sim};
use russet_testkit::cluster::TestCluster;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::for_good::for_good;
pub use cluster::release as release_cluster;
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

/// How many yards a fleet has whose provider may not work everywhere.
const YARDS: usize = 8;

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

/// Where a provider works, by the rights of its chart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scope {
    /// In a few namespaces that the chart is told of, with Roles there. It watches no other, so that several share a cluster: a provider
    /// that watches all of it denies the signing requests of machines that it does not find.
    #[default]
    Yards,
    /// In the namespace of its release, with the chart's own fleets.
    Release,
    /// Everywhere, with a ClusterRole.
    Everywhere,
}

/// Everything, running.
#[derive(Debug)]
pub struct Fleet {
    // Field order is drop order.
    pub sim: Sim,
    pub macs: Macs,
    /// How the provider gets onto Macs, if it does so over SSH.
    doors: Option<Doors>,
    pub cluster: Arc<TestCluster>,
    /// The release of the provider's chart, and the provider's process.
    pub name: String,
    /// Where the release is, and with it the Secrets and Leases of the provider.
    pub namespace: String,
    /// The provider, as the audit log names it.
    pub provider_user: String,
    scope: Scope,
    /// Namespaces of the yards that the chart was told of.
    yards: Vec<String>,
    health: SocketAddr,
    metrics: SocketAddr,
    manner: Manner,
    count: AtomicUsize,
}

static SHARED: OnceCell<Fleet> = OnceCell::const_new();

/// What a fleet is made on.
struct Ground {
    cluster: Arc<TestCluster>,
    manner: Manner,
    scope: Scope,
    settings: Settings,
    doors: Option<Doors>,
}

impl Ground {
    /// The cluster that fleets share.
    async fn shared() -> Result<Self> {
        Ok(Self {
            cluster: cluster::shared().await?,
            manner: Manner::Test,
            scope: Scope::Yards,
            settings: Settings::default(),
            doors: None,
        })
    }

    /// A cluster of its own.
    async fn own(manner: Manner, scope: Scope) -> Result<Self> {
        Ok(Self {
            cluster: Arc::new(cluster::start(manner).await?),
            manner,
            scope,
            settings: Settings::default(),
            doors: None,
        })
    }
}

impl Fleet {
    /// The one that all tests of a binary share, in any namespace. Its emulators live on a runtime of their own, since each test has its
    /// own and ends it.
    pub async fn shared() -> Result<&'static Self> {
        SHARED
            .get_or_try_init(|| for_good("fleet", || Self::start_in(Manner::Test, &[])))
            .await
    }

    /// One on the cluster that fleets share, with flags for the provider.
    pub async fn start(args: &[&str]) -> Result<Self> {
        Self::start_with(args, json!({})).await
    }

    /// The same, with values for the chart that no flag of the provider is.
    pub async fn start_with(args: &[&str], values: Value) -> Result<Self> {
        Self::running(Ground::shared().await?, NoBoxes, args, values).await
    }

    /// The same on a cluster of its own, for a story that looks at every object and process of it.
    pub async fn apart(args: &[&str]) -> Result<Self> {
        let ground = Ground::own(Manner::Test, Scope::Yards).await?;
        Self::running(ground, NoBoxes, args, json!({})).await
    }

    /// One on a cluster of its own whose provider works in any namespace, run as the caller likes.
    pub async fn start_in(manner: Manner, args: &[&str]) -> Result<Self> {
        let ground = Ground::own(manner, Scope::Everywhere).await?;
        Self::running(ground, NoBoxes, args, json!({})).await
    }

    /// The same around a cluster that runs with core, on an emulated Scaleway with these settings, whose Linux servers the caller emulates.
    pub async fn start_around(
        cluster: TestCluster,
        manner: Manner,
        settings: Settings,
        boxes: impl BoxFactory,
        args: &[&str],
    ) -> Result<Self> {
        cluster::install(&cluster).await?;
        let ground = Ground {
            cluster: Arc::new(cluster),
            manner,
            scope: Scope::Everywhere,
            settings,
            doors: None,
        };
        Self::running(ground, boxes, args, json!({})).await
    }

    /// One around a cluster that runs with core, for fleets of the chart, which is still to be installed.
    pub(crate) async fn around(cluster: TestCluster, settings: Settings, boxes: impl BoxFactory) -> Result<Self> {
        cluster::install(&cluster).await?;
        let ground = Ground {
            cluster: Arc::new(cluster),
            manner: Manner::Test,
            scope: Scope::Release,
            settings,
            doors: None,
        };
        Self::assembled(ground, boxes).await
    }

    async fn running(ground: Ground, boxes: impl BoxFactory, args: &[&str], values: Value) -> Result<Self> {
        let fleet = Self::assembled(ground, boxes).await?;
        fleet.install(args, values).await?;
        fleet.start_provider(args).await?;
        Ok(fleet)
    }

    async fn assembled(ground: Ground, boxes: impl BoxFactory) -> Result<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let Ground {
            cluster,
            manner,
            scope,
            settings,
            doors,
        } = ground;
        let mut minis = russet_sim_mac::Options::default();
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let mut options = SimOptions {
            clock_factor: clock()?,
            // Servers of two accounts have no id in common: a providerID is one Node's in a cluster.
            seed: 1 + number,
            settings,
            ..SimOptions::default()
        };
        if let Some(doors) = &doors {
            minis.macos = Some(doors.emulator().await?);
            options.addresses = doors.addresses();
        }
        let macs = Macs::new(minis).await?;
        let sim = Sim::start_with_boxes(options, macs.clone(), boxes).await?;
        let name = format!("fleet-{number}");
        let dir = cluster.dir().join(&name);
        std::fs::create_dir_all(&dir)?;
        let ports = Ports::pick(&dir, Ipv4Addr::LOCALHOST, &["health", "metrics"])?;
        let mut fleet = Self {
            sim,
            macs,
            doors,
            cluster,
            namespace: name.clone(),
            provider_user: String::new(),
            name,
            scope,
            yards: Vec::new(),
            health: ports.socket("health"),
            metrics: ports.socket("metrics"),
            manner,
            count: AtomicUsize::new(0),
        };
        fleet.provider_user = format!("system:serviceaccount:{}:{}", fleet.namespace, fleet.account());
        fleet.yards = match scope {
            Scope::Yards => (0..YARDS)
                .map(|number| format!("{}-yard-{number}", fleet.name))
                .collect(),
            Scope::Release => vec![fleet.namespace.clone()],
            Scope::Everywhere => Vec::new(),
        };
        let client = fleet.cluster.client().await?;
        chart::namespace(&client, &fleet.namespace).await?;
        for yard in fleet.yards.iter().filter(|yard| **yard != fleet.namespace) {
            chart::namespace(&client, yard).await?;
        }
        Ok(fleet)
    }

    /// The name of the chart's objects, of the provider's account and its Deployment among them.
    pub fn account(&self) -> String {
        format!("{}-capi-provider", self.name)
    }

    fn dir(&self) -> PathBuf {
        self.cluster.dir().join(&self.name)
    }

    fn log(&self) -> PathBuf {
        self.dir().join("capi-provider.log")
    }

    /// What the provider has said so far.
    pub fn provider_log(&self) -> String {
        std::fs::read_to_string(self.log()).unwrap_or_default()
    }

    /// The provider's process.
    pub fn provider_pid(&self) -> Option<u32> {
        let parts = self.cluster.supervisor().snapshot();
        parts.into_iter().find(|part| part.name == self.name)?.pid
    }

    /// A namespace with a Cluster, and so many minis that only it may take. It has this name where the provider works everywhere.
    pub async fn yard(&self, name: &str, minis: u32) -> Result<Yard<'_>> {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let namespace = match self.scope {
            Scope::Yards | Scope::Release => {
                let known = self.yards.get(number);
                known
                    .with_context(|| format!("the chart knows of {} yards", self.yards.len()))?
                    .clone()
            }
            Scope::Everywhere => {
                let namespace = format!("{name}-{number}");
                chart::namespace(&self.cluster.client().await?, &namespace).await?;
                namespace
            }
        };
        Yard::open(self, namespace, number, minis).await
    }
}

impl Drop for Fleet {
    /// Other fleets may go on with the cluster.
    fn drop(&mut self) {
        let pid = self.provider_pid().and_then(|pid| i32::try_from(pid).ok());
        if let Some(pid) = pid.and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
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
