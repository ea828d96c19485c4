//! A sandbox with an emulated Scaleway, and a provider in this process or in one of its own.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser as _;
use russet_capi_provider::api_server;
use russet_capi_provider::bootstrap::{Bootstrapper, Services};
use russet_capi_provider::clock::SystemClock;
use russet_capi_provider::config::{Cli, Settings};
use russet_capi_provider::fleet_key::FleetKeys;
use russet_capi_provider::identity::{self, Identities, IdentityArgs};
use russet_capi_provider::linux::hosts::Hosts;
use russet_capi_provider::provider::{self, ABOUT, Outside};
use russet_controller::{Config as ControllerConfig, Manager};
use russet_scaleway::Config;
use russet_scaleway::config::Proxy;
use russet_sim_scaleway::{
    DEFAULT_ACCESS_KEY, DEFAULT_PROJECT, DEFAULT_SECRET_KEY, Factor, Handle, Minis, Options, Sim,
};
use russet_stages::macs::rights::{self, client_of};
use russet_telemetry::{Metrics, Secret};
use russet_testkit::identity::Granted;
use russet_testkit::wait::{self, Look, PATIENCE};
use russet_testkit::{Extras, Sandbox, TestCluster, crds};
use tokio::sync::OnceCell;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

static CLUSTER: OnceCell<TestCluster> = OnceCell::const_new();

/// The cluster of all tests, with core and our CRDs.
pub(crate) async fn cluster() -> Result<&'static TestCluster> {
    CLUSTER
        .get_or_try_init(async || {
            let cluster = TestCluster::start(Extras {
                controller_manager: true,
                cluster_api: true,
                ..Extras::default()
            })
            .await?;
            crds::install(&cluster.client().await?, &russet_api::all_crds()).await?;
            anyhow::Ok(cluster)
        })
        .await
}

/// What the provider may do: the list of its chart.
pub(crate) async fn identity(sandbox: &Sandbox<'_>) -> Result<Granted> {
    rights::provider(sandbox).await?.grant().await
}

/// What every set-up needs besides the host: keys of fleets and join credentials, under the provider's own rights.
pub(crate) async fn services(sandbox: &Sandbox<'_>, who: &Granted, sim: &Sim) -> Result<Services> {
    let (client, cloud) = (client_of(who).await?, cloud(sim)?);
    let (namespace, project) = (sandbox.namespace().to_owned(), cloud.project().clone());
    let plane = sandbox.cluster().control_plane();
    let mut settings = identity::Settings::new(&IdentityArgs::default(), namespace.clone());
    settings.server = api_server::Settings {
        url: Some(plane.server().to_owned()),
        ca_pem: Some(plane.ca_pem().to_owned()),
    };
    Ok(Services {
        keys: Some(Arc::new(FleetKeys::new(client.clone(), cloud, namespace, project))),
        identities: Some(Arc::new(Identities::new(client, settings))),
        ..Services::default()
    })
}

/// An emulator whose time moves by hand, with minis in the pool.
pub(crate) async fn sim(pool: u32) -> Result<Sim> {
    let sim = Sim::start(Options {
        clock_factor: Factor::MANUAL,
        ..Options::default()
    })
    .await?;
    if pool > 0 {
        add_minis(sim.handle(), pool);
    }
    Ok(sim)
}

/// More minis in the pool.
pub(crate) fn add_minis(handle: &Handle, count: u32) {
    handle
        .add_minis(Minis {
            name: format!("tuist-pool-{}", handle.servers().len()),
            count,
            ..Minis::default()
        })
        .unwrap();
}

/// Names of all minis, in order.
pub(crate) fn names(handle: &Handle) -> Vec<String> {
    let servers = handle.servers();
    let mut names: Vec<String> = servers.iter().map(|s| s["name"].as_str().unwrap().to_owned()).collect();
    names.sort();
    names
}

/// Flags that make a provider work here, and quickly.
pub(crate) fn flags(sandbox: &Sandbox<'_>, who: &Granted) -> Vec<String> {
    [
        format!("--kubeconfig={}", who.kubeconfig.display()),
        format!("--namespace={}", sandbox.namespace()),
        format!("--secrets-namespace={}", sandbox.namespace()),
        "--metrics-bind-address=0".to_owned(),
        "--health-probe-bind-address=0".to_owned(),
        "--default-adopt-pool-prefix=tuist-pool-".to_owned(),
        "--inventory-interval=300ms".to_owned(),
        "--claim-settle-time=100ms".to_owned(),
        "--min-wipe-time=0s".to_owned(),
        "--bootstrap-retry-interval=100ms".to_owned(),
        "--orphan-reclaim-interval=1s".to_owned(),
        "--linux-cluster-dns=10.96.0.10".to_owned(),
        "--linux-refusal-retry=500ms".to_owned(),
        "--linux-inspect-after=2s".to_owned(),
        "--linux-install-grace=10s".to_owned(),
        "--linux-join-deadline=20s".to_owned(),
        "--linux-local-storage-class=scw-local-nvme".to_owned(),
    ]
    .to_vec()
}

/// A provider in this process.
pub(crate) struct Provider {
    stop: CancellationToken,
    task: JoinHandle<Result<(), russet_controller::manager::Error>>,
    pub(crate) metrics: Metrics,
}

impl Provider {
    pub(crate) async fn start(
        sandbox: &Sandbox<'_>,
        who: &Granted,
        sim: &Sim,
        bootstrapper: Arc<dyn Bootstrapper>,
        extra: &[&str],
    ) -> Result<Self> {
        Self::with(sandbox, who, sim, bootstrapper, Services::default(), extra).await
    }

    pub(crate) async fn with(
        sandbox: &Sandbox<'_>,
        who: &Granted,
        sim: &Sim,
        bootstrapper: Arc<dyn Bootstrapper>,
        services: Services,
        extra: &[&str],
    ) -> Result<Self> {
        Self::reaching(sandbox, who, sim, bootstrapper, services, None, extra).await
    }

    /// With Linux servers that are reached like this.
    pub(crate) async fn reaching(
        sandbox: &Sandbox<'_>,
        who: &Granted,
        sim: &Sim,
        bootstrapper: Arc<dyn Bootstrapper>,
        services: Services,
        linux_hosts: Option<Arc<dyn Hosts>>,
        extra: &[&str],
    ) -> Result<Self> {
        // What a test says itself counts.
        let name = |flag: &str| flag.split('=').next().map(ToOwned::to_owned);
        let said = |flag: &String| extra.iter().any(|other| name(other) == name(flag));
        let usual = flags(sandbox, who).into_iter().filter(|flag| !said(flag));
        let args = std::iter::once("capi-provider".to_owned())
            .chain(usual)
            .chain(std::iter::once("--leader-elect=false".to_owned()))
            .chain(extra.iter().map(|&flag| flag.to_owned()));
        let cli = Cli::try_parse_from(args)?;
        let settings = Settings::from_args(cli.provider, cli.bootstrap)?;
        let config = ControllerConfig::from_args(cli.common, || "test".to_owned())?;
        let manager = Manager::new(ABOUT, config).await?;
        let outside = Outside {
            scaleway: scaleway(sim)?,
            bootstrapper,
            services,
            linux_hosts,
            clock: Arc::new(SystemClock),
        };
        let components = provider::components(&manager, &settings, outside)?;
        let stop = CancellationToken::new();
        let metrics = manager.registry().clone();
        let task = tokio::spawn(manager.run(components, stop.clone()));
        Ok(Self { stop, task, metrics })
    }

    /// Ends it as a signal would.
    pub(crate) async fn stop(self) -> Result<()> {
        self.stop.cancel();
        self.task.await??;
        Ok(())
    }

    /// The value of a metric with these words in its line.
    pub(crate) fn metric(&self, words: &[&str]) -> Option<f64> {
        let text = self.metrics.encode().unwrap();
        let line = text
            .lines()
            .find(|line| !line.starts_with('#') && words.iter().all(|word| line.contains(word)))?;
        line.rsplit(' ').next()?.parse().ok()
    }
}

/// The emulator as the client wants it.
pub(crate) fn scaleway(sim: &Sim) -> Result<Config> {
    let project = DEFAULT_PROJECT.to_string().parse()?;
    let mut config = Config::new(DEFAULT_ACCESS_KEY, Secret::from(DEFAULT_SECRET_KEY), project, sim.url())?;
    config.proxy = Proxy::Never;
    Ok(config)
}

/// A client of the emulator.
pub(crate) fn cloud(sim: &Sim) -> Result<russet_scaleway::Client> {
    let context = russet_scaleway::Context::default();
    Ok(russet_scaleway::Client::new(&scaleway(sim)?, context)?)
}

/// The program under test.
pub(crate) fn program() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_capi-provider"))
}

/// What the program reads from its environment.
pub(crate) fn environment(sim: &Sim) -> [(&'static str, String); 5] {
    [
        ("SCW_ACCESS_KEY", DEFAULT_ACCESS_KEY.to_owned()),
        ("SCW_SECRET_KEY", DEFAULT_SECRET_KEY.to_owned()),
        ("SCW_DEFAULT_PROJECT_ID", DEFAULT_PROJECT.to_string()),
        ("SCW_API_URL", sim.url().to_owned()),
        ("NO_PROXY", "127.0.0.1".to_owned()),
    ]
}

/// Waits until something about the emulator holds.
pub(crate) async fn until_names(sim: &Sim, what: &str, holds: impl Fn(&[String]) -> bool) -> Result<Vec<String>> {
    wait::until(what, PATIENCE, || async {
        let names = names(sim.handle());
        Ok(Look::value_if(holds(&names), names))
    })
    .await
    .context("the emulator never got there")
}

/// Longer than any wipe.
pub(crate) const WIPE: Duration = Duration::from_mins(11);
