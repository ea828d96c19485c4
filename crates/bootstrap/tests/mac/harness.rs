//! One emulated Mac, and a plan for it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use russet_bootstrap::mac::{
    Agent, ApiServer, Artifact, Artifacts, Engine, Failed, Firewall, Fleet, Host, LogShipping, Patience, Remote,
    Report, StepState, Tailnet, plan, watched,
};
use russet_bootstrap::ssh::{self, Auth, HostKeyPin, Limits, Session, Target};
use russet_sim_mac::macos::{Mac, Options};
use russet_stages::macs::rack::Rack;
use russet_telemetry::Secret;
use russet_testkit::wait::{self, Look};
use russh::keys::ssh_key::LineEnding;
use russh::keys::{Algorithm, PrivateKey};

/// The machine may have a hundred other things to do.
pub(crate) const WITHIN: Duration = Duration::from_mins(3);
/// A token nobody may ever read anywhere.
pub(crate) const CANARY: &str = "c4n4ry.0123456789abcdef";

/// An agent that does nothing but stay, or not.
pub(crate) const STAYS: &str = "#!/bin/bash\nexec sleep 100000\n";

pub(crate) struct World {
    rack: Rack,
    artifacts: Artifacts,
    key: PrivateKey,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::made(|_| {}).await
    }

    pub(crate) async fn made(change: impl FnOnce(&mut Options)) -> Self {
        let world = Self {
            rack: Rack::with(1, change).await.unwrap(),
            artifacts: Artifacts::default(),
            key: PrivateKey::random(&mut russh::keys::key::safe_rng(), Algorithm::Ed25519).unwrap(),
        };
        world.until_back().await;
        world
    }

    /// Waits until the Mac lets us log in.
    pub(crate) async fn until_back(&self) {
        let back = wait::until("the Mac to answer", WITHIN, || async {
            self.session().await?;
            Ok(Look::Done(()))
        });
        back.await.unwrap();
    }

    pub(crate) fn mini(&self) -> russet_sim_scaleway::Host {
        self.rack.host(0).unwrap()
    }

    pub(crate) async fn mac(&self) -> Mac {
        self.rack.mac(0).await.unwrap()
    }

    /// What the fleet wants, with this agent.
    pub(crate) fn fleet(&self, agent: &str) -> Fleet {
        Fleet {
            agent: Agent {
                program: self.file("agent", agent),
                cpu: 8,
                memory_mb: 16_384,
                max_pods: 2,
                tailnet_only: false,
                extra: Vec::new(),
            },
            api_server: None,
            tart: None,
            tailnet: None,
            node_exporter: None,
            logs: None,
            firewall: Firewall::default(),
            login_from: None,
            cache_volume_gib: None,
        }
    }

    /// A fleet with everything that a host can have.
    pub(crate) fn full(&self) -> Fleet {
        let tool = |name: &str| format!("#!/.sim/bin/{name}\n");
        let tart = "#!/bin/bash\n[ \"${1:-}\" = --version ] && echo 2.32.1\nexit 0\n";
        Fleet {
            api_server: Some(api_server("https://203.0.113.7:6443")),
            tart: Some(self.archive("tart.tar.gz", &[("tart.app/Contents/MacOS/tart", tart)])),
            tailnet: Some(Tailnet {
                archive: self.archive(
                    "tailscale.tar.gz",
                    &[
                        ("x/tailscale", &tool("tailscale")),
                        ("x/tailscaled", &tool("tailscaled")),
                    ],
                ),
                tags: vec!["tag:tuist-macmini-staging".to_owned()],
                accept_routes: true,
                login_server: None,
            }),
            node_exporter: Some(self.file("node_exporter", STAYS)),
            logs: Some(LogShipping {
                program: self.file("log-shipper", STAYS),
                url: "https://logs.example/push".to_owned(),
                env: "staging".to_owned(),
            }),
            firewall: Firewall {
                services: Some("10.96.0.0/12".to_owned()),
                dns: Some([10, 96, 0, 10].into()),
                cache_network: Some("172.16.0.0/22".to_owned()),
            },
            login_from: Some(vec!["192.0.2.0/24".to_owned()]),
            cache_volume_gib: Some(10),
            ..self.fleet(STAYS)
        }
    }

    /// A host with everything that a host can have, a runner apart.
    pub(crate) fn full_host(&self) -> Host {
        Host {
            tailnet_key: Some(Secret::new(format!("tskey-auth-{CANARY}"))),
            vlan: Some(3548),
            ..self.host()
        }
    }

    pub(crate) fn file(&self, name: &str, content: &str) -> Artifact {
        self.artifact(&self.rack.put(name, content).unwrap())
    }

    pub(crate) fn archive(&self, name: &str, files: &[(&str, &str)]) -> Artifact {
        self.artifact(&self.rack.archive(name, files).unwrap())
    }

    fn artifact(&self, path: &Path) -> Artifact {
        self.artifacts.get(path).unwrap()
    }

    pub(crate) fn host(&self) -> Host {
        let mini = self.mini();
        Host {
            user: mini.username.clone(),
            password: Some(Secret::new(mini.password.clone())),
            node_name: "mac-1".to_owned(),
            provider_id: format!("scw-applesilicon://{}/{}", mini.zone, mini.server_id),
            labels: BTreeMap::from([("tuist.dev/fleet".to_owned(), "macos".to_owned())]),
            taints: Vec::new(),
            login_keys: vec![self.key.public_key().to_openssh().unwrap()],
            kubeconfig: Secret::new(format!("users:\n- user:\n    token: {CANARY}\n")),
            tailnet_key: None,
            vlan: None,
            runner: None,
        }
    }

    /// Logs in with the key, or with the password as long as the key is not there yet.
    pub(crate) async fn session(&self) -> Result<Session, ssh::Error> {
        match self.pinned(None).await {
            Err(ssh::Error::AuthRejected { .. }) => self.login(Auth::Password(Secret::new(self.mini().password))).await,
            other => other,
        }
    }

    pub(crate) async fn login(&self, auth: Auth) -> Result<Session, ssh::Error> {
        self.connect(auth, None, &Limits::default()).await
    }

    /// Logs in to whoever has this host key.
    pub(crate) async fn pinned(&self, pin: Option<HostKeyPin>) -> Result<Session, ssh::Error> {
        let key = self.key.to_openssh(LineEnding::LF).unwrap().to_string();
        self.connect(Auth::Key(Secret::new(key)), pin, &Limits::default()).await
    }

    /// As the provider does it at Scaleway: everything on the Mac is gone afterwards.
    pub(crate) async fn reinstall(&self) {
        let before = self.mini();
        self.rack.reinstall(&before).await.unwrap();
        self.rack.sim.handle().advance(Duration::from_hours(1));
        let installed = wait::until_true("the reinstallation to end", WITHIN, || async {
            let now = self.mini().generation;
            let there = now > before.generation && self.mac().await.host().generation == now;
            let session = self.session().await;
            let silent = matches!(
                session,
                Err(ssh::Error::Refused { .. } | ssh::Error::Unreachable { .. })
            );
            Ok(there && !silent)
        });
        installed.await.unwrap();
    }

    /// A connection that does not wait long for a host that fell silent.
    pub(crate) async fn impatient(&self) -> Result<Session, ssh::Error> {
        let password = Auth::Password(Secret::new(self.mini().password));
        let limits = Limits {
            keepalive: Duration::from_secs(2),
            ..Limits::default()
        };
        self.connect(password, None, &limits).await
    }

    async fn connect(&self, auth: Auth, pin: Option<HostKeyPin>, limits: &Limits) -> Result<Session, ssh::Error> {
        let mini = self.mini();
        let target = Target {
            address: (mini.address, mini.ssh_port).into(),
            user: mini.username.clone(),
            auth,
            pin,
        };
        ssh::connect(&target, limits).await
    }

    /// Runs the plan once, from wherever the Mac is.
    pub(crate) async fn run(&self, fleet: &Fleet) -> Result<Report, Failed> {
        self.run_as(fleet, &self.host()).await
    }

    pub(crate) async fn run_as(&self, fleet: &Fleet, host: &Host) -> Result<Report, Failed> {
        let session = self.session().await?;
        self.run_on(&session, fleet, host).await
    }

    /// Looks at what is watched.
    pub(crate) async fn watch(&self, host: &Host) -> Result<Report, Failed> {
        let session = self.session().await?;
        let steps = watched(host);
        let watch = Engine::new(&session, host, &steps, &|_, _| {}).watch();
        let report = tokio::time::timeout(WITHIN, watch).await.expect("a look ends")?;
        self.has_no_secret(&format!("{report:?}"));
        Ok(report)
    }

    pub(crate) async fn run_on(&self, remote: &impl Remote, fleet: &Fleet, host: &Host) -> Result<Report, Failed> {
        fleet.check().unwrap();
        host.check(fleet).unwrap();
        let steps = plan(fleet, host);
        let told = Mutex::new(Vec::new());
        let progress = |name: &str, state: &StepState| told.lock().unwrap().push(format!("{name} {state:?}"));
        let patience = Patience {
            settle: Duration::from_millis(300),
            pause: Duration::from_millis(100),
        };
        let run = Engine::new(remote, host, &steps, &progress).patience(patience).run();
        let done = tokio::time::timeout(WITHIN, run).await.expect("the plan ends");
        for line in told.lock().unwrap().iter() {
            self.has_no_secret(line);
        }
        match &done {
            Ok(report) => self.has_no_secret(&format!("{report:?}")),
            Err(error) => {
                self.has_no_secret(&format!("{error} {error:?}"));
                assert!(error.to_string().len() < 3_000, "{error}");
            }
        }
        done
    }

    #[track_caller]
    pub(crate) fn has_no_secret(&self, text: &str) {
        assert!(
            !text.contains(CANARY) && !text.contains(self.mini().password.as_str()),
            "{text}"
        );
    }

    /// Looks at every command line the Mac saw, and at every file it has.
    pub(crate) async fn holds_no_secret_but_where_it_must(&self) {
        let mac = self.mac().await;
        for call in mac.calls() {
            self.has_no_secret(&format!("{} {}", call.tool, call.args.join(" ")));
        }
        let password = self.mini().password;
        let mut folders = vec![mac.root().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder).unwrap().filter_map(Result::ok) {
                let (path, kind) = (entry.path(), entry.file_type().unwrap());
                if kind.is_dir() {
                    folders.push(path);
                } else if kind.is_file() {
                    // Jobs end and scripts clean up behind them while this looks.
                    let Ok(bytes) = std::fs::read(&path) else { continue };
                    let has = |secret: &str| bytes.windows(secret.len()).any(|part| part == secret.as_bytes());
                    assert!(
                        !path.to_string_lossy().ends_with("russet-part"),
                        "half written: {}",
                        path.display()
                    );
                    assert!(!has(&password), "the password is in {}", path.display());
                    if has(CANARY) {
                        let mode = std::os::unix::fs::PermissionsExt::mode(&entry.metadata().unwrap().permissions());
                        assert!(
                            path.ends_with("etc/tart-kubelet/kubeconfig"),
                            "a secret is in {}",
                            path.display()
                        );
                        assert_eq!(mode & 0o777, 0o600);
                    }
                }
            }
        }
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

/// An API server there.
pub(crate) fn api_server(url: &str) -> Arc<ApiServer> {
    Arc::new(ApiServer {
        url: url.to_owned(),
        ca_pem: "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n".to_owned(),
    })
}
