//! A host of its own beside the shared cluster: a kubeconfig, a folder, an agent.

use anyhow::{Context, Result};
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Secret};
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::Client;
use kube::api::{Api, ListParams, Patch, PatchParams};
use russet_e2e::TestCluster;
use russet_e2e::wait::{self, Look, PATIENCE};
use serde_json::json;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use tempfile::TempDir;
use tokio::process::{Child, Command};

const GROUP: &str = "system:bootstrappers:tart-kubelet-test";

pub(crate) struct Host {
    pub(crate) cluster: &'static TestCluster,
    pub(crate) client: Client,
    pub(crate) node: String,
    pub(crate) token: String,
    pub(crate) dir: TempDir,
    /// What the agent's environment has, which is nothing else.
    pub(crate) env: Vec<(String, String)>,
}

impl Host {
    /// A host whose bootstrap token is good and whose requests kube-controller-manager approves.
    pub(crate) async fn invited(name: &str) -> Result<Self> {
        let cluster = TestCluster::shared().await?;
        let client = cluster.client().await?;
        for (role, group) in [
            ("system:node-bootstrapper", GROUP),
            (
                "system:certificates.k8s.io:certificatesigningrequests:nodeclient",
                GROUP,
            ),
            (
                "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient",
                "system:nodes",
            ),
        ] {
            bind(&client, role, group).await?;
        }
        let token = invite(&client, name).await?;
        let host = Self {
            cluster,
            client,
            node: format!("mac-{name}"),
            token,
            dir: tempfile::tempdir()?,
            env: Vec::new(),
        };
        host.write_kubeconfig()?;
        Ok(host)
    }

    pub(crate) fn write_kubeconfig(&self) -> Result<()> {
        self.write_kubeconfig_for(self.cluster.control_plane().server())
    }

    /// What a host joined with while the API server was there.
    pub(crate) fn write_kubeconfig_for(&self, server: &str) -> Result<()> {
        let plane = self.cluster.control_plane();
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "tart-kubelet",
            "clusters": [{"name": "c", "cluster": {
                "server": server,
                "certificate-authority-data": ByteString(plane.ca_pem().as_bytes().to_vec()),
            }}],
            "users": [{"name": "u", "user": {"token": self.token}}],
            "contexts": [{"name": "tart-kubelet", "context": {"cluster": "c", "user": "u"}}],
        });
        std::fs::write(self.path("kubeconfig"), kubeconfig.to_string())?;
        Ok(())
    }

    /// Where the API server is by now.
    pub(crate) fn write_cluster_info(&self) -> Result<()> {
        let plane = self.cluster.control_plane();
        let info = json!({"apiVersion": "v1", "kind": "Config", "clusters": [{"name": "", "cluster": {
            "server": plane.server(),
            "certificate-authority-data": ByteString(plane.ca_pem().as_bytes().to_vec()),
        }}]});
        std::fs::write(self.path("cluster-info"), info.to_string())?;
        Ok(())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn provider_id(&self) -> String {
        format!("scw-applesilicon://fr-par-3/{}", self.node)
    }

    /// The agent, with an address and more flags.
    pub(crate) fn start(&self, flags: &[&str]) -> Result<Agent> {
        let mut all = vec![
            "--node-ip=127.77.9.9",
            "--metrics-bind-address=0",
            "--kubelet-bind-address=0",
        ];
        all.extend(flags);
        self.start_without_address(&all)
    }

    /// The agent, with more flags. Its log goes to a file, as launchd has it.
    pub(crate) fn start_without_address(&self, flags: &[&str]) -> Result<Agent> {
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.path("log"))?;
        let child = Command::new(env!("CARGO_BIN_EXE_tart-kubelet"))
            .arg(format!("--node-name={}", self.node))
            .arg(format!("--kubeconfig={}", self.path("kubeconfig").display()))
            .arg(format!("--state-dir={}", self.path("state").display()))
            .arg(format!("--provider-id={}", self.provider_id()))
            .args(["--node-labels=tuist.dev/fleet=runners", "--health-probe-bind-address=0"])
            .args(["--register-with-taints=node.cluster.x-k8s.io/uninitialized:NoSchedule"])
            .args(flags)
            .env_clear()
            .envs(self.env.iter().cloned())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()?;
        Ok(Agent(child))
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    pub(crate) fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    pub(crate) fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.client.clone(), "kube-node-lease")
    }

    /// The Node, once the agent made it.
    pub(crate) async fn registered(&self) -> Result<Node> {
        wait::until("the Node", PATIENCE, || async {
            Ok(match self.nodes().get_opt(&self.node).await? {
                Some(node) => Look::Done(node),
                None => Look::not_yet(self.log()),
            })
        })
        .await
    }

    /// Certificate requests by this user.
    pub(crate) async fn requests_of(&self, user: &str) -> Result<Vec<CertificateSigningRequest>> {
        let all: Api<CertificateSigningRequest> = Api::all(self.client.clone());
        let found = all.list(&ListParams::default()).await?.items;
        Ok(found
            .into_iter()
            .filter(|request| request.spec.username.as_deref() == Some(user))
            .collect())
    }

    pub(crate) fn bootstrap_user(&self) -> Result<String> {
        let (id, _) = self.token.split_once('.').context("a token")?;
        Ok(format!("system:bootstrap:{id}"))
    }

    pub(crate) fn node_user(&self) -> String {
        format!("system:node:{}", self.node)
    }
}

/// A running agent. Dropped, it is killed.
pub(crate) struct Agent(Child);

impl Agent {
    /// How it ended by itself.
    pub(crate) async fn ended(mut self) -> Result<ExitStatus> {
        tokio::time::timeout(PATIENCE, self.0.wait())
            .await
            .context("the agent does not end")?
            .context("wait for the agent")
    }

    /// Ends it as launchd does.
    pub(crate) async fn terminated(self) -> Result<ExitStatus> {
        let pid = self.0.id().context("it has ended")?;
        let pid = rustix::process::Pid::from_raw(i32::try_from(pid)?).context("a pid")?;
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        self.ended().await
    }

    /// Kills it as nothing can be prepared for.
    pub(crate) async fn killed(mut self) -> Result<()> {
        self.0.kill().await.context("kill the agent")
    }

    pub(crate) fn is_running(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(None))
    }
}

async fn bind(client: &Client, role: &str, group: &str) -> Result<()> {
    let name = format!("tart-kubelet-test-{}", role.rsplit(':').next().unwrap_or_default());
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}],
    });
    let bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
    let params = PatchParams::apply("test").force();
    bindings.patch(&name, &params, &Patch::Apply(binding)).await?;
    Ok(())
}

async fn invite(client: &Client, name: &str) -> Result<String> {
    let id: String = name.chars().chain("000000".chars()).take(6).collect();
    let secret = "0123456789abcdef";
    let object = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
        "metadata": {"name": format!("bootstrap-token-{id}"), "namespace": "kube-system"},
        "stringData": {
            "token-id": id, "token-secret": secret,
            "usage-bootstrap-authentication": "true", "auth-extra-groups": GROUP,
        },
    });
    let secrets: Api<Secret> = Api::namespaced(client.clone(), "kube-system");
    secrets
        .patch(
            &format!("bootstrap-token-{id}"),
            &PatchParams::apply("test").force(),
            &Patch::Apply(object),
        )
        .await?;
    Ok(format!("{id}.{secret}"))
}
