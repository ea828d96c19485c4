//! The parts of Linux machines, put together.

use std::sync::Arc;
use std::time::Duration;

use russet_api::{ScalewayElasticMetalMachine, ScalewayInstanceMachine};
use russet_controller::{Component, Manager};
use russet_scaleway::Client;

use super::cloud::Cloud;
use super::hosts::{Hosts, Ssh};
use super::machine::{self, Parts};
use super::metrics::LinuxMetrics;
use super::report::LinuxReport;
use super::script::Scripts;
use super::server::Product;
use super::spend::LinuxTally;
use super::zones::Zones;
use crate::bootstrap::{Pool, Services};
use crate::claims_store::{ClaimStore, Family};
use crate::clock::Clock;
use crate::config::Settings;
use crate::metrics::ProviderMetrics;
use crate::provider::task;
use crate::registry::Registry;
use crate::spend::Budget;

/// What Linux machines need of the rest of the provider.
pub(crate) struct Needs<'a> {
    pub(crate) scaleway: Client,
    pub(crate) call_timeout: Duration,
    pub(crate) services: Services,
    pub(crate) metrics: &'a ProviderMetrics,
    pub(crate) budget: Budget,
    /// Servers that can be reached; none: over SSH.
    pub(crate) hosts: Option<Arc<dyn Hosts>>,
    pub(crate) clock: Arc<dyn Clock>,
}

/// Both controllers and what runs beside them.
pub(crate) fn components(manager: &Manager, settings: &Settings, needs: Needs<'_>) -> Vec<Component> {
    let linux = &settings.linux;
    let hosts = needs.hosts.unwrap_or_else(|| Arc::new(Ssh { port: linux.ssh_port }));
    let claims = ClaimStore::of(Family::Linux, manager.client(), &settings.secrets_namespace);
    let metrics = LinuxMetrics::new(manager.registry());
    let scripts = Arc::new(Scripts::new(linux.scripts.clone()));
    let served = |product| {
        let registry = Registry::default();
        let cloud = Cloud::new(needs.scaleway.clone(), product, linux.scripts.local_data);
        (
            Zones::new(cloud.clone(), registry.clone(), linux.slowest_retry),
            cloud,
            registry,
        )
    };
    let (instance, metal) = (served(Product::Instance), served(Product::Metal));
    let everywhere = [instance.0.clone(), metal.0.clone()];
    let parts = |(zones, cloud, registry): (Zones, Cloud, Registry)| {
        let tally = LinuxTally::included(&needs.budget, cloud.clone(), everywhere.clone());
        let pool = Pool::new(
            usize::from(settings.bootstrap.max_concurrent_bootstraps),
            settings.bootstrap.bootstrap_retry_interval,
            registry.clone(),
            needs.metrics.clone(),
            Arc::clone(&needs.clock),
        );
        Parts {
            zones,
            cloud,
            clock: Arc::clone(&needs.clock),
            call_timeout: needs.call_timeout,
            claims: claims.clone(),
            pool,
            hosts: Arc::clone(&hosts),
            services: needs.services.clone(),
            scripts: Arc::clone(&scripts),
            registry,
            metrics: metrics.clone(),
            rules: linux.rules.clone(),
            slowest_retry: linux.slowest_retry,
            budget: needs.budget.clone(),
            tally,
            effects: settings.effects,
            watch_filter: settings.watch_filter.clone(),
            concurrency: settings.concurrency,
            local_class: linux.local_class.clone(),
        }
    };
    let (instance, metal) = (parts(instance), parts(metal));
    let freed = metal.zones.clone();
    claims.when_freed(move || freed.wake_waiting());
    let report = LinuxReport {
        client: manager.client(),
        scope: manager.config().scope.clone(),
        claims: claims.clone(),
        zones: [
            (Product::Instance, instance.zones.clone()),
            (Product::Metal, metal.zones.clone()),
        ],
        metrics,
        clock: needs.clock,
        interval: settings.orphan_interval,
        patience: settings.rules.flight,
        effects: settings.effects,
    };
    let check = manager.health().check("linux-claims");
    let period = settings.inventory_interval;
    let mut components = vec![
        task("linux-claims", move |stop| claims.run(check, stop)),
        task("linux-orphan-report", move |stop| report.run(stop)),
    ];
    for (name, parts) in [("instance", &instance), ("elastic-metal", &metal)] {
        let (zones, pool) = (parts.zones.clone(), parts.pool.clone());
        components.push(task(&format!("{name}-inventory"), move |stop| zones.run(period, stop)));
        components.push(task(&format!("{name}-pool"), move |stop| pool.run(stop)));
    }
    components.push(machine::component::<ScalewayInstanceMachine>(manager, instance));
    components.push(machine::component::<ScalewayElasticMetalMachine>(manager, metal));
    components
}
