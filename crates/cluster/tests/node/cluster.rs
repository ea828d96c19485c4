//! A control plane on a node network, and kubectl to talk to it.

use std::{fmt::Write as _, path::Path, process::Stdio, time::Duration};

use russet_cluster::{
    ControlPlane, Supervisor,
    control_plane::{self, Durability, Extras},
    node::{LinuxNode, Network, Options, TOOLS},
};
use russet_parts::{Manifest, Silent, Store, Tools};
use tokio::{io::AsyncWriteExt as _, process::Command, time::Instant};

/// Fields end in order of declaration: the network last, as the control plane listens on it.
pub(crate) struct Cluster {
    pub(crate) tools: Tools,
    pub(crate) control_plane: ControlPlane,
    pub(crate) supervisor: Supervisor,
    pub(crate) network: Network,
}

impl Cluster {
    pub(crate) async fn start(state: &Path) -> Self {
        let plane = "etcd kube-apiserver kube-controller-manager kube-scheduler kubectl";
        let wanted: Vec<&str> = plane.split(' ').chain(TOOLS).collect();
        let store = Store::new(Manifest::embedded(), russet_parts::Options::from_env());
        let tools = store.ensure(&wanted, &Silent).await;
        let tools = tools.unwrap_or_else(|error| panic!("{error}"));

        let network = Network::create(state).await.unwrap_or_else(|error| panic!("{error}"));
        let supervisor = Supervisor::new(state);
        let options = control_plane::Options {
            address: network.gateway(),
            extras: Extras {
                controller_manager: Some(network.controller_manager_args()),
                scheduler: true,
            },
            durability: Durability::Throwaway,
            ..control_plane::Options::new(state.join("cluster"))
        };
        let control_plane = ControlPlane::start(&tools, &supervisor, options).await;
        let control_plane = control_plane.unwrap_or_else(|error| panic!("{error}"));
        Self {
            tools,
            control_plane,
            supervisor,
            network,
        }
    }

    pub(crate) async fn node(&self, options: Options) -> LinuxNode {
        let logs = options.logs.clone();
        let started = Instant::now();
        let node = LinuxNode::start(&self.tools, &self.supervisor, &self.control_plane, options).await;
        let node =
            node.unwrap_or_else(|error| panic!("{error}: {:?}\n{}", std::error::Error::source(&error), tails(&logs)));
        println!("{} was Ready after {:?}", node.name(), started.elapsed());
        node
    }

    pub(crate) async fn stop(self) {
        self.supervisor.shutdown().await;
    }

    /// Runs kubectl as the administrator and returns what it printed.
    pub(crate) async fn kubectl(&self, args: &[&str]) -> String {
        self.kubectl_with(args, "").await
    }

    /// The same with plain words.
    pub(crate) async fn kube(&self, words: &str) -> String {
        let args: Vec<&str> = words.split(' ').collect();
        self.kubectl(&args).await
    }

    pub(crate) async fn apply(&self, manifest: &str) {
        self.kubectl_with(&["apply", "-f", "-"], manifest).await;
    }

    pub(crate) async fn pods_ready(&self, names: &[&str]) {
        let pods = names.iter().map(|name| format!("pod/{name}")).collect::<Vec<_>>();
        let mut args = vec!["wait", "--for=condition=Ready", "--timeout=90s"];
        args.extend(pods.iter().map(String::as_str));
        self.kubectl(&args).await;
    }

    /// Fetches a URL from inside a pod. (`timeout`, because the `-T` of Debian's static wget crashes.)
    pub(crate) async fn fetch_from(&self, pod: &str, url: &str) -> String {
        let fetch = format!("exec {pod} -- timeout 5 wget -q -O - {url}");
        self.kube(&fetch).await.trim().to_owned()
    }

    async fn kubectl_with(&self, args: &[&str], input: &str) -> String {
        self.try_kubectl(args, input).await.unwrap_or_else(|said| {
            let logs = tails(&self.network.directory().join("logs"));
            panic!("kubectl {args:?}: {said}\n{logs}")
        })
    }

    /// What kubectl printed, or why it failed.
    pub(crate) async fn try_kubectl(&self, args: &[&str], input: &str) -> Result<String, String> {
        let mut kubectl = Command::new(self.tools.path("kubectl").unwrap())
            .arg("--kubeconfig")
            .arg(self.control_plane.admin_kubeconfig())
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        kubectl.stdin.take().unwrap().write_all(input.as_bytes()).await.unwrap();
        let output = kubectl.wait_with_output().await.unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() {
            Ok(text(&output.stdout))
        } else {
            Err(text(&output.stderr))
        }
    }
}

/// Waits for a condition, and fails with its name when the deadline passes.
pub(crate) async fn eventually(what: &str, limit: Duration, condition: impl AsyncFn() -> bool) {
    let deadline = Instant::now() + limit;
    while !condition().await {
        assert!(Instant::now() < deadline, "not within {limit:?}: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The end of every log, for a failure that only the node's programs can explain.
fn tails(logs: &Path) -> String {
    let mut text = String::new();
    for entry in std::fs::read_dir(logs).into_iter().flatten().flatten() {
        let log = std::fs::read(entry.path()).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<_> = log.lines().collect();
        let tail = lines[lines.len().saturating_sub(40)..].join("\n");
        let _ = writeln!(text, "--- {}\n{tail}", entry.path().display());
    }
    text
}
