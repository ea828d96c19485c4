//! One namespace of a controller (or the whole cluster): its store, its watches, its queue.

use std::fmt::Debug;
use std::sync::Arc;

use futures::StreamExt as _;
use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use futures::stream::BoxStream;
use kube::core::DeserializeGuard;
use kube::runtime::controller::{ReconcileReason, ReconcileRequest};
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher;
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use tokio::sync::watch as signal;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::watch::{Watch, WatchTask};
use crate::health::Health;
use crate::metrics::ControllerMetrics;
use crate::scope::{Namespaced, Place};

/// An object, or why it could not be read.
pub(super) type Guarded<K> = DeserializeGuard<K>;

pub(super) type Sender<K> = UnboundedSender<ReconcileRequest<Guarded<K>>>;

/// Tells when all stores of a lane were filled once.
#[derive(Debug, Clone)]
pub(super) struct Ready(Vec<signal::Receiver<bool>>);

impl Ready {
    /// False when the watches ended before that.
    pub(super) async fn wait(&self) -> bool {
        for receiver in &self.0 {
            if receiver.clone().wait_for(|filled| *filled).await.is_err() {
                return false;
            }
        }
        true
    }
}

pub(super) struct Lane<K>
where
    K: Namespaced,
{
    place: Place,
    store: Store<Guarded<K>>,
    filled: Vec<signal::Receiver<bool>>,
    watches: Vec<WatchTask>,
    sender: Sender<K>,
    receiver: UnboundedReceiver<ReconcileRequest<Guarded<K>>>,
}

/// What the reconcile loop of a lane needs.
pub(super) struct Started<K: Resource<DynamicType = ()> + 'static> {
    pub(super) store: Store<Guarded<K>>,
    pub(super) ready: Ready,
    pub(super) queue: BoxStream<'static, Result<ReconcileRequest<Guarded<K>>, watcher::Error>>,
}

impl<K> Lane<K>
where
    K: Namespaced,
{
    pub(super) fn new(client: &Client, place: Place, config: &watcher::Config) -> Self {
        let (sender, receiver) = unbounded();
        let api: Api<Guarded<K>> = place.api(client);
        let notify = sender.clone();
        let main = Watch::new(api, config.clone(), move |seen| {
            for object in seen.objects() {
                request(&notify, ObjectRef::from_obj(object), ReconcileReason::ObjectUpdated);
            }
        });
        let (store, filled) = (main.store(), main.filled());
        Self {
            place,
            store,
            filled: vec![filled],
            watches: vec![main.task()],
            sender,
            receiver,
        }
    }

    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    pub(super) fn sender(&self) -> Sender<K> {
        self.sender.clone()
    }

    /// Adds a watch whose events are mapped to objects of `K`.
    pub(super) fn watch<C>(
        &mut self,
        api: Api<Guarded<C>>,
        config: &watcher::Config,
        map: impl Fn(&C) -> Vec<ObjectRef<K>> + Send + Sync + 'static,
    ) -> Store<Guarded<C>>
    where
        C: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    {
        let (notify, owners) = (self.sender.clone(), self.store.clone());
        let watch = Watch::new(api, config.clone(), move |seen| {
            if seen.is_relist() {
                // What disappeared while we could not see left no event behind, so every owner looks for itself.
                for owner in owners.state() {
                    request(&notify, ObjectRef::from_obj(&*owner), ReconcileReason::BulkReconcile);
                }
                return;
            }
            for object in seen.objects() {
                if let Ok(object) = &object.0 {
                    for owner in map(object) {
                        let mut key = ObjectRef::<Guarded<K>>::new(&owner.name);
                        key.namespace = owner.namespace;
                        let obj_ref = Box::new(ObjectRef::from_obj(object).erase());
                        request(&notify, key, ReconcileReason::RelatedObjectUpdated { obj_ref });
                    }
                }
            }
        });
        let store = watch.store();
        self.filled.push(watch.filled());
        self.watches.push(watch.task());
        store
    }

    /// Starts the watches and hands out what the reconcile loop needs.
    pub(super) fn start(
        self,
        controller: &'static str,
        health: &Health,
        metrics: &ControllerMetrics,
        stop: &CancellationToken,
        tasks: &mut JoinSet<()>,
    ) -> Started<K> {
        let place = self.place.namespace().unwrap_or("all").to_owned();
        for watch in self.watches {
            let check = health.check(&format!("{controller}-watch-{}-{place}", watch.kind()));
            tasks.spawn(watch.run(controller, check, metrics.clone(), stop.clone()));
        }
        // The queue ends with `stop` although handles may still hold senders.
        let queue = self.receiver.map(Ok).take_until(stop.clone().cancelled_owned());
        Started {
            store: self.store,
            ready: Ready(self.filled),
            queue: queue.boxed(),
        }
    }
}

fn request<K>(sender: &Sender<K>, obj_ref: ObjectRef<Guarded<K>>, reason: ReconcileReason)
where
    K: Resource<DynamicType = ()>,
{
    // Fails only when the controller has ended.
    let _ = sender.unbounded_send(ReconcileRequest { obj_ref, reason });
}

/// The owner that a controller reference names, if it is of kind `K`.
pub(super) fn controller_of<C, K>(child: &C) -> Vec<ObjectRef<K>>
where
    C: Resource<DynamicType = ()>,
    K: Resource<DynamicType = ()>,
{
    let named = child
        .owner_references()
        .iter()
        .filter(|reference| reference.controller == Some(true));
    let ours = named.filter(|reference| {
        reference.kind == K::kind(&())
            && reference.api_version.split('/').next() == K::api_version(&()).split('/').next()
    });
    ours.map(|reference| {
        let mut key = ObjectRef::new(&reference.name);
        key.namespace = child.namespace();
        key
    })
    .collect()
}

/// Asks for reconciles from outside the watches, say when an external system changed.
pub struct Handle<K: Resource<DynamicType = ()> + 'static> {
    senders: Arc<Vec<(Place, Sender<K>)>>,
}

impl<K: Resource<DynamicType = ()> + 'static> Clone for Handle<K> {
    fn clone(&self) -> Self {
        Self {
            senders: Arc::clone(&self.senders),
        }
    }
}

impl<K: Resource<DynamicType = ()> + 'static> Debug for Handle<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handle")
            .field("kind", &K::kind(&()))
            .finish_non_exhaustive()
    }
}

impl<K: Resource<DynamicType = ()> + 'static> Handle<K> {
    pub(super) fn new(senders: Vec<(Place, Sender<K>)>) -> Self {
        Self {
            senders: Arc::new(senders),
        }
    }

    /// Asks for one object. One that is out of scope or gone is ignored.
    pub fn request(&self, namespace: &str, name: &str) {
        let lane = self
            .senders
            .iter()
            .find(|(place, _)| place.namespace().is_none_or(|own| own == namespace));
        if let Some((_, sender)) = lane {
            let mut key = ObjectRef::<Guarded<K>>::new(name);
            key.namespace = Some(namespace.to_owned());
            request(sender, key, ReconcileReason::Unknown);
        }
    }
}
