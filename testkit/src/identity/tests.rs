use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams};
use kube::config::{KubeConfigOptions, Kubeconfig};

use super::rule;
use crate::{TestCluster, wait};

/// A test that runs a controller under a restricted identity proves something only if the identity really is restricted.
#[tokio::test]
async fn an_identity_may_do_what_it_was_granted_and_nothing_else_and_the_audit_log_says_so() -> Result<()> {
    let cluster = TestCluster::shared().await?;
    let sandbox = cluster.sandbox("identity").await?;
    let granted = sandbox
        .identity("reader")
        .here(vec![rule("", &["configmaps"], &["list"])])
        .grant()
        .await?;
    let config = kube::Config::from_custom_kubeconfig(
        Kubeconfig::read_from(&granted.kubeconfig)?,
        &KubeConfigOptions::default(),
    )
    .await?;
    let client = kube::Client::try_from(config)?;

    Api::<ConfigMap>::namespaced(client.clone(), sandbox.namespace())
        .list(&ListParams::default())
        .await?;
    let elsewhere = Api::<ConfigMap>::namespaced(client.clone(), "default")
        .list(&ListParams::default())
        .await;
    ensure!(
        matches!(&elsewhere, Err(kube::Error::Api(status)) if status.code == 403),
        "{elsewhere:?}"
    );

    let denials = wait::until("the denial to be logged", wait::PATIENCE, || async {
        let denials = cluster.audit()?.denials(&granted.username)?;
        Ok(if denials.is_empty() {
            wait::Look::NotYet("no denial".to_owned())
        } else {
            wait::Look::Done(denials)
        })
    })
    .await?;
    ensure!(
        denials.len() == 1 && denials.iter().all(|entry| entry.object().namespace == "default"),
        "{denials:?}"
    );
    Ok(())
}
