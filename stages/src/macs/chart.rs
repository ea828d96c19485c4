//! The provider's chart, installed by the real Helm for the rights in it: the provider itself runs as a process beside the cluster.

use anyhow::Result;
use russet_cluster::kubeconfig;
use russet_testkit::chart::{Helm, Release};
use russet_testkit::overlay::merge;
use serde_json::{Value, json};

use super::Fleet;

/// Namespace of the release, where the provider keeps its Secrets and Leases.
pub const RELEASE_NAMESPACE: &str = "russet";
const ACCOUNT: &str = "macs-capi-provider";

/// The provider's account, as the audit log names it.
pub fn user() -> String {
    format!("system:serviceaccount:{RELEASE_NAMESPACE}:{ACCOUNT}")
}

impl Fleet {
    /// Installs the chart with these values and starts the provider under exactly the rights that it grants.
    pub async fn start_under_chart(&self, more: Value) -> Result<()> {
        // No Pod could run here, so none is asked for.
        let mut values = json!({"replicas": 0, "cluster": {"enabled": true}});
        merge(&mut values, more);
        let release = Release {
            name: "macs",
            chart: "capi-provider",
            namespace: RELEASE_NAMESPACE,
            values: &values,
        };
        Helm::new().await?.install(&self.cluster, release).await?;
        let client = self.cluster.client().await?;
        let kubeconfig = self.cluster.dir().join("chart.kubeconfig");
        let control_plane = self.cluster.control_plane();
        kubeconfig::for_service_account(client, control_plane, RELEASE_NAMESPACE, ACCOUNT, &kubeconfig).await?;
        let secrets = format!("--secrets-namespace={RELEASE_NAMESPACE}");
        let lease = format!("--leader-election-namespace={RELEASE_NAMESPACE}");
        let args = ["--leader-elect=true", &lease, &secrets];
        self.start_provider(&kubeconfig, &args).await
    }
}
