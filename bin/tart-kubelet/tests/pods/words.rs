//! What is wrong is said in one sentence where its owner looks, and is over once its cause is.

use crate::housekeeping::until_said;
use crate::lives::{WAITS, lacks_image};
use crate::stage::{IMAGE, Mac, container, phase, restarts, waits};
use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Pod, Secret};
use russet_sim_tart::Image;
use serde_json::json;

/// More than that is no sentence that anybody reads.
const LONGEST: usize = 300;

/// One sentence: no lines, no trace, no debug print, no gap where a cause would be.
fn one_sentence(text: &str) -> Result<()> {
    let text = text.trim();
    ensure!(!text.is_empty() && text.chars().count() <= LONGEST, "{text:?}");
    for odd in ["\n", "{", "Some(", ": :"] {
        ensure!(!text.contains(odd), "{odd:?} in {text:?}");
    }
    Ok(())
}

pub(crate) async fn what_a_vm_cannot_do_is_said_in_one_sentence() -> Result<()> {
    let (mac, _agent) = Mac::started("words1").await?;
    for (name, more, said) in [
        ("network", json!({"spec": {"hostNetwork": true}}), "hostNetwork"),
        (
            "device",
            json!({"spec": {"containers": [{"securityContext": {"privileged": true}}]}}),
            "privileged",
        ),
        (
            "too-big",
            json!({"spec": {"containers": [{"resources": {"requests": {"cpu": "1000"}}}]}}),
            "cpu",
        ),
    ] {
        mac.run(name, "true", more).await?;
        let pod = mac.until_failed(name).await?;
        let status = pod.status.context("a status")?;
        let message = status.message.unwrap_or_default();
        ensure!(message.contains(said), "{message}");
        ensure!(status.reason.is_some_and(|reason| !reason.is_empty()));
        one_sentence(&message)?;
    }
    let bad = json!({"spec": {"containers": [{"image": "ghcr.io/acme/mac:not a tag"}]}});
    mac.run("no-image", &format!("{WAITS} 0"), bad).await?;
    let pod = mac
        .until("no-image", "a name that is no image's", |pod| {
            waits(pod).0 == "InvalidImageName"
        })
        .await?;
    one_sentence(&waits(&pod).1)?;
    ensure!(mac.vms().is_empty() && mac.control.running()?.is_empty());
    // With a name that is one, the same Pod runs.
    let good = json!({"spec": {"containers": [{"name": "main", "image": IMAGE}]}});
    mac.change::<Pod>("no-image", good).await?;
    let running = mac.until_running("no-image").await?;
    ensure!(running.metadata.uid == pod.metadata.uid, "it is another Pod");
    let main = container(&running).context("a container")?;
    ensure!(main.image == IMAGE && main.restart_count == 0, "{main:?}");
    // The Node is none the worse.
    mac.run("job", "exit 0", json!({})).await?;
    let (ended, _) = mac.until_ended("job").await?;
    ensure!(phase(&ended) == "Succeeded");
    mac.delete_all(&["network", "device", "too-big", "no-image", "job"])
        .await
}

pub(crate) async fn what_a_pod_lacks_is_said_and_it_runs_once_that_is_there() -> Result<()> {
    let (mac, _agent) = Mac::started("words2").await?;
    let secret = json!({"spec": {"containers": [{"envFrom": [{}, {"secretRef": {"name": "later"}}]}]}});
    mac.run("secret", &format!("{WAITS} 0"), secret).await?;
    let image = json!({"spec": {"containers": [{"image": "ghcr.io/acme/later:v1"}]}});
    mac.run("image", &format!("{WAITS} 0"), image).await?;
    let pod = mac
        .until_waits("secret", "words about the Secret", |reason, message| {
            reason == "CreateContainerConfigError" && message.contains("later")
        })
        .await?;
    one_sentence(&waits(&pod).1)?;
    let pod = mac
        .until("image", "words about the image", |pod| {
            lacks_image(pod, "ghcr.io/acme/later:v1")
        })
        .await?;
    one_sentence(&waits(&pod).1)?;
    let later = json!({"metadata": {"name": "later"}, "stringData": {"WORD": "now"}});
    mac.make::<Secret>(later).await?;
    mac.control.push("ghcr.io/acme/later:v1", &Image::default())?;
    for name in ["secret", "image"] {
        mac.until_running(name).await?;
        mac.end(name).await?;
    }
    mac.until_empty().await
}

pub(crate) async fn without_a_gui_session_a_pod_says_so_and_runs_once_there_is_one() -> Result<()> {
    let (mac, _agent) = Mac::started("words3").await?;
    mac.switch(|switches| switches.aqua = Some(false))?;
    mac.run("job", &format!("{WAITS} 0"), json!({})).await?;
    let pod = mac
        .until_waits("job", "words about the session", |reason, message| {
            reason == "RunContainerError" && message.contains("nobody is logged in")
        })
        .await?;
    one_sentence(&waits(&pod).1)?;
    mac.until_told("job", "Failed", 1).await?;
    mac.switch(|switches| switches.aqua = Some(true))?;
    let running = mac.until_running("job").await?;
    ensure!(restarts(&running) == Some(0), "a start that failed is no restart");
    // Each of the starts that failed had a folder, and thousands a day stayed.
    let starts = mac.starts(&pod);
    ensure!(starts.len() == 1, "{starts:?}");
    mac.delete_all(&["job"]).await
}

/// The kernel of macOS loses count of VMs that end, and a Pod was told that others run where none did (tart #1217).
pub(crate) async fn a_mac_that_has_lost_count_of_its_vms_says_so_and_runs_them_after_a_reboot() -> Result<()> {
    let (mac, agent) = Mac::started("words5").await?;
    mac.switch(|switches| switches.leak_slot = true)?;
    for name in ["one", "two"] {
        mac.run(name, "true", json!({"spec": {"restartPolicy": "Never"}}))
            .await?;
        mac.until_ended(name).await?;
        mac.end(name).await?;
    }
    mac.until_empty().await?;
    mac.switch(|switches| switches.leak_slot = false)?;
    mac.run("job", &format!("{WAITS} 0"), json!({})).await?;
    let pod = mac
        .until_waits("job", "words about the count", |reason, message| {
            reason == "RunContainerError" && message.contains("0 of 2 run") && message.contains("reboot the host")
        })
        .await?;
    one_sentence(&waits(&pod).1)?;
    until_said(&mac, "VMPlaces", "False", "0 of 2 run").await?;
    // It is tried again before others are kept away.
    until_said(&mac, "Ready", "False", "reboot the host").await?;

    // Whatever runs on a host goes down with it, its agent too.
    agent.killed().await?;
    mac.control.reboot()?;
    let _agent = mac.start()?;
    mac.until_running("job").await?;
    until_said(&mac, "VMPlaces", "True", "as many").await?;
    until_said(&mac, "Ready", "True", "running").await?;
    mac.end("job").await
}

pub(crate) async fn a_kubeconfig_that_is_mended_makes_a_node() -> Result<()> {
    let mac = Mac::new("words4").await?;
    let path = mac.host.path("kubeconfig");
    let good = std::fs::read_to_string(&path)?;
    let token = mac.host.token.clone();
    for (bad, said) in [
        ("clusters: [".to_owned(), "kubeconfig"),
        (good.replace(&token, "abcdef.wrong"), "Unauthorized"),
    ] {
        std::fs::write(&path, bad)?;
        ensure!(!mac.start()?.ended().await?.success(), "{}", mac.host.log());
        let log = mac.host.log();
        let last = log.lines().rev().find(|line| line.starts_with("tart-kubelet: "));
        let last = last.with_context(|| format!("no last words in {log}"))?;
        ensure!(last.contains(said), "{last}");
        one_sentence(last)?;
        ensure!(!log.contains(&token) && !log.contains("abcdef.wrong"), "{log}");
    }
    std::fs::write(&path, good)?;
    let _agent = mac.start()?;
    until_said(&mac, "Ready", "True", "").await.map(drop)
}
