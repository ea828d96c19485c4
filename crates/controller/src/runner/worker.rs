//! Runs one reconcile: bounded, measured, safe against panics; and decides what follows.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::runtime::controller::Action;
use kube::{Resource, ResourceExt as _};
use tokio::sync::Semaphore;
use tokio_util::task::AbortOnDropHandle;
use tracing::{Instrument as _, debug, error, warn};

use super::Outcome;
use super::lane::Guarded;
use super::policy::{self, Requeue};
use crate::backoff::{self, Attempts};
use crate::error::{Class, Classify};
use crate::metrics::ControllerMetrics;

/// A reconcile that panicked, or an object that cannot be read; beside the errors of the reconcile itself.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure<E> {
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

/// What the lanes of one controller share.
pub(super) struct Worker {
    pub(super) name: &'static str,
    pub(super) metrics: ControllerMetrics,
    pub(super) attempts: Attempts<String>,
    pub(super) permits: Semaphore,
    pub(super) resync: Duration,
}

pub(super) fn key(namespace: Option<&str>, name: &str) -> String {
    format!("{}/{name}", namespace.unwrap_or_default())
}

impl Worker {
    pub(super) async fn reconcile<K, Ctx, F, Fut, E>(
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
    pub(super) fn retry<K: Resource, E: Classify>(&self, object: &K, failure: &Failure<E>) -> Action {
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
