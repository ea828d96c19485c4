//! A Mac: the agent of this repository with the emulated `tart`.

use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context, Result};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client};
use russet_cluster::kubeconfig;
use russet_cluster::node::join;
use russet_e2e::TestCluster;
use russet_e2e::beside::{IMAGE, OTHER_IMAGE};
use russet_e2e::fleet::program;
use russet_e2e::wait::{self, Look, PATIENCE};
use russet_sim_tart::{Control, Image};
use tokio::process::{Child, Command};

pub(crate) struct Mac {
    pub(crate) node: String,
    pub(crate) control: Control,
    dir: PathBuf,
    agent: Child,
}

impl Mac {
    /// A Mac that has joined and is ready.
    pub(crate) async fn start(cluster: &TestCluster, client: &Client, number: usize) -> Result<Self> {
        let node = format!("mac-{number}");
        let dir = cluster.dir().join(&node);
        std::fs::create_dir_all(&dir)?;
        let control = Control::new(dir.join("tart-home"))?;
        // Guests bind ports, so no two Macs give out the same address.
        // And whatever the disk of this machine is like, theirs has room.
        control.switch(|switches| {
            switches.addresses = format!("127.{}", 80 + number);
            switches.capacity_gb = Some(1000);
        })?;
        Control::install(&std::env::current_exe()?, &dir.join("bin/tart"))?;
        for image in [IMAGE, OTHER_IMAGE] {
            let content = Image {
                label: image.to_owned(),
                ..Image::default()
            };
            control.push(image, &content)?;
        }
        let plane = cluster.control_plane();
        let token = join::invite(client, Timestamp::now()).await?;
        let config = dir.join("kubeconfig");
        kubeconfig::for_token(plane.server(), plane.ca_pem(), "bootstrap", &token.bearer(), &config)?;
        let log = std::fs::File::create(dir.join("log"))?;
        let flag = |name: &str, path: &str| format!("--{name}={}", dir.join(path).display());
        let agent = Command::new(program("tart-kubelet", "russet-tart-kubelet")?)
            .arg(format!("--node-name={node}"))
            .arg(format!("--node-ip=127.77.8.{number}"))
            .args([flag("kubeconfig", "kubeconfig"), flag("state-dir", "state")])
            .arg(format!("--disk-report={}", control.disk_report().display()))
            .args([flag("tart-binary", "bin/tart"), flag("tart-home", "tart-home")])
            .args([
                "--max-pods=4",
                "--metrics-bind-address=0",
                "--health-probe-bind-address=0",
            ])
            .args([
                "--kubelet-bind-address=0",
                "--log-filter=info,russet_tart_kubelet=debug",
            ])
            .env_clear()
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()?;
        let mac = Self {
            node,
            control,
            dir,
            agent,
        };
        let nodes: Api<Node> = Api::all(client.clone());
        wait::until("a Mac that is ready", PATIENCE, || async {
            let node = nodes.get_opt(&mac.node).await?;
            let conditions = node.and_then(|node| node.status?.conditions).unwrap_or_default();
            let ready = conditions
                .iter()
                .any(|found| found.type_ == "Ready" && found.status == "True");
            Ok(if ready { Look::Done(()) } else { Look::NotYet(mac.log()) })
        })
        .await?;
        join::revoke(client, &token).await;
        Ok(mac)
    }

    /// The volume of a Pod.
    pub(crate) fn volume(&self, uid: &str) -> PathBuf {
        self.dir.join("state/pods").join(uid).join("volumes/work")
    }

    /// The end of what the agent said.
    pub(crate) fn log(&self) -> String {
        let log = std::fs::read_to_string(self.dir.join("log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines
            .get(lines.len().saturating_sub(30)..)
            .unwrap_or_default()
            .join("\n")
    }

    /// Waits until nothing of any Pod is left.
    pub(crate) async fn until_empty(&self) -> Result<()> {
        wait::until("an empty Mac", PATIENCE, || async {
            let folders = std::fs::read_dir(self.dir.join("state/pods")).map_or(0, Iterator::count);
            let running = self.control.running()?;
            Ok(if folders == 0 && running.is_empty() {
                Look::Done(())
            } else {
                Look::NotYet(format!("{running:?} {}", self.log()))
            })
        })
        .await
    }

    /// Ends everything.
    pub(crate) async fn end(&mut self) -> Result<()> {
        self.agent.kill().await.context("kill the agent")?;
        Ok(self.control.reboot()?)
    }
}
