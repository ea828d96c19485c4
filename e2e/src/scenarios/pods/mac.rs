//! A Mac as a Node: the agent that ships, and what the emulated `tart` and its VMs do under it.

use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus, Node, Pod, Secret};
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt as _};
use russet_sim_tart::{Control, Image};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::{Child, Command};

use crate::TestCluster;
use crate::fleet::program;
use crate::wait::{self, Look};

/// Guests are processes of a machine that does many other things.
pub(in crate::scenarios) const PATIENCE: Duration = Duration::from_secs(150);
pub(in crate::scenarios) const IMAGE: &str = "ghcr.io/acme/mac:v1";
const GROUP: &str = "system:bootstrappers:macs";
const NAMESPACE: &str = "default";

/// A Mac that may join.
pub(in crate::scenarios) struct Mac<'c> {
    cluster: &'c TestCluster,
    client: Client,
    pub(in crate::scenarios) control: Control,
    pub(in crate::scenarios) node: String,
    /// Where the Node says that it is reached.
    address: &'static str,
    dir: TempDir,
}

/// A running agent. Dropped, it is killed.
pub(in crate::scenarios) struct Agent(Child);

impl Agent {
    /// Kills it as nothing can be prepared for.
    pub(super) async fn killed(mut self) -> Result<()> {
        self.0.kill().await.context("kill the agent")
    }
}

impl<'c> Mac<'c> {
    /// One with an image in its registry. The address is one of this machine's own, and nobody else's.
    pub(in crate::scenarios) async fn new(cluster: &'c TestCluster, address: &'static str) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let control = Control::new(dir.path().join("tart-home"))?;
        Control::install(&program("sim-tart", "russet-sim-tart")?, &dir.path().join("bin/tart"))?;
        control.push(IMAGE, &Image::default())?;
        // Whatever the disk of this machine is like.
        control.switch(|switches| switches.capacity_gb = Some(1000))?;
        let mac = Self {
            cluster,
            client: cluster.client().await?,
            control,
            node: "mac-1".to_owned(),
            address,
            dir,
        };
        mac.invite().await?;
        Ok(mac)
    }

    /// A token to join with, and a cluster that lets its holder become a Node.
    async fn invite(&self) -> Result<()> {
        let bindings: Api<ClusterRoleBinding> = Api::all(self.client.clone());
        for (name, role, group) in [
            ("macs-ask", "system:node-bootstrapper", GROUP),
            (
                "macs-join",
                "system:certificates.k8s.io:certificatesigningrequests:nodeclient",
                GROUP,
            ),
        ] {
            let binding = serde_json::from_value(json!({
                "metadata": {"name": name},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
                "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}],
            }))?;
            bindings.create(&PostParams::default(), &binding).await?;
        }
        let (id, secret) = ("macs01", "0123456789abcdef");
        let token = serde_json::from_value(json!({
            "type": "bootstrap.kubernetes.io/token", "metadata": {"name": format!("bootstrap-token-{id}")},
            "stringData": {
                "token-id": id, "token-secret": secret,
                "usage-bootstrap-authentication": "true", "auth-extra-groups": GROUP,
            },
        }))?;
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), "kube-system");
        secrets.create(&PostParams::default(), &token).await?;
        let plane = self.cluster.control_plane();
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {
                "server": plane.server(),
                "certificate-authority-data": ByteString(plane.ca_pem().as_bytes().to_vec()),
            }}],
            "users": [{"name": "u", "user": {"token": format!("{id}.{secret}")}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        });
        Ok(std::fs::write(self.path("kubeconfig"), kubeconfig.to_string())?)
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Starts the agent, as launchd has it.
    pub(in crate::scenarios) fn start(&self) -> Result<Agent> {
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.path("log"))?;
        let flag = |name: &str, path: PathBuf| format!("--{name}={}", path.display());
        let child = Command::new(program("tart-kubelet", "russet-tart-kubelet")?)
            .args([
                format!("--node-name={}", self.node),
                format!("--node-ip={}", self.address),
                flag("kubeconfig", self.path("kubeconfig")),
                flag("state-dir", self.path("state")),
                flag("tart-binary", self.path("bin/tart")),
                flag("tart-home", self.control.home().to_owned()),
                flag("disk-report", self.control.disk_report()),
            ])
            .args(["--max-pods=4", "--log-filter=info,russet_tart_kubelet=debug"])
            .args(["--metrics-bind-address=0", "--health-probe-bind-address=0"])
            .env_clear()
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .context("start the agent")?;
        Ok(Agent(child))
    }

    /// The last lines of the agent's log.
    fn log(&self) -> String {
        let log = std::fs::read_to_string(self.path("log")).unwrap_or_default();
        let mut last: Vec<&str> = log.lines().rev().take(10).collect();
        last.reverse();
        last.join("\n")
    }

    pub(super) fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    /// Who the agent is for the API server.
    pub(super) fn user(&self) -> String {
        format!("system:node:{}", self.node)
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
    pub(in crate::scenarios) async fn run(&self, name: &str, image: &str, script: Option<&str>) -> Result<Pod> {
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
        let uid = pod.uid().unwrap_or_default();
        Ok(std::fs::write(
            self.path("state/pods").join(uid).join("volumes/work/go"),
            "",
        )?)
    }

    pub(in crate::scenarios) async fn until(
        &self,
        name: &str,
        what: &str,
        holds: impl Fn(&Pod) -> bool,
    ) -> Result<Pod> {
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

    pub(in crate::scenarios) async fn until_running(&self, name: &str) -> Result<Pod> {
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
    pub(in crate::scenarios) async fn approve_serving(&self) -> Result<()> {
        let requests: Api<CertificateSigningRequest> = Api::all(self.client.clone());
        let name = wait::until("a request for a serving certificate", PATIENCE, || async {
            let all = requests.list(&ListParams::default()).await?;
            let ours = all.items.into_iter().find(|request| {
                request.spec.signer_name == "kubernetes.io/kubelet-serving"
                    && request.spec.username == Some(self.user())
            });
            Ok(ours.map_or_else(|| Look::NotYet(self.log()), |request| Look::Done(request.name_any())))
        })
        .await?;
        let approval = json!({"status": {"conditions": [{
            "type": "Approved", "status": "True", "reason": "Story", "message": "it is a Mac of this story",
        }]}});
        requests
            .patch_approval(&name, &PatchParams::default(), &Patch::Strategic(approval))
            .await?;
        Ok(())
    }

    /// A real kubectl, once it succeeds; the last failure else.
    pub(in crate::scenarios) async fn kubectl(&self, words: &[&str]) -> Result<String> {
        let tools = crate::cluster::tools(&["kubectl"]).await?;
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

impl Drop for Mac<'_> {
    fn drop(&mut self) {
        // VMs outlive their agent, and must not outlive their story.
        let _ = self.control.reboot();
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
