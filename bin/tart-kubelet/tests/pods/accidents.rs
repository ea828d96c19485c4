//! The agent is killed, the host goes down, Pods vanish: no VM is lost, doubled or left, and no exit code is made up.

use crate::lives::WAITS;
use crate::stage::{Mac, PATIENCE, phase};
use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;
use russet_e2e::wait;
use serde_json::json;

/// How often the container of a Pod began.
fn runs(mac: &Mac, pod: &Pod) -> usize {
    let text = std::fs::read_to_string(mac.work(pod).join("runs")).unwrap_or_default();
    text.lines().count()
}

/// From a running Pod to its end, with everything true.
async fn ends_well(mac: &Mac, pod: &Pod) -> Result<()> {
    mac.until_running("job").await?;
    ensure!(mac.control.running()?.len() == 1, "{:?}", mac.control.running()?);
    wait::until_true("its first words", PATIENCE, || async { Ok(runs(mac, pod) > 0) }).await?;
    ensure!(runs(mac, pod) == 1, "it was started {} times", runs(mac, pod));
    mac.go(pod)?;
    let (ended, exit) = mac.until_ended("job").await?;
    ensure!((phase(&ended).as_str(), exit.exit_code) == ("Failed", 5), "{exit:?}");
    let status = ended.status.unwrap_or_default();
    ensure!(status.container_statuses.unwrap_or_default()[0].restart_count == 0);
    mac.delete("job").await?;
    mac.until_gone("job").await?;
    mac.until_empty().await
}

/// The clone of the agent that died goes on, and lands when another VM runs already.
pub(crate) async fn an_agent_killed_while_a_vm_is_planned_makes_another() -> Result<()> {
    let mac = Mac::new("killa1").await?;
    let agent = mac.start()?;
    mac.slow("clone")?;
    let pod = mac.run("job", &format!("{WAITS} 5"), json!({})).await?;
    mac.until_stage("planned").await?;
    agent.killed().await?;
    mac.quick()?;
    let _agent = mac.start()?;
    ends_well(&mac, &pod).await
}

pub(crate) async fn an_agent_killed_when_a_vm_is_cloned_goes_on_with_it() -> Result<()> {
    let mac = Mac::new("killa2").await?;
    let agent = mac.start()?;
    // The look at the host before the start is what takes long.
    mac.slow("list")?;
    let pod = mac.run("job", &format!("{WAITS} 5"), json!({})).await?;
    mac.until_stage("cloned").await?;
    agent.killed().await?;
    mac.quick()?;
    let _agent = mac.start()?;
    ends_well(&mac, &pod).await
}

pub(crate) async fn an_agent_killed_while_a_vm_runs_goes_on_with_it() -> Result<()> {
    let mac = Mac::new("killa3").await?;
    let agent = mac.start()?;
    let pod = mac.run("job", &format!("{WAITS} 5"), json!({})).await?;
    mac.until_running("job").await?;
    let before = mac.control.running()?;
    agent.killed().await?;
    ensure!(mac.control.running()? == before, "the VM went with its agent");
    let _agent = mac.start()?;
    mac.until_running("job").await?;
    ensure!(mac.control.running()? == before, "another VM was started");
    ends_well(&mac, &pod).await
}

pub(crate) async fn an_agent_killed_after_the_end_still_tells_the_exit_code() -> Result<()> {
    let mac = Mac::new("killa4").await?;
    let agent = mac.start()?;
    let pod = mac.run("job", &format!("{WAITS} 5"), json!({})).await?;
    mac.until_running("job").await?;
    mac.slow("stop")?;
    mac.slow("delete")?;
    mac.go(&pod)?;
    mac.until_stage("stopped").await?;
    agent.killed().await?;
    mac.quick()?;
    let _agent = mac.start()?;
    let (_, exit) = mac.until_ended("job").await?;
    ensure!(exit.exit_code == 5, "{exit:?}");
    mac.delete("job").await?;
    mac.until_gone("job").await?;
    mac.until_empty().await
}

/// Such an end was once called a success. (incident lost-exit-code)
pub(crate) async fn an_end_while_the_agent_was_away_is_told_truly() -> Result<()> {
    let mac = Mac::new("killa5").await?;
    let agent = mac.start()?;
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
    let (_, exit) = mac.until_ended("job").await?;
    ensure!(exit.exit_code == 5, "{exit:?}");
    Ok(())
}

pub(crate) async fn a_pod_that_vanished_while_the_agent_was_away_leaves_nothing() -> Result<()> {
    let mac = Mac::new("killa6").await?;
    let agent = mac.start()?;
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
    let mac = Mac::new("killa7").await?;
    let agent = mac.start()?;
    mac.run("job", &format!("{WAITS} 0"), json!({})).await?;
    mac.until_running("job").await?;
    agent.killed().await?;
    mac.control.reboot()?;
    let _agent = mac.start()?;
    let (pod, exit) = mac.until_ended("job").await?;
    ensure!(phase(&pod) == "Failed", "{exit:?}");
    ensure!(exit.exit_code != 0, "{exit:?}");
    mac.delete("job").await?;
    mac.until_gone("job").await?;
    mac.until_empty().await
}
