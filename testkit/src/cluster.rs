//! A cluster of real parts for tests: chosen extras, started in seconds, gone with the process.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use russet_cluster::control_plane::{self, ControlPlane};
use russet_cluster::process::{Restart, Supervisor};
use russet_cluster::{capi, metrics_server, node};
use russet_parts::{Bars, Manifest, Options as PartsOptions, Store, Tools};
use tokio::sync::OnceCell;

use crate::audit::AuditLog;
use crate::sandbox::Sandbox;

/// What a test wants besides etcd and kube-apiserver. Ask for little: each extra costs start time and memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "a set of independent switches, always named where it is built"
)]
pub struct Extras {
    pub controller_manager: bool,
    pub scheduler: bool,
    pub cluster_api: bool,
    /// Cluster API core reconciles an object at most once a second, as in production. Slower for a few Machines, and the only way
    /// for a thousand: each Machine that changes has core look at all of them.
    pub cluster_api_in_earnest: bool,
    /// A real Linux node in namespaces of its own; needs root. Turns on the controller manager and the scheduler.
    pub linux_node: bool,
    /// The network of nodes with the control plane on it, for nodes that others bring; needs root. Turns on what a node needs.
    pub node_network: bool,
    /// ClusterTrustBundles, which API servers serve only when asked to.
    pub trust_bundles: bool,
}

impl Extras {
    /// What most tests share: garbage collection and service accounts, no scheduling.
    pub const CONTROLLERS: Self = Self {
        controller_manager: true,
        scheduler: false,
        cluster_api: false,
        cluster_api_in_earnest: false,
        linux_node: false,
        node_network: false,
        trust_bundles: false,
    };

    fn has_nodes(self) -> bool {
        self.linux_node || self.node_network
    }

    fn tools(self) -> Vec<&'static str> {
        let mut tools = vec!["etcd", "kube-apiserver"];
        if self.controller_manager || self.has_nodes() {
            tools.push("kube-controller-manager");
        }
        if self.scheduler || self.has_nodes() {
            tools.push("kube-scheduler");
        }
        if self.cluster_api {
            tools.extend(["capi-core", "cluster-api-config"]);
        }
        if self.linux_node {
            tools.extend(node::TOOLS);
        }
        tools
    }
}

/// A running cluster. Dropping it stops every process and removes its folder.
#[derive(Debug)]
pub struct TestCluster {
    // Field order is drop order: the node goes before the control plane it talks to, the supervisor before the folder it writes to.
    node: Option<node::LinuxNode>,
    supervisor: Supervisor,
    control_plane: ControlPlane,
    network: Option<node::Network>,
    next_sandbox: AtomicUsize,
    dir: RunDir,
}

static SHARED: OnceCell<TestCluster> = OnceCell::const_new();

impl TestCluster {
    /// The cluster that all tests of one binary share. Isolation is a namespace per test: [`TestCluster::sandbox`].
    pub async fn shared() -> Result<&'static Self> {
        SHARED.get_or_try_init(|| Self::start(Extras::CONTROLLERS)).await
    }

    /// A cluster of its own, for tests that break it.
    pub async fn start(extras: Extras) -> Result<Self> {
        let dir = RunDir::create().await?;
        let tools = tools(&extras.tools()).await?;
        let supervisor = Supervisor::new(dir.path());
        let network = if extras.has_nodes() {
            Some(node::Network::create(dir.path()).await?)
        } else {
            None
        };
        let mut options = control_plane::Options::new(dir.path().join("cluster"));
        options.audit = true;
        options.restart = Restart::Never;
        // A test's data is worth nothing after it.
        options.durability = control_plane::Durability::Throwaway;
        options.extras.controller_manager = extras.controller_manager.then(Vec::new);
        options.extras.scheduler = extras.scheduler;
        if extras.trust_bundles {
            options.apiserver_args = vec![
                "--feature-gates=ClusterTrustBundle=true,ClusterTrustBundleProjection=true".to_owned(),
                "--runtime-config=certificates.k8s.io/v1beta1/clustertrustbundles=true".to_owned(),
            ];
        }
        if let Some(network) = &network {
            options.address = network.gateway();
            options.extras.controller_manager = Some(network.controller_manager_args());
            options.extras.scheduler = true;
        }
        let control_plane = ControlPlane::start(&tools, &supervisor, options).await?;
        if extras.cluster_api {
            capi::start(
                &tools,
                &supervisor,
                &control_plane,
                capi::Options {
                    pace: if extras.cluster_api_in_earnest {
                        capi::Pace::Production
                    } else {
                        capi::Pace::Unlimited
                    },
                    ..capi::Options::new(dir.path().join("capi"))
                },
            )
            .await?;
        }
        let node = match &network {
            Some(network) if extras.linux_node => {
                let options = node::Options::new("node-1", network);
                Some(node::LinuxNode::start(&tools, &supervisor, &control_plane, options).await?)
            }
            _ => None,
        };
        Ok(Self {
            node,
            supervisor,
            control_plane,
            network,
            next_sandbox: AtomicUsize::new(0),
            dir,
        })
    }

    /// A namespace of its own, named after the test, with clients and logs at hand.
    pub async fn sandbox(&self, name: &str) -> Result<Sandbox<'_>> {
        let number = self.next_sandbox.fetch_add(1, Ordering::Relaxed);
        Sandbox::create(self, &format!("{name}-{number}")).await
    }

    /// Made anew for each caller: a client is tied to the runtime it was made on, and each test has its own.
    pub async fn client(&self) -> Result<kube::Client> {
        Ok(self.control_plane.client().await?)
    }

    pub fn control_plane(&self) -> &ControlPlane {
        &self.control_plane
    }

    pub fn supervisor(&self) -> &Supervisor {
        &self.supervisor
    }

    /// Starts metrics-server, which reads nodes as often as it can be had to.
    pub async fn metrics_server(&self) -> Result<()> {
        let tools = tools(&[metrics_server::NAME]).await?;
        let options = metrics_server::Options {
            dir: self.dir().join(metrics_server::NAME),
            logs: self.dir().to_owned(),
            resolution: Duration::from_secs(10),
            restart: Restart::Never,
        };
        Ok(metrics_server::start(&tools, &self.supervisor, &self.control_plane, &options).await?)
    }

    pub fn node(&self) -> Option<&node::LinuxNode> {
        self.node.as_ref()
    }

    pub fn network(&self) -> Option<&node::Network> {
        self.network.as_ref()
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn audit(&self) -> Result<AuditLog> {
        let path = self
            .control_plane
            .audit_log()
            .context("the cluster was started without an audit log")?;
        Ok(AuditLog::new(&path))
    }

    /// The last lines of every part's log, for a failing test.
    pub fn log_tails(&self, lines: usize) -> String {
        let mut text = String::new();
        for part in self.supervisor.snapshot() {
            let log = std::fs::read_to_string(&part.log).unwrap_or_default();
            let all: Vec<&str> = log.lines().collect();
            let tail = all
                .get(all.len().saturating_sub(lines)..)
                .unwrap_or_default()
                .join("\n");
            let _ = writeln!(
                text,
                "--- {} ({:?}) {}\n{tail}",
                part.name,
                part.state,
                part.log.display()
            );
        }
        text
    }
}

/// Finds or makes the named tools, with progress on stderr when something has to be built.
pub async fn tools(names: &[&str]) -> Result<Tools> {
    let store = Store::new(Manifest::embedded(), PartsOptions::from_env());
    store
        .ensure(names, &Bars::stderr())
        .await
        .context("failed to obtain the real parts this test runs on")
}

/// `<temp>/russet-tests/<pid>-<n>`, removed on drop; folders of processes that are gone are removed when the next one is made.
#[derive(Debug)]
struct RunDir(PathBuf);

impl RunDir {
    async fn create() -> Result<Self> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let base = std::env::temp_dir().join("russet-tests");
        std::fs::create_dir_all(&base)?;
        for entry in std::fs::read_dir(&base)?.flatten() {
            let name = entry.file_name();
            let owner = name
                .to_str()
                .and_then(|name| name.split('-').next())
                .and_then(|pid| pid.parse::<u32>().ok());
            if owner.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists()) {
                // Whatever cannot be swept is somebody else's by now; the folder is ours all the same.
                let _ = russet_cluster::process::sweep(&entry.path()).await;
                let _ = node::sweep(&entry.path()).await;
                let _ = std::fs::remove_dir_all(entry.path());
            }
        }
        let path = base.join(format!(
            "{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        ));
        std::fs::create_dir_all(&path)?;
        Ok(Self(path))
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
