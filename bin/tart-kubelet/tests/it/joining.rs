//! From a bootstrap kubeconfig to a Node.

use crate::harness::Host;
use anyhow::{Context, Result, ensure};
use kube::ResourceExt;

#[tokio::test]
async fn a_host_becomes_a_node_and_stays_one_over_a_restart_of_its_agent() -> Result<()> {
    let host = Host::invited("joins2").await?;
    let agent = host.start(&[])?;
    let node = host.registered().await?;
    for (key, value) in [
        ("kubernetes.io/os", "darwin"),
        ("kubernetes.io/arch", "arm64"),
        ("kubernetes.io/hostname", host.node.as_str()),
        ("tuist.dev/runtime", "tart"),
        ("tuist.dev/fleet", "runners"),
    ] {
        ensure!(node.labels().get(key).map(String::as_str) == Some(value), "{key}");
    }
    let spec = node.spec.clone().context("a spec")?;
    ensure!(spec.provider_id == Some(host.provider_id()));
    let taints: Vec<String> = spec
        .taints
        .unwrap_or_default()
        .into_iter()
        .map(|taint| taint.key)
        .collect();
    for key in ["tuist.dev/macos", "node.cluster.x-k8s.io/uninitialized"] {
        ensure!(taints.iter().any(|taint| taint == key), "{key} in {taints:?}");
    }
    let status = node.status.clone().context("a status")?;
    let addresses: Vec<(String, String)> = status
        .addresses
        .unwrap_or_default()
        .into_iter()
        .map(|address| (address.type_, address.address))
        .collect();
    ensure!(
        addresses
            == [
                ("InternalIP".to_owned(), "127.77.9.9".to_owned()),
                ("Hostname".to_owned(), host.node.clone())
            ],
        "{addresses:?}"
    );
    let conditions = status.conditions.unwrap_or_default();
    for kind in ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"] {
        ensure!(conditions.iter().any(|condition| condition.type_ == kind), "{kind}");
    }
    host.until_renewed(None).await?;
    host.until_renewed(host.renewed().await?).await?;

    // As for a new binary: the Node stays, and the next agent is the same node.
    ensure!(agent.terminated().await?.success(), "{}", host.log());
    ensure!(host.nodes().get(&host.node).await?.uid() == node.uid());
    let second = host.renewed().await?;
    let agent = host.start(&[])?;
    host.until_renewed(second).await?;
    ensure!(host.nodes().get(&host.node).await?.uid() == node.uid());
    ensure!(
        host.requests_of(&host.bootstrap_user()?).await?.len() == 1,
        "it asked again"
    );
    drop(agent);

    let audit = host.cluster.audit()?;
    let user = host.node_user();
    ensure!(audit.denials(&user)?.is_empty(), "{:#?}", audit.denials(&user)?);
    ensure!(!host.log().contains(&host.token), "the token is in the log");
    Ok(())
}
