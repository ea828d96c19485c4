//! A Mac of a fleet that runs Pods, as it is deployed: the provider set it up over SSH with its flags and a node certificate, its launchd
//! runs the agent that ships, and the emulated `tart` came as the archive of a release.
//!
//! All such Macs of a process are in one fleet on one cluster; each story has a Mac, a namespace and a pool of its own.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus, Node, Pod};
use kube::ResourceExt as _;
use kube::api::{Api, PostParams};
use russet_sim_tart::Control;
use russet_stages::for_good::for_good;
use russet_stages::macs::host::{node_user, tail};
use russet_stages::macs::{Fleet, Yard};
use russet_testkit::TestCluster;
use russet_testkit::wait::{self, Look};
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::sync::OnceCell;

use super::bench::pack;
use super::program::agent;
use super::under_provider::{Image, mini_of, set_up};
use super::{JOB, Mini, PLIST};

/// Guests are processes of a machine that does many other things.
pub(crate) const PATIENCE: Duration = Duration::from_secs(150);
pub(crate) const IMAGE: &str = "ghcr.io/acme/mac:v1";
pub(crate) const OTHER_IMAGE: &str = "ghcr.io/acme/large:v1";
const TART: &str = "tart.tar.gz";

/// The fleet, and what its provider puts on Macs.
struct World {
    fleet: Fleet,
    _image: Image,
}

static WORLD: OnceCell<World> = OnceCell::const_new();

impl World {
    async fn start() -> Result<Self> {
        let image = Image::of(&agent()?)?;
        tart(&image.path(TART))?;
        let mut flags = image.tailnet()?;
        flags.push(image.flag("tart-tarball-path", TART));
        Ok(Self {
            fleet: image.fleet(&flags).await?,
            _image: image,
        })
    }
}

/// A release of the emulated `tart`, with a registry that has our images.
fn tart(archive: &Path) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let images = [IMAGE, OTHER_IMAGE].map(|name| {
        let image = russet_sim_tart::Image {
            label: name.to_owned(),
            ..russet_sim_tart::Image::default()
        };
        (name, image)
    });
    russet_sim_tart::write_bundle(folder.path(), &images)?;
    pack(archive, folder.path())
}

/// A Mac that serves.
pub(crate) struct Mac {
    yard: Yard<'static>,
    pub(super) mini: Mini,
    pub(crate) node: String,
    /// What its `tart` does, and what is done to it.
    pub(crate) control: Control,
    /// Its `/`.
    root: PathBuf,
}

impl Mac {
    /// One of its own, whose Node is ready.
    pub(crate) async fn serving(story: &str) -> Result<Self> {
        let world = WORLD
            .get_or_try_init(|| for_good("fleet of Macs", World::start))
            .await?;
        let yard = world.fleet.yard(story, 1).await?;
        let mini = mini_of(&yard).await?;
        let node = set_up(&yard, json!({})).await?.name_any();
        let mac = mini.mac().await?;
        // The folders of `tart` are its user's.
        tart_of(&mini, "list").await?;
        let root = mac.root().to_owned();
        let mac = Self {
            control: Control::on_mac(&root, &mac.host().username)?,
            yard,
            mini,
            node,
            root,
        };
        wait::until("the Node to be ready", PATIENCE, || async {
            let node = mac.nodes().get(&mac.node).await?;
            Ok(if is_ready(&node) {
                Look::Done(())
            } else {
                Look::NotYet(format!("{}\n{}", json!(node.status), mac.log()))
            })
        })
        .await?;
        Ok(mac)
    }

    /// Cuts its power: its guests would go on for as long as the fleet does.
    pub(crate) async fn switch_off(&self) -> Result<()> {
        self.mini.mac().await?.cut_power().await;
        Ok(())
    }

    pub(crate) fn cluster(&self) -> &'static TestCluster {
        &self.yard.fleet.cluster
    }

    pub(crate) fn nodes(&self) -> Api<Node> {
        self.yard.nodes()
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.yard.client.clone(), &self.yard.namespace)
    }

    /// Who the agent is for the API server.
    pub(crate) fn user(&self) -> String {
        node_user(&self.node)
    }

    /// A file of the agent's.
    pub(crate) fn state(&self, path: &str) -> PathBuf {
        self.root.join("private/var/lib/tart-kubelet").join(path)
    }

    /// The end of what the agent said.
    pub(crate) fn log(&self) -> String {
        tail(&self.root.join("private/var/log/tart-kubelet.log"), 20)
    }

    /// Its address on the tailnet.
    pub(crate) async fn tailnet_address(&self) -> Result<std::net::IpAddr> {
        let said = self.mini.root("/usr/local/bin/tailscale ip -4").await?;
        said.trim().parse().with_context(|| format!("no address: {said}"))
    }

    /// Kills the agent, which has no time to prepare for it, and keeps launchd from starting another one.
    pub(crate) async fn kill_agent(&self) -> Result<()> {
        let pid = self.mini.running().await?;
        // A process that is stopped never gets the SIGTERM of launchd, and then it gets SIGKILL.
        self.mini
            .root(&format!("kill -STOP {pid} && launchctl bootout --wait {JOB}"))
            .await?;
        ensure!(self.mini.pid().await?.is_none(), "the agent runs on");
        Ok(())
    }

    /// Has launchd run the agent again.
    pub(crate) async fn start_agent(&self) -> Result<()> {
        self.mini.root(&format!("launchctl bootstrap system {PLIST}")).await?;
        Ok(())
    }

    /// What `tart` says to the user of the Mac.
    pub(crate) async fn by_hand(&self, words: &str) -> Result<String> {
        tart_of(&self.mini, words).await
    }

    /// Whether a `tart pull` of an image runs.
    pub(crate) async fn is_pulling(&self, image: &str) -> Result<bool> {
        let found = self.mini.user(&format!("pgrep -f 'pull {image}'")).await?;
        Ok(found.status.is_success())
    }

    /// A VM without a Pod; it is there until it is stopped.
    pub(crate) async fn run_by_hand(&self, name: &str) -> Result<()> {
        self.by_hand(&format!("clone {IMAGE} {name}")).await?;
        let run = format!("nohup /usr/local/bin/tart run {name} --no-graphics </dev/null >/tmp/{name}.log 2>&1 &");
        self.mini.user(&run).await?;
        wait::until(&format!("{name} to run"), PATIENCE, || async {
            self.by_hand(&format!("ip {name}")).await?;
            Ok(Look::Done(()))
        })
        .await
    }

    /// The VM of a Pod, if it runs.
    pub(crate) fn vm(&self, pod: &str) -> Result<Option<String>> {
        let prefix = format!("rvm_{}_{pod}_", self.yard.namespace);
        let running = self.control.running()?;
        Ok(running.into_iter().find(|name| name.starts_with(&prefix)))
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
        // A namespace that is new has no ServiceAccount yet.
        wait::until("the Pod to be accepted", PATIENCE, || async {
            Ok(Look::Done(self.pods().create(&PostParams::default(), &pod).await?))
        })
        .await
    }

    /// Lets go of a script that waits for it.
    pub(crate) fn go(&self, pod: &Pod) -> Result<()> {
        let work = format!("pods/{}/volumes/work", pod.uid().unwrap_or_default());
        Ok(std::fs::write(self.state(&work).join("go"), "")?)
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
        self.until(name, &format!("Pod {name} to run"), runs).await
    }

    pub(crate) async fn until_gone(&self, name: &str) -> Result<()> {
        wait::until(&format!("Pod {name} to be gone"), PATIENCE, || async {
            Ok(match self.pods().get_opt(name).await? {
                None => Look::Done(()),
                Some(pod) => Look::NotYet(format!("{}\n{}", json!(pod.status), self.log())),
            })
        })
        .await
    }

    /// A real kubectl about a Pod, once it succeeds; the last failure else.
    pub(crate) async fn kubectl(&self, words: &[&str]) -> Result<String> {
        let tools = russet_testkit::cluster::tools(&["kubectl"]).await?;
        let kubectl = tools.path("kubectl").context("kubectl")?.to_owned();
        let cluster = self.cluster();
        wait::until(&format!("kubectl {}", words.join(" ")), PATIENCE, || async {
            let output = Command::new(&kubectl)
                .arg("--kubeconfig")
                .arg(cluster.control_plane().admin_kubeconfig())
                .args(["--namespace", &self.yard.namespace])
                .args(words)
                .env("HOME", cluster.dir())
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

async fn tart_of(mini: &Mini, words: &str) -> Result<String> {
    let said = mini.user(&format!("exec /usr/local/bin/tart {words}")).await?;
    ensure!(said.status.is_success(), "tart {words}: {said:?}");
    Ok(said.stdout)
}

/// Whether a Node says that it is ready.
pub(crate) fn is_ready(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut ready = conditions.filter(|condition| condition.type_ == "Ready");
    ready.any(|condition| condition.status == "True")
}

pub(crate) fn phase(pod: &Pod) -> &str {
    let status = pod.status.as_ref();
    status.and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// The only container.
fn container(pod: &Pod) -> Option<&ContainerStatus> {
    pod.status.as_ref()?.container_statuses.as_ref()?.first()
}

/// Whether the only container runs.
pub(crate) fn runs(pod: &Pod) -> bool {
    container(pod).is_some_and(|container| container.ready)
}

/// What the only container waits for.
pub(crate) fn waiting(pod: &Pod) -> Option<&str> {
    let waiting = container(pod)?.state.as_ref()?.waiting.as_ref()?;
    Some(waiting.message.as_deref().unwrap_or_default())
}

/// How the only container ended.
pub(crate) fn terminated(pod: &Pod) -> Result<ContainerStateTerminated> {
    container(pod)
        .and_then(|container| container.state.as_ref()?.terminated.clone())
        .with_context(|| format!("its container has not ended: {:?}", pod.status))
}
