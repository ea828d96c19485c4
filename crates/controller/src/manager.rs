//! Puts a controller process together.
//!
//! ```text
//!   flags ─▶ Config ─▶ Manager ─▶ build(&Manager) ─▶ components
//!                         │
//!     run: serve probes ─▶ take the Lease ─▶ run components ─▶ drain ─▶ release the Lease ─▶ stop probes
//!                                               │
//!                                   Lease lost: end at once, with an error
//! ```
//!
//! A controller's `main` is [`launch`] and little else.

use std::net::SocketAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::watcher;
use russet_telemetry::{BuildInfo, Metrics};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::apply::Applier;
use crate::config::{self, Config};
use crate::health::{self, Health};
use crate::leader::{self, Acquired, Election, Leadership, News};
use crate::metrics::ControllerMetrics;
use crate::runner::{Environment, Runner};
use crate::scope::Namespaced;

mod component;
mod launch;

pub use component::Component;
pub use launch::{launch, shutdown_signal};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// What a process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct About {
    /// The component, as in logs and `russet_build_info`.
    pub name: &'static str,
    /// Its version.
    pub version: &'static str,
    /// The name of its Lease; constants of `russet_api::groups`.
    pub lease: &'static str,
}

/// Why a process could not start or go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kubeconfig cannot be used.
    #[error("failed to load the kubeconfig{}; give one with --kubeconfig or run inside a cluster", file.as_ref().map(|f| format!(" {f}")).unwrap_or_default())]
    Kubeconfig {
        /// The file, if one was named.
        file: Option<String>,
        /// Why.
        source: BoxError,
    },
    /// The client cannot be built.
    #[error("failed to set up the Kubernetes client")]
    Client {
        /// Why.
        source: Box<kube::Error>,
    },
    /// A port is taken.
    #[error("failed to listen on {address} for {what}; another process may use it, choose another with --{flag}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What was to be served.
        what: &'static str,
        /// The flag that sets it.
        flag: &'static str,
        /// Why.
        source: std::io::Error,
    },
    /// Leadership is gone.
    #[error(transparent)]
    Leader(#[from] leader::Error),
    /// A component failed.
    #[error("component {name} failed")]
    Component {
        /// Which.
        name: String,
        /// Why.
        source: BoxError,
    },
    /// A component ended without being asked to.
    #[error("component {name} ended although nobody asked it to")]
    Ended {
        /// Which.
        name: String,
    },
}

/// Everything the components of a process share.
#[derive(Clone)]
pub struct Manager {
    about: About,
    config: Config,
    client: Client,
    /// The client that writes the Lease, which has to be possible before we lead.
    lease_client: Client,
    leadership: Leadership,
    health: Health,
    registry: Metrics,
    metrics: ControllerMetrics,
    authority: Option<String>,
}

impl std::fmt::Debug for Manager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Manager")
            .field("about", &self.about)
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

impl Manager {
    /// Builds the clients. Makes no request.
    pub async fn new(about: About, config: Config) -> Result<Self, Error> {
        let leadership = match &config.election {
            Some(_) => Leadership::standby(&config.identity),
            None => Leadership::always(&config.identity),
        };
        let kube = load(&config).await?;
        let lease_client = Client::try_from(kube.clone()).map_err(|source| Error::Client {
            source: Box::new(source),
        })?;
        let authority = kube.root_cert.as_deref().map(pem);
        let client = fenced(kube, &leadership)?;
        let registry = Metrics::new();
        registry.build_info(BuildInfo {
            component: about.name.to_owned(),
            version: about.version.to_owned(),
            commit: String::new(),
        });
        let metrics = ControllerMetrics::new(&registry);
        metrics.leading(config.election.is_none());
        Ok(Self {
            about,
            config,
            client,
            lease_client,
            leadership,
            health: Health::new(),
            registry,
            metrics,
            authority,
        })
    }

    /// The certificates that vouch for the API server, PEM; none where the system's own do.
    pub fn authority(&self) -> Option<&str> {
        self.authority.as_deref()
    }

    /// The same process behind another client, for whoever has to stand between it and the API server. Such a client is
    /// not fenced.
    #[must_use]
    pub fn with_client(mut self, client: Client) -> Self {
        self.client = client;
        self
    }

    /// The client for everything: it refuses writes while we do not lead.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The right to write.
    pub fn leadership(&self) -> &Leadership {
        &self.leadership
    }

    /// Readiness checks.
    pub fn health(&self) -> &Health {
        &self.health
    }

    /// The metrics registry.
    pub fn registry(&self) -> &Metrics {
        &self.registry
    }

    /// A writer under a field manager.
    pub fn applier(&self, field_manager: &str) -> Applier {
        Applier::new(
            self.client(),
            field_manager,
            self.leadership.clone(),
            self.metrics.clone(),
        )
    }

    /// A controller of kind `K` in the configured scope.
    pub fn runner<K>(&self, name: &'static str, config: &watcher::Config) -> Runner<K>
    where
        K: Namespaced,
    {
        Runner::new(name, self.environment(), config)
    }

    /// What runners need.
    pub fn environment(&self) -> Environment {
        Environment {
            client: self.client(),
            scope: self.config.scope.clone(),
            health: self.health.clone(),
            metrics: self.metrics.clone(),
            concurrency: self.config.concurrency,
        }
    }

    /// Runs the components until `stop` fires, leadership is lost, or one of them ends.
    pub async fn run(self, components: Vec<Component>, stop: CancellationToken) -> Result<(), Error> {
        // Probes outlive everything else: a process that drains is alive.
        let servers_stop = CancellationToken::new();
        let mut servers = self.serve(&servers_stop).await?;
        let result = match &self.config.election {
            None => self.run_components(components, &stop).await,
            Some(election) => self.run_elected(election.clone(), components, &stop).await,
        };
        servers_stop.cancel();
        while servers.join_next().await.is_some() {}
        result
    }

    async fn run_elected(
        &self,
        election: config::Election,
        components: Vec<Component>,
        stop: &CancellationToken,
    ) -> Result<(), Error> {
        let namespace = election
            .namespace
            .unwrap_or_else(|| self.lease_client.default_namespace().to_owned());
        let options = leader::Options {
            namespace,
            name: self.about.lease.to_owned(),
            timing: election.timing,
        };
        let mut election = Election::new(self.lease_client.clone(), options, self.leadership.clone());
        // A standby is ready: a rollout waits for the new Pod before it ends the old one, which holds the Lease.
        let check = self.health.check("leader-election");
        check.pass();
        let report = |news: &News| match news {
            News::StandingBy { .. } => check.pass(),
            News::Failing { lease, reason } => check.fail(&format!("cannot use Lease {lease}: {reason}")),
        };
        if election.acquire(stop, report).await == Acquired::Stopped {
            return Ok(());
        }
        check.pass();
        self.metrics.leading(true);
        // The Lease is renewed until the components have drained, not just until they are told to.
        let drained = CancellationToken::new();
        let components = async {
            let result = self.run_components(components, stop).await;
            drained.cancel();
            result
        };
        let result = {
            let hold = election.hold(&drained);
            tokio::pin!(components, hold);
            tokio::select! {
                biased;
                // Lost: `components` is dropped where it stands, with all its tasks. Nothing it still wants to write would pass.
                lost = &mut hold => match lost {
                    Err(error) => Err(error.into()),
                    Ok(()) => components.await,
                },
                result = &mut components => result,
            }
        };
        self.metrics.leading(false);
        election.release().await;
        result
    }

    async fn run_components(&self, components: Vec<Component>, stop: &CancellationToken) -> Result<(), Error> {
        let token = stop.child_token();
        let mut running = JoinSet::new();
        for Component { name, run } in components {
            let task = run(token.clone());
            running.spawn(async move { (name, task.await) });
        }
        info!(name = self.about.name, identity = self.leadership.identity(), "running");
        let mut result = Ok(());
        let mut deadline = None;
        loop {
            let next = tokio::select! {
                next = running.join_next() => next,
                () = stop.cancelled(), if deadline.is_none() => {
                    info!(timeout = ?self.config.drain_timeout, "stopping: finishing what is under way");
                    deadline = Some(tokio::time::Instant::now() + self.config.drain_timeout);
                    continue;
                }
                () = until(deadline) => {
                    warn!(left = running.len(), "giving up on what has not finished in time");
                    running.abort_all();
                    break;
                }
            };
            let failure = match next {
                None => break,
                Some(Ok((_, Ok(())))) if token.is_cancelled() => continue,
                Some(Ok((name, Ok(())))) => Error::Ended { name },
                Some(Ok((name, Err(source)))) => Error::Component { name, source },
                Some(Err(join)) => Error::Component {
                    name: "(panicked)".to_owned(),
                    source: join.into(),
                },
            };
            // One is gone: the others must not go on alone, but they may finish.
            if result.is_ok() {
                result = Err(failure);
                token.cancel();
                deadline = deadline.or(Some(tokio::time::Instant::now() + self.config.drain_timeout));
            }
        }
        result
    }

    async fn serve(&self, stop: &CancellationToken) -> Result<JoinSet<()>, Error> {
        let mut servers = JoinSet::new();
        let routes = [
            (
                self.config.probes,
                "probes",
                "health-probe-bind-address",
                health::probes(self.health.clone(), self.about.version),
            ),
            (
                self.config.metrics,
                "metrics",
                "metrics-bind-address",
                health::metrics(self.registry.clone()),
            ),
        ];
        for (address, what, flag, router) in routes {
            let Some(address) = address else { continue };
            let listen = |source| Error::Listen {
                address,
                what,
                flag,
                source,
            };
            let listener = TcpListener::bind(address).await.map_err(listen)?;
            let address = listener.local_addr().map_err(listen)?;
            info!(%address, what, "serving");
            let stopped = stop.clone().cancelled_owned();
            servers.spawn(async move {
                if let Err(error) = health::serve(listener, router, stopped).await {
                    error!(%error, what, "server failed");
                }
            });
        }
        Ok(servers)
    }
}

async fn until(deadline: Option<tokio::time::Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

async fn load(config: &Config) -> Result<kube::Config, Error> {
    let file = config.kubeconfig.as_ref().map(|path| path.display().to_string());
    let failed = |source: BoxError| Error::Kubeconfig {
        file: file.clone(),
        source,
    };
    let mut kube = match &config.kubeconfig {
        Some(path) => {
            let parsed = Kubeconfig::read_from(path).map_err(|error| failed(error.into()))?;
            kube::Config::from_custom_kubeconfig(parsed, &KubeConfigOptions::default())
                .await
                .map_err(|error| failed(error.into()))?
        }
        None => kube::Config::infer().await.map_err(|error| failed(error.into()))?,
    };
    // Retrying is ours (see `error`), and must not happen below the fence.
    kube.default_retry = false;
    Ok(kube)
}

fn pem(certificates: &[Vec<u8>]) -> String {
    let mut text = String::new();
    for der in certificates {
        text.push_str("-----BEGIN CERTIFICATE-----\n");
        let encoded = STANDARD.encode(der);
        let mut rest = encoded.as_str();
        while !rest.is_empty() {
            let (line, more) = rest.split_at(rest.len().min(64));
            text.push_str(line);
            text.push('\n');
            rest = more;
        }
        text.push_str("-----END CERTIFICATE-----\n");
    }
    text
}

fn fenced(kube: kube::Config, leadership: &Leadership) -> Result<Client, Error> {
    leader::wire::client(kube, leadership).map_err(|source| Error::Client {
        source: Box::new(source),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_are_written_as_tools_expect_them() {
        let text = pem(&[vec![7; 49], vec![1]]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 7);
        assert_eq!((lines[1].len(), lines[2].len()), (64, 4));
        assert_eq!(lines[5], "AQ==");
    }
}
