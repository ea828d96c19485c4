//! A provider of these tests: whole, in this process, with a life that can end.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Result;
use clap::Parser as _;
use futures::future::BoxFuture;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::client::ClientBuilder;
use kube::config::{KubeConfigOptions, Kubeconfig};
use russet_capi_provider::bootstrap::{
    Bootstrapper, Done, Failed, HostConfigHash, HostFacts, Job, Kind, Progress, Services,
};
use russet_capi_provider::config::{Cli, Settings};
use russet_capi_provider::egress::{Egress, EgressArgs};
use russet_capi_provider::fleet_key::FleetKeys;
use russet_capi_provider::identity::{self, Identities, IdentityArgs};
use russet_capi_provider::provider::{self, ABOUT, Outside};
use russet_controller::{Config as ControllerConfig, Manager};
use russet_scaleway::Config;
use russet_scaleway::config::Proxy;
use russet_sim_scaleway::{DEFAULT_ACCESS_KEY, DEFAULT_PROJECT, DEFAULT_SECRET_KEY};
use russet_telemetry::{Metrics, Secret};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::gate::{self, Open};
use crate::ledger::Ledger;
use crate::life::{Cut, Life};
use crate::world::{BROKEN, World};

/// Times that keep the proportions of the real ones.
const SEND_WITHIN: Duration = Duration::from_secs(2);
const EXCHANGE: Duration = Duration::from_secs(2);
const FLIGHT: Duration = Duration::from_secs(9);

pub(crate) struct Replica {
    pub(crate) life: Arc<Life>,
    metrics: Metrics,
    task: JoinHandle<()>,
    _gate: Open,
}

impl Replica {
    pub(crate) async fn start(world: &World, life: Arc<Life>) -> Result<Self> {
        let gate = gate::open(Arc::clone(&life), Arc::clone(&world.ledger), world.sim.url()).await?;
        let namespace = &world.namespace;
        let cli = Cli::try_parse_from(
            [
                "capi-provider".to_owned(),
                format!("--kubeconfig={}", world.kubeconfig.display()),
                format!("--namespace={namespace}"),
                format!("--secrets-namespace={namespace}"),
                "--metrics-bind-address=0".to_owned(),
                "--health-probe-bind-address=0".to_owned(),
                format!("--leader-elect={}", world.elect),
                format!("--leader-election-namespace={namespace}"),
                "--default-adopt-pool-prefix=tuist-pool-".to_owned(),
                "--inventory-interval=500ms".to_owned(),
                "--claim-settle-time=100ms".to_owned(),
                "--min-wipe-time=0s".to_owned(),
                "--bootstrap-retry-interval=100ms".to_owned(),
                "--orphan-reclaim-interval=2s".to_owned(),
            ]
            .into_iter()
            .chain(world.flags.iter().cloned()),
        )?;
        let mut settings = Settings::from_args(cli.provider, cli.bootstrap)?;
        settings.rules.send_within = SEND_WITHIN;
        settings.rules.flight = FLIGHT;
        settings.rules.rejoin_after = world.rejoin_after;
        let config = ControllerConfig::from_args(cli.common, || format!("replica-{:x}", rand::random::<u64>()))?;
        let mut manager = Manager::new(ABOUT, config).await?;
        if !world.elect {
            manager = manager.with_client(cut(world, &life).await?);
        }
        let project = DEFAULT_PROJECT.to_string().parse()?;
        let mut scaleway = Config::new(DEFAULT_ACCESS_KEY, Secret::from(DEFAULT_SECRET_KEY), project, &gate.url)?;
        scaleway.proxy = Proxy::Never;
        scaleway.attempt_timeout = EXCHANGE;
        let services = services(world, &manager, &scaleway)?;
        let setter = Setter {
            life: Arc::clone(&life),
            ledger: Arc::clone(&world.ledger),
            client: world.client.clone(),
            doors: world.doors.subscribe(),
            wanted: Arc::clone(&world.wanted),
        };
        let outside = Outside {
            scaleway,
            bootstrapper: Arc::new(setter),
            services,
            linux_hosts: None,
        };
        let components = provider::components(&manager, &settings, outside)?;
        let metrics = manager.registry().clone();
        let run = manager.run(components, CancellationToken::new());
        let (over, elected) = (Arc::clone(&life), world.elect);
        let task = tokio::spawn(async move {
            tokio::select! {
                () = over.ended() => {}
                ended = run => {
                    assert!(elected, "a provider ended by itself: {ended:?}");
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

/// Everything a set-up needs besides the host, as in production.
fn services(world: &World, manager: &Manager, config: &Config) -> Result<Services> {
    let (client, namespace) = (manager.client(), world.namespace.clone());
    let scaleway = russet_scaleway::Client::new(config, russet_scaleway::Context::default())?;
    let keys = FleetKeys::new(client.clone(), scaleway, namespace.clone(), config.project.clone());
    let args = IdentityArgs {
        api_server_url: Some(world.server.clone()),
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
async fn cut(world: &World, life: &Arc<Life>) -> Result<Client> {
    let parsed = Kubeconfig::read_from(&world.kubeconfig)?;
    let config = kube::Config::from_custom_kubeconfig(parsed, &KubeConfigOptions::default()).await?;
    Ok(ClientBuilder::try_from(config)?
        .with_layer(&Cut(Arc::clone(life)))
        .build())
}

/// Logs in to hosts, as far as the ledger lets it, and has them join.
struct Setter {
    life: Arc<Life>,
    ledger: Arc<Ledger>,
    client: Client,
    doors: watch::Receiver<bool>,
    wanted: Arc<Mutex<String>>,
}

impl Bootstrapper for Setter {
    fn desired(&self, _: &HostFacts) -> HostConfigHash {
        HostConfigHash::new(self.wanted.lock().unwrap().clone())
    }

    fn run(&self, job: Job, _: Progress, _: CancellationToken) -> BoxFuture<'static, Result<Done, Failed>> {
        let (life, ledger, client) = (Arc::clone(&self.life), Arc::clone(&self.ledger), self.client.clone());
        let mut doors = self.doors.clone();
        Box::pin(async move {
            ledger.knock();
            // Fails only when the world is gone.
            let _ = doors.wait_for(|open| *open).await;
            if life.is_over() {
                return std::future::pending().await;
            }
            let failed = |message: &str| Failed {
                step: "join".to_owned(),
                message: message.to_owned(),
                fingerprint: None,
            };
            let (Some(_), Some(join)) = (&job.key, &job.join_kubeconfig) else {
                return Err(failed("there is no key, or nothing to join with"));
            };
            let server = job.provider_id.rsplit('/').next().unwrap_or_default().to_owned();
            let password = job.sudo_password.map(|password| password.expose().clone());
            if !ledger.log_in(&job.machine.name, &server, &password.unwrap_or_default()) {
                return Err(failed("the host does not know the password"));
            }
            if job.kind == Kind::First {
                let asked = ask(join.expose(), &job.node_name).await;
                asked.map_err(|error| failed(&format!("{error:#}")))?;
            }
            let node: Node = serde_json::from_value(json!({
                "metadata": {"name": job.node_name},
                "spec": {"providerID": job.provider_id},
            }))
            .map_err(|_| failed("no Node"))?;
            if job.kind == Kind::Update {
                ledger.updates(&job.machine.name, job.hash.as_str());
            }
            if job.hash.as_str() == BROKEN {
                return Err(failed("this configuration works nowhere"));
            }
            let nodes: Api<Node> = Api::all(client);
            match nodes.create(&PostParams::default(), &node).await {
                Err(kube::Error::Api(status)) if status.is_already_exists() => {}
                other => drop(other.map_err(|error| failed(&error.to_string()))?),
            }
            let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
            nodes
                .patch_status(&job.node_name, &PatchParams::default(), &Patch::Merge(&ready))
                .await
                .map_err(|error| failed(&error.to_string()))?;
            Ok(Done::default())
        })
    }
}

/// Asks for a certificate with what a host was given; nobody approves it here.
async fn ask(kubeconfig: &str, node: &str) -> Result<()> {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig)?;
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let mut params = rcgen::CertificateParams::default();
    let mut name = rcgen::DistinguishedName::new();
    name.push(rcgen::DnType::OrganizationName, "system:nodes");
    name.push(rcgen::DnType::CommonName, format!("system:node:{node}"));
    params.distinguished_name = name;
    let pem = params.serialize_request(&rcgen::KeyPair::generate()?)?.pem()?;
    let request: CertificateSigningRequest = serde_json::from_value(json!({
        "metadata": {"generateName": format!("{node}-")},
        "spec": {
            "request": ByteString(pem.into_bytes()),
            "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
            "usages": ["digital signature", "client auth"],
        },
    }))?;
    let requests: Api<CertificateSigningRequest> = Api::all(Client::try_from(config)?);
    requests.create(&PostParams::default(), &request).await?;
    Ok(())
}
