//! What an agent does not do.

use crate::harness::{Host, script};
use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::api::PostParams;
use serde_json::json;

/// (incident tailscale-down-no-fallback)
#[tokio::test]
async fn without_the_tailnet_that_it_shall_be_on_an_agent_ends_and_listens_nowhere() -> Result<()> {
    let host = Host::invited("tails2").await?;
    let program = host.path("tailscale");
    script(&program, "echo 'Tailscale is stopped.' >&2; exit 1")?;
    let flag = format!("--tailscale-binary={}", program.display());
    // The address that the harness gives would make the tailnet unneeded.
    let agent = host.start_without_address(&[&flag, "--node-ip-source=tailscale", "--metrics-bind-address=:0"])?;
    ensure!(!agent.ended().await?.success());
    let log = host.log();
    ensure!(log.contains("Tailscale is stopped."), "{log}");
    ensure!(!log.contains("listening"), "{log}");
    ensure!(
        host.nodes().get_opt(&host.node).await?.is_none(),
        "it registered all the same"
    );
    Ok(())
}

#[tokio::test]
async fn the_node_of_another_machine_is_left_alone() -> Result<()> {
    let host = Host::invited("other2").await?;
    let foreign: Node = serde_json::from_value(json!({
        "metadata": {"name": host.node},
        "spec": {"providerID": "scw-applesilicon://fr-par-3/somebody-else"},
    }))?;
    host.nodes().create(&PostParams::default(), &foreign).await?;
    let agent = host.start(&[])?;
    ensure!(!agent.ended().await?.success());
    ensure!(host.log().contains("belongs to another machine"), "{}", host.log());
    let node = host.nodes().get(&host.node).await?;
    ensure!(node.spec.and_then(|spec| spec.provider_id) == foreign.spec.and_then(|spec| spec.provider_id));
    Ok(())
}

#[tokio::test]
async fn a_kubeconfig_that_is_worth_nothing_is_said_without_its_token() -> Result<()> {
    let mut host = Host::invited("worth2").await?;
    host.token = "abcdef.fedcba9876543210".to_owned();
    host.write_kubeconfig()?;
    let agent = host.start(&[])?;
    ensure!(!agent.ended().await?.success());
    let log = host.log();
    ensure!(log.contains("Unauthorized"), "{log}");
    ensure!(!log.contains("fedcba"), "{log}");

    std::fs::remove_file(host.path("kubeconfig"))?;
    let agent = host.start(&[])?;
    ensure!(!agent.ended().await?.success());
    ensure!(host.log().contains("see --kubeconfig"), "{}", host.log());
    Ok(())
}
