//! `sim-linux` as a program of its own, behind a sim-scaleway of its own.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use russet_cluster::node;
use russet_sim_scaleway::{Deed, NewInstances, Sim};
use russet_skip::{can_run, test_name};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::Command;

use crate::harness::{eventually, mounts_below, parts};

/// However the program ends, the kernel takes servers apart: no process, no mount and no interface stays.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_left_of_servers_whose_emulator_is_killed() {
    if !can_run(test_name!(), node::check()) {
        return;
    }
    // Else the program would fetch them while the test waits for its first line.
    drop(parts(&[]).await);
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start(russet_sim_scaleway::Options::default()).await.unwrap();
    let mut program = Command::new(env!("CARGO_BIN_EXE_sim-linux"))
        .args(["--scaleway", sim.url(), "--state"])
        .arg(dir.path())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut range = String::new();
    BufReader::new(program.stdout.take().unwrap())
        .read_line(&mut range)
        .await
        .unwrap();
    let range = range.trim().parse().unwrap();
    sim.handle().set(|settings| settings.linux_public = range);
    let new = NewInstances {
        name: "box".to_owned(),
        running: true,
        dynamic_ip: true,
        ..NewInstances::default()
    };
    sim.handle().perform(Deed::AddInstances(new)).unwrap();
    eventually("the server answers", async || {
        match sim.handle().boxes().first().and_then(|row| row.public_ip) {
            Some(address) => TcpStream::connect((address, 22)).await.is_ok(),
            None => false,
        }
    })
    .await;
    let inside = processes_with_mounts_below(dir.path());
    assert!(
        inside.len() >= 3,
        "process 1, the manager and sshd should run: {inside:?}"
    );
    let interface = network_interface(dir.path());
    assert!(interface.exists(), "{interface:?}");

    program.kill().await.unwrap();
    eventually("everything of the server is gone", async || {
        inside.iter().all(|process| !process.exists()) && !interface.exists() && mounts_below(dir.path()).is_empty()
    })
    .await;
    assert_eq!(processes_with_mounts_below(dir.path()), Vec::<PathBuf>::new());
}

/// Processes in mount namespaces into which parts of a folder are mounted.
fn processes_with_mounts_below(folder: &Path) -> Vec<PathBuf> {
    let folder = folder.to_string_lossy().into_owned();
    let entries = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    entries
        .filter(|process| std::fs::read_to_string(process.join("mountinfo")).is_ok_and(|table| table.contains(&folder)))
        .collect()
}

fn network_interface(state: &Path) -> PathBuf {
    let record = std::fs::read_to_string(state.join("network.json")).unwrap();
    let record: serde_json::Value = serde_json::from_str(&record).unwrap();
    Path::new("/sys/class/net").join(format!("rst{}", record["index"]))
}
