//! The controller of `ScalewayAppleSiliconMachine`: a shell around [`crate::decide`].
//!
//! ```text
//!   object, Machine, Cluster ──view──▶ decide::Machine ─┐
//!   claims, inventory, host, images ──look────────────▶ decide ─▶ act   one write to Kubernetes
//!                                                         │   ├──▶ fly   one call to Scaleway, written down before and after
//!                                                         └───┴──▶ rest  conditions for people, and when to look again
//! ```
//!
//! Each reconcile does one thing and ends; its own write brings the next one. Whatever takes long happens in
//! [`crate::bootstrap::Pool`].

mod act;
mod bootstrapping;
mod cleanup;
pub(crate) mod credentials;
mod error;
mod fly;
mod look;
pub(crate) mod memory;
mod news;
pub(crate) mod reconcile;
mod rest;
mod status;
mod update;
mod view;
mod watch;
mod work;
mod write;

use std::sync::{Arc, Mutex};

use kube::Client;
use kube::runtime::events::Recorder;
use kube::runtime::watcher;
use russet_api::ScalewayAppleSiliconMachine;
use russet_api::labels::cluster_api::WATCH_FILTER;
use russet_api::values::PoolPrefix;
use russet_controller::runner::{Environment, Runner};
use russet_controller::{Cache, Component, Manager};

use crate::bootstrap::{Bootstrapper, Pool, Services};
use crate::claims_store::ClaimStore;
use crate::clock::Clock;
use crate::inventory::Inventories;
use crate::metrics::ProviderMetrics;
use crate::registry::Registry;
use crate::rules::Rules;
use crate::spend::{Budget, MacTally};
use crate::surroundings::Surroundings;
use crate::whereabouts::Whereabouts;

use credentials::Secrets;
pub use error::Error;
use memory::Memory;
pub(crate) use status::ready;
pub(crate) use view::key_group;

/// The kind, under a name that fits in a line.
type Mac = ScalewayAppleSiliconMachine;

/// Field manager and reporter of everything this controller writes.
pub(crate) const MANAGER: &str = "capi-scaleway-applesilicon";

/// Whether anything is written at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effects {
    /// As decided.
    Real,
    /// Only said in the log.
    DryRun,
}

/// What the controller works with.
#[derive(Clone)]
pub struct Parts {
    /// The Scaleway API.
    pub scaleway: russet_scaleway::Client,
    /// What decisions are made at.
    pub clock: Arc<dyn Clock>,
    /// Longest time one exchange with it may take.
    pub call_timeout: std::time::Duration,
    /// The claims.
    pub claims: ClaimStore,
    /// The Macs.
    pub inventories: Inventories,
    /// Who sets up hosts.
    pub bootstrapper: Arc<dyn Bootstrapper>,
    /// Where that happens.
    pub pool: Pool,
    /// What a set-up needs.
    pub services: Services,
    /// Where the API server is, if hosts are told.
    pub whereabouts: Option<Whereabouts>,
    /// Who is woken by what.
    pub registry: Registry,
    /// Metrics.
    pub metrics: ProviderMetrics,
    /// How long things may take.
    pub rules: Rules,
    /// How careful hosts are brought up to date.
    pub rollout: crate::rollout::Policy,
    /// The pool of machines that name none.
    pub default_pool: Option<PoolPrefix>,
    /// What hosts may cost.
    pub budget: Budget,
    /// What the hosts in use cost.
    pub tally: Arc<MacTally>,
    /// Whether anything is written.
    pub effects: Effects,
    /// Only machines with this value of the watch-filter label.
    pub watch_filter: Option<String>,
    /// Machines at once.
    pub concurrency: u16,
}

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parts")
            .field("rules", &self.rules)
            .finish_non_exhaustive()
    }
}

/// What one reconcile works with.
struct Context {
    parts: Parts,
    client: Client,
    secrets: Secrets,
    recorder: Recorder,
    surroundings: Surroundings,
    /// All of ours, for plans that are made for a fleet as a whole.
    fleet: Cache<Mac>,
    /// Held while a plan is made and what it says is begun.
    planning: Mutex<()>,
    memory: Memory,
}

/// The label selector of `--watch-filter`.
pub(crate) fn selection(watch_filter: Option<&str>) -> watcher::Config {
    match watch_filter {
        Some(value) => watcher::Config::default().labels(&format!("{WATCH_FILTER}={value}")),
        None => watcher::Config::default(),
    }
}

/// The controller.
pub fn component(manager: &Manager, parts: Parts) -> Component {
    let environment = Environment {
        concurrency: parts.concurrency,
        ..manager.environment()
    };
    let mut runner: Runner<Mac> = Runner::new(
        "apple-silicon-machine",
        environment,
        &selection(parts.watch_filter.as_deref()),
    );
    let surroundings = Surroundings::watch(&mut runner, &parts.registry);
    let fleet = runner.watches(&selection(parts.watch_filter.as_deref()), |_: &Mac| Vec::new());
    let inventories = parts.inventories.clone();
    parts.claims.when_freed(move || inventories.wake_waiting());
    let client = manager.client();
    let context = Context {
        recorder: Recorder::new(client.clone(), MANAGER.to_owned().into()),
        secrets: Secrets(client.clone()),
        client,
        surroundings,
        fleet,
        planning: Mutex::default(),
        memory: Memory::default(),
        parts,
    };
    Component::controller(runner, Arc::new(context), reconcile::reconcile)
}
