//! Linux cache nodes: servers behind the emulated Scaleway that join by themselves, and what makes volumes on them.
//!
//! ```text
//!   sim-scaleway ◀── rows ── sim-linux (as root one machine of namespaces per server, otherwise only its Node)
//!        ▲                       │ the join program, containerd, kubelet
//!        │                       ▼
//!   capi-provider ────────▶ kube-apiserver (on the network of the servers) ◀── local-path-provisioner
//! ```
//!
//! As root the API server listens on the servers' network instead of loopback, so the network is made before anything else
//! and ends after everything else. It belongs to this process: however it ends, the kernel takes the network apart.

use crate::cli;
use crate::state::Layout;
use anyhow::{Context, Result, bail, ensure};
use kube::Client;
use reqwest::Method;
use russet_cluster::control_plane::{self, ControlPlane};
use russet_cluster::local_path::{self, Orders};
use russet_cluster::node::{self, Network, Range};
use russet_cluster::pki::Profile;
use russet_cluster::process::{Restart, Spec, Supervisor};
use russet_cluster::{files, kubeconfig};
use russet_parts::{Manifest, Tools};
use serde_json::{Value, json};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The program of the servers; also their part.
const PROGRAM: &str = "sim-linux";
/// Account, ConfigMap and Deployment of the provisioner in the chart.
const PROVISIONER: &str = "capi-provider-local-path";
const STORAGE: &str = "local-path-storage";
/// Every server has it; no registry is asked.
const BUSYBOX: (&str, &str) = ("localhost/busybox", "1");

/// Elastic Metal takes forty minutes to install, which even at this account's pace is long to watch.
const METAL_INSTALL_SECONDS: u32 = 600;

/// Servers are switched off one after the other, and each takes the kernel a moment.
const STOP_GRACE: Duration = Duration::from_secs(30);

/// What there is to be of cache nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Plan {
    Real(PathBuf),
    /// Why they are no machines.
    Synthetic(PathBuf, String),
    LeftOut,
    /// The program is not beside russet.
    NotBuilt,
}

impl Plan {
    /// What was asked for, and what can be.
    pub(super) async fn of(args: &cli::Up) -> Self {
        if args.no_linux || args.no_fleet || args.no_capi {
            return Self::LeftOut;
        }
        let beside = std::env::current_exe().ok().and_then(|russet| program(&russet));
        let Some(program) = beside else {
            return Self::NotBuilt;
        };
        if args.synthetic_linux {
            return Self::Synthetic(program, "--synthetic-linux was given".to_owned());
        }
        if let Err(why) = node::check() {
            return Self::Synthetic(program, why.to_string());
        }
        match russet_sim_linux::check_data().await {
            Ok(()) => Self::Real(program),
            Err(why) => Self::Synthetic(program, why.to_owned()),
        }
    }

    /// The parts it takes.
    pub(super) fn tools(&self) -> Vec<&'static str> {
        match self {
            Self::Real(_) => russet_sim_linux::tools()
                .into_iter()
                .chain([local_path::NAME])
                .collect(),
            Self::Synthetic(..) | Self::LeftOut | Self::NotBuilt => Vec::new(),
        }
    }

    /// Makes the network, if there will be machines.
    pub(super) async fn prepare(self, layout: &Layout) -> Result<Option<Servers>> {
        let (program, network) = match &self {
            Self::Real(program) => (program, true),
            Self::Synthetic(program, _) => (program, false),
            Self::LeftOut | Self::NotBuilt => return Ok(None),
        };
        let dir = layout.linux();
        files::create_private_dir(&dir)?;
        same_manner(&dir, network)?;
        ensure!(
            !network || !dir.to_string_lossy().contains([',', ':', '\\']),
            "{} cannot hold the disks of cache nodes: mounts cannot name a path with a comma, a colon or a backslash in it; use \
             another --dir, --synthetic-linux or --no-linux",
            dir.display()
        );
        let network = if network {
            let made = Network::create(&dir).await;
            Some(made.context("failed to make the network of the cache nodes")?)
        } else {
            None
        };
        Ok(Some(Servers {
            program: program.clone(),
            network,
            dir,
        }))
    }
}

/// The program, when it lies where cargo and packages put it: beside this one.
fn program(russet: &Path) -> Option<PathBuf> {
    let beside = russet.parent()?.join(PROGRAM);
    beside.is_file().then_some(beside)
}

/// A machine cannot become a Node without one, nor the other way round: the server was told how to join only once.
fn same_manner(dir: &Path, machines: bool) -> Result<()> {
    let (other, were, are) = if machines {
        ("synthetic", "synthetic", "machines")
    } else {
        ("boxes", "machines", "synthetic")
    };
    let some = std::fs::read_dir(dir.join(other)).is_ok_and(|mut entries| entries.next().is_some());
    ensure!(
        !some,
        "the cache nodes in {} were {were} and would be {are} now; go on as before (root or not, --synthetic-linux or not), give \
         them up by one `russet up --no-linux`, or begin anew after `russet down`",
        dir.display()
    );
    Ok(())
}

/// The servers of this run.
#[derive(Debug)]
pub(super) struct Servers {
    program: PathBuf,
    /// None: there are no machines, only Nodes.
    network: Option<Network>,
    dir: PathBuf,
}

impl Servers {
    /// The API server must be where the servers are.
    pub(super) fn house(&self, options: &mut control_plane::Options) {
        if let Some(network) = &self.network {
            options.address = network.gateway();
            options.extras.controller_manager = Some(network.controller_manager_args());
        }
    }

    /// What the chart is told about them.
    pub(super) fn values(&self) -> Value {
        // Private addresses are routed, so no two networks of this machine may have one range.
        let number = self.network.as_ref().map_or(0, |network| network.gateway().octets()[2]);
        let manifest = Manifest::embedded();
        let version = manifest.tool("kubelet").map(|(part, _)| part.version.clone());
        let (repository, tag) = BUSYBOX;
        json!({
            "kuraFleet": {
                "enabled": true,
                "name": "kura-fleet",
                "kubernetesVersion": version.unwrap_or_default(),
                "machine": {"kind": "elasticMetal", "privateNetworkCIDR": format!("172.28.{number}.0/24")},
            },
            "kuraFleets": {"instances": {"name": "kura-fleet-instances", "machine": {"kind": "instance"}}},
            // The program runs here, on this machine's own copy of it.
            "localPath": {
                "replicas": 0,
                "helperImage": {"repository": repository, "tag": tag},
            },
        })
    }

    /// Starts the machines of an account, whose API answers already.
    pub(super) async fn start(
        &self,
        account: &str,
        layout: &Layout,
        tools: &Tools,
        supervisor: &Supervisor,
        control_plane: &ControlPlane,
    ) -> Result<()> {
        let mut settings = json!({"delays": {"metal_install": METAL_INSTALL_SECONDS}});
        if let Some(network) = &self.network {
            self.same_range(account, network.servers()).await?;
            if let Some(fields) = settings.as_object_mut() {
                fields.insert("linux_public".to_owned(), network.servers().to_string().into());
            }
        }
        ask(Method::PATCH, &format!("{account}/_sim/settings"), Some(&settings)).await?;
        let mut spec = Spec::new(PROGRAM, &self.program, layout.log(PROGRAM))
            .args(["--scaleway", account, "--api-server", control_plane.server()])
            .args(["--state".to_owned(), self.dir.display().to_string()])
            .stop_grace(STOP_GRACE)
            .restart(Restart::DEFAULT);
        if self.network.is_some() {
            let proxy = self.proxy_kubeconfig(control_plane)?;
            spec = spec
                .args(["--network".to_owned(), self.dir.display().to_string()])
                .args(["--proxy-kubeconfig".to_owned(), proxy.display().to_string()])
                .env("RUSSET_PARTS_DIR", self.links(tools)?.display().to_string());
        } else {
            spec = spec.args(["--synthetic"]);
        }
        supervisor
            .start(spec)
            .await
            .context("failed to start the emulated Linux servers")?;
        Ok(())
    }

    /// A network that another program took meanwhile is replaced by another one, and servers keep their addresses for life.
    async fn same_range(&self, account: &str, range: Range) -> Result<()> {
        let rows = ask(Method::GET, &format!("{account}/_sim/boxes"), None).await?;
        let addresses = rows.as_array().into_iter().flatten().filter_map(|row| {
            let address: IpAddr = row.get("public_ip")?.as_str()?.parse().ok()?;
            Some(address)
        });
        for address in addresses {
            let inside = matches!(address, IpAddr::V4(v4) if range.overlaps(Range::new(v4, 32)));
            if !inside {
                bail!(
                    "a cache node in {} has the address {address}, and its network is now {range}, because something else on this \
                     machine uses the old one (see `ip route`); free that, give the cache nodes up by one `russet up \
                     --no-linux`, or begin anew after `russet down`",
                    self.dir.display()
                );
            }
        }
        Ok(())
    }

    fn proxy_kubeconfig(&self, control_plane: &ControlPlane) -> Result<PathBuf> {
        let profile = Profile::client("system:kube-proxy", None);
        let pair = control_plane.pki().pair_in(&self.dir, "kube-proxy", &profile)?;
        let dest = self.dir.join("kube-proxy.kubeconfig");
        let (server, ca) = (control_plane.server(), control_plane.ca_pem());
        Ok(kubeconfig::for_client_cert(server, ca, &pair, &dest)?)
    }

    /// The very parts that were found for us, in a folder for a program that looks for them itself.
    fn links(&self, tools: &Tools) -> Result<PathBuf> {
        let dir = self.dir.join("parts");
        files::create_dir(&dir)?;
        for tool in russet_sim_linux::tools() {
            let (path, link) = (tools.path(tool)?, dir.join(tool));
            let failed = || format!("failed to link {} to {}", link.display(), path.display());
            match std::fs::remove_file(&link) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error).with_context(failed),
                _ => std::os::unix::fs::symlink(path, &link).with_context(failed)?,
            }
        }
        Ok(dir)
    }

    /// Starts what makes volumes on machines, once the chart is installed.
    pub(super) async fn start_provisioner(
        &self,
        tools: &Tools,
        supervisor: &Supervisor,
        control_plane: &ControlPlane,
        client: &Client,
    ) -> Result<()> {
        if self.network.is_none() {
            return Ok(());
        }
        let dest = self.dir.join("local-path.kubeconfig");
        kubeconfig::for_service_account(client.clone(), control_plane, STORAGE, PROVISIONER, &dest).await?;
        let orders = Orders::of_chart(client, STORAGE, PROVISIONER).await?;
        let options = local_path::Options {
            name: local_path::NAME.to_owned(),
            dir: self.dir.clone(),
            kubeconfig: dest,
            restart: Restart::DEFAULT,
        };
        local_path::start(tools, supervisor, &orders, options)
            .await
            .context("failed to start what makes volumes on the cache nodes")
    }
}

/// Flags of the provider that cache nodes need here: this cluster has no DNS, and nothing takes minutes that goes well.
pub(super) const PROVIDER_ARGS: [&str; 2] = ["--linux-cluster-dns=10.96.0.10", "--linux-inspect-after=1m"];

/// Removes what machines of a killed run left in the kernel, which is their cgroups if even their guards were killed.
pub(crate) async fn sweep(layout: &Layout) -> Result<Vec<String>> {
    node::sweep_cgroups(&layout.linux())
        .await
        .context("failed to remove what killed cache nodes left")
}

async fn ask(method: Method, url: &str, body: Option<&Value>) -> Result<Value> {
    let talk = async {
        let client = reqwest::Client::builder().no_proxy().build()?;
        let mut request = client.request(method, url);
        if let Some(body) = body {
            request = request.json(body);
        }
        request.send().await?.error_for_status()?.json().await
    };
    talk.await
        .with_context(|| format!("the emulated Scaleway does not answer at {url}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_the_one_beside_ours_or_none() {
        let dir = tempfile::tempdir().unwrap();
        let russet = dir.path().join("russet");
        assert_eq!(program(&russet), None);
        std::fs::write(dir.path().join(PROGRAM), "").unwrap();
        assert_eq!(program(&russet), Some(dir.path().join(PROGRAM)));
    }

    /// The state of a directory outlives the run: root today, an ordinary user tomorrow.
    #[test]
    fn machines_do_not_become_synthetic_nor_the_other_way_round() {
        let dir = tempfile::tempdir().unwrap();
        same_manner(dir.path(), true).unwrap();
        std::fs::create_dir_all(dir.path().join("synthetic")).unwrap();
        same_manner(dir.path(), true).unwrap();
        std::fs::write(dir.path().join("synthetic/a.json"), "").unwrap();
        let error = same_manner(dir.path(), true).unwrap_err().to_string();
        assert!(error.contains("were synthetic and would be machines now"), "{error}");
        same_manner(dir.path(), false).unwrap();
        std::fs::create_dir_all(dir.path().join("boxes/0123")).unwrap();
        let error = same_manner(dir.path(), false).unwrap_err().to_string();
        assert!(error.contains("were machines and would be synthetic now"), "{error}");
    }

    #[test]
    fn the_chart_gets_one_fleet_of_each_kind() {
        let servers = Servers {
            program: PathBuf::new(),
            network: None,
            dir: PathBuf::new(),
        };
        let values = servers.values();
        let kind = |pointer: &str| values.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        assert_eq!(kind("/kuraFleet/machine/kind").as_deref(), Some("elasticMetal"));
        assert_eq!(kind("/kuraFleets/instances/machine/kind").as_deref(), Some("instance"));
        assert!(kind("/kuraFleet/kubernetesVersion").is_some_and(|version| version.starts_with("v1.")));
    }
}
