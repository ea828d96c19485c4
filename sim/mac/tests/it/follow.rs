//! `sim-mac` as a process of its own, beside a `sim-scaleway`.

use crate::harness::{client, idle, orders, state, until};
use russet_sim_scaleway::{Factor, Host, Minis, Options, Sim};
use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

/// Ends when dropped.
struct Program {
    child: Child,
    port: u16,
}

impl Program {
    async fn start(scaleway: &str) -> Self {
        Self::start_with(scaleway, &[]).await
    }

    async fn start_with(scaleway: &str, args: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_sim-mac"))
            .args(["--scaleway", scaleway, "--port", "0"])
            .args(args)
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let port = lines
            .next_line()
            .await
            .unwrap()
            .expect("sim-mac ended at once")
            .parse()
            .unwrap();
        Self { child, port }
    }

    async fn answers(&self, host: &Host) -> bool {
        let url = format!("http://{}:{}/state", host.address, self.port);
        state(&url, host).await.is_some_and(|state| idle(&state))
    }
}

async fn scaleway(listen: Option<SocketAddr>, count: u32) -> Sim {
    let mut options = Options {
        clock_factor: Factor::MANUAL,
        ..Options::default()
    };
    if let Some(listen) = listen {
        options.listen = listen;
    }
    let sim = Sim::start(options).await.unwrap();
    sim.handle()
        .add_minis(Minis {
            count,
            ..Minis::default()
        })
        .unwrap();
    sim
}

#[tokio::test]
async fn the_program_serves_machines_that_are_there_and_those_that_come() {
    let sim = scaleway(None, 2).await;
    let mut program = Program::start(sim.url()).await;
    let host = sim.handle().host("tuist-pool-2").unwrap();
    assert!(program.answers(&host).await, "it said it was ready");
    sim.handle()
        .add_minis(Minis {
            name: "late".to_owned(),
            ..Minis::default()
        })
        .unwrap();
    let late = sim.handle().host("late").unwrap();
    until("the late one answers", || program.answers(&late)).await;
    let pid = rustix::process::Pid::from_raw(program.child.id().unwrap().try_into().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let ended = tokio::time::timeout(Duration::from_mins(1), program.child.wait()).await;
    assert!(ended.unwrap().unwrap().success());
}

/// An emulator that starts again counts its events from 1: whoever goes on from the old number hears nothing more.
#[tokio::test]
async fn a_scaleway_that_starts_again_is_found_again() {
    let sim = scaleway(None, 3).await;
    let program = Program::start(sim.url()).await;
    let address: SocketAddr = sim.url().trim_start_matches("http://").parse().unwrap();
    let lost = sim.handle().host("tuist-pool-3").unwrap();
    assert!(program.answers(&lost).await);
    sim.stop().await.unwrap();
    let sim = scaleway(Some(address), 2).await;
    until("a machine that is no more is silent", || async {
        !program.answers(&lost).await
    })
    .await;
    let host = sim.handle().host("tuist-pool-1").unwrap();
    until("the others answer", || program.answers(&host)).await;
}

#[tokio::test]
async fn without_a_scaleway_the_program_says_so() {
    let output = Command::new(env!("CARGO_BIN_EXE_sim-mac"))
        .args(["--scaleway", "http://127.0.0.1:9", "--port", "0"])
        .output()
        .await
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && text.contains("is a sim-scaleway running there?"),
        "{text}"
    );
}

/// `russet up` that goes on after Ctrl-C would otherwise find its Macs alive at Scaleway and dead in the cluster.
#[tokio::test]
async fn a_program_that_starts_again_finds_its_machines_as_it_left_them_and_a_wiped_one_empty() {
    let disks = tempfile::tempdir().unwrap();
    let args = ["--disks", disks.path().to_str().unwrap()];
    let sim = scaleway(None, 2).await;
    let host = sim.handle().host("tuist-pool-1").unwrap();
    let hash = async |program: &Program, host: &Host| {
        let url = format!("http://{}:{}/state", host.address, program.port);
        state(&url, host).await.map(|state| state.hash)
    };
    {
        let mut program = Program::start_with(sim.url(), &args).await;
        let url = format!("http://{}:{}/join", host.address, program.port);
        let told = client()
            .post(url)
            .json(&orders(&host))
            .basic_auth(&host.username, Some(&host.password));
        assert_eq!(told.send().await.unwrap().status(), 202);
        program.child.kill().await.unwrap();
    }
    let mut program = Program::start_with(sim.url(), &args).await;
    until("it has its orders", || async {
        hash(&program, &host).await.as_deref() == Some("0123abcd")
    })
    .await;
    program.child.kill().await.unwrap();

    let file = disks.path().join(format!("{}.json", host.server_id));
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&file).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600, "it holds a key");
    // Wiped while nobody emulated it.
    let url = format!(
        "{}/apple-silicon/v1alpha1/zones/{}/servers/{}/reinstall",
        sim.url(),
        host.zone,
        host.server_id
    );
    let wipe = client()
        .post(url)
        .header("x-auth-token", russet_sim_scaleway::DEFAULT_SECRET_KEY);
    assert!(
        wipe.json(&serde_json::json!({}))
            .send()
            .await
            .unwrap()
            .status()
            .is_success()
    );
    sim.handle().advance(Duration::from_hours(1));
    let program = Program::start_with(sim.url(), &args).await;
    let host = sim.handle().host("tuist-pool-1").unwrap();
    until("it is empty", || async {
        hash(&program, &host).await.as_deref() == Some("")
    })
    .await;
}
