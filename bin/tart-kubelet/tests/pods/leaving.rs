//! The agent ends, or the Node is emptied, on purpose.

use crate::housekeeping::until_said;
use crate::lives::WAITS;
use crate::stage::{Mac, PATIENCE, phase, terminated};
use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Event, Node, NodeCondition};
use kube::ResourceExt as _;
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::json;
use std::process::Stdio;
use tokio::process::Command;

pub(crate) async fn an_agent_that_is_told_to_stop_leaves_its_vms_and_says_so() -> Result<()> {
    let (mac, agent) = Mac::started("leave1").await?;
    let pod = mac.run("job", &format!("{WAITS} 5"), json!({})).await?;
    mac.until_running("job").await?;
    let (vm, node) = (mac.control.running()?, mac.host.nodes().get(&mac.host.node).await?);
    ensure!(agent.terminated().await?.success(), "{}", mac.host.log());
    ensure!(mac.control.running()? == vm, "the VM went with its agent");
    ensure!(mac.host.nodes().get(&mac.host.node).await?.uid() == node.uid());
    ensure!(phase(&mac.pods().get("job").await?) == "Running");
    let events: Api<Event> = Api::namespaced(mac.host.client.clone(), "default");
    let about = format!("involvedObject.kind=Node,involvedObject.name={}", mac.host.node);
    let all = async || Ok(events.list(&ListParams::default().fields(&about)).await?.items);
    let said = |event: &Event| {
        let message = event.message.as_deref().unwrap_or_default();
        event.reason.as_deref() == Some("AgentStopped") && message.contains("1 virtual machine runs on")
    };
    let words = mac
        .host
        .until("the last words of the agent", all, |all| all.iter().any(said));
    words.await?;
    let _agent = mac.start()?;
    mac.go(&pod)?;
    mac.until_code("job", 5).await?;
    mac.delete_all(&["job"]).await?;
    mac.stayed_within_its_rights()
}

/// A new agent came beside an old one that had not ended, gave up the VM of a new Pod as a leftover of its own, and deleted it.
/// (incident noop-kickstart)
pub(crate) async fn a_second_agent_leaves_the_first_alone_and_says_so() -> Result<()> {
    let mac = Mac::new("leave6").await?;
    let mut first = mac.start()?;
    let pod = mac.run("job", &format!("{WAITS} 5"), json!({})).await?;
    mac.until_running("job").await?;
    let vm = mac.control.running()?;
    ensure!(!mac.start()?.ended().await?.success(), "{}", mac.host.log());
    let said = mac.host.log();
    ensure!(said.contains("another tart-kubelet of this host works with"), "{said}");
    ensure!(first.is_running() && mac.control.running()? == vm, "{said}");
    // A successor that comes while the first one is still about to end is let in.
    let next = mac.start()?;
    first.killed().await?;
    mac.go(&pod)?;
    mac.until_code("job", 5).await?;
    mac.delete_all(&["job"]).await?;
    next.killed().await?;
    mac.stayed_within_its_rights()
}

/// The first heartbeat of an agent came before `tart` had answered, and said that the Node was not Ready. The next came ten seconds
/// later: by then the node controller had tainted the Node and taken its Pods out of their Services, with each new binary.
pub(crate) async fn a_node_that_is_ready_stays_so_over_a_restart_of_its_agent() -> Result<()> {
    let (mac, agent) = Mac::started("leave7").await?;
    let node = until_said(&mac, "Ready", "True", "running").await?;
    let ready = |node: &Node| {
        let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
        let found = conditions.into_iter().flatten().find(|found| found.type_ == "Ready");
        found.cloned().context("Ready")
    };
    let before = ready(&node)?;
    ensure!(agent.terminated().await?.success(), "{}", mac.host.log());

    mac.slow("list")?;
    let _agent = mac.start()?;
    let now = async || ready(&mac.host.nodes().get(&mac.host.node).await?);
    let later = |now: &NodeCondition| now.last_heartbeat_time > before.last_heartbeat_time;
    mac.host.until("a word of the next agent", now, later).await?;
    // By the second of these it has told what `tart` said.
    for _ in 0..2 {
        mac.host.until_renewed(mac.host.renewed().await?).await?;
    }
    let after = ready(&mac.host.nodes().get(&mac.host.node).await?)?;
    ensure!(after.status == "True", "{after:?}");
    ensure!(
        after.last_transition_time == before.last_transition_time,
        "it was not Ready for a while: {before:?}, {after:?}"
    );
    mac.quick()?;
    mac.stayed_within_its_rights()
}

pub(crate) async fn a_node_is_drained_with_grace_and_stays_cordoned() -> Result<()> {
    let (mac, agent) = Mac::started("leave2").await?;
    let script = "trap 'echo told; exit 0' TERM; echo up >/opt/work/up; while :; do sleep 0.1; done";
    let more =
        json!({"metadata": {"finalizers": ["test.russet.dev/look"]}, "spec": {"terminationGracePeriodSeconds": 300}});
    let pod = mac.run("job", script, more).await?;
    mac.until_running("job").await?;
    mac.until_there(&pod, "up").await?;
    let tools = russet_testkit::cluster::tools(&["kubectl"]).await?;
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
        mac.until_end("job", "Succeeded", 0).await?;
        mac.let_go("job").await
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
    mac.host.until_renewed(mac.host.renewed().await?).await?;
    let node = mac.host.nodes().get(&mac.host.node).await?;
    ensure!(node.spec.and_then(|spec| spec.unschedulable) == Some(true));
    Ok(())
}

/// Each roll of the agents met some Pod that was being deleted. The next agent knew that its container had been told to end, so it
/// told it nothing, and nobody remembered by when it had to: such a Pod was Terminating until somebody took it away by force, and
/// its VM had one of two places.
pub(crate) async fn an_agent_that_ends_within_the_grace_of_a_container_is_followed_by_one_that_ends_it() -> Result<()> {
    let (mac, agent) = Mac::started("leave3").await?;
    let script = "trap 'echo told >>/opt/work/told' TERM; echo up >/opt/work/up; while :; do sleep 0.1; done";
    let more = json!({"spec": {"terminationGracePeriodSeconds": 15}});
    let pod = mac.run("job", script, more).await?;
    mac.until_running("job").await?;
    mac.until_there(&pod, "up").await?;
    mac.delete("job").await?;
    mac.until_there(&pod, "told").await?;
    agent.killed().await?;
    ensure!(mac.control.running()?.len() == 1, "it had its grace");
    let _agent = mac.start()?;
    mac.until_gone("job").await?;
    mac.until_empty().await?;
    mac.stayed_within_its_rights()
}

/// The hook of a container ran when its agent ended. The next agent waited for it to end, and nobody could tell that it had.
pub(crate) async fn a_hook_that_is_cut_off_with_its_agent_is_run_again() -> Result<()> {
    let (mac, agent) = Mac::started("leave4").await?;
    let hook = "echo begun >>/opt/work/hooks; until [ -e /opt/work/hooked ]; do sleep 0.1; done";
    let lifecycle = json!({"postStart": {"exec": {"command": ["sh", "-c", hook]}}});
    let more = json!({"spec": {"containers": [{"lifecycle": lifecycle}]}});
    let pod = mac.run("job", &format!("{WAITS} 0"), more).await?;
    mac.until_there(&pod, "hooks").await?;
    agent.killed().await?;
    std::fs::write(mac.work(&pod).join("hooked"), "")?;
    let _agent = mac.start()?;
    mac.until_running("job").await?;
    let hooks = std::fs::read_to_string(mac.work(&pod).join("hooks"))?;
    ensure!(hooks.lines().count() == 2, "{hooks}");
    mac.go(&pod)?;
    let (ended, _) = mac.until_ended("job").await?;
    ensure!(phase(&ended) == "Succeeded", "{:?}", ended.status);
    mac.delete_all(&["job"]).await
}

/// A host was away for so long that others wrote the end of its Pods, and what it knew of their VMs was lost. Its agent had nothing
/// to end, so it removed nothing either: what the Pods were given stayed on the disk for as long as anybody kept the Pods.
pub(crate) async fn a_pod_that_was_ended_while_the_agent_was_away_leaves_no_secret() -> Result<()> {
    let (mac, agent) = Mac::started("leave5").await?;
    mac.runs_on("job").await?;
    agent.killed().await?;
    mac.control.reboot()?;
    std::fs::remove_dir_all(mac.host.path("state/vms"))?;
    ensure!(!mac.leaks(&mac.canary()).is_empty(), "there is something to remove");
    let failed = json!({"status": {"phase": "Failed"}});
    mac.pods()
        .patch_status("job", &PatchParams::default(), &Patch::Merge(failed))
        .await?;
    let _agent = mac.start()?;
    let leaks = async || Ok(mac.leaks(&mac.canary()));
    mac.host.until("a host without secrets", leaks, Vec::is_empty).await?;
    // It ran, so it does not run again.
    let ended = mac
        .until("job", "a container that ended", |pod| terminated(pod).is_some())
        .await?;
    let exit = terminated(&ended).context("an end")?;
    ensure!(phase(&ended) == "Failed" && exit.exit_code != 0, "{exit:?}");
    mac.delete_all(&["job"]).await
}
