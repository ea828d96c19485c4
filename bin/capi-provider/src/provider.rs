//! The composition: from settings to the components of a process.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use russet_api::groups::LEASE_CAPI_PROVIDER;
use russet_bootstrap::mac::Patience;
use russet_controller::{About, Component, Manager};
use russet_scaleway::{Client, Config, Context};
use tracing::warn;

use crate::bootstrap::{Bootstrapper, HostBootstrap, Pool, Recipe, Services, Ssh, StandIn};
use crate::claims_store::ClaimStore;
use crate::clock::Clock;
use crate::cluster::{self, ClusterArgs};
use crate::config::{HostArgs, Settings};
use crate::egress::{Egress, EgressArgs};
use crate::fleet_key::FleetKeys;
use crate::identity::{self, Identities, IdentityArgs, Requests, ServingNames};
use crate::inventory::{Inventories, Polling};
use crate::leftovers::Leftovers;
use crate::linux;
use crate::machine::{self, Effects, Parts};
use crate::metrics::ProviderMetrics;
use crate::orphan_report::Report;
use crate::private_network::PrivateNetwork;
use crate::reclaim::Reclaimer;
use crate::registry::Registry;
use crate::runner_token::{RunnerTokenArgs, RunnerTokens};
use crate::spend::{Budget, MacTally};
use crate::tailnet_key::TailnetKeys;
use crate::whereabouts::Whereabouts;

/// The version, and the sources that it was built from.
pub const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "+", env!("RUSSET_BUILD_ID"));

/// What the process is.
pub const ABOUT: About = About {
    name: "capi-provider",
    version: VERSION,
    lease: LEASE_CAPI_PROVIDER,
};

/// What can be exchanged: tests and later stages bring their own.
pub struct Outside {
    /// The Scaleway API.
    pub scaleway: Config,
    /// Who sets up hosts.
    pub bootstrapper: Arc<dyn Bootstrapper>,
    /// What a set-up needs.
    pub services: Services,
    /// Linux servers that can be reached; none: over SSH.
    pub linux_hosts: Option<Arc<dyn crate::linux::hosts::Hosts>>,
    /// What decisions are made at.
    pub clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for Outside {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outside")
            .field("services", &self.services)
            .finish_non_exhaustive()
    }
}

/// Who sets up hosts, as the flags say.
pub fn bootstrapper(settings: &Settings, host: &HostArgs) -> anyhow::Result<Arc<dyn Bootstrapper>> {
    Ok(match settings.bootstrap.host_bootstrap {
        HostBootstrap::Ssh => {
            let recipe = Recipe::new(host.clone()).context("failed to prepare what is put on hosts")?;
            let settle = settings.bootstrap.host_settle_time;
            let patience = Patience {
                settle,
                pause: (settle / 5).clamp(Duration::from_millis(100), Duration::from_secs(1)),
            };
            Arc::new(Ssh::new(recipe, settings.bootstrap.host_ssh_port).patience(patience))
        }
        HostBootstrap::StandIn => {
            let stand_in = StandIn::new(settings.bootstrap.stand_in_port);
            Arc::new(stand_in.context("failed to set up the client of emulated Macs")?)
        }
    })
}

/// The controllers and services beside the machines.
#[derive(Clone, Debug)]
pub struct Companions {
    /// What hosts join with.
    pub identity: IdentityArgs,
    /// How Cluster API core reaches the cluster.
    pub cluster: ClusterArgs,
    /// How hosts are reached over the tailnet.
    pub egress: EgressArgs,
    /// Where runner tokens come from.
    pub github: RunnerTokenArgs,
    /// What is put on hosts.
    pub host: HostArgs,
}

impl Companions {
    fn services(
        &self,
        manager: &Manager,
        settings: &Settings,
        scaleway: &Client,
    ) -> anyhow::Result<(Services, Requests)> {
        let namespace = &settings.secrets_namespace;
        let keys = FleetKeys::new(
            manager.client(),
            scaleway.clone(),
            namespace.clone(),
            scaleway.project().clone(),
        );
        let identities = Identities::new(manager.client(), self.identity(manager, settings));
        let egress = Egress::new(&self.egress, manager.applier(ABOUT.name))?;
        let runners = RunnerTokens::new(
            manager.client(),
            self.github.config()?,
            russet_github::Context::default(),
        );
        let requests = identities.requests();
        let services = Services {
            keys: Some(Arc::new(keys)),
            identities: Some(Arc::new(identities)),
            egress: egress.map(|egress| Arc::new(egress) as _),
            runners: Some(Arc::new(runners)),
            tailnet: TailnetKeys::new(manager.client(), namespace, &self.host.tailscale_auth_key_secret_name)
                .map(|keys| Arc::new(keys) as _),
            networks: PrivateNetwork::new(scaleway.clone(), &self.host.vm_cache_pn_name)
                .map(|network| Arc::new(network) as _),
        };
        Ok((services, requests))
    }

    /// An address that was given belongs to the API server we speak to, and is vouched for by those who vouch for it here.
    fn identity(&self, manager: &Manager, settings: &Settings) -> identity::Settings {
        let mut identity = identity::Settings::new(&self.identity, settings.secrets_namespace.clone());
        if identity.server.url.is_some() {
            identity.server.ca_pem = manager.authority().map(ToOwned::to_owned);
        }
        identity
    }

    fn components(&self, manager: &Manager, settings: &Settings, requests: Requests) -> Vec<Component> {
        let identity = self.identity(manager, settings);
        let mut cluster = cluster::Settings::from_args(&self.cluster, &settings.secrets_namespace, identity.server);
        cluster.zones = settings.zones.iter().map(ToString::to_string).collect();
        let suffix = self.egress.magicdns_suffix.trim().trim_matches('.');
        let names = ServingNames {
            suffixes: Some(suffix.to_owned())
                .into_iter()
                .filter(|suffix| !suffix.is_empty())
                .collect(),
            tailnet: self.identity.tailnet_cidr.clone(),
        };
        vec![
            cluster::component(manager, cluster),
            identity::approver(manager, names, requests),
        ]
    }
}

/// Everything that runs while the process leads, with the companions that are given.
pub fn all(
    manager: &Manager,
    settings: &Settings,
    outside: Outside,
    companions: &Companions,
) -> anyhow::Result<Vec<Component>> {
    build(manager, settings, outside, Some(companions))
}

/// What runs for machines alone, with the services that are given.
pub fn components(manager: &Manager, settings: &Settings, outside: Outside) -> anyhow::Result<Vec<Component>> {
    build(manager, settings, outside, None)
}

#[expect(clippy::too_many_lines, reason = "the composition is read from top to bottom")]
fn build(
    manager: &Manager,
    settings: &Settings,
    outside: Outside,
    companions: Option<&Companions>,
) -> anyhow::Result<Vec<Component>> {
    let Outside {
        scaleway: config,
        bootstrapper,
        services,
        linux_hosts,
        clock,
    } = outside;
    settings.rules.check(config.attempt_timeout)?;
    let concurrency = concurrency(settings, &config);
    let metrics = ProviderMetrics::new(manager.registry());
    let context = Context {
        observer: Arc::new(metrics.clone()),
        ..Context::default()
    };
    let scaleway = Client::new(&config, context)?;
    let (services, requests) = match companions {
        Some(companions) => companions.services(manager, settings, &scaleway)?,
        None => (services, Requests::default()),
    };
    let budget = Budget::new(settings.spend_cap);
    let linux = linux::provider::components(
        manager,
        settings,
        linux::provider::Needs {
            scaleway: scaleway.clone(),
            call_timeout: config.attempt_timeout,
            services: services.clone(),
            metrics: &metrics,
            budget: budget.clone(),
            hosts: linux_hosts,
            clock: Arc::clone(&clock),
        },
    );
    let registry = Registry::default();
    let inventories = Inventories::new(scaleway.clone(), registry.clone(), metrics.clone(), budget.clone());
    let claims = ClaimStore::new(manager.client(), &settings.secrets_namespace);
    let tally = MacTally::included(&budget, inventories.clone(), claims.clone());
    let pool = Pool::new(
        usize::from(settings.bootstrap.max_concurrent_bootstraps),
        settings.bootstrap.bootstrap_retry_interval,
        registry.clone(),
        metrics.clone(),
        Arc::clone(&clock),
    );
    let leftovers = Leftovers {
        client: manager.client(),
        scaleway: scaleway.clone(),
        scope: manager.config().scope.clone(),
        secrets_namespace: settings.secrets_namespace.clone(),
        egress_namespace: companions
            .map(|companions| &companions.egress)
            .filter(|egress| !egress.proxy_group.is_empty())
            .map(|egress| egress.namespace.clone()),
        metrics: metrics.clone(),
        patience: settings.rules.flight,
    };
    let report = Report {
        reclaimer: reclaimer(manager, settings, &config, &claims, &inventories, &metrics, &clock),
        leftovers,
        client: manager.client(),
        scope: manager.config().scope.clone(),
        claims: claims.clone(),
        inventories: inventories.clone(),
        registry: registry.clone(),
        default_pool: settings.default_pool.clone(),
        project: config.project.clone(),
        metrics: metrics.clone(),
        clock: Arc::clone(&clock),
        interval: settings.orphan_interval,
        patience: settings.rules.flight,
        effects: settings.effects,
    };
    let polling = Polling {
        period: settings.inventory_interval,
        zones: settings.zones.clone(),
        default_pool: settings.default_pool.clone(),
    };
    let whereabouts =
        companions.map(|companions| Whereabouts::new(manager.client(), companions.identity(manager, settings).server));
    let machines = machine::component(
        manager,
        Parts {
            scaleway,
            clock,
            call_timeout: config.attempt_timeout,
            claims: claims.clone(),
            inventories: inventories.clone(),
            bootstrapper,
            pool: pool.clone(),
            services,
            whereabouts: whereabouts.clone(),
            registry: registry.clone(),
            metrics,
            rules: settings.rules.clone(),
            rollout: settings.bootstrap.rollout.policy(),
            default_pool: settings.default_pool.clone(),
            budget,
            tally,
            effects: settings.effects,
            watch_filter: settings.watch_filter.clone(),
            concurrency,
        },
    );
    let claims_check = manager.health().check("claims");
    let mut components = vec![
        machines,
        task("claims", move |stop| claims.run(claims_check, stop)),
        task("inventory", move |stop| inventories.run(polling, stop)),
        task("bootstrap-pool", move |stop| pool.run(stop)),
        task("orphan-report", move |stop| report.run(stop)),
    ];
    components.extend(linux);
    if let Some(whereabouts) = whereabouts {
        components.push(task("api-server-address", move |stop| whereabouts.run(registry, stop)));
    }
    // These write; a dry run goes without.
    if let (Some(companions), Effects::Real) = (companions, settings.effects) {
        components.extend(companions.components(manager, settings, requests));
    }
    Ok(components)
}

/// Machines at once: as wanted, or as many as calls can be made for.
fn concurrency(settings: &Settings, config: &Config) -> u16 {
    let (wanted, most) = (settings.concurrency, settings.rules.most_at_once(config.rate));
    if wanted > most {
        warn!(
            wanted,
            most, "--machine-max-concurrent-reconciles is more than --scaleway-calls-per-second can serve"
        );
    }
    wanted.min(most)
}

/// Who puts orphans back into the default pool, if the flags want that.
fn reclaimer(
    manager: &Manager,
    settings: &Settings,
    config: &Config,
    claims: &ClaimStore,
    inventories: &Inventories,
    metrics: &ProviderMetrics,
    clock: &Arc<dyn Clock>,
) -> Option<Reclaimer> {
    let (prefix, pool) = settings.reclaim_prefix.clone().zip(settings.default_pool.clone())?;
    (settings.effects == Effects::Real).then(|| Reclaimer {
        prefix,
        pool,
        client: manager.client(),
        scope: manager.config().scope.clone(),
        claims: claims.clone(),
        inventories: inventories.clone(),
        project: config.project.clone(),
        rules: settings.rules.clone(),
        clock: Arc::clone(clock),
        call_timeout: config.attempt_timeout,
        metrics: metrics.clone(),
    })
}

/// A component that cannot fail.
pub(crate) fn task<F, Fut>(name: &str, run: F) -> Component
where
    F: FnOnce(tokio_util::sync::CancellationToken) -> Fut + Send + 'static,
    Fut: Future<Output = ()> + Send + 'static,
{
    Component::new(name, move |stop| async move {
        run(stop).await;
        Ok::<(), std::convert::Infallible>(())
    })
}
