//! The provider's chart, installed by the real Helm for the rights in it: the provider itself runs as a process beside the cluster.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, ObjectMeta, PostParams};
use russet_cluster::kubeconfig;

use super::Fleet;
use russet_testkit::cluster::tools;

/// Namespace of the release, where the provider keeps its Secrets and Leases.
pub const RELEASE_NAMESPACE: &str = "russet";
const ACCOUNT: &str = "macs-capi-provider";

/// The provider's account, as the audit log names it.
pub fn user() -> String {
    format!("system:serviceaccount:{RELEASE_NAMESPACE}:{ACCOUNT}")
}

impl Fleet {
    /// Installs the chart with these values and starts the provider under exactly the rights that it grants.
    pub async fn start_under_chart(&self, values: &[&str]) -> Result<()> {
        let client = self.cluster.client().await?;
        let namespace = Namespace {
            metadata: ObjectMeta {
                name: Some(RELEASE_NAMESPACE.to_owned()),
                ..ObjectMeta::default()
            },
            ..Namespace::default()
        };
        let namespaces: Api<Namespace> = Api::all(client.clone());
        namespaces.create(&PostParams::default(), &namespace).await?;
        self.install(values).await?;
        let kubeconfig: PathBuf = self.cluster.dir().join("chart.kubeconfig");
        let control_plane = self.cluster.control_plane();
        kubeconfig::for_service_account(client, control_plane, RELEASE_NAMESPACE, ACCOUNT, &kubeconfig).await?;
        let secrets = format!("--secrets-namespace={RELEASE_NAMESPACE}");
        let lease = format!("--leader-election-namespace={RELEASE_NAMESPACE}");
        let args = ["--leader-elect=true", &lease, &secrets];
        self.start_provider(&kubeconfig, &args).await
    }

    /// No Pod could run here, so none is asked for.
    async fn install(&self, values: &[&str]) -> Result<()> {
        let chart = Path::new(env!("CARGO_MANIFEST_DIR")).join("../charts/capi-provider");
        let home = tempfile::tempdir()?;
        let all = ["replicas=0", "cluster.enabled=true"].iter().chain(values);
        let output = tokio::process::Command::new(tools(&["helm"]).await?.path("helm")?)
            .args(["upgrade", "--install", "macs"])
            .arg(chart)
            .args(["--namespace", RELEASE_NAMESPACE])
            .args(all.flat_map(|value| ["--set", value]))
            .arg("--kubeconfig")
            .arg(self.cluster.control_plane().admin_kubeconfig())
            .env("HOME", home.path())
            .output()
            .await
            .context("failed to start helm")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "helm failed: {said}");
        Ok(())
    }
}
