//! The controllers of `ScalewayInstanceMachine` and `ScalewayElasticMetalMachine`: one shell around [`super::decide`], for both.
//!
//! Each reconcile does one thing and ends; its own write brings the next one. Whatever takes long happens in
//! [`crate::bootstrap::Pool`].

mod act;
mod cleanup;
mod fly;
mod joining;
mod look;
mod reconcile;
mod rest;
mod status;
mod view;
mod write;

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use kube::runtime::events::Recorder;
use russet_controller::runner::{Environment, Runner};
use russet_controller::{Component, Manager};

use super::cloud::Cloud;
use super::decide::Rules;
use super::hosts::Hosts;
use super::kind::LinuxKind;
use super::local_volumes::LocalVolumes;
use super::metrics::LinuxMetrics;
use super::script::Scripts;
use super::spend::LinuxTally;
use super::zones::Zones;
use crate::bootstrap::{Pool, Services};
use crate::claims_store::ClaimStore;
use crate::clock::Clock;
use crate::machine::Effects;
use crate::machine::credentials::Secrets;
use crate::machine::memory::Memory;
use crate::machine::selection;
use crate::registry::Registry;
use crate::spend::Budget;
use crate::surroundings::Surroundings;

pub use crate::machine::Error;

/// What a controller works with.
#[derive(Clone)]
pub struct Parts {
    /// The product.
    pub cloud: Cloud,
    /// What decisions are made at.
    pub clock: Arc<dyn Clock>,
    /// Longest time one exchange with Scaleway may take.
    pub call_timeout: Duration,
    /// The servers.
    pub zones: Zones,
    /// The claims.
    pub claims: ClaimStore,
    /// Where scripts run.
    pub pool: Pool,
    /// Servers that can be reached.
    pub hosts: Arc<dyn Hosts>,
    /// What a join needs.
    pub services: Services,
    /// Who makes scripts.
    pub scripts: Arc<Scripts>,
    /// Who is woken by what.
    pub registry: Registry,
    /// Metrics.
    pub metrics: LinuxMetrics,
    /// How patient to be.
    pub rules: Rules,
    /// Longest wait after a refusal.
    pub slowest_retry: Duration,
    /// What machines may cost.
    pub budget: Budget,
    /// What servers of this product cost.
    pub tally: Arc<LinuxTally>,
    /// Whether anything is written.
    pub effects: Effects,
    /// Only machines with this value of the watch-filter label.
    pub watch_filter: Option<String>,
    /// Machines at once.
    pub concurrency: u16,
    /// StorageClass of volumes on the servers' own disks; none: they are not looked after.
    pub local_class: Option<String>,
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
    memory: Memory,
    local_volumes: Option<LocalVolumes>,
}

/// The controller of one kind.
pub fn component<K: LinuxKind>(manager: &Manager, parts: Parts) -> Component {
    let environment = Environment {
        concurrency: parts.concurrency,
        ..manager.environment()
    };
    let mut runner: Runner<K> = Runner::new(K::CONTROLLER, environment, &selection(parts.watch_filter.as_deref()));
    let surroundings = Surroundings::watch(&mut runner, &parts.registry);
    let client = manager.client();
    let recorder = Recorder::new(client.clone(), crate::machine::MANAGER.to_owned().into());
    let local_class = parts.local_class.clone();
    let context = Context {
        local_volumes: local_class.map(|class| LocalVolumes::new(client.clone(), recorder.clone(), class)),
        recorder,
        secrets: Secrets(client.clone()),
        client,
        surroundings,
        memory: Memory::default(),
        parts,
    };
    Component::controller(runner, Arc::new(context), reconcile::reconcile::<K>)
}
