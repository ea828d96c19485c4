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

use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::runtime::controller::{Action, Error as KubeError};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::{applier, watcher};
use kube::{Client, Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::{Instrument as _, debug, error, info, warn};

use crate::backoff::{self, Attempts};
use crate::crds::{self, Needed};
use crate::error::{Class, Classify};
use crate::health::{Check, Health};
use crate::metrics::ControllerMetrics;
use crate::scope::Scope;

pub use cache::Cache;
pub use lane::Handle;
use lane::{Guarded, Lane};
use policy::Requeue;

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

/// A reconcile that panicked, or an object that cannot be read; beside the errors of the reconcile itself.
#[derive(Debug, thiserror::Error)]
enum Failure<E> {
    #[error(transparent)]
    Reconcile(E),
    #[error("reconcile panicked")]
    Panicked,
}

impl<E: Classify> Failure<E> {
    fn class(&self) -> Class {
        match self {
            Self::Reconcile(error) => error.class(),
            Self::Panicked => Class::Transient,
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Reconcile(error) => error.reason(),
            Self::Panicked => "Panic",
        }
    }
}

/// Objects are looked at this often although no event came, in case one was lost.
const RESYNC: Duration = Duration::from_mins(30);

/// One controller for objects of kind `K`.
pub struct Runner<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + Sync
        + 'static,
{
    name: &'static str,
    environment: Environment,
    lanes: Vec<Lane<K>>,
    needed: Vec<Needed>,
    resync: Duration,
}

impl<K> Debug for Runner<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + Sync
        + 'static,
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
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + Sync
        + 'static,
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
        C: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + Serialize
            + DeserializeOwned
            + Send
            + Sync
            + 'static,
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
        C: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + Serialize
            + DeserializeOwned
            + Send
            + Sync
            + 'static,
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
        C: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + Serialize
            + DeserializeOwned
            + Send
            + Sync
            + 'static,
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
        let shared = Arc::new(Shared {
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
            let (shared, context, reconcile) = (Arc::clone(&shared), Arc::clone(&context), reconcile.clone());
            let handler = {
                let shared = Arc::clone(&shared);
                move |object: Arc<Guarded<K>>, context: Arc<Ctx>| {
                    let (shared, reconcile, ready) = (Arc::clone(&shared), reconcile.clone(), ready.clone());
                    Box::pin(async move {
                        // Ends only when the watches end, in which case nobody waits for us either.
                        if !ready.wait().await {
                            return Ok(Action::await_change());
                        }
                        shared.reconcile(object, context, reconcile).await
                    })
                }
            };
            let errors = Arc::clone(&shared);
            let policy =
                move |object: Arc<Guarded<K>>, failure: &Failure<E>, _: Arc<Ctx>| errors.retry(&*object, failure);
            let config = kube::runtime::controller::Config::default().concurrency(concurrency);
            let stream = applier(handler, policy, context, store, queue, config);
            let shared = Arc::clone(&shared);
            pipelines.spawn(async move {
                stream
                    .for_each(|result| {
                        if let Err(KubeError::ObjectNotFound(object)) = &result {
                            shared.attempts.reset(&key(object.namespace.as_deref(), &object.name));
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

/// What the lanes of one controller share.
struct Shared {
    name: &'static str,
    metrics: ControllerMetrics,
    attempts: Attempts<String>,
    permits: Semaphore,
    resync: Duration,
}

fn key(namespace: Option<&str>, name: &str) -> String {
    format!("{}/{name}", namespace.unwrap_or_default())
}

impl Shared {
    async fn reconcile<K, Ctx, F, Fut, E>(
        &self,
        object: Arc<Guarded<K>>,
        context: Arc<Ctx>,
        reconcile: F,
    ) -> Result<Action, Failure<E>>
    where
        K: Resource<DynamicType = ()> + Clone,
        F: Fn(Arc<K>, Arc<Ctx>) -> Fut,
        Fut: Future<Output = Result<Outcome, E>> + Send + 'static,
        E: Classify + Send + Sync + 'static,
    {
        let object = match &object.0 {
            Ok(object) => Arc::new(object.clone()),
            Err(invalid) => {
                // Counted where it was decoded. An event brings it back once somebody mended it.
                warn!(controller = self.name, object = invalid.metadata.name, error = %invalid.error, "object cannot be read, leaving it alone");
                return Ok(Action::await_change());
            }
        };
        // The semaphore is never closed.
        let _permit = self.permits.acquire().await;
        let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
        let span = tracing::info_span!("reconcile", controller = self.name, namespace, name);
        let started = Instant::now();
        // A task of its own, so that a panic is one object's failure and not the end of the controller; dropped with us, so that
        // losing leadership ends it at its next await.
        let task = AbortOnDropHandle::new(tokio::spawn(reconcile(object, context).instrument(span.clone())));
        let result = match task.await {
            Ok(Ok(outcome)) => Ok(outcome),
            Ok(Err(error)) => Err(Failure::Reconcile(error)),
            Err(_) => Err(Failure::Panicked),
        };
        let _entered = span.entered();
        let seconds = started.elapsed().as_secs_f64();
        let label = match &result {
            Ok(Outcome::Done) => "ok",
            Ok(Outcome::After(_)) => "requeue",
            Ok(Outcome::Waiting { .. }) => "waiting",
            Err(failure) if matches!(failure.class(), Class::Waiting { .. }) => "waiting",
            Err(_) => "error",
        };
        self.metrics.reconciled(self.name, label, seconds);
        result.map(|outcome| {
            self.attempts.reset(&key(Some(&namespace), &name));
            let period = match outcome {
                Outcome::Done => self.resync,
                Outcome::After(delay) => delay,
                Outcome::Waiting { what, poll } => {
                    debug!(what, "waiting");
                    poll
                }
            };
            Action::requeue(backoff::jittered(period, &mut rand::rng()))
        })
    }

    /// Counts and logs a failure, and says when to come back.
    fn retry<K: Resource, E: Classify>(&self, object: &K, failure: &Failure<E>) -> Action {
        let (namespace, name) = (object.meta().namespace.as_deref(), object.name_any());
        let class = failure.class();
        let attempt = self.attempts.failed(key(namespace, &name));
        let requeue = policy::requeue(&class, attempt, &mut rand::rng());
        let (controller, reason) = (self.name, failure.reason());
        match &class {
            Class::Waiting { what, .. } => debug!(controller, namespace, name, what, "waiting"),
            Class::Conflict => {
                self.metrics.failed(controller, class.label());
                debug!(controller, namespace, name, error = %failure, "another writer was faster, retrying");
            }
            Class::Forbidden => {
                self.metrics.failed(controller, class.label());
                error!(controller, namespace, name, reason, error = %failure, ?requeue, "RBAC is missing");
            }
            _ => {
                self.metrics.failed(controller, class.label());
                warn!(controller, namespace, name, reason, attempt, error = %failure, ?requeue, "reconcile failed");
            }
        }
        match requeue {
            Requeue::After(delay) => Action::requeue(delay),
            Requeue::OnChange => Action::await_change(),
        }
    }
}
