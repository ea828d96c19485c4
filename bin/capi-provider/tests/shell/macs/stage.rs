//! Emulated Macs behind an emulated Scaleway, and a provider that logs in to them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::Parser as _;
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use russet_api::ScalewayAppleSiliconMachine;
use russet_api::conditions;
use russet_api::machine::{Step, StepState};
use russet_bootstrap::mac::Patience;
use russet_capi_provider::api_server;
use russet_capi_provider::bootstrap::{Recipe, Services, Ssh};
use russet_capi_provider::config::HostArgs;
use russet_capi_provider::fleet_key::FleetKeys;
use russet_capi_provider::identity::{self, Identities, IdentityArgs};
use russet_capi_provider::private_network::PrivateNetwork;
use russet_capi_provider::tailnet_key::TailnetKeys;
use russet_sim_mac::macos::{Faults, Mac, Macs, Options};
use russet_sim_scaleway::{AddressPlan, Factor, Sim};
use russet_testkit::Sandbox;
use russet_testkit::identity::Granted;
use russet_testkit::wait::{self, Look, PATIENCE};
use tempfile::TempDir;
use tokio::net::TcpListener;

use crate::harness::{Provider, add_minis, identity, scaleway};

/// The private network of [`Stage::services`], once somebody makes it.
pub(crate) const NETWORK: &str = "cache";
/// The Secret with the key of the tailnet.
pub(crate) const TAILNET: &str = "tailnet";
/// An agent that does nothing but stay.
const AGENT: &str = "#!/bin/bash\nexec sleep 100000\n";

#[derive(clap::Parser)]
struct Flags {
    #[command(flatten)]
    host: HostArgs,
}

pub(crate) struct Stage<'a> {
    pub(crate) sandbox: &'a Sandbox<'a>,
    who: Granted,
    pub(crate) sim: Sim,
    macs: Macs,
    pub(crate) dir: TempDir,
    port: u16,
    _port: TcpListener,
}

impl<'a> Stage<'a> {
    /// With so many Macs in the pool.
    pub(crate) async fn set(sandbox: &'a Sandbox<'a>, count: u32) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        // Whoever emulates Macs takes the port here, so that no two take the same.
        let reserved = TcpListener::bind("127.78.255.254:0").await?;
        let port = reserved.local_addr()?.port();
        let mut options = Options::new(dir.path().join("macs"), sim_mac()?);
        options.zsh = Some(zsh().await?);
        options.second = Duration::from_millis(50);
        options.reboot = Duration::from_millis(100);
        let macs = Macs::new(options)?;
        let options = russet_sim_scaleway::Options {
            clock_factor: Factor::MANUAL,
            addresses: AddressPlan::LoopbackEach { ssh_port: port },
            ..russet_sim_scaleway::Options::default()
        };
        let sim = Sim::start_with(options, macs.clone()).await?;
        add_minis(sim.handle(), count);
        let stage = Self {
            sandbox,
            who: identity(sandbox).await?,
            sim,
            macs,
            dir,
            port,
            _port: reserved,
        };
        stage.put("agent", AGENT)?;
        wait::until_true("the Macs", PATIENCE, || async {
            Ok(stage.macs.all().await.len() == count as usize)
        })
        .await?;
        Ok(stage)
    }

    /// A file that hosts are set up with, there at once or not at all.
    pub(crate) fn put(&self, name: &str, content: &str) -> Result<()> {
        let next = self.path(&format!("{name}.next"));
        std::fs::write(&next, content)?;
        std::fs::rename(next, self.path(name))?;
        Ok(())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// An archive with one program.
    pub(crate) fn archive(&self, name: &str, files: &[(&str, String)]) -> Result<()> {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir_in(self.dir.path())?;
        for (path, content) in files {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().context("a folder")?)?;
            std::fs::write(&path, content)?;
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))?;
        }
        let next = self.path(&format!("{name}.next"));
        let mut tar = Command::new("tar");
        tar.arg("-czf").arg(&next).arg("-C").arg(folder.path()).arg(".");
        ensure!(tar.status()?.success(), "tar could not make {name}");
        std::fs::rename(next, self.path(name))?;
        Ok(())
    }

    /// As many rights as its chart gives it.
    async fn client(&self) -> Result<Client> {
        let kubeconfig = Kubeconfig::read_from(&self.who.kubeconfig)?;
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        Ok(Client::try_from(config)?)
    }

    pub(crate) fn scaleway(&self) -> Result<russet_scaleway::Client> {
        let context = russet_scaleway::Context::default();
        Ok(russet_scaleway::Client::new(&scaleway(&self.sim)?, context)?)
    }

    /// Keys of fleets and join credentials, as every provider has them.
    pub(crate) async fn services(&self) -> Result<Services> {
        let (client, cloud) = (self.client().await?, self.scaleway()?);
        let namespace = self.sandbox.namespace().to_owned();
        let plane = self.sandbox.cluster().control_plane();
        let mut settings = identity::Settings::new(&IdentityArgs::default(), namespace.clone());
        settings.server = api_server::Settings {
            url: Some(plane.server().to_owned()),
            ca_pem: Some(plane.ca_pem().to_owned()),
        };
        let project = cloud.project().clone();
        Ok(Services {
            keys: Some(Arc::new(FleetKeys::new(client.clone(), cloud, namespace, project))),
            identities: Some(Arc::new(Identities::new(client, settings))),
            ..Services::default()
        })
    }

    /// The same, for hosts that are on a tailnet and on a private network.
    pub(crate) async fn connected_services(&self) -> Result<Services> {
        let tailnet = TailnetKeys::new(self.client().await?, self.sandbox.namespace(), TAILNET);
        Ok(Services {
            tailnet: tailnet.map(|keys| Arc::new(keys) as _),
            networks: PrivateNetwork::new(self.scaleway()?, NETWORK).map(|network| Arc::new(network) as _),
            ..self.services().await?
        })
    }

    /// A provider with these flags about hosts, and these about itself.
    pub(crate) async fn provider(&self, services: Services, host: &[String], flags: &[&str]) -> Result<Provider> {
        let agent = format!("--tartkubelet-binary-path={}", self.path("agent").display());
        let mut all = vec!["provider".to_owned(), agent];
        all.extend_from_slice(host);
        if !host.iter().any(|flag| flag.starts_with("--tart-tarball-path")) {
            all.push("--tart-tarball-path=".to_owned());
        }
        let recipe = Recipe::new(Flags::try_parse_from(all)?.host)?;
        let ssh = Ssh::new(recipe, self.port).patience(Patience {
            settle: Duration::from_millis(300),
            pause: Duration::from_millis(100),
        });
        Provider::with(self.sandbox, &self.who, &self.sim, Arc::new(ssh), services, flags).await
    }

    /// Breaks every Mac.
    pub(crate) async fn break_all(&self, change: impl Fn(&mut Faults)) {
        for mac in self.macs.all().await {
            mac.set_faults(&change);
        }
    }

    /// Heals every Mac but that of this server.
    pub(crate) async fn heal_all_but(&self, server: &str) {
        for mac in self.macs.all().await {
            if mac.host().server_id.to_string() != server {
                mac.set_faults(|faults| *faults = Faults::default());
            }
        }
    }

    /// The Mac of a server, as it is installed now; one that is wiped is waited for.
    pub(crate) async fn mac(&self, server: &str) -> Result<Mac> {
        wait::until("the Mac of a server", PATIENCE, || async {
            let mut macs = self.macs.all().await.into_iter();
            Ok(match macs.find(|mac| mac.host().server_id.to_string() == server) {
                Some(mac) => Look::Done(mac),
                None => Look::not_yet(server),
            })
        })
        .await
    }

    /// Posts of this kind about hosts.
    pub(crate) fn posts(&self, what: &str) -> usize {
        let path = format!("/apple-silicon/v1alpha1/zones/*/servers/*/{what}");
        self.sim.handle().calls("POST", &path)
    }
}

/// Its host was set up.
pub(crate) fn is_set_up(mac: &ScalewayAppleSiliconMachine) -> bool {
    let status = mac.status.as_ref();
    status.is_some_and(|status| conditions::is_true(&status.conditions, "Bootstrapped"))
}

/// One step of its set-up.
pub(crate) fn step<'a>(mac: &'a ScalewayAppleSiliconMachine, name: &str) -> Option<&'a Step> {
    mac.status.as_ref()?.steps.iter().find(|step| step.name == name)
}

pub(crate) fn is(mac: &ScalewayAppleSiliconMachine, name: &str, state: &StepState) -> bool {
    step(mac, name).is_some_and(|step| step.state == *state)
}

pub(crate) fn server(mac: &ScalewayAppleSiliconMachine) -> String {
    mac.status
        .as_ref()
        .and_then(|status| status.server_id.clone())
        .unwrap_or_default()
}

/// The program beside the one that runs the tests.
fn sim_mac() -> Result<PathBuf> {
    let ours = std::env::current_exe()?;
    let path = ours
        .parent()
        .and_then(Path::parent)
        .context("a folder")?
        .join("sim-mac");
    ensure!(path.is_file(), "build sim-mac first: cargo build -p russet-sim-mac");
    Ok(path)
}

async fn zsh() -> Result<PathBuf> {
    let store = russet_parts::Store::new(russet_parts::Manifest::embedded(), russet_parts::Options::from_env());
    let tools = store.ensure(&["zsh"], &russet_parts::Silent).await?;
    Ok(tools.path("zsh")?.to_owned())
}
