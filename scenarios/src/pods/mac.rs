//! A Mac as a Node: the agent that ships, and what the emulated `tart` and its VMs do under it.

use std::ops::Deref;
use std::process::{Output, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus, Node, Pod};
use kube::api::{Api, PostParams};
use kube::{Client, ResourceExt as _};
use russet_sim_tart::Image;
use russet_stages::macs::host::{Agent, MacHost, node_user};
use russet_testkit::TestCluster;
use russet_testkit::program::program;
use russet_testkit::wait::{self, Look};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::{Child, Command};

/// Guests are processes of a machine that does many other things.
pub(crate) const PATIENCE: Duration = Duration::from_secs(150);
pub(crate) const IMAGE: &str = "ghcr.io/acme/mac:v1";
const NAMESPACE: &str = "default";

/// A Mac that may join.
pub(crate) struct Mac<'c> {
    host: MacHost,
    cluster: &'c TestCluster,
    client: Client,
    /// Where the Node says that it is reached.
    address: &'static str,
    dir: TempDir,
}

impl Deref for Mac<'_> {
    type Target = MacHost;

    fn deref(&self) -> &MacHost {
        &self.host
    }
}

impl<'c> Mac<'c> {
    /// One with an image in its registry. The address is one of this machine's own, and nobody else's.
    pub(crate) async fn new(cluster: &'c TestCluster, address: &'static str) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let host = MacHost::new(dir.path(), "mac-1", &program("sim-tart", "russet-sim-tart")?)?;
        host.control.push(IMAGE, &Image::default())?;
        let client = cluster.client().await?;
        host.invite(cluster, &client).await?;
        Ok(Self {
            host,
            cluster,
            client,
            address,
            dir,
        })
    }

    /// Starts the agent, as launchd has it.
    pub(crate) fn start(&self) -> Result<Agent> {
        self.host.start(
            &program("tart-kubelet", "russet-tart-kubelet")?,
            &[
                &format!("--node-ip={}", self.address),
                "--max-pods=4",
                "--log-filter=info,russet_tart_kubelet=debug",
                "--metrics-bind-address=0",
                "--health-probe-bind-address=0",
            ],
        )
    }

    pub(super) fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    /// Who the agent is for the API server.
    pub(super) fn user(&self) -> String {
        node_user(&self.node)
    }

    fn tart(&self, words: &[&str]) -> Command {
        let mut command = Command::new(self.path("bin/tart"));
        command
            .args(words)
            .env_clear()
            .env("TART_HOME", self.control.home())
            .env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin")
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    /// What `tart` does for whoever types it.
    pub(super) async fn by_hand(&self, words: &[&str]) -> Result<Output> {
        let output = tokio::time::timeout(PATIENCE, self.tart(words).output());
        output
            .await
            .with_context(|| format!("tart {words:?} does not end"))?
            .context("start tart")
    }

    /// A VM that nobody has a Pod for; it is there until it is stopped.
    pub(super) async fn run_by_hand(&self, name: &str) -> Result<Child> {
        let cloned = self.by_hand(&["clone", IMAGE, name]).await?;
        anyhow::ensure!(cloned.status.success(), "{cloned:?}");
        let child = self
            .tart(&["run", name, "--no-graphics"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        wait::until(&format!("{name} to run"), PATIENCE, || async {
            let address = self.by_hand(&["ip", name]).await?;
            Ok(if address.status.success() {
                Look::Done(())
            } else {
                Look::not_yet(address)
            })
        })
        .await?;
        Ok(child)
    }

    pub(super) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    /// A Pod for this Mac. Without a script its image does everything.
    pub(crate) async fn run(&self, name: &str, image: &str, script: Option<&str>) -> Result<Pod> {
        let command = script.map_or(Value::Null, |script| json!(["/bin/sh", "-c", script]));
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {
                "nodeName": self.node, "restartPolicy": "Never", "automountServiceAccountToken": false,
                "terminationGracePeriodSeconds": 5,
                "tolerations": [{"operator": "Exists"}],
                "containers": [{
                    "name": "main", "image": image, "command": command,
                    "volumeMounts": [{"name": "work", "mountPath": "/opt/work"}],
                }],
                "volumes": [{"name": "work", "emptyDir": {}}],
            },
        }))?;
        // Right after its start a cluster has no ServiceAccount yet.
        wait::until("the Pod to be accepted", PATIENCE, || async {
            Ok(Look::Done(self.pods().create(&PostParams::default(), &pod).await?))
        })
        .await
    }

    /// Lets go of a script that waits for it.
    pub(super) fn go(&self, pod: &Pod) -> Result<()> {
        let work = self.work(&pod.uid().unwrap_or_default());
        Ok(std::fs::write(work.join("go"), "")?)
    }

    pub(crate) async fn until(&self, name: &str, what: &str, holds: impl Fn(&Pod) -> bool) -> Result<Pod> {
        wait::until(what, PATIENCE, || async {
            let pod = self.pods().get(name).await?;
            Ok(if holds(&pod) {
                Look::Done(pod)
            } else {
                Look::NotYet(format!("{}\n{}", json!(pod.status), self.log()))
            })
        })
        .await
    }

    pub(crate) async fn until_running(&self, name: &str) -> Result<Pod> {
        self.until(name, &format!("Pod {name} to run"), |pod| {
            container(pod).is_some_and(|container| container.ready)
        })
        .await
    }

    pub(super) async fn until_gone(&self, name: &str) -> Result<()> {
        wait::until(&format!("Pod {name} to be gone"), PATIENCE, || async {
            Ok(match self.pods().get_opt(name).await? {
                None => Look::Done(()),
                Some(pod) => Look::NotYet(format!("{}\n{}", json!(pod.status), self.log())),
            })
        })
        .await
    }

    /// The VM of a Pod, if it runs.
    pub(super) fn vm(&self, pod: &str) -> Result<Option<String>> {
        let prefix = format!("rvm_{NAMESPACE}_{pod}_");
        let running = self.control.running()?;
        Ok(running.into_iter().find(|name| name.starts_with(&prefix)))
    }

    /// Approves the certificate that the kubelet API serves with, as the provider does.
    pub(crate) async fn approve_serving(&self) -> Result<()> {
        self.host.approve_serving(&self.client).await
    }

    /// A real kubectl, once it succeeds; the last failure else.
    pub(crate) async fn kubectl(&self, words: &[&str]) -> Result<String> {
        let tools = russet_testkit::cluster::tools(&["kubectl"]).await?;
        let kubectl = tools.path("kubectl").context("kubectl")?.to_owned();
        let admin = self.cluster.control_plane().admin_kubeconfig().display().to_string();
        wait::until(&format!("kubectl {}", words.join(" ")), PATIENCE, || async {
            let output = Command::new(&kubectl)
                .args(["--kubeconfig", &admin])
                .args(words)
                .env("HOME", self.dir.path())
                .stdin(Stdio::null())
                .kill_on_drop(true)
                .output()
                .await?;
            Ok(if output.status.success() {
                Look::Done(String::from_utf8_lossy(&output.stdout).into_owned())
            } else {
                Look::NotYet(String::from_utf8_lossy(&output.stderr).into_owned())
            })
        })
        .await
    }
}

pub(super) fn phase(pod: &Pod) -> &str {
    let status = pod.status.as_ref();
    status.and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// The only container.
pub(super) fn container(pod: &Pod) -> Option<&ContainerStatus> {
    pod.status.as_ref()?.container_statuses.as_ref()?.first()
}

/// How the only container ended.
pub(super) fn terminated(pod: &Pod) -> Result<ContainerStateTerminated> {
    container(pod)
        .and_then(|container| container.state.as_ref()?.terminated.clone())
        .with_context(|| format!("its container has not ended: {:?}", pod.status))
}
