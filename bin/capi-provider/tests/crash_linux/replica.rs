//! A provider of these tests: whole, in this process, with a life that can end.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use clap::Parser as _;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube::client::ClientBuilder;
use kube::config::{KubeConfigOptions, Kubeconfig};
use russet_capi_provider::bootstrap::{Failed, FleetKeys, Identities, LoginKey, Problem, Services, StandIn};
use russet_capi_provider::claims::Holder;
use russet_capi_provider::config::{Cli, Settings};
use russet_capi_provider::linux::hosts::{Hosts, Login, Told};
use russet_capi_provider::provider::{self, ABOUT, Outside};
use russet_controller::{Config as ControllerConfig, Manager};
use russet_scaleway::Config;
use russet_scaleway::config::Proxy;
use russet_sim_scaleway::{DEFAULT_ACCESS_KEY, DEFAULT_PROJECT, DEFAULT_SECRET_KEY, Handle, Power};
use russet_telemetry::Secret;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::gate::{self, Open};
use crate::life::{Cut, Life};
use crate::world::{World, join, provider_id};

/// Times that keep the proportions of the real ones.
const SEND_WITHIN: Duration = Duration::from_secs(2);
const EXCHANGE: Duration = Duration::from_secs(2);
const FLIGHT: Duration = Duration::from_secs(9);

pub(crate) struct Replica {
    pub(crate) life: Arc<Life>,
    task: JoinHandle<()>,
    _gate: Open,
}

impl Replica {
    pub(crate) async fn start(world: &World, life: Arc<Life>) -> Result<Self> {
        let gate = gate::open(Arc::clone(&life), world.sim.url()).await?;
        let namespace = &world.namespace;
        let cli = Cli::try_parse_from([
            "capi-provider".to_owned(),
            format!("--kubeconfig={}", world.kubeconfig.display()),
            format!("--namespace={namespace}"),
            format!("--secrets-namespace={namespace}"),
            "--metrics-bind-address=0".to_owned(),
            "--health-probe-bind-address=0".to_owned(),
            "--leader-elect=false".to_owned(),
            "--inventory-interval=500ms".to_owned(),
            "--min-wipe-time=0s".to_owned(),
            "--bootstrap-retry-interval=100ms".to_owned(),
            "--orphan-reclaim-interval=2s".to_owned(),
            "--linux-cluster-dns=10.96.0.10".to_owned(),
            "--linux-kubernetes-version=v1.35".to_owned(),
            "--linux-refusal-retry=1s".to_owned(),
            "--linux-inspect-after=2s".to_owned(),
            "--linux-install-grace=10s".to_owned(),
        ])?;
        let mut settings = Settings::from_args(cli.provider, cli.bootstrap)?;
        settings.rules.send_within = SEND_WITHIN;
        settings.rules.flight = FLIGHT;
        settings.linux.rules.calls = settings.rules.clone();
        let config = ControllerConfig::from_args(cli.common, || format!("replica-{:x}", rand::random::<u64>()))?;
        let parsed = Kubeconfig::read_from(&world.kubeconfig)?;
        let kube = kube::Config::from_custom_kubeconfig(parsed, &KubeConfigOptions::default()).await?;
        let cut = ClientBuilder::try_from(kube)?
            .with_layer(&Cut(Arc::clone(&life)))
            .build();
        let manager = Manager::new(ABOUT, config).await?.with_client(cut);
        let project = DEFAULT_PROJECT.to_string().parse()?;
        let mut scaleway = Config::new(DEFAULT_ACCESS_KEY, Secret::from(DEFAULT_SECRET_KEY), project, &gate.url)?;
        scaleway.proxy = Proxy::Never;
        scaleway.attempt_timeout = EXCHANGE;
        let known = Arc::new(Known(world.authority.clone(), world.key.clone()));
        let outside = Outside {
            scaleway,
            bootstrapper: Arc::new(StandIn::new(1)?),
            services: Services {
                keys: Some(Arc::clone(&known) as _),
                identities: Some(known),
                ..Services::default()
            },
            linux_hosts: Some(Arc::new(Doors {
                life: Arc::clone(&life),
                handle: world.sim.handle().clone(),
                client: world.client.clone(),
            })),
        };
        let components = provider::components(&manager, &settings, outside)?;
        let run = manager.run(components, CancellationToken::new());
        let over = Arc::clone(&life);
        let task = tokio::spawn(async move {
            tokio::select! {
                () = over.ended() => {}
                ended = run => panic!("a provider ended by itself: {ended:?}"),
            }
        });
        Ok(Self {
            life,
            task,
            _gate: gate,
        })
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

/// Keys and identities that are simply there: what becomes of them is proven elsewhere.
struct Known(String, russet_scaleway::SshKeyId);

impl FleetKeys for Known {
    fn ensure<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<LoginKey, Problem>> {
        let id = Some(self.1.clone());
        async {
            Ok(LoginKey {
                private: Secret::from("key"),
                public: "key".to_owned(),
                id,
                sudo_password: None,
            })
        }
        .boxed()
    }
}

impl Identities for Known {
    fn issue<'a>(&'a self, _: &'a Holder) -> BoxFuture<'a, Result<Secret<String>, Problem>> {
        let text = format!(
            "{{clusters: [{{name: c, cluster: {{server: 'https://127.0.0.1:6443', certificate-authority-data: {}}}}}], \
             users: [{{name: u, user: {{token: t}}}}], contexts: [{{name: x, context: {{cluster: c, user: u}}}}]}}",
            self.0
        );
        async { Ok(Secret::new(text)) }.boxed()
    }

    fn revoke<'a>(&'a self, _: &'a Holder) -> BoxFuture<'a, Result<(), Problem>> {
        async { Ok(()) }.boxed()
    }
}

/// Servers that are reached as long as the provider lives.
struct Doors {
    life: Arc<Life>,
    handle: Handle,
    client: kube::Client,
}

impl Hosts for Doors {
    fn run(&self, login: Login, script: Secret<String>) -> BoxFuture<'static, Result<String, Failed>> {
        let (life, client) = (Arc::clone(&self.life), self.client.clone());
        let row = self
            .handle
            .boxes()
            .into_iter()
            .find(|row| row.public_ip == Some(login.address));
        async move {
            if life.is_over() {
                return std::future::pending().await;
            }
            let failed = |message: &str| Failed {
                step: "connect".to_owned(),
                message: message.to_owned(),
                fingerprint: None,
            };
            let row = row
                .filter(|row| row.power == Power::On)
                .ok_or_else(|| failed("nobody is there"))?;
            let name = script.expose().split("--hostname-override=").nth(1).unwrap_or_default();
            let name = name
                .split(|c: char| !c.is_ascii_alphanumeric() && c != '-')
                .next()
                .unwrap_or_default();
            join(&client, name, &provider_id(&row))
                .await
                .map_err(|error| failed(&error.to_string()))?;
            Ok("SHA256:abc".to_owned())
        }
        .boxed()
    }

    fn ask(&self, _: Login) -> BoxFuture<'static, Result<Told, Failed>> {
        async {
            Ok(Told {
                report: None,
                pin: "SHA256:abc".to_owned(),
            })
        }
        .boxed()
    }
}
