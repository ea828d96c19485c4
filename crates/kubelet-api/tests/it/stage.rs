//! One cluster and one node for all tests of this binary, and kubectl to look at them with.

use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod, ServiceAccount};
use kube::api::{Api, Patch, PatchParams, PostParams};
use russet_cluster::control_plane::{Durability, Options as ControlPlaneOptions};
use russet_cluster::{ControlPlane, Supervisor, kubeconfig};
use russet_kubelet_api::auth::KubeReviewer;
use russet_kubelet_api::{Limits, Options, Server, Serving};
use russet_parts::{Bars, Manifest, Store, Tools};
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tokio::runtime::Runtime;
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

use crate::local::Local;

/// Long enough for a busy two-core machine; nothing waits for it when all is well.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);

/// The name of the node.
pub(crate) const NODE: &str = "mac1";

/// Tests come and go, the stage stays: it lives on a runtime of its own.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());
static STAGE: OnceCell<Stage> = OnceCell::const_new();

pub(crate) struct Stage {
    pub(crate) backend: Arc<Local>,
    pub(crate) control_plane: ControlPlane,
    pub(crate) address: std::net::SocketAddr,
    dir: PathBuf,
    tools: Tools,
    client: kube::Client,
    _supervisor: Supervisor,
}

/// How a program ended, and what it said.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl Ran {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.stdout.clone()).unwrap()
    }

    pub(crate) fn ok(self) -> Self {
        assert!(self.status.success(), "{self:?}");
        self
    }
}

/// How kubectl reaches the apiserver. Either way the node is reached by SPDY.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Via {
    WebSocket,
    Spdy,
}

pub(crate) const BOTH: [Via; 2] = [Via::WebSocket, Via::Spdy];

/// Runs a test on the stage.
pub(crate) fn on_stage(test: impl AsyncFnOnce(&'static Stage)) {
    RUNTIME.block_on(async {
        let stage = STAGE.get_or_init(Stage::set).await;
        test(stage).await;
    });
}

impl Stage {
    async fn set() -> Self {
        let dir = run_dir().await;
        let store = Store::new(Manifest::embedded(), russet_parts::Options::from_env());
        let names = ["etcd", "kube-apiserver", "kubectl"];
        let tools = store.ensure(&names, &Bars::lines()).await;
        let tools = tools.expect("the real parts can be obtained");
        let supervisor = Supervisor::new(&dir);
        let cluster = dir.join("cluster");
        let authority = cluster.join("pki/ca.crt");
        let options = ControlPlaneOptions {
            durability: Durability::Throwaway,
            // The apiserver believes only a node whose certificate names the address it dialled.
            apiserver_args: vec![format!("--kubelet-certificate-authority={}", authority.display())],
            ..ControlPlaneOptions::new(&cluster)
        };
        let control_plane = ControlPlane::start(&tools, &supervisor, options).await.unwrap();
        let client = control_plane.client().await.unwrap();

        let pki = control_plane.pki();
        let pair = pki.server("kubelet", ["127.0.0.1".to_owned()]).unwrap();
        let serving = Serving::empty();
        serving.replace(&read(&pair.cert), &read(&pair.key)).unwrap();
        let user = format!("system:node:{NODE}");
        let identity = pki.client("node", &user, Some("system:nodes")).unwrap();
        let (server, ca, file) = (
            control_plane.server(),
            control_plane.ca_pem(),
            dir.join("node.kubeconfig"),
        );
        let node_config = kubeconfig::for_client_cert(server, ca, &identity, &file).unwrap();
        let reviewer = KubeReviewer::new(kubeconfig::client(&node_config).await.unwrap());
        let options = Options {
            node: NODE.to_owned(),
            client_ca: control_plane.ca_pem().to_owned(),
            serving,
            limits: Limits::default(),
        };
        let backend = Local::new();
        let server = Server::new(options, backend.clone(), reviewer).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(server.run(listener, CancellationToken::new()));

        let stage = Self {
            backend,
            control_plane,
            address,
            dir,
            tools,
            client,
            _supervisor: supervisor,
        };
        stage.register().await;
        stage
    }

    async fn register(&self) {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let node: Node = serde_json::from_value(json!({"metadata": {"name": NODE}})).unwrap();
        nodes.create(&PostParams::default(), &node).await.unwrap();
        let status = json!({"status": {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self.address.port()}},
        }});
        let params = PatchParams::default();
        nodes.patch_status(NODE, &params, &Patch::Merge(status)).await.unwrap();
        self.service_account("default").await;
    }

    /// Nobody makes them here, since no controller manager runs.
    pub(crate) async fn service_account(&self, name: &str) {
        let accounts: Api<ServiceAccount> = Api::default_namespaced(self.client.clone());
        let account = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        accounts.create(&PostParams::default(), &account).await.unwrap();
    }

    pub(crate) fn client(&self) -> kube::Client {
        self.client.clone()
    }

    /// Tells the apiserver that this Pod runs on the node.
    pub(crate) async fn announce(&self, pod: &str) {
        let pods: Api<Pod> = Api::default_namespaced(self.client.clone());
        let object: Pod = serde_json::from_value(json!({
            "metadata": {"name": pod},
            "spec": {
                "nodeName": NODE,
                "automountServiceAccountToken": false,
                "containers": [{"name": "c", "image": "localhost/none", "stdin": true}],
            },
        }))
        .unwrap();
        pods.create(&PostParams::default(), &object).await.unwrap();
        let running = Patch::Merge(json!({"status": {"phase": "Running"}}));
        pods.patch_status(pod, &PatchParams::default(), &running).await.unwrap();
    }

    pub(crate) fn kubectl_path(&self) -> &Path {
        self.tools.path("kubectl").unwrap()
    }

    pub(crate) fn kubectl_args(&self, args: &[&str]) -> Vec<String> {
        let config = format!("--kubeconfig={}", self.control_plane.admin_kubeconfig().display());
        std::iter::once(config)
            .chain(args.iter().map(|arg| (*arg).to_owned()))
            .collect()
    }

    pub(crate) fn environment(&self, command: &mut Command, via: Via) {
        let websockets = if via == Via::WebSocket { "true" } else { "false" };
        command
            .env("HOME", &self.dir)
            .env("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", websockets)
            .env("KUBECTL_PORT_FORWARD_WEBSOCKETS", websockets);
    }

    /// kubectl with pipes, killed when it is dropped.
    pub(crate) fn spawn(&self, via: Via, args: &[&str]) -> Child {
        let mut command = Command::new(self.kubectl_path());
        self.environment(&mut command, via);
        command
            .args(self.kubectl_args(args))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap()
    }

    pub(crate) async fn kubectl_with(&self, via: Via, args: &[&str], input: &[u8]) -> Ran {
        let mut child = self.spawn(via, args);
        let mut stdin = child.stdin.take().unwrap();
        let feed = async {
            // A command may end before it has read everything.
            let _ = stdin.write_all(input).await;
            drop(stdin);
        };
        let both = async { tokio::join!(feed, child.wait_with_output()).1.unwrap() };
        let output = tokio::time::timeout(PATIENCE, both).await;
        let output = output.unwrap_or_else(|_| panic!("kubectl {args:?} did not end"));
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        let (status, stdout) = (output.status, output.stdout);
        Ran { status, stdout, stderr }
    }

    pub(crate) async fn kubectl(&self, args: &[&str]) -> Ran {
        self.kubectl_with(Via::WebSocket, args, &[]).await
    }

    /// A folder of its own for a test.
    pub(crate) fn folder(&self, name: &str) -> PathBuf {
        let folder = self.dir.join(name);
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }
}

pub(crate) fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

/// Polls until `condition` holds.
pub(crate) async fn eventually(what: &str, condition: impl AsyncFn() -> bool) {
    let wait = async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let happened = tokio::time::timeout(PATIENCE, wait).await;
    assert!(happened.is_ok(), "did not happen: {what}");
}

/// Removed by the next run that finds its owner gone: a static is never dropped.
async fn run_dir() -> PathBuf {
    let base = std::env::temp_dir().join("russet-kubelet-api");
    std::fs::create_dir_all(&base).unwrap();
    for entry in std::fs::read_dir(&base).unwrap().flatten() {
        let owner = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
        if owner.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists()) {
            let _ = russet_cluster::process::sweep(&entry.path()).await;
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
    let dir = base.join(std::process::id().to_string());
    std::fs::create_dir_all(&dir).unwrap();
    dir
}
