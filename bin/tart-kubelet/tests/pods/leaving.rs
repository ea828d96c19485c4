//! The agent ends, or the Node is emptied, on purpose.

use crate::lives::WAITS;
use crate::stage::{Mac, PATIENCE, phase};
use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Event;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};
use russet_e2e::wait::{self, Look};
use serde_json::json;
use std::process::Stdio;
use tokio::process::Command;

pub(crate) async fn an_agent_that_is_told_to_stop_leaves_its_vms_and_says_so() -> Result<()> {
    let mac = Mac::new("leave1").await?;
    let agent = mac.start()?;
    let pod = mac.run("job", &format!("{WAITS} 5"), json!({})).await?;
    mac.until_running("job").await?;
    let (vm, node) = (mac.control.running()?, mac.host.nodes().get(&mac.host.node).await?);
    ensure!(agent.terminated().await?.success(), "{}", mac.host.log());
    ensure!(mac.control.running()? == vm, "the VM went with its agent");
    ensure!(mac.host.nodes().get(&mac.host.node).await?.uid() == node.uid());
    ensure!(phase(&mac.pods().get("job").await?) == "Running");
    let events: Api<Event> = Api::namespaced(mac.host.client.clone(), "default");
    let about = format!("involvedObject.kind=Node,involvedObject.name={}", mac.host.node);
    wait::until("the last words of the agent", PATIENCE, || async {
        let all = events.list(&ListParams::default().fields(&about)).await?.items;
        let said = |event: &Event| {
            event.reason.as_deref() == Some("AgentStopped")
                && event
                    .message
                    .as_deref()
                    .is_some_and(|message| message.contains("1 virtual machine runs on"))
        };
        Ok(if all.iter().any(said) {
            Look::Done(())
        } else {
            Look::not_yet((all, mac.host.log()))
        })
    })
    .await?;
    let _agent = mac.start()?;
    mac.go(&pod)?;
    let (_, exit) = mac.until_ended("job").await?;
    ensure!(exit.exit_code == 5, "{exit:?}");
    mac.delete("job").await?;
    mac.until_gone("job").await?;
    mac.until_empty().await?;
    mac.stayed_within_its_rights()
}

pub(crate) async fn a_node_is_drained_with_grace_and_stays_cordoned() -> Result<()> {
    let mac = Mac::new("leave2").await?;
    let agent = mac.start()?;
    let script = "trap 'echo told; exit 0' TERM; echo up >/opt/work/up; while :; do sleep 0.1; done";
    let more =
        json!({"metadata": {"finalizers": ["test.russet.dev/look"]}, "spec": {"terminationGracePeriodSeconds": 300}});
    let pod = mac.run("job", script, more).await?;
    mac.until_running("job").await?;
    wait::until_true("its trap is set", PATIENCE, || async {
        Ok(mac.work(&pod).join("up").exists())
    })
    .await?;
    let tools = russet_e2e::cluster::tools(&["kubectl"]).await?;
    let kubectl = tools.path("kubectl").context("kubectl")?;
    let plane = mac.host.cluster.control_plane();
    let draining = Command::new(kubectl)
        .arg(format!("--kubeconfig={}", plane.admin_kubeconfig().display()))
        .args([
            "drain",
            &mac.host.node,
            "--force",
            "--delete-emptydir-data",
            "--ignore-daemonsets",
        ])
        .env("HOME", mac.host.dir.path())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let look = async {
        let (pod, exit) = mac.until_ended("job").await?;
        ensure!((phase(&pod).as_str(), exit.exit_code) == ("Succeeded", 0), "{exit:?}");
        let free = json!({"metadata": {"finalizers": null}});
        let params = kube::api::PatchParams::default();
        mac.pods().patch("job", &params, &kube::api::Patch::Merge(free)).await?;
        anyhow::Ok(())
    };
    let (drained, looked) = tokio::join!(tokio::time::timeout(PATIENCE, draining), look);
    looked?;
    let drained = drained.context("kubectl drain takes too long")??;
    ensure!(drained.status.success(), "{drained:?}");
    mac.until_gone("job").await?;
    mac.until_empty().await?;
    // Whoever cordoned it decides when that ends.
    ensure!(agent.terminated().await?.success());
    let _agent = mac.start()?;
    let renewed = || async {
        let lease = mac.host.leases().get(&mac.host.node).await?;
        anyhow::Ok(lease.spec.and_then(|spec| spec.renew_time))
    };
    let before = renewed().await?;
    wait::until_true("the next agent", PATIENCE, || async { Ok(renewed().await? > before) }).await?;
    let node = mac.host.nodes().get(&mac.host.node).await?;
    ensure!(node.spec.and_then(|spec| spec.unschedulable) == Some(true));
    Ok(())
}
