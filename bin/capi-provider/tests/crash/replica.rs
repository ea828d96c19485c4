//! A provider of these tests: whole, in this process, with a life that can end.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use clap::Parser as _;
use kube::Client;
use kube::client::ClientBuilder;
use kube::config::{KubeConfigOptions, Kubeconfig};
use russet_capi_provider::bootstrap::Services;
use russet_capi_provider::config::{Cli, Settings};
use russet_capi_provider::egress::{Egress, EgressArgs};
use russet_capi_provider::fleet_key::FleetKeys;
use russet_capi_provider::identity::{self, Identities, IdentityArgs};
use russet_capi_provider::provider::{self, ABOUT, Outside};
use russet_controller::{Config as ControllerConfig, Manager};
use russet_scaleway::Config;
use russet_scaleway::config::Proxy;
use russet_sim_scaleway::{DEFAULT_ACCESS_KEY, DEFAULT_PROJECT, DEFAULT_SECRET_KEY, Sim};
use russet_telemetry::{Metrics, Secret};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::clock::WorldClock;
use crate::gate::{self, Open, Watchman};
use crate::life::{Cut, Life};
use crate::stage::Stage;

/// Times that keep the proportions of the real ones.
const SEND_WITHIN: Duration = Duration::from_secs(2);
const EXCHANGE: Duration = Duration::from_secs(2);
pub(crate) const FLIGHT: Duration = Duration::from_secs(9);

/// What a provider finds when it starts.
pub(crate) trait Scene {
    fn stage(&self) -> &Stage;

    fn sim(&self) -> &Sim;

    fn clock(&self) -> &WorldClock;

    fn watchman(&self) -> Arc<dyn Watchman>;

    /// Flags besides those of every provider here. What is done at intervals is most of what a provider does that waits.
    fn flags(&self) -> Vec<String>;

    /// Settings that no flag has.
    fn adjust(&self, _: &mut Settings) {}

    /// Whether providers take the Lease first, as they do in production.
    fn elects(&self) -> bool {
        false
    }

    /// Whether this part of the provider has anything to do here. What waits for objects that nobody makes only costs watches, of which
    /// a hundred providers have enough.
    fn concerns(&self, component: &str) -> bool;

    /// What the provider reaches besides Kubernetes, as long as it lives.
    fn outside(&self, life: &Arc<Life>, scaleway: Config, services: Services) -> Result<Outside>;
}

pub(crate) struct Replica {
    pub(crate) life: Arc<Life>,
    metrics: Metrics,
    task: JoinHandle<()>,
    _gate: Open,
}

impl Replica {
    pub(crate) async fn start(scene: &impl Scene, life: Arc<Life>) -> Result<Self> {
        let gate = gate::open(scene, Arc::clone(&life)).await?;
        let (stage, elects) = (scene.stage(), scene.elects());
        let namespace = &stage.namespace;
        let cli = Cli::try_parse_from(
            [
                "capi-provider".to_owned(),
                format!("--kubeconfig={}", stage.kubeconfig.display()),
                format!("--namespace={namespace}"),
                format!("--secrets-namespace={namespace}"),
                "--metrics-bind-address=0".to_owned(),
                "--health-probe-bind-address=0".to_owned(),
                format!("--leader-elect={elects}"),
                format!("--leader-election-namespace={namespace}"),
                "--claim-settle-time=100ms".to_owned(),
                "--min-wipe-time=0s".to_owned(),
                "--bootstrap-retry-interval=100ms".to_owned(),
            ]
            .into_iter()
            .chain(scene.flags()),
        )?;
        let mut settings = Settings::from_args(cli.provider, cli.bootstrap)?;
        settings.rules.send_within = SEND_WITHIN;
        settings.rules.flight = FLIGHT;
        scene.adjust(&mut settings);
        settings.linux.rules.calls = settings.rules.clone();
        let config = ControllerConfig::from_args(cli.common, || format!("replica-{:x}", rand::random::<u64>()))?;
        let mut manager = Manager::new(ABOUT, config).await?;
        if !elects {
            manager = manager.with_client(cut(stage, &life).await?);
        }
        let mut scaleway = scaleway(&gate.url)?;
        scaleway.attempt_timeout = EXCHANGE;
        let services = services(stage, &manager, &scaleway)?;
        let outside = scene.outside(&life, scaleway, services)?;
        let mut components = provider::components(&manager, &settings, outside)?;
        components.retain(|component| scene.concerns(component.name()));
        let metrics = manager.registry().clone();
        let run = manager.run(components, CancellationToken::new());
        let over = Arc::clone(&life);
        let task = tokio::spawn(async move {
            tokio::select! {
                () = over.ended() => {}
                ended = run => {
                    assert!(elects, "a provider ended by itself: {ended:?}");
                    over.end();
                }
            }
        });
        Ok(Self {
            life,
            metrics,
            task,
            _gate: gate,
        })
    }

    /// The value of a metric with these words in its line.
    pub(crate) fn metric(&self, words: &[&str]) -> Option<f64> {
        let text = self.metrics.encode().unwrap();
        let line = text
            .lines()
            .find(|line| !line.starts_with('#') && words.iter().all(|word| line.contains(word)))?;
        line.rsplit(' ').next()?.parse().ok()
    }

    /// As `kill -9` would.
    pub(crate) async fn kill(mut self) -> Result<()> {
        self.life.end();
        Ok((&mut self.task).await?)
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.life.end();
    }
}

/// The emulator at this address, as a client wants it.
pub(crate) fn scaleway(url: &str) -> Result<Config> {
    let project = DEFAULT_PROJECT.to_string().parse()?;
    let mut config = Config::new(DEFAULT_ACCESS_KEY, Secret::from(DEFAULT_SECRET_KEY), project, url)?;
    config.proxy = Proxy::Never;
    Ok(config)
}

/// Everything a set-up needs besides the host, as in production.
fn services(stage: &Stage, manager: &Manager, config: &Config) -> Result<Services> {
    let (client, namespace) = (manager.client(), stage.namespace.clone());
    let scaleway = russet_scaleway::Client::new(config, russet_scaleway::Context::default())?;
    let keys = FleetKeys::new(client.clone(), scaleway, namespace.clone(), config.project.clone());
    let args = IdentityArgs {
        api_server_url: Some(stage.server.clone()),
        ..IdentityArgs::default()
    };
    let mut identity = identity::Settings::new(&args, namespace.clone());
    identity.server.ca_pem = manager.authority().map(ToOwned::to_owned);
    let tailnet = EgressArgs {
        proxy_group: "macs".to_owned(),
        namespace,
        magicdns_suffix: "tail.test".to_owned(),
    };
    let egress = Egress::new(&tailnet, manager.applier(ABOUT.name))?;
    Ok(Services {
        keys: Some(Arc::new(keys)),
        identities: Some(Arc::new(Identities::new(client, identity))),
        egress: egress.map(|egress| Arc::new(egress) as _),
        ..Services::default()
    })
}

/// A client that dies with its provider.
async fn cut(stage: &Stage, life: &Arc<Life>) -> Result<Client> {
    let parsed = Kubeconfig::read_from(&stage.kubeconfig)?;
    let config = kube::Config::from_custom_kubeconfig(parsed, &KubeConfigOptions::default()).await?;
    Ok(ClientBuilder::try_from(config)?
        .with_layer(&Cut(Arc::clone(life)))
        .build())
}
