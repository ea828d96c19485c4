//! Our agent as a process, with the emulated `tart`.

use super::{LOOK, PATIENCE, kubeconfig};
use anyhow::{Context, Result, ensure};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams, Patch, PatchParams};
use russet_e2e::TestCluster;
use russet_node::{Identity, Memory, Store as _};
use russet_sim_tart::{Control, Image};
use russet_tart_kubelet::Folder;
use russet_telemetry::Secret;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Instant;
use tempfile::TempDir;
use tokio::process::{Child, Command};

pub(super) const NODE: &str = "mac-bench";
pub(super) const IMAGE: &str = "ghcr.io/acme/mac:v1";
/// Nobody else's on this machine.
const ADDRESS: &str = "127.77.20.1";

pub(super) struct Ours {
    child: Child,
    control: Control,
    dir: TempDir,
}

impl Drop for Ours {
    fn drop(&mut self) {
        // Its machines would go on, as they should.
        let _ = self.child.start_kill();
        let _ = self.control.reboot();
    }
}

impl Ours {
    pub(super) async fn start(cluster: &TestCluster, program: &Path, tart: &Path) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("russet-bench-").tempdir()?;
        let path = |name: &str| dir.path().join(name);
        let plane = cluster.control_plane();
        let joins = kubeconfig(plane.server(), plane.ca_pem()).to_string();
        std::fs::write(path("kubeconfig"), &joins)?;
        let connection = russet_node::connection(&Secret::new(joins)).await?;
        let pair = plane
            .pki()
            .client(NODE, &format!("system:node:{NODE}"), Some("system:nodes"))?;
        Folder::new(path("state")).save(&Memory {
            identity: Some(Identity {
                node_name: NODE.to_owned(),
                server: connection.cluster_url.to_string(),
                key_pem: Secret::new(std::fs::read_to_string(&pair.key)?),
                certificate_pem: Some(std::fs::read_to_string(&pair.cert)?),
            }),
            ..Memory::default()
        })?;
        let control = Control::new(path("tart-home"))?;
        Control::install(tart, &path("bin/tart"))?;
        control.push(IMAGE, &Image::default())?;
        // Whatever the disk of this machine is like.
        control.switch(|switches| switches.capacity_gb = Some(1000))?;
        let log = std::fs::File::create(path("log"))?;
        let flag = |name: &str, value: PathBuf| format!("--{name}={}", value.display());
        let child = Command::new(program)
            .arg(format!("--node-name={NODE}"))
            .arg(format!("--node-ip={ADDRESS}"))
            .args(["--max-pods=3", "--provider-id=bench://1"])
            .arg(flag("kubeconfig", path("kubeconfig")))
            .arg(flag("state-dir", path("state")))
            .arg(flag("tart-binary", path("bin/tart")))
            .arg(flag("tart-home", control.home().to_owned()))
            .arg(flag("disk-report", control.disk_report()))
            .env_clear()
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()?;
        let ours = Self { child, control, dir };
        ours.approve(cluster).await?;
        Ok(ours)
    }

    pub(super) fn pid(&self) -> Result<u32> {
        self.child
            .id()
            .with_context(|| format!("the agent has ended: {}", self.log()))
    }

    pub(super) fn log(&self) -> String {
        let text = std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines
            .get(lines.len().saturating_sub(20)..)
            .unwrap_or_default()
            .join("\n")
    }

    /// Approves its serving certificate, as the provider does for its machines.
    async fn approve(&self, cluster: &TestCluster) -> Result<()> {
        let requests: Api<CertificateSigningRequest> = Api::all(cluster.client().await?);
        let user = format!("system:node:{NODE}");
        let began = Instant::now();
        loop {
            let all = requests.list(&ListParams::default()).await?.items;
            let asked = all.into_iter().find(|request| {
                request.spec.signer_name == "kubernetes.io/kubelet-serving"
                    && request.spec.username.as_deref() == Some(&user)
            });
            if let Some(request) = asked {
                let approval = json!({"status": {"conditions": [{
                    "type": "Approved", "status": "True", "reason": "Bench", "message": "it is ours",
                }]}});
                let params = PatchParams::default();
                requests
                    .patch_approval(&request.name_any(), &params, &Patch::Strategic(approval))
                    .await?;
                return Ok(());
            }
            ensure!(
                began.elapsed() < PATIENCE,
                "the agent asks for no serving certificate: {}",
                self.log()
            );
            tokio::time::sleep(LOOK).await;
        }
    }
}
