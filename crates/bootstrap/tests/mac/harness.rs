//! One emulated Mac, and a plan for it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use russet_bootstrap::mac::{
    Agent, Artifacts, Engine, Failed, Firewall, Fleet, Host, Patience, Report, StepState, plan,
};
use russet_bootstrap::ssh::{self, Auth, Limits, Session, Target};
use russet_sim_mac::macos::{Mac, Macs, Options};
use russet_sim_scaleway::{AddressPlan, Factor, Minis, Sim};
use russet_telemetry::Secret;
use tempfile::TempDir;
use tokio::net::TcpListener;

/// The machine may have a hundred other things to do.
pub(crate) const WITHIN: Duration = Duration::from_mins(3);
/// A token nobody may ever read anywhere.
pub(crate) const CANARY: &str = "c4n4ry.0123456789abcdef";

/// An agent that does nothing but stay, or not.
pub(crate) const STAYS: &str = "#!/bin/bash\nexec sleep 100000\n";

pub(crate) struct World {
    pub(crate) sim: Sim,
    pub(crate) macs: Macs,
    pub(crate) artifacts: Artifacts,
    pub(crate) dir: TempDir,
    _port: TcpListener,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::made(|_| {}).await
    }

    pub(crate) async fn made(change: impl FnOnce(&mut Options)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.78.255.254:0").await.unwrap();
        let mut options = Options::new(dir.path().join("macs"), program("sim-mac"));
        options.zsh = Some(zsh().await);
        options.second = Duration::from_millis(50);
        options.reboot = Duration::from_millis(100);
        change(&mut options);
        let macs = Macs::new(options).unwrap();
        let options = russet_sim_scaleway::Options {
            clock_factor: Factor::MANUAL,
            addresses: AddressPlan::LoopbackEach {
                ssh_port: port.local_addr().unwrap().port(),
            },
            ..russet_sim_scaleway::Options::default()
        };
        let sim = Sim::start_with(options, macs.clone()).await.unwrap();
        sim.handle()
            .add_minis(Minis {
                count: 1,
                ..Minis::default()
            })
            .unwrap();
        let world = Self {
            sim,
            macs,
            artifacts: Artifacts::default(),
            dir,
            _port: port,
        };
        world.mac().await;
        let deadline = tokio::time::Instant::now() + WITHIN;
        while let Err(error) = world.session().await {
            assert!(tokio::time::Instant::now() < deadline, "the Mac does not answer: {error}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        world
    }

    pub(crate) fn mini(&self) -> russet_sim_scaleway::Host {
        self.sim.handle().host("tuist-pool").unwrap()
    }

    pub(crate) async fn mac(&self) -> Mac {
        let id = self.mini().server_id;
        let deadline = tokio::time::Instant::now() + WITHIN;
        loop {
            if let Some(mac) = self.macs.mac(&id).await {
                return mac;
            }
            assert!(tokio::time::Instant::now() < deadline, "no Mac came");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// What the fleet wants, with this agent.
    pub(crate) fn fleet(&self, agent: &str) -> Fleet {
        let path = self.dir.path().join("agent");
        let next = self.dir.path().join("agent.next");
        std::fs::write(&next, agent).unwrap();
        std::fs::rename(&next, &path).unwrap();
        Fleet {
            agent: Agent {
                program: self.artifacts.get(&path).unwrap(),
                cpu: 8,
                memory_mb: 16_384,
                max_pods: 2,
                tailnet_only: false,
                extra: Vec::new(),
            },
            tart: None,
            tailnet: None,
            node_exporter: None,
            logs: None,
            firewall: Firewall::default(),
            login_from: None,
            cache_volume_gib: None,
        }
    }

    pub(crate) fn host(&self) -> Host {
        let mini = self.mini();
        Host {
            user: mini.username.clone(),
            password: Some(Secret::new(mini.password.clone())),
            node_name: "mac-1".to_owned(),
            provider_id: format!("scw-applesilicon://{}/{}", mini.zone, mini.server_id),
            labels: BTreeMap::from([("tuist.dev/fleet".to_owned(), "macos".to_owned())]),
            kubeconfig: Secret::new(format!("users:\n- user:\n    token: {CANARY}\n")),
            tailnet_key: None,
            vlan: None,
            runner: None,
        }
    }

    pub(crate) async fn session(&self) -> Result<Session, ssh::Error> {
        let mini = self.mini();
        let target = Target {
            address: (mini.address, mini.ssh_port).into(),
            user: mini.username.clone(),
            auth: Auth::Password(Secret::new(mini.password)),
            pin: None,
        };
        ssh::connect(&target, &Limits::default()).await
    }

    /// Runs the plan once, from wherever the Mac is.
    pub(crate) async fn run(&self, fleet: &Fleet) -> Result<Report, Failed> {
        self.run_as(fleet, &self.host()).await
    }

    pub(crate) async fn run_as(&self, fleet: &Fleet, host: &Host) -> Result<Report, Failed> {
        let session = self.session().await?;
        let steps = plan(fleet, host);
        let told = Mutex::new(Vec::new());
        let progress = |name: &str, state: &StepState| told.lock().unwrap().push(format!("{name} {state:?}"));
        let patience = Patience {
            settle: Duration::from_millis(300),
            pause: Duration::from_millis(100),
        };
        let run = Engine::new(&session, host, &steps, &progress).patience(patience).run();
        let done = tokio::time::timeout(WITHIN, run).await.expect("the plan ends");
        for line in told.lock().unwrap().iter() {
            assert!(
                !line.contains(CANARY) && !line.contains(self.mini().password.as_str()),
                "{line}"
            );
        }
        if let Err(error) = &done {
            let text = error.to_string();
            assert!(
                !text.contains(CANARY) && !text.contains(self.mini().password.as_str()),
                "{text}"
            );
        }
        done
    }

    /// A command as root on the Mac, which must succeed.
    pub(crate) async fn root(&self, command: &str) -> String {
        let session = self.session().await.unwrap();
        let command = format!("sudo -n /bin/bash -c '{command}'");
        let output = session
            .run(ssh::Exec {
                command: &command,
                stdin: None,
                deadline: WITHIN,
            })
            .await
            .unwrap();
        assert!(output.status.is_success(), "{command}: {output:?}");
        output.stdout
    }

    pub(crate) async fn agent_pid(&self) -> String {
        self.root("launchctl print system/dev.tuist.tart-kubelet | sed -n \"s/.*pid = //p\"")
            .await
            .trim()
            .to_owned()
    }
}

/// A program beside the one that runs the tests.
fn program(name: &str) -> PathBuf {
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
