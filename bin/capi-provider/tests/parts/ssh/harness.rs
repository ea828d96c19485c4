//! Emulated Macs, and jobs for them.

use clap::Parser as _;
use russet_api::machine::StepState;
use russet_bootstrap::mac::Patience;
use russet_capi_provider::bootstrap::{
    Bootstrapper as _, Done, Failed, HostConfigHash, HostFacts, Job, Kind, LoginKey, Progress, Recipe, Ssh,
};
use russet_capi_provider::claims::Holder;
use russet_capi_provider::config::HostArgs;
use russet_sim_mac::macos::{Mac, Macs, Options};
use russet_sim_scaleway::{AddressPlan, Factor, Host, Minis, Sim};
use russet_telemetry::Secret;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// The machine may have a hundred other things to do.
pub(crate) const WITHIN: Duration = Duration::from_mins(4);
/// A token nobody may ever read anywhere.
pub(crate) const CANARY: &str = "c4n4ry.0123456789abcdef";
/// An agent that does nothing but stay.
pub(crate) const STAYS: &str = "#!/bin/bash\nexec sleep 100000\n";

#[derive(clap::Parser)]
struct Flags {
    #[command(flatten)]
    host: HostArgs,
}

pub(crate) struct World {
    pub(crate) sim: Sim,
    pub(crate) macs: Macs,
    pub(crate) dir: TempDir,
    pub(crate) port: u16,
    pub(crate) key: LoginKey,
    _port: TcpListener,
}

/// What a run told.
pub(crate) type Told = Vec<(String, StepState, Option<String>)>;

impl World {
    pub(crate) async fn with(count: u32) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let reserved = TcpListener::bind("127.78.255.254:0").await.unwrap();
        let port = reserved.local_addr().unwrap().port();
        let mut options = Options::new(dir.path().join("macs"), program("sim-mac"));
        options.zsh = Some(zsh().await);
        options.second = Duration::from_millis(50);
        options.reboot = Duration::from_millis(100);
        let macs = Macs::new(options).unwrap();
        let options = russet_sim_scaleway::Options {
            clock_factor: Factor::MANUAL,
            addresses: AddressPlan::LoopbackEach { ssh_port: port },
            ..russet_sim_scaleway::Options::default()
        };
        let sim = Sim::start_with(options, macs.clone()).await.unwrap();
        sim.handle()
            .add_minis(Minis {
                count,
                ..Minis::default()
            })
            .unwrap();
        std::fs::write(dir.path().join("agent"), STAYS).unwrap();
        let world = Self {
            sim,
            macs,
            dir,
            port,
            key: fresh_key(),
            _port: reserved,
        };
        for number in 1..=count {
            world.mac(number).await;
        }
        world
    }

    pub(crate) fn mini(&self, number: u32) -> Host {
        let handle = self.sim.handle();
        // A single mini has no number.
        let host = handle.host(format!("tuist-pool-{number}").as_str());
        host.or_else(|| handle.host("tuist-pool")).unwrap()
    }

    pub(crate) async fn mac(&self, number: u32) -> Mac {
        let id = self.mini(number).server_id;
        let deadline = tokio::time::Instant::now() + WITHIN;
        loop {
            if let Some(mac) = self.macs.mac(&id).await {
                return mac;
            }
            assert!(tokio::time::Instant::now() < deadline, "no Mac came");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The bootstrapper as the flags make it.
    pub(crate) fn bootstrapper(&self) -> Ssh {
        let agent = format!("--tartkubelet-binary-path={}", self.dir.path().join("agent").display());
        let flags = Flags::parse_from(["provider", &agent, "--tart-tarball-path="]);
        Ssh::new(Recipe::new(flags.host).unwrap(), self.port).patience(Patience {
            settle: Duration::from_millis(300),
            pause: Duration::from_millis(100),
        })
    }

    pub(crate) fn job(&self, number: u32) -> Job {
        let mini = self.mini(number);
        let name = format!("mac-{number}");
        Job {
            kind: Kind::First,
            machine: Holder {
                namespace: "fleet".to_owned(),
                name: name.clone(),
                uid: format!("uid-{number}"),
            },
            address: mini.address,
            ssh_user: mini.username.clone(),
            sudo_password: Some(Secret::new(mini.password.clone())),
            fingerprint: None,
            key: Some(self.key.clone()),
            node_name: name,
            provider_id: format!("scw-applesilicon://{}/{}", mini.zone, mini.server_id),
            labels: BTreeMap::from([("tuist.dev/fleet".to_owned(), "macos".to_owned())]),
            taints: Vec::new(),
            join_kubeconfig: Some(Secret::new(format!("users:\n- user:\n    token: {CANARY}\n"))),
            tailnet_key: None,
            vlan: None,
            runner: None,
            facts: HostFacts::default(),
            hash: HostConfigHash::new("any"),
        }
    }

    /// Runs a job and sees to it that nothing it tells is secret.
    pub(crate) async fn run(&self, ssh: &Ssh, job: Job) -> (Result<Done, Failed>, Told) {
        let password = job.sudo_password.clone().unwrap_or_default();
        let told: Arc<Mutex<Told>> = Arc::default();
        let listener = {
            let told = Arc::clone(&told);
            Progress::new(move |name, state, message| {
                told.lock().unwrap().push((name.to_owned(), state, message));
            })
        };
        let run = ssh.run(job, listener, CancellationToken::new());
        let done = tokio::time::timeout(WITHIN, run).await.expect("it ends");
        let told = told.lock().unwrap().clone();
        let said = format!("{told:?} {done:?}");
        assert!(!said.contains(CANARY), "{said}");
        assert!(
            password.expose().is_empty() || !said.contains(password.expose().as_str()),
            "{said}"
        );
        (done, told)
    }
}

/// A key of a fleet, as the provider makes it.
fn fresh_key() -> LoginKey {
    let key = ssh_key::PrivateKey::random(&mut ssh_key::rand_core::OsRng, ssh_key::Algorithm::Ed25519).unwrap();
    LoginKey {
        private: Secret::new(key.to_openssh(ssh_key::LineEnding::LF).unwrap().to_string()),
        public: key.public_key().to_openssh().unwrap(),
        id: None,
        sudo_password: None,
    }
}

/// A program beside the one that runs the tests.
pub(crate) fn program(name: &str) -> PathBuf {
    let ours = std::env::current_exe().unwrap();
    let path = ours.parent().and_then(Path::parent).unwrap().join(name);
    assert!(path.is_file(), "build {name} first: cargo build -p russet-sim-mac");
    path
}

async fn zsh() -> PathBuf {
    let store = russet_parts::Store::new(russet_parts::Manifest::embedded(), russet_parts::Options::from_env());
    let tools = store.ensure(&["zsh"], &russet_parts::Silent).await.unwrap();
    tools.path("zsh").unwrap().to_owned()
}
