//! The host, its disk, its clock or the API server fails: no VM is lost, doubled or left, and what is said is true.

use crate::housekeeping::until_said;
use crate::line::Line;
use crate::lives::WAITS;
use crate::stage::{Mac, container, ended_before, is, phase, restarts, until, waits};
use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The host goes down and comes up: every process of it is gone at once, supervisors first, and what was written was written
/// before another boot.
fn power_cut(mac: &Mac) -> Result<()> {
    for process in std::fs::read_dir("/proc")?.flatten() {
        let pid = process.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
        let Some(pid) = pid.filter(|pid| *pid != std::process::id()) else {
            continue;
        };
        let open = std::fs::read_dir(process.path().join("fd"))
            .into_iter()
            .flatten()
            .flatten();
        let mut ours = open.filter_map(|file| std::fs::read_link(file.path()).ok());
        if std::fs::read_to_string(process.path().join("comm")).is_ok_and(|name| name.trim() == "tart-kubelet")
            && ours.any(|path| path.starts_with(mac.host.dir.path()))
            && let Some(pid) = rustix::process::Pid::from_raw(i32::try_from(pid)?)
        {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
    mac.control.reboot()?;
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let mut folders = vec![mac.host.path("state/run"), mac.host.path("state/vms")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if entry.file_type()?.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "json") {
                let text = std::fs::read_to_string(&path)?;
                std::fs::write(&path, text.replace(boot.trim(), "another-boot"))?;
            }
        }
    }
    Ok(())
}

/// All VMs went with the host. What ran is known to be lost, in words, and runs again where that is wanted.
pub(crate) async fn a_host_that_was_rebooted_starts_again_what_shall_run() -> Result<()> {
    let (mac, agent) = Mac::started("fails1").await?;
    let job = mac.run("job", &format!("{WAITS} 0"), json!({})).await?;
    let always = json!({"spec": {"restartPolicy": "Always"}});
    let server = mac.run("server", &format!("{WAITS} 0"), always).await?;
    for (name, pod) in [("job", &job), ("server", &server)] {
        mac.until_running(name).await?;
        until("its first words", || Ok(mac.runs(pod) == 1)).await?;
    }
    agent.killed().await?;
    power_cut(&mac)?;
    let _agent = mac.start()?;
    let (ended, exit) = mac.until_ended("job").await?;
    ensure!(phase(&ended) == "Failed" && exit.exit_code != 0, "{exit:?}");
    ensure!(exit.reason.as_deref() == Some("ContainerStatusUnknown"), "{exit:?}");
    let words = exit.message.unwrap_or_default();
    ensure!(words.contains("nobody saw how the container ended"), "{words}");
    let again = mac
        .until("server", "a second start", |pod| {
            restarts(pod) == Some(1) && is(pod, "Ready")
        })
        .await?;
    let before = ended_before(&again).context("how the first one ended")?;
    ensure!(before.reason.as_deref() == Some("ContainerStatusUnknown"), "{before:?}");
    until("its second words", || Ok(mac.runs(&server) == 2)).await?;
    ensure!(mac.control.running()?.len() == 1, "{:?}", mac.control.running()?);
    mac.delete_all(&["job", "server"]).await
}

/// First for a moment: a VM ends and another one runs while nobody can be told, and the agent is restarted meanwhile, too. Then for
/// so long that the Node counts as lost and its Pods as not ready: one of them is deleted and another one changed meanwhile.
pub(crate) async fn an_api_server_that_is_away_is_told_the_truth_when_it_is_back() -> Result<()> {
    let mac = Mac::new("fails2").await?;
    let line = Line::to(mac.host.cluster.control_plane().server()).await?;
    mac.host.write_kubeconfig_for(line.url())?;
    let agent = mac.start()?;
    let ends = mac.run("ends", &format!("{WAITS} 5"), json!({})).await?;
    let follows = json!({
        "metadata": {"labels": {"colour": "red"}},
        "spec": {
            "containers": [{"volumeMounts": [{}, {"name": "pod", "mountPath": "/etc/pod"}]}],
            "volumes": [{}, {"name": "pod", "downwardAPI": {"items": [
                {"path": "colour", "fieldRef": {"fieldPath": "metadata.labels['colour']"}},
            ]}}],
        },
    });
    let stays = mac.run("stays", &format!("{WAITS} 0"), follows).await?;
    mac.until_running("ends").await?;
    let before = mac.until_running("stays").await?;
    line.cut();
    mac.go(&ends)?;
    mac.until_stage("deleted").await?;
    let vm = mac.control.running()?;
    ensure!(vm.len() == 1, "{vm:?}");
    ensure!(phase(&mac.pods().get("ends").await?) == "Running", "nobody could tell");

    agent.killed().await?;
    let _agent = mac.start()?;
    line.until_missed(3).await?;
    ensure!(mac.control.running()? == vm, "{:?}", mac.control.running()?);

    line.mend();
    mac.until_end("ends", "Failed", 5).await?;
    mac.end("ends").await?;

    mac.runs_on("goes").await?;
    until_said(&mac, "Ready", "True", "").await?;
    line.cut();
    line.until_missed(1).await?;
    mac.delete("goes").await?;
    let blue = json!({"metadata": {"labels": {"colour": "blue"}}});
    mac.pods()
        .patch("stays", &PatchParams::default(), &Patch::Merge(blue))
        .await?;
    until_said(&mac, "Ready", "Unknown", "").await?;
    mac.until("stays", "a Pod that counts as lost", |pod| !is(pod, "Ready"))
        .await?;
    let running = mac.control.running()?;
    ensure!(running.len() == 2, "nobody was told that one shall end: {running:?}");

    line.mend();
    until_said(&mac, "Ready", "True", "").await?;
    let after = mac.until_running("stays").await?;
    mac.until_gone("goes").await?;
    let colour = mac.work(&stays).with_file_name("pod").join("colour");
    until("what was changed meanwhile", || {
        Ok(std::fs::read_to_string(&colour)? == "blue")
    })
    .await?;
    ensure!(mac.control.running()? == vm, "{:?}", mac.control.running()?);
    let id = |pod: &Pod| container(pod).and_then(|container| container.container_id.clone());
    ensure!(id(&after) == id(&before) && restarts(&after) == Some(0));
    ensure!(mac.runs(&stays) == 1);
    mac.delete_all(&["stays"]).await
}

/// A file system of its own for what the agent writes.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mounted(path: PathBuf) -> Result<Self> {
        std::fs::create_dir_all(&path)?;
        let done = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=2m,mode=700", "tmpfs"])
            .arg(&path)
            .status()?;
        ensure!(done.success(), "a small disk needs root");
        Ok(Self(path))
    }

    /// Writes until nothing more fits.
    fn fill(&self) -> Result<()> {
        use std::io::Write as _;
        let mut file = std::fs::File::create(self.0.join("ballast"))?;
        loop {
            match file.write_all(&[7; 512]) {
                Err(error) if error.kind() == std::io::ErrorKind::StorageFull => return Ok(()),
                other => other?,
            }
        }
    }

    fn free(&self) -> Result<()> {
        Ok(std::fs::remove_file(self.0.join("ballast"))?)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Guests that are ending may still hold files there.
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

/// Every file of the ledger and every record can be read, whole.
fn all_is_whole(state: &Path) -> Result<usize> {
    let mut whole = 0;
    let mut folders = vec![state.join("vms"), state.join("pods")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if entry.file_type()?.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "json") {
                let bytes = std::fs::read(&path)?;
                serde_json::from_slice::<Value>(&bytes).with_context(|| format!("{} is cut short", path.display()))?;
                whole += 1;
            }
            ensure!(
                !entry.file_name().to_string_lossy().ends_with(".damaged"),
                "{} was damaged",
                entry.path().display()
            );
        }
    }
    Ok(whole)
}

/// Needs root: a small disk is a mount.
pub(crate) async fn a_full_disk_holds_up_and_damages_nothing() -> Result<()> {
    if !russet_skip::needs_root(russet_skip::test_name!()) {
        return Ok(());
    }
    let mac = Mac::new("fails3").await?;
    let state = mac.host.path("state");
    let disk = SmallDisk::mounted(state.clone())?;
    let agent = mac.start()?;
    // It waits for a file of its own disk, which is not the one that fills.
    let script = "until [ -e /Users/admin/go ]; do sleep 0.1; done; echo bye >/Users/admin/bye; exit 5";
    mac.run("ends", script, json!({})).await?;
    mac.until_running("ends").await?;
    let vm = mac.control.running()?.pop().context("a VM")?;
    disk.fill()?;
    mac.run("waits", &format!("{WAITS} 0"), json!({})).await?;
    let waits = mac
        .until("waits", "a Pod that says why it waits", |pod| {
            waits(pod).1.contains("No space left on device")
        })
        .await?;
    ensure!(phase(&waits) == "Pending");
    std::fs::write(mac.control.guest_path(&vm, "/Users/admin/go"), "")?;
    until("the program to end", || {
        Ok(mac.control.guest_path(&vm, "/Users/admin/bye").exists())
    })
    .await?;
    ensure!(all_is_whole(&state)? > 0);
    // As on any other day.
    agent.killed().await?;
    let _agent = mac.start()?;
    ensure!(all_is_whole(&state)? > 0);

    disk.free()?;
    mac.until_end("ends", "Failed", 5).await?;
    mac.until_running("waits").await?;
    ensure!(mac.control.running()?.len() == 1, "{:?}", mac.control.running()?);
    ensure!(all_is_whole(&state)? > 0);
    mac.delete_all(&["ends", "waits"]).await?;
    drop(disk);
    Ok(())
}
