//! One watch: a store, an event handler, a back-off of its own.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{StreamExt as _, TryStreamExt as _};
use kube::api::{Api, ListParams};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::reflector::Store;
use kube::runtime::reflector::store::Writer;
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use tokio::sync::watch as signal;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, warn};

use super::lane::Guarded;
use crate::backoff::{Limits, delay};
use crate::error::{Class, Classify as _, of_status};
use crate::health::Check;
use crate::metrics::ControllerMetrics;

/// What a watch saw; the store shows it already.
pub(super) enum Seen<'a, C: Clone + Resource<DynamicType = ()>> {
    /// One object came, changed or went.
    One(&'a Guarded<C>),
    /// The first full list.
    Filled(Vec<Arc<Guarded<C>>>),
    /// A full list after a break: objects may have gone without an event.
    Relisted(Vec<Arc<Guarded<C>>>),
}

impl<C: Clone + Resource<DynamicType = ()>> Seen<'_, C> {
    pub(super) fn objects(&self) -> Vec<&Guarded<C>> {
        match self {
            Self::One(object) => vec![object],
            Self::Filled(objects) | Self::Relisted(objects) => objects.iter().map(|object| &**object).collect(),
        }
    }

    pub(super) fn is_relist(&self) -> bool {
        matches!(self, Self::Relisted(_))
    }
}

type Handler<C> = Box<dyn Fn(&Seen<'_, C>) + Send + Sync>;

pub(super) struct Watch<C>
where
    C: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    api: Api<Guarded<C>>,
    config: watcher::Config,
    writer: Writer<Guarded<C>>,
    filled: signal::Sender<bool>,
    handler: Handler<C>,
}

impl<C> Watch<C>
where
    C: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    pub(super) fn new(
        api: Api<Guarded<C>>,
        config: watcher::Config,
        handler: impl Fn(&Seen<'_, C>) + Send + Sync + 'static,
    ) -> Self {
        Self {
            api,
            config,
            writer: Writer::new(()),
            filled: signal::Sender::new(false),
            handler: Box::new(handler),
        }
    }

    pub(super) fn store(&self) -> Store<Guarded<C>> {
        self.writer.as_reader()
    }

    pub(super) fn filled(&self) -> signal::Receiver<bool> {
        self.filled.subscribe()
    }

    /// The watch as a task that can stand in a list with watches of other kinds.
    pub(super) fn task(self) -> WatchTask {
        WatchTask {
            kind: C::kind(&()).into_owned(),
            start: Box::new(move |setting| Box::pin(self.run(setting))),
        }
    }

    async fn run(mut self, setting: Setting) {
        let Setting {
            controller,
            check,
            metrics,
            stop,
        } = setting;
        let kind = C::kind(&()).into_owned();
        let store = self.store();
        // managedFields can be most of an object, and nothing reads them from a cache.
        let strip = |object: &mut Guarded<C>| object.meta_mut().managed_fields = None;
        let api = self.api.clone();
        let events = watcher(self.api, self.config)
            .modify(strip)
            .backoff(WatchBackoff::default())
            .into_stream();
        let mut events = std::pin::pin!(events);
        let mut health = WatchHealth { check, failing: false };
        let mut probe = tokio::time::interval(PROBE);
        probe.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let event = tokio::select! {
                () = stop.cancelled() => return,
                event = events.next() => event,
                // A watch that goes on where it broke off says nothing until something changes. Ask whether the server answers.
                _ = probe.tick(), if health.failing && *self.filled.borrow() => {
                    if api.list_metadata(&ListParams::default().limit(1)).await.is_ok() {
                        health.pass();
                    }
                    continue;
                }
            };
            match event {
                // A watcher never ends by itself.
                None => return,
                Some(Err(error)) => {
                    metrics.watch_failed(controller, &kind);
                    health.fail(controller, &kind, &error);
                }
                Some(Ok(event)) => {
                    self.writer.apply_watcher_event(&event);
                    match &event {
                        Event::Apply(object) | Event::Delete(object) => {
                            note_malformed(controller, &kind, object, &metrics);
                            (self.handler)(&Seen::One(object));
                            health.pass();
                        }
                        Event::InitApply(object) => note_malformed(controller, &kind, object, &metrics),
                        Event::InitDone => {
                            let first = !self.filled.send_replace(true);
                            debug!(controller, kind, objects = store.len(), first, "listed");
                            let objects = store.state();
                            (self.handler)(&if first {
                                Seen::Filled(objects)
                            } else {
                                Seen::Relisted(objects)
                            });
                            health.pass();
                        }
                        Event::Init => {}
                    }
                }
            }
        }
    }
}

/// How often a broken watch looks whether the server is back.
const PROBE: Duration = Duration::from_secs(3);

/// The readiness check of one watch.
struct WatchHealth {
    check: Check,
    failing: bool,
}

impl WatchHealth {
    fn pass(&mut self) {
        self.failing = false;
        self.check.pass();
    }

    fn fail(&mut self, controller: &str, kind: &str, failure: &watcher::Error) {
        let class = match failure {
            watcher::Error::InitialListFailed(error)
            | watcher::Error::WatchStartFailed(error)
            | watcher::Error::WatchFailed(error) => error.class(),
            watcher::Error::WatchError(status) => of_status(status),
            watcher::Error::NoResourceVersion => Class::Invalid,
        };
        match class {
            // The server forgot our place in the stream, which is its right; the next list follows at once.
            Class::Conflict => return debug!(controller, kind, error = %failure, "watch expired"),
            Class::Forbidden => {
                error!(controller, kind, error = %failure, "RBAC is missing: cannot list and watch");
                self.check
                    .fail("forbidden: the ServiceAccount may not list and watch this kind here");
            }
            Class::Waiting { what, .. } => {
                warn!(controller, kind, error = %failure, "cannot watch yet");
                self.check.fail(&format!("waiting for {what}"));
            }
            _ => {
                warn!(controller, kind, error = %failure, "watch failed, trying again");
                self.check.fail("the API server does not answer");
            }
        }
        self.failing = true;
    }
}

fn note_malformed<C: Resource<DynamicType = ()>>(
    controller: &str,
    kind: &str,
    object: &Guarded<C>,
    metrics: &ControllerMetrics,
) {
    if let Err(invalid) = &object.0 {
        metrics.malformed(controller, kind);
        warn!(controller, kind, namespace = object.namespace(), name = object.name_any(), error = %invalid.error, "malformed object");
    }
}

/// Our jittered back-off in the shape that streams want. Starts again after a quiet while.
#[derive(Debug, Default)]
struct WatchBackoff {
    attempt: u32,
}

impl Iterator for WatchBackoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let pause = delay(self.attempt, &Limits::WATCH, &mut rand::rng());
        self.attempt = self.attempt.saturating_add(1);
        Some(pause)
    }
}

impl Backoff for WatchBackoff {
    fn reset(&mut self) {
        self.attempt = 0;
    }
}

pub(super) struct Setting {
    controller: &'static str,
    check: Check,
    metrics: ControllerMetrics,
    stop: CancellationToken,
}

/// A watch of any kind, ready to run.
pub(super) struct WatchTask {
    kind: String,
    start: Box<dyn FnOnce(Setting) -> BoxFuture<'static, ()> + Send>,
}

impl WatchTask {
    pub(super) fn kind(&self) -> &str {
        &self.kind
    }

    pub(super) fn run(
        self,
        controller: &'static str,
        check: Check,
        metrics: ControllerMetrics,
        stop: CancellationToken,
    ) -> BoxFuture<'static, ()> {
        (self.start)(Setting {
            controller,
            check,
            metrics,
            stop,
        })
    }
}
