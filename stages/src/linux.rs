//! Linux cache nodes for tests: servers of namespaces that really boot, join and run Pods.
//!
//! ```text
//!   TestCluster (control plane on the node network, capi-core)
//!        ▲            ▲                      ▲
//!   capi-provider   local-path-provisioner   servers (sim/linux): the join program, containerd, kubelet
//!        │ SCW_API_URL    as the chart's          ▲ rows
//!        └──────▶ Sim     accounts       ─────────┘
//! ```
//!
//! Needs root: ask [`can_run`] first.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Service;
use kube::api::{Api, PostParams};
use russet_cluster::kubeconfig;
use russet_cluster::local_path::{self, Orders};
use russet_cluster::node::{self, Network};
use russet_cluster::pki::Profile;
use russet_cluster::process::Restart;
use russet_parts::Manifest;
use russet_sim_linux::{Fleet as Servers, Options};
use russet_sim_scaleway::Settings;
use russet_testkit::chart::Helm;
use russet_testkit::cluster::{Extras, TestCluster, tools};
use russet_testkit::program::program;
use serde_json::{Value, json};

use crate::macs::{Fleet, Yard};

/// Nothing here takes minutes but what takes them for ever.
const PROVIDER_ARGS: [&str; 1] = ["--linux-inspect-after=30s"];
/// Where the provisioner is.
pub const STORAGE: &str = "local-path-storage";
/// The network between caches and runners.
pub const PRIVATE_NETWORK: &str = "tuist-runner-cache";

/// Whether such servers can run here; the test says why not.
pub async fn can_run(test: &str) -> bool {
    let possible = match node::check() {
        Ok(()) => russet_sim_linux::check_data().await.map_err(str::to_owned),
        Err(reason) => Err(reason.to_string()),
    };
    russet_skip::can_run(test, possible)
}

/// `sim-linux`, which is also what runs inside of servers.
pub fn server_program() -> Result<PathBuf> {
    program("sim-linux", "russet-sim-linux")
}

/// Everything, running, but for the provider and the provisioner.
#[derive(Debug)]
pub struct Site {
    // Field order is drop order.
    pub servers: Servers,
    pub fleet: Fleet,
    helm: Helm,
}

impl Site {
    pub async fn start() -> Result<Self> {
        let cluster = TestCluster::start(Extras {
            cluster_api: true,
            node_network: true,
            ..Extras::default()
        })
        .await?;
        let network = cluster.network().context("the cluster has no network")?.clone();
        let servers = Servers::new(Options {
            state: cluster.dir().join("servers"),
            program: server_program()?,
            tools: tools(&russet_sim_linux::tools()).await?,
            network: network.clone(),
            proxy_kubeconfig: Some(proxy_kubeconfig(&cluster)?),
            images: Vec::new(),
        })
        .await?;
        let settings = Settings {
            linux_public: network.servers().to_string().parse().map_err(anyhow::Error::msg)?,
            ..Settings::default()
        };
        cluster_dns(&cluster).await?;
        let fleet = Fleet::around(cluster, settings, servers.clone()).await?;
        Ok(Self {
            servers,
            fleet,
            helm: Helm::new().await?,
        })
    }

    fn network(&self) -> Result<&Network> {
        self.fleet.cluster.network().context("the cluster has no network")
    }

    /// The chart with a fleet of Elastic Metal; and, from the same template, one of Instances.
    pub async fn install(&self, yard: &Yard<'_>, metals: &str, instances: &str) -> Result<()> {
        let metal = self.values(metals, "elasticMetal")?;
        self.fleet.install(&PROVIDER_ARGS, metal).await?;
        let instance = self
            .fleet
            .chart_values(&PROVIDER_ARGS, self.values(instances, "instance")?);
        let template = "templates/kura-fleet.yaml";
        for object in self.helm.template(self.fleet.release(&instance), template).await? {
            yard.apply(object).await?;
        }
        Ok(())
    }

    fn values(&self, fleet: &str, kind: &str) -> Result<Value> {
        // Two networks of this machine must not have one private range: both are routed.
        let [_, _, number, _] = self.network()?.gateway().octets();
        let manifest = Manifest::embedded();
        let (kubelet, _) = manifest.tool("kubelet")?;
        Ok(json!({
            "cluster": {"name": "fleet"},
            "kuraFleet": {
                "enabled": true, "name": fleet, "kubernetesVersion": kubelet.version,
                "machine": {
                    "kind": kind, "privateNetworkName": PRIVATE_NETWORK, "privateNetworkCIDR": format!("172.28.{number}.0/24"),
                },
                "healthCheck": {"enabled": false},
            },
            "localPath": {"helperImage": {"repository": "localhost/busybox", "tag": "1"}},
        }))
    }

    /// The provider as its chart deploys it. Its name, as the audit log has it.
    pub async fn start_provider(&self) -> Result<String> {
        self.fleet.start_provider(&PROVIDER_ARGS).await?;
        Ok(self.fleet.provider_user.clone())
    }

    /// The provisioner as the account of the chart. Its name, as the audit log has it.
    pub async fn start_provisioner(&self) -> Result<String> {
        let dest = provisioner_kubeconfig(&self.fleet).await?;
        start_provisioner(&self.fleet, local_path::NAME, dest).await?;
        Ok(user(STORAGE, &provisioner(&self.fleet)))
    }

    /// The last lines of everything that servers wrote down, for a failing test.
    pub fn consoles(&self) -> String {
        let mut text = String::new();
        let list = |folder: PathBuf| std::fs::read_dir(folder).into_iter().flatten().flatten();
        for folder in list(self.fleet.cluster.dir().join("servers/boxes")) {
            let folder = folder.path();
            let logs = ["console.log", "disk/var/log/cloud-init-output.log"].map(|log| folder.join(log));
            let journals = list(folder.join("disk/var/log/journal-box")).map(|entry| entry.path());
            for log in logs.into_iter().chain(journals) {
                let said = String::from_utf8_lossy(&std::fs::read(&log).unwrap_or_default()).into_owned();
                let lines: Vec<&str> = said.lines().collect();
                let tail = lines.get(lines.len().saturating_sub(25)..).unwrap_or_default();
                let _ = writeln!(text, "--- {}\n{}", log.display(), tail.join("\n"));
            }
        }
        text
    }
}

/// Account, ConfigMap and Deployment of the provisioner of a fleet's chart.
pub fn provisioner(fleet: &Fleet) -> String {
    format!("{}-local-path", fleet.account())
}

/// A kubeconfig with the provisioner's account.
pub async fn provisioner_kubeconfig(fleet: &Fleet) -> Result<PathBuf> {
    let dest = fleet.cluster.dir().join("local-path.kubeconfig");
    let client = fleet.cluster.client().await?;
    kubeconfig::for_service_account(
        client,
        fleet.cluster.control_plane(),
        STORAGE,
        &provisioner(fleet),
        &dest,
    )
    .await?;
    Ok(dest)
}

/// Starts the real provisioner under a name, as whoever the kubeconfig names, told what the chart tells it.
pub async fn start_provisioner(fleet: &Fleet, name: &str, kubeconfig: PathBuf) -> Result<()> {
    let cluster = &fleet.cluster;
    let orders = Orders::of_chart(&cluster.client().await?, STORAGE, &provisioner(fleet)).await?;
    let options = local_path::Options {
        name: name.to_owned(),
        dir: cluster.dir().to_owned(),
        kubeconfig,
        restart: Restart::Never,
    };
    let tools = tools(&[local_path::NAME]).await?;
    local_path::start(&tools, cluster.supervisor(), &orders, options).await?;
    Ok(())
}

/// How the audit log names an account.
pub fn user(namespace: &str, account: &str) -> String {
    format!("system:serviceaccount:{namespace}:{account}")
}

fn proxy_kubeconfig(cluster: &TestCluster) -> Result<PathBuf> {
    let control_plane = cluster.control_plane();
    let profile = Profile::client("system:kube-proxy", None);
    let pair = control_plane.pki().pair_in(cluster.dir(), "kube-proxy", &profile)?;
    let dest = cluster.dir().join("kube-proxy.kubeconfig");
    Ok(kubeconfig::for_client_cert(
        control_plane.server(),
        control_plane.ca_pem(),
        &pair,
        &dest,
    )?)
}

/// Where Pods would ask for names: the provider looks this up for every kubelet.
async fn cluster_dns(cluster: &TestCluster) -> Result<()> {
    let service: Service = serde_json::from_value(json!({
        "metadata": {"name": "kube-dns"},
        "spec": {"ports": [{"name": "dns", "port": 53, "protocol": "UDP"}]},
    }))?;
    let services: Api<Service> = Api::namespaced(cluster.client().await?, "kube-system");
    services.create(&PostParams::default(), &service).await?;
    Ok(())
}
