//! ConfigMaps and Secrets that the Pods here refer to, each watched by its name.
//!
//! ```text
//!   Pod ─hold─▶ Held ──┐                       list and watch, metadata.name = one
//!   Pod ─hold─▶ Held ──┴─▶ Entry (one per object) ◀──────────────────────────────── API server
//!        ◀── changed ─────────┘ dropped with the last Pod that holds it, and its watch with it
//! ```
//!
//! A Node may read what its Pods refer to and nothing else, so there is a watch per object and none of a whole kind, as with any
//! kubelet. Nobody polls: an object that appears or changes is told, and one that cannot change is not watched any more.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Resource, ResourceExt as _};
use russet_pod::references;
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::server::ServerError;

/// An object that is not known after this is not waited for any longer; it is asked for again.
const PATIENCE: Duration = Duration::from_secs(20);

/// What is watched, a kind that only its owner may be able to change.
pub(crate) trait Kind:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + DeserializeOwned
    + std::fmt::Debug
    + Send
    + Sync
    + 'static
{
    /// It will never change.
    fn is_fixed(&self) -> bool;
}

impl Kind for ConfigMap {
    fn is_fixed(&self) -> bool {
        self.immutable == Some(true)
    }
}

impl Kind for Secret {
    fn is_fixed(&self) -> bool {
        self.immutable == Some(true)
    }
}

/// What is known of an object.
enum Known<K> {
    /// Nothing so far; why, if the API server gave a reason.
    Unknown(Option<String>),
    Absent,
    There(Arc<K>),
}

/// An object that is watched for as long as this is held.
pub(crate) struct Entry<K> {
    known: watch::Receiver<Known<K>>,
    task: JoinHandle<()>,
}

impl<K> Drop for Entry<K> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl<K: Kind> Entry<K> {
    /// The object as it is now, once that is known. `None` means that it is not there.
    async fn get(&self, name: &str) -> Result<Option<Arc<K>>, ServerError> {
        let what = || format!("read the {} {name}", K::kind(&()));
        let mut known = self.known.clone();
        let told = tokio::time::timeout(PATIENCE, known.wait_for(|known| !matches!(known, Known::Unknown(None)))).await;
        match told.as_ref().map(|told| told.as_deref()) {
            Ok(Ok(Known::There(object))) => Ok(Some(Arc::clone(object))),
            Ok(Ok(Known::Absent)) => Ok(None),
            Ok(Ok(Known::Unknown(Some(why)))) => Err(ServerError::Refused {
                what: what(),
                why: why.clone(),
            }),
            _ => Err(ServerError::Late { what: what() }),
        }
    }
}

/// By namespace and name.
type Entries<K> = BTreeMap<(String, String), Weak<Entry<K>>>;

struct Shared {
    client: watch::Receiver<Option<Client>>,
    config_maps: Mutex<Entries<ConfigMap>>,
    secrets: Mutex<Entries<Secret>>,
    changed: watch::Sender<()>,
}

/// All that is watched. Cheap to copy.
#[derive(Clone)]
pub(crate) struct Watched(Arc<Shared>);

impl std::fmt::Debug for Watched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watched").finish_non_exhaustive()
    }
}

/// What a Pod refers to, watched while this is held. Cheap to copy.
#[derive(Clone, Default)]
pub(crate) struct Held(Arc<Objects>);

#[derive(Default)]
struct Objects {
    config_maps: BTreeMap<String, Arc<Entry<ConfigMap>>>,
    secrets: BTreeMap<String, Arc<Entry<Secret>>>,
}

impl Held {
    pub(crate) async fn config_map(&self, name: &str) -> Result<Option<Arc<ConfigMap>>, ServerError> {
        get(&self.0.config_maps, name).await
    }

    pub(crate) async fn secret(&self, name: &str) -> Result<Option<Arc<Secret>>, ServerError> {
        get(&self.0.secrets, name).await
    }
}

async fn get<K: Kind>(entries: &BTreeMap<String, Arc<Entry<K>>>, name: &str) -> Result<Option<Arc<K>>, ServerError> {
    match entries.get(name) {
        Some(entry) => entry.get(name).await,
        None => Ok(None),
    }
}

impl Watched {
    pub(crate) fn new(client: watch::Receiver<Option<Client>>) -> Self {
        let (changed, _) = watch::channel(());
        Self(Arc::new(Shared {
            client,
            config_maps: Mutex::default(),
            secrets: Mutex::default(),
            changed,
        }))
    }

    /// Begins to watch what a Pod refers to, unless another Pod has.
    pub(crate) fn hold(&self, pod: &Pod) -> Held {
        let namespace = pod.namespace().unwrap_or_default();
        let wanted = references(pod);
        let secrets = wanted.secrets.into_iter().chain(wanted.pull_secrets);
        Held(Arc::new(Objects {
            config_maps: self.entries(&self.0.config_maps, &namespace, wanted.config_maps.into_iter()),
            secrets: self.entries(&self.0.secrets, &namespace, secrets),
        }))
    }

    /// Tells that some object changed.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.0.changed.subscribe()
    }

    fn entries<K: Kind>(
        &self,
        all: &Mutex<Entries<K>>,
        namespace: &str,
        names: impl Iterator<Item = String>,
    ) -> BTreeMap<String, Arc<Entry<K>>> {
        let mut all = lock(all);
        all.retain(|_, entry| entry.strong_count() > 0);
        let mut held = BTreeMap::new();
        for name in names {
            let key = (namespace.to_owned(), name.clone());
            let entry = all.get(&key).and_then(Weak::upgrade).unwrap_or_else(|| {
                let entry = Arc::new(self.watch(namespace, &name));
                all.insert(key, Arc::downgrade(&entry));
                entry
            });
            held.insert(name, entry);
        }
        held
    }

    fn watch<K: Kind>(&self, namespace: &str, name: &str) -> Entry<K> {
        let (tell, known) = watch::channel(Known::Unknown(None));
        let follow = Follow {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            client: self.0.client.clone(),
            changed: self.0.changed.clone(),
            tell,
        };
        Entry {
            known,
            task: tokio::spawn(follow.run()),
        }
    }
}

fn lock<K>(entries: &Mutex<Entries<K>>) -> MutexGuard<'_, Entries<K>> {
    entries.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The watch of one object.
struct Follow<K> {
    namespace: String,
    name: String,
    client: watch::Receiver<Option<Client>>,
    changed: watch::Sender<()>,
    tell: watch::Sender<Known<K>>,
}

impl<K: Kind> Follow<K> {
    async fn run(mut self) {
        // Whoever joins is gone if this fails, and so shall we be.
        while self.client.wait_for(Option::is_some).await.is_ok() {
            let Some(client) = self.client.borrow_and_update().clone() else {
                continue;
            };
            let one = watcher::Config::default().fields(&format!("metadata.name={}", self.name));
            let mut events = watcher(Api::<K>::namespaced(client, &self.namespace), one)
                .default_backoff()
                .boxed();
            let mut listed = None;
            loop {
                let event = tokio::select! {
                    event = events.next() => event,
                    // Another certificate: the old one may end while the watch goes on.
                    _ = self.client.changed() => break,
                };
                let done = match event {
                    Some(Ok(event)) => self.hear(event, &mut listed),
                    Some(Err(error)) => {
                        self.interrupted(&error);
                        false
                    }
                    None => break,
                };
                if done {
                    return;
                }
            }
        }
    }

    /// Takes news in. `true` if none will follow.
    fn hear(&self, event: watcher::Event<K>, listed: &mut Option<K>) -> bool {
        let now = match event {
            watcher::Event::Init => {
                *listed = None;
                return false;
            }
            watcher::Event::InitApply(object) => {
                *listed = Some(object);
                return false;
            }
            watcher::Event::InitDone => listed.take(),
            watcher::Event::Apply(object) => Some(object),
            watcher::Event::Delete(_) => None,
        };
        let fixed = now.as_ref().is_some_and(Kind::is_fixed);
        self.tell.send_if_modified(|known| {
            let version = |object: &K| object.resource_version();
            let news = match (&*known, &now) {
                (Known::There(old), Some(new)) => version(old) != version(new),
                (Known::Absent, None) => false,
                _ => true,
            };
            if news {
                *known = now.map_or(Known::Absent, |object| Known::There(Arc::new(object)));
                self.changed.send_replace(());
            }
            news
        });
        fixed
    }

    /// What was known stays; if nothing was, those who wait are told why.
    fn interrupted(&self, error: &watcher::Error) {
        let (kind, name) = (K::kind(&()), &self.name);
        tracing::debug!(%kind, name, %error, "the watch of an object was interrupted; it goes on");
        self.tell.send_if_modified(|known| {
            let waits = matches!(known, Known::Unknown(_));
            if waits {
                *known = Known::Unknown(Some(error.to_string()));
            }
            waits
        });
    }
}
