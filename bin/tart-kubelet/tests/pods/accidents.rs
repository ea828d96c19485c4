//! The agent is killed, the host goes down, Pods vanish: no VM is lost, doubled or left, and no exit code is made up.

use crate::line::Line;
use crate::lives::WAITS;
use crate::stage::{Mac, PATIENCE, phase, restarts, until};
use anyhow::{Result, bail, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;
use russet_testkit::wait;
use serde_json::json;

/// How often an agent is killed anew that was not killed where it should have been.
const TRIES: usize = 5;

/// A Pod that ends with 5 when it is let go, and at once with another code if its container was not told its address.
async fn job(mac: &Mac) -> Result<Pod> {
    let script = format!(r#"[ "$POD_IP" = "$GUEST_ADDRESS" ] || exit 11; {WAITS} 5"#);
    let asks = json!({"spec": {"containers": [{"env": [
        {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
    ]}]}});
    mac.run("job", &script, asks).await
}

/// Kills agents until one has died while the ledger said just this of the only VM, each with a Pod of its own, and gives the last
/// Pod. `lead` makes a Pod whose VM comes there and stays for a while: on a busy machine that may be over before it is seen.
async fn killed_while(mac: &Mac, stage: &str, lead: impl AsyncFn() -> Result<Pod>) -> Result<Pod> {
    let mut missed = Vec::new();
    for _ in 0..TRIES {
        let agent = mac.start()?;
        let pod = lead().await?;
        mac.until_stage(stage).await?;
        agent.killed().await?;
        let found = mac.stages();
        mac.quick()?;
        if found == [stage] {
            return Ok(pod);
        }
        missed.push(found);
        let agent = mac.start()?;
        mac.delete_all(&["job"]).await?;
        agent.killed().await?;
    }
    bail!("no agent died while a VM was {stage}, but while they were {missed:?}")
}

/// From a running Pod to its end, with everything true.
async fn ends_well(mac: &Mac, pod: &Pod) -> Result<()> {
    mac.until_running("job").await?;
    ensure!(mac.control.running()?.len() == 1, "{:?}", mac.control.running()?);
    until("its first words", || Ok(mac.runs(pod) > 0)).await?;
    ensure!(mac.runs(pod) == 1, "it was started {} times", mac.runs(pod));
    mac.go(pod)?;
    let ended = mac.until_end("job", "Failed", 5).await?;
    ensure!(restarts(&ended) == Some(0));
    mac.delete_all(&["job"]).await
}

/// The clone of the agent that died goes on, and lands when another VM runs already.
pub(crate) async fn an_agent_killed_while_a_vm_is_planned_makes_another() -> Result<()> {
    let mac = Mac::new("killa1").await?;
    let pod = killed_while(&mac, "planned", async || {
        mac.slow("clone")?;
        job(&mac).await
    })
    .await?;
    let _agent = mac.start()?;
    ends_well(&mac, &pod).await
}

pub(crate) async fn an_agent_killed_when_a_vm_is_cloned_goes_on_with_it() -> Result<()> {
    let mac = Mac::new("killa2").await?;
    let pod = killed_while(&mac, "cloned", async || {
        // The look at the host before the start is what takes long.
        mac.slow("list")?;
        job(&mac).await
    })
    .await?;
    // The agent that fills the address in is not the one that left a place for it.
    let made = std::fs::read_to_string(mac.work(&pod).join("../../containers/main/0/env/start.sh"))?;
    ensure!(made.contains("export POD_IP="), "it does not ask for its address");
    ensure!(!made.contains("127.64."), "its address was known before its VM ran");
    let _agent = mac.start()?;
    ends_well(&mac, &pod).await
}

/// Once before its container has begun, which waits for its address to be known, and once after.
pub(crate) async fn an_agent_killed_while_a_vm_runs_goes_on_with_it() -> Result<()> {
    let mac = Mac::new("killa3").await?;
    let pod = killed_while(&mac, "running", async || {
        mac.switch(|switches| switches.truncated_leases = true)?;
        job(&mac).await
    })
    .await?;
    until("a VM without its agent", || Ok(mac.control.running()?.len() == 1)).await?;
    let before = mac.control.running()?;
    ensure!(mac.runs(&pod) == 0, "its container began without an address");
    mac.switch(|switches| switches.truncated_leases = false)?;
    let agent = mac.start()?;
    mac.until_running("job").await?;
    ensure!(mac.control.running()? == before, "another VM was started");

    agent.killed().await?;
    ensure!(mac.stages() == ["running"], "{:?}", mac.stages());
    ensure!(mac.control.running()? == before, "the VM went with its agent");
    let _agent = mac.start()?;
    mac.until_running("job").await?;
    ensure!(mac.control.running()? == before, "another VM was started");
    ends_well(&mac, &pod).await
}

/// Nobody was told of the end yet, and the VM is still there or is gone.
pub(crate) async fn an_agent_killed_after_the_end_still_tells_the_exit_code() -> Result<()> {
    let mac = Mac::new("killa4").await?;
    let line = Line::to(mac.host.cluster.control_plane().server()).await?;
    mac.host.write_kubeconfig_for(line.url())?;
    for stage in ["stopped", "deleted"] {
        killed_while(&mac, stage, async || {
            let pod = job(&mac).await?;
            mac.until_running("job").await?;
            if stage == "stopped" {
                mac.slow("stop")?;
                mac.slow("delete")?;
            } else {
                line.cut();
                line.until_missed(1).await?;
            }
            mac.go(&pod)?;
            anyhow::Ok(pod)
        })
        .await?;
        let untold = mac.pods().get("job").await?;
        ensure!(phase(&untold) == "Running", "{stage}: {:?}", untold.status);
        line.mend();
        let agent = mac.start()?;
        let ended = mac.until_end("job", "Failed", 5).await?;
        ensure!(restarts(&ended) == Some(0));
        mac.delete_all(&["job"]).await?;
        agent.killed().await?;
    }
    Ok(())
}

/// Such an end was once called a success. (incident lost-exit-code)
pub(crate) async fn an_end_while_the_agent_was_away_is_told_truly() -> Result<()> {
    let (mac, agent) = Mac::started("killa5").await?;
    let pod = mac.run("job", &format!("{WAITS} 5"), json!({})).await?;
    mac.until_running("job").await?;
    agent.killed().await?;
    mac.go(&pod)?;
    wait::until_true("the end of the program", PATIENCE, || async {
        let run = mac.host.path("state/run");
        let ended = mac.vms().first().map(|vm| run.join(vm).join("steps/main/exit.json"));
        Ok(ended.is_some_and(|path| path.exists()))
    })
    .await?;
    let _agent = mac.start()?;
    mac.until_code("job", 5).await?;
    Ok(())
}

pub(crate) async fn a_pod_that_vanished_while_the_agent_was_away_leaves_nothing() -> Result<()> {
    let (mac, agent) = Mac::started("killa6").await?;
    mac.run("job", &format!("{WAITS} 5"), json!({})).await?;
    mac.until_running("job").await?;
    agent.killed().await?;
    let now = DeleteParams::default().grace_period(0);
    mac.pods().delete("job", &now).await?;
    mac.until_gone("job").await?;
    ensure!(mac.control.running()?.len() == 1);
    let _agent = mac.start()?;
    mac.until_empty().await
}

pub(crate) async fn a_host_that_was_rebooted_does_not_call_it_a_success() -> Result<()> {
    let (mac, agent) = Mac::started("killa7").await?;
    mac.runs_on("job").await?;
    agent.killed().await?;
    mac.control.reboot()?;
    let _agent = mac.start()?;
    let (pod, exit) = mac.until_ended("job").await?;
    ensure!(phase(&pod) == "Failed", "{exit:?}");
    ensure!(exit.exit_code != 0, "{exit:?}");
    mac.delete_all(&["job"]).await
}
