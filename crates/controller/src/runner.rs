//! Runs one controller: watches, caches, a queue, bounded concurrency, retry by class.
//!
//! ```text
//!   per namespace in scope (a lane):
//!     watch K ──────▶ store ─┐
//!     watch children ▶ cache ┼─▶ queue (deduplicated) ─▶ reconcile ─▶ Outcome | Error ─▶ policy ─▶ requeue
//!     Handle::request ───────┘                    semaphore across lanes
//! ```
//!
//! Each watch is a task of its own with its own back-off, so a kind that cannot be watched does not stop the others, and
//! an API server that restarts is found again within seconds. Objects pass a decoding guard: one that does not fit its type
//! is counted and left alone instead of stalling the watch. No reconcile starts before all stores were filled once, so a
//! restart looks at everything before it writes anything.
//!
//! Shutdown: the watches and the queue end, running reconciles finish, then [`Runner::run`] returns.

mod cache;
mod lane;
pub mod policy;
mod watch;
mod worker;

use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::ClusterResourceScope;
use kube::runtime::controller::{Action, Error as KubeError};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::{applier, watcher};
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use crate::backoff::Attempts;
use crate::crds::{self, Needed};
use crate::error::Classify;
use crate::health::{Check, Health};
use crate::metrics::ControllerMetrics;
use crate::scope::{Namespaced, Scope};

pub use cache::Cache;
pub use lane::Handle;
use lane::{Guarded, Lane};
use worker::{Failure, Worker, key};

/// What a runner needs from its process; [`crate::Manager`] has one.
#[derive(Clone)]
pub struct Environment {
    /// The client for watches.
    pub client: Client,
    /// Where to look.
    pub scope: Scope,
    /// Readiness checks.
    pub health: Health,
    /// Counters.
    pub metrics: ControllerMetrics,
    /// Objects at once.
    pub concurrency: u16,
}

impl Debug for Environment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Environment")
            .field("scope", &self.scope)
            .finish_non_exhaustive()
    }
}

/// How a successful reconcile ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// All is as it should be; come back on an event or at the slow resync.
    Done,
    /// Come back after this time.
    After(Duration),
    /// Something is not there yet. Not an error: it is counted apart and logged quietly.
    Waiting {
        /// What is waited for.
        what: String,
        /// When to look again.
        poll: Duration,
    },
}

/// Why a runner ended before it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A watch task is gone, which is a bug.
    #[error("controller {controller}: the event queue ended unexpectedly")]
    QueueEnded {
        /// Which controller.
        controller: &'static str,
    },
}

/// Objects are looked at this often although no event came, in case one was lost.
const RESYNC: Duration = Duration::from_mins(30);

/// One controller for objects of kind `K`.
pub struct Runner<K>
where
    K: Namespaced,
{
    name: &'static str,
    environment: Environment,
    lanes: Vec<Lane<K>>,
    needed: Vec<Needed>,
    resync: Duration,
}

impl<K> Debug for Runner<K>
where
    K: Namespaced,
{
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runner")
            .field("name", &self.name)
            .field("lanes", &self.lanes.len())
            .finish_non_exhaustive()
    }
}

impl<K> Runner<K>
where
    K: Namespaced,
{
    /// A controller for all objects in scope that `config` selects.
    pub fn new(name: &'static str, environment: Environment, config: &watcher::Config) -> Self {
        let lanes = environment
            .scope
            .places()
            .into_iter()
            .map(|place| Lane::new(&environment.client, place, config))
            .collect();
        Self {
            name,
            environment,
            lanes,
            needed: Needed::of::<K>().into_iter().collect(),
            resync: RESYNC,
        }
    }

    /// Watches children, reconciles their owner when one changes or disappears, and keeps them at hand.
    pub fn owns<C>(&mut self, config: &watcher::Config) -> Cache<C>
    where
        C: Namespaced + Serialize,
    {
        self.watches(config, |child: &C| lane::controller_of::<C, K>(child))
    }

    /// Watches other objects of the same namespaces and reconciles what `map` makes of them.
    pub fn watches<C>(
        &mut self,
        config: &watcher::Config,
        map: impl Fn(&C) -> Vec<ObjectRef<K>> + Clone + Send + Sync + 'static,
    ) -> Cache<C>
    where
        C: Namespaced + Serialize,
    {
        self.needs::<C>();
        let mut cache = Cache::default();
        for lane in &mut self.lanes {
            let api = lane.place().api::<Guarded<C>>(&self.environment.client);
            cache.add(lane.place().clone(), lane.watch(api, config, map.clone()));
        }
        cache
    }

    /// Watches a cluster-scoped kind, Nodes say, and reconciles what `map` makes of them.
    pub fn watches_cluster<C>(
        &mut self,
        config: &watcher::Config,
        map: impl Fn(&C) -> Vec<ObjectRef<K>> + Clone + Send + Sync + 'static,
    ) -> Cache<C>
    where
        C: Resource<DynamicType = (), Scope = ClusterResourceScope>
            + Clone
            + Debug
            + Serialize
            + DeserializeOwned
            + Send
            + Sync
            + 'static,
    {
        self.watches_api(&kube::Api::all(self.environment.client.clone()), config, map)
    }

    /// Watches a namespace of its own choice, in scope or not, and reconciles what `map` makes of its objects.
    pub fn watches_in<C>(
        &mut self,
        namespace: &str,
        config: &watcher::Config,
        map: impl Fn(&C) -> Vec<ObjectRef<K>> + Clone + Send + Sync + 'static,
    ) -> Cache<C>
    where
        C: Namespaced + Serialize,
    {
        self.watches_api(
            &kube::Api::namespaced(self.environment.client.clone(), namespace),
            config,
            map,
        )
    }

    fn watches_api<C>(
        &mut self,
        api: &kube::Api<Guarded<C>>,
        config: &watcher::Config,
        map: impl Fn(&C) -> Vec<ObjectRef<K>> + Clone + Send + Sync + 'static,
    ) -> Cache<C>
    where
        C: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned + Send + Sync + 'static,
    {
        self.needs::<C>();
        let mut cache = Cache::default();
        for lane in &mut self.lanes {
            cache.add(lane.place().clone(), lane.watch(api.clone(), config, map.clone()));
        }
        cache
    }

    fn needs<C: Resource<DynamicType = ()>>(&mut self) {
        if let Some(kind) = Needed::of::<C>()
            && !self.needed.contains(&kind)
        {
            self.needed.push(kind);
        }
    }

    /// Its name in logs, metrics and checks.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Another period for looking at objects without an event.
    #[must_use]
    pub fn resync(mut self, period: Duration) -> Self {
        self.resync = period;
        self
    }

    /// A handle to ask for reconciles from outside.
    pub fn handle(&self) -> Handle<K> {
        Handle::new(
            self.lanes
                .iter()
                .map(|lane| (lane.place().clone(), lane.sender()))
                .collect(),
        )
    }

    /// Runs until `stop`, then finishes what is under way.
    pub async fn run<Ctx, F, Fut, E>(
        self,
        context: Arc<Ctx>,
        reconcile: F,
        stop: CancellationToken,
    ) -> Result<(), Error>
    where
        Ctx: Send + Sync + 'static,
        F: Fn(Arc<K>, Arc<Ctx>) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Result<Outcome, E>> + Send + 'static,
        E: Classify + Send + Sync + 'static,
    {
        let Self {
            name,
            environment,
            lanes,
            needed,
            resync,
        } = self;
        let Environment {
            client,
            scope,
            health,
            metrics,
            concurrency,
        } = environment;
        let crd_check = health.check(&format!("{name}-crds"));
        if crds::wait(&client, &needed, &crd_check, &metrics, &stop).await == crds::Waited::Stopped {
            return Ok(());
        }
        let sync_check = health.check(&format!("{name}-caches"));
        sync_check.fail("filling caches");
        info!(controller = name, %scope, "controller starts");

        let mut tasks = JoinSet::new();
        {
            let (client, metrics, stop) = (client.clone(), metrics.clone(), stop.clone());
            tasks.spawn(async move { crds::keep_watch(&client, &needed, &crd_check, &metrics, &stop).await });
        }
        let worker = Arc::new(Worker {
            name,
            metrics: metrics.clone(),
            attempts: Attempts::default(),
            permits: Semaphore::new(usize::from(concurrency)),
            resync,
        });
        let mut pipelines = JoinSet::new();
        let mut filled = Vec::new();
        for lane in lanes {
            let lane::Started { store, ready, queue } = lane.start(name, &health, &metrics, &stop, &mut tasks);
            filled.push(ready.clone());
            let (worker, context, reconcile) = (Arc::clone(&worker), Arc::clone(&context), reconcile.clone());
            let handler = {
                let worker = Arc::clone(&worker);
                move |object: Arc<Guarded<K>>, context: Arc<Ctx>| {
                    let (worker, reconcile, ready) = (Arc::clone(&worker), reconcile.clone(), ready.clone());
                    Box::pin(async move {
                        // Ends only when the watches end, in which case nobody waits for us either.
                        if !ready.wait().await {
                            return Ok(Action::await_change());
                        }
                        worker.reconcile(object, context, reconcile).await
                    })
                }
            };
            let errors = Arc::clone(&worker);
            let policy =
                move |object: Arc<Guarded<K>>, failure: &Failure<E>, _: Arc<Ctx>| errors.retry(&*object, failure);
            let config = kube::runtime::controller::Config::default().concurrency(concurrency);
            let stream = applier(handler, policy, context, store, queue, config);
            let worker = Arc::clone(&worker);
            pipelines.spawn(async move {
                stream
                    .for_each(|result| {
                        if let Err(KubeError::ObjectNotFound(object)) = &result {
                            worker.attempts.reset(&key(object.namespace.as_deref(), &object.name));
                        }
                        std::future::ready(())
                    })
                    .await;
            });
        }
        tasks.spawn(report_filled(filled, sync_check));

        // Pipelines end by themselves once their queues did and running reconciles are done.
        while pipelines.join_next().await.is_some() {}
        tasks.abort_all();
        while tasks.join_next().await.is_some() {}
        if stop.is_cancelled() {
            debug!(controller = name, "controller drained");
            Ok(())
        } else {
            Err(Error::QueueEnded { controller: name })
        }
    }
}

async fn report_filled(filled: Vec<lane::Ready>, check: Check) {
    for ready in filled {
        if !ready.wait().await {
            return;
        }
    }
    check.pass();
}
