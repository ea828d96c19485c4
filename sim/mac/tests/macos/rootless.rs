//! The emulator without root, as a program of its own: the kernel knows one user then, and who is who is told by the emulator.

use crate::harness::{Client, shell, until, until_answers, zsh};
use russet_sim_scaleway::{AddressPlan, Factor, Minis, Sim};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::process::{Child, Command, Stdio};
use tokio::net::TcpListener;

/// A user that owns nothing here.
const NOBODY: u32 = 65_534;

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// As nobody where this test runs as root, else as whoever runs it.
fn without_root(program: &str) -> Command {
    if !rustix::process::geteuid().is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    let id = NOBODY.to_string();
    command.args(["--reuid", &id, "--regid", &id, "--clear-groups", "--", program]);
    command
}

#[tokio::test]
async fn without_root_commands_sudo_and_launchd_work_the_same() {
    let possible = without_root("unshare")
        .args(["--user", "--map-root-user", "true"])
        .status();
    if !possible.is_ok_and(|status| status.success()) {
        // There an emulator without root says so and ends.
        russet_skip::skipped(russet_skip::test_name!(), "this system gives namespaces to root only");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let shell = dir.path().join("zsh");
    std::fs::copy(zsh().await, &shell).unwrap();
    let disks = dir.path().join("macs");
    std::fs::create_dir(&disks).unwrap();
    if rustix::process::geteuid().is_root() {
        chown(&disks, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let port = TcpListener::bind("127.77.255.254:0").await.unwrap();
    let options = russet_sim_scaleway::Options {
        clock_factor: Factor::MANUAL,
        addresses: AddressPlan::LoopbackEach {
            ssh_port: port.local_addr().unwrap().port(),
        },
        ..russet_sim_scaleway::Options::default()
    };
    let sim = Sim::start(options).await.unwrap();
    sim.handle().add_minis(Minis::default()).unwrap();
    let host = sim.handle().host("tuist-pool").unwrap();
    // What was built here may be where only root can look. Linked, since what was only just written may not be run while another test forks.
    let program = dir.path().join("sim-mac");
    let built = env!("CARGO_BIN_EXE_sim-mac");
    if std::fs::hard_link(built, &program).is_err() {
        std::fs::copy(built, &program).unwrap();
    }
    let emulator = without_root(program.to_str().unwrap())
        .args(["--port", "0", "--scaleway", sim.url(), "--macos"])
        .arg(&disks)
        .arg("--zsh")
        .arg(&shell)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let _emulator = Running(emulator);
    until_answers(&host).await;
    let client = Client::login(&host).await.unwrap();
    shell!(client,
        "id -un; whoami; launchctl managername" => Out("m1\nm1\nBackground\n"),
        "sudo -n true" => Ends(1),
    );
    client.free_sudo(&host).await;
    shell!(client, "sudo id -un; sudo -u m1 id -un" => Out("root\nm1\n"));
    // The kernel cannot give a file away here; what scripts see is as on a Mac.
    let owner = "ls -ld /tmp/given | awk '{ print $3 \":\" $4 }'";
    let told = client
        .ok(&format!(
            "touch /tmp/given; sudo chown m1:staff /tmp/given; {owner}; sudo chown root:wheel /tmp/given; {owner}"
        ))
        .await;
    assert_eq!(told, "m1:staff\nroot:wheel\n");
    shell!(client,
        "chown root:wheel /tmp/given" => Ends(1),
        "sudo chown stranger /tmp/given" => Ends(1),
    );
    let plist = "<plist version=\"1.0\"><dict><key>Label</key><string>x</string><key>ProgramArguments</key><array>\
                 <string>/bin/sleep</string><string>100000</string></array><key>KeepAlive</key><true/></dict></plist>";
    client.load("x", plist).await;
    until("the daemon runs", || async {
        client.ok("launchctl print system/x").await.contains("state = running")
    })
    .await;
}
