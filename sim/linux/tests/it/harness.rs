//! A fleet on a network of its own, and keys to log in with.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use russet_cluster::node::Network;
use russet_parts::{Manifest, Silent, Store, Tools};
use russet_sim_linux::{Fleet, Options, Phase, Row, State, tools};
use russet_sim_scaleway::{HostKey, Id};
use ssh_key::private::{Ed25519Keypair, PrivateKey};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

/// The machine is busy, and a kubelet is slow.
pub(crate) const PATIENCE: Duration = Duration::from_mins(3);

pub(crate) async fn parts(more: &[&str]) -> Tools {
    let mut wanted = tools();
    wanted.extend(more);
    let store = Store::new(Manifest::embedded(), russet_parts::Options::from_env());
    store
        .ensure(&wanted, &Silent)
        .await
        .unwrap_or_else(|error| panic!("{error}"))
}

/// Fields end in order of declaration: the folder last.
pub(crate) struct Site {
    pub(crate) fleet: Fleet,
    pub(crate) network: Network,
    pub(crate) dir: TempDir,
}

impl Site {
    pub(crate) async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let network = Network::create(dir.path()).await.unwrap();
        Self::on(dir, network, parts(&[]).await, None).await
    }

    pub(crate) async fn on(dir: TempDir, network: Network, tools: Tools, proxy_kubeconfig: Option<PathBuf>) -> Self {
        let fleet = Fleet::new(Options {
            state: dir.path().join("fleet"),
            program: PathBuf::from(env!("CARGO_BIN_EXE_sim-linux")),
            tools,
            network: network.clone(),
            proxy_kubeconfig,
            images: Vec::new(),
        })
        .await
        .unwrap_or_else(|error| panic!("{error:?}"));
        Self { fleet, network, dir }
    }

    /// An Instance that is on, at the given place of the network.
    pub(crate) fn row(&self, name: &str, place: u32) -> Row {
        Row {
            public_ip: Some(IpAddr::V4(self.network.nodes().address(place))),
            authorized_keys: vec![Self::public_key()],
            host_key: HostKey::new([u8::try_from(place).unwrap(); 32]),
            ..Row::instance(Id::named(&place.to_string()), name)
        }
    }

    fn key() -> PrivateKey {
        PrivateKey::from(Ed25519Keypair::from_seed(&[7; 32]))
    }

    fn public_key() -> String {
        Self::key().public_key().to_openssh().unwrap()
    }

    /// Runs a command over SSH as whoever the row names, and returns what it printed, or why it failed.
    pub(crate) async fn ssh(&self, row: &Row, command: &str) -> Result<String, String> {
        self.ssh_with(row, command, "").await
    }

    pub(crate) async fn ssh_with(&self, row: &Row, command: &str, input: &str) -> Result<String, String> {
        let key = self.dir.path().join("id_ed25519");
        if !key.exists() {
            let text = Self::key().to_openssh(ssh_key::LineEnding::LF).unwrap();
            russet_cluster::files::write(&key, text.as_bytes(), russet_cluster::files::Access::Private).unwrap();
        }
        let address = row.public_ip.unwrap();
        let seed: [u8; 32] = BASE64.decode(row.host_key.seed_base64()).unwrap().try_into().unwrap();
        let host = PrivateKey::from(Ed25519Keypair::from_seed(&seed))
            .public_key()
            .to_openssh()
            .unwrap();
        let known = self.dir.path().join("known_hosts");
        std::fs::write(&known, format!("{address} {host}\n")).unwrap();
        let mut ssh = Command::new("ssh")
            .args([
                "-F",
                "none",
                "-o",
                "BatchMode=yes",
                "-o",
                "ConnectTimeout=5",
                "-o",
                "StrictHostKeyChecking=yes",
            ])
            .args([
                "-o",
                "IdentitiesOnly=yes",
                "-o",
                &format!("UserKnownHostsFile={}", known.display()),
            ])
            .args(["-i", &key.display().to_string(), "-l", &row.ssh_user])
            .args([&address.to_string(), command])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("tests log in with the system's ssh (openssh-client)");
        // A command need not read what it is given.
        let _ = ssh.stdin.take().unwrap().write_all(input.as_bytes()).await;
        let output = ssh.wait_with_output().await.unwrap();
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    }

    /// Waits for a state of a server; on failure its console is shown.
    pub(crate) async fn until(&self, row: &Row, what: &str, good: impl FnMut(&State) -> bool) -> State {
        let mut states = self.fleet.watch(&row.server_id).await.unwrap();
        let waited = tokio::time::timeout(PATIENCE, states.wait_for(good)).await;
        match waited {
            Ok(Ok(state)) => state.clone(),
            _ => panic!(
                "{what} did not happen: {:?}\n{}",
                self.fleet.watch(&row.server_id).await,
                self.consoles()
            ),
        }
    }

    pub(crate) async fn booted(&self, row: &Row) {
        self.until(row, "the boot", |state| state.phase == Phase::Booted).await;
    }

    /// Everything servers said, for a failure that only they can explain.
    pub(crate) fn consoles(&self) -> String {
        let mut text = String::new();
        for folder in list(&self.dir.path().join("fleet/boxes")) {
            let logs = ["console.log", "disk/var/log/cloud-init-output.log"].map(|log| folder.join(log));
            let journals = list(&folder.join("disk/var/log/journal-box"));
            for log in logs.into_iter().chain(journals) {
                let said = std::fs::read(&log).unwrap_or_default();
                let said = String::from_utf8_lossy(&said);
                let lines: Vec<_> = said.lines().collect();
                let last = lines[lines.len().saturating_sub(30)..].join("\n");
                let _ = writeln!(text, "--- {}\n{last}", log.display());
            }
        }
        text
    }
}

fn list(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// Waits for a condition, and fails with its name when the deadline passes.
pub(crate) async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !condition().await {
        assert!(
            tokio::time::Instant::now() < deadline,
            "not within {PATIENCE:?}: {what}"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// What a server leaves in the system while it runs, and must not leave afterwards.
#[derive(Debug)]
pub(crate) struct Traces(Vec<PathBuf>);

impl Traces {
    pub(crate) async fn of(fleet: &Fleet, row: &Row) -> Self {
        let (pid, cgroup) = fleet.traces(&row.server_id).await.unwrap();
        Self::new(pid.unwrap(), &cgroup)
    }

    pub(crate) fn new(pid: u32, cgroup: &str) -> Self {
        let namespace = std::fs::read_link(format!("/proc/{pid}/ns/pid")).unwrap();
        let processes = list(Path::new("/proc"))
            .into_iter()
            .filter(|process| std::fs::read_link(process.join("ns/pid")).is_ok_and(|link| link == namespace));
        let mut traces: Vec<_> = processes.collect();
        assert!(traces.len() >= 2, "process 1 and the manager should run: {traces:?}");
        let root = Path::new("/sys/fs/cgroup");
        let cgroups = list(root)
            .into_iter()
            .chain([root.to_owned()])
            .map(|tree| tree.join(cgroup));
        traces.extend(cgroups.filter(|tree| tree.exists()));
        Self(traces)
    }

    /// Without cgroups, which the next boot has again.
    pub(crate) fn processes(mut self) -> Self {
        self.0.retain(|path| path.starts_with("/proc"));
        self
    }

    pub(crate) async fn vanish(&self) {
        eventually(&format!("these are gone: {:?}", self.0), async || {
            self.0.iter().all(|file| !file.exists())
        })
        .await;
    }
}

/// Mounts of this machine that lie below a folder.
pub(crate) fn mounts_below(folder: &Path) -> Vec<String> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let folder = folder.to_string_lossy().into_owned();
    table
        .lines()
        .filter(|line| line.contains(&folder))
        .map(str::to_owned)
        .collect()
}
