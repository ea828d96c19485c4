//! ConfigMaps and Secrets that the Pods here refer to, each watched by its name, and trust anchors.
//!
//! ```text
//!   Pod ─hold─▶ Held ──┐                       list and watch, metadata.name = one
//!   Pod ─hold─▶ Held ──┴─▶ Entry (one per object) ◀──────────────────────────────── API server
//!        ◀── changed ─────────┘ dropped with the last Pod that holds it, and its watch with it
//! ```
//!
//! A Node may read what its Pods refer to and nothing else, so there is a watch per object and none of a whole kind, as with any
//! kubelet. Nobody polls: an object that appears or changes is told, and one that cannot change is not watched any more.
//!
//! Trust anchors of the cluster are everybody's to read, and which of them a Pod has may depend on labels that change: while some Pod
//! refers to any, all are watched.
//!
//! A Mac that runs job after job of one namespace needs the same few ConfigMaps each time, so the watch of one is kept for a while
//! after its last Pod. Secrets are not: what no Pod here needs is not known here.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::certificates::v1beta1::ClusterTrustBundle;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::runtime::watcher;
use kube::{Api, Client, Resource, ResourceExt as _};
use russet_pod::references;
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::known;
use super::lasting::Lasting;
use super::server::{ServerError, settling};

/// An object that is not known after this is not waited for any longer; it is asked for again.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long a ConfigMap is watched after the last Pod that began with it.
const REST: Duration = Duration::from_mins(5);

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
    /// Its watch was interrupted and has said nothing since, so what is known may be old.
    cut_off: Arc<AtomicBool>,
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

/// Namespace and name.
type Key = (String, String);
type Entries<K> = BTreeMap<Key, Weak<Entry<K>>>;
type Resting = BTreeMap<Key, (Instant, Arc<Entry<ConfigMap>>)>;

/// All ClusterTrustBundles, for as long as this is held.
struct Bundles {
    known: watch::Receiver<known::Known<known::All<Arc<ClusterTrustBundle>>>>,
    task: JoinHandle<()>,
}

impl Drop for Bundles {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Shared {
    client: watch::Receiver<Option<Client>>,
    config_maps: Mutex<Entries<ConfigMap>>,
    secrets: Mutex<Entries<Secret>>,
    /// ConfigMaps that some Pod referred to, and until when they are kept even if none does now.
    resting: Mutex<Resting>,
    bundles: Mutex<Weak<Bundles>>,
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
    bundles: Option<Arc<Bundles>>,
}

impl Held {
    pub(crate) async fn config_map(&self, name: &str) -> Result<Option<Arc<ConfigMap>>, ServerError> {
        get(&self.0.config_maps, name).await
    }

    pub(crate) async fn secret(&self, name: &str) -> Result<Option<Arc<Secret>>, ServerError> {
        get(&self.0.secrets, name).await
    }

    /// The trust anchors of the cluster by their names; none if the Pod refers to none.
    pub(crate) async fn trust_bundles(&self) -> Result<BTreeMap<String, Arc<ClusterTrustBundle>>, ServerError> {
        let Some(bundles) = &self.0.bundles else {
            return Ok(BTreeMap::new());
        };
        known::known(&bundles.known, "list ClusterTrustBundles", |all| {
            let named = all.iter().map(|((_, name), bundle)| (name.clone(), Arc::clone(bundle)));
            named.collect()
        })
        .await
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
            resting: Mutex::default(),
            bundles: Mutex::default(),
            changed,
        }))
    }

    /// Begins to watch what a Pod refers to, unless another Pod has.
    pub(crate) fn hold(&self, pod: &Pod) -> Held {
        let namespace = pod.namespace().unwrap_or_default();
        let wanted = references(pod);
        let secrets = wanted.secrets.into_iter().chain(wanted.pull_secrets);
        let config_maps = self.entries(&self.0.config_maps, &namespace, wanted.config_maps.into_iter());
        let rested = Instant::now() + REST;
        lock(&self.0.resting).extend(
            config_maps
                .iter()
                .map(|(name, entry)| ((namespace.clone(), name.clone()), (rested, Arc::clone(entry)))),
        );
        Held(Arc::new(Objects {
            config_maps,
            secrets: self.entries(&self.0.secrets, &namespace, secrets),
            bundles: wanted.trust_bundles.then(|| self.bundles()),
        }))
    }

    fn bundles(&self) -> Arc<Bundles> {
        let mut shared = lock(&self.0.bundles);
        if let Some(bundles) = shared.upgrade() {
            return bundles;
        }
        let (tell, known) = watch::channel(Err(None));
        let events = Lasting::new(self.0.client.clone(), Api::all, watcher::Config::default());
        let changed = self.0.changed.clone();
        let follow = known::follow_all(events, tell, "ClusterTrustBundles", Arc::new, move || {
            changed.send_replace(());
        });
        let bundles = Arc::new(Bundles {
            known,
            task: tokio::spawn(follow),
        });
        *shared = Arc::downgrade(&bundles);
        bundles
    }

    /// Lets go of what no Pod has asked for in a while.
    pub(crate) fn sweep(&self) {
        let now = Instant::now();
        lock(&self.0.resting).retain(|_, (until, _)| now < *until);
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
            // What may be old is read anew.
            let known = all.get(&key).and_then(Weak::upgrade);
            let known = known.filter(|entry| !entry.cut_off.load(Ordering::Relaxed));
            let entry = known.unwrap_or_else(|| {
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
        let cut_off = Arc::new(AtomicBool::new(false));
        let follow = Follow {
            shared: Arc::downgrade(&self.0),
            cut_off: Arc::clone(&cut_off),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            client: self.0.client.clone(),
            changed: self.0.changed.clone(),
            tell,
        };
        Entry {
            known,
            cut_off,
            task: tokio::spawn(follow.run()),
        }
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The watch of one object.
struct Follow<K> {
    shared: Weak<Shared>,
    cut_off: Arc<AtomicBool>,
    namespace: String,
    name: String,
    client: watch::Receiver<Option<Client>>,
    changed: watch::Sender<()>,
    tell: watch::Sender<Known<K>>,
}

impl<K: Kind> Follow<K> {
    async fn run(mut self) {
        if self.glance().await {
            return;
        }
        let one = watcher::Config::default().fields(&format!("metadata.name={}", self.name));
        let namespace = self.namespace.clone();
        let api = move |client| Api::<K>::namespaced(client, &namespace);
        let mut events = Lasting::new(self.client.clone(), api, one);
        while let Some(state) = events.next_state().await {
            match state {
                Ok(now) => {
                    self.cut_off.store(false, Ordering::Relaxed);
                    if self.take(now) {
                        return;
                    }
                }
                Err(error) => {
                    self.interrupted(&error);
                    // For those who come later it is not kept: without a Pod it may not be ours to read any more.
                    if let Some(shared) = self.shared.upgrade() {
                        lock(&shared.resting).remove(&(self.namespace.clone(), self.name.clone()));
                    }
                }
            }
        }
    }

    /// Asks for the object before it is watched: an API server answers a list when it is sure that nothing newer is on its way,
    /// which takes it ten times as long, and a Pod waits for this. `true` if nothing will ever follow. What goes wrong here is
    /// found again, and told, by the watch.
    async fn glance(&mut self) -> bool {
        if self.client.wait_for(Option::is_some).await.is_err() {
            return true;
        }
        let Some(client) = self.client.borrow().clone() else {
            return false;
        };
        let api: Api<K> = Api::namespaced(client, &self.namespace);
        let mut settling = settling();
        loop {
            match tokio::time::timeout(PATIENCE, api.get_opt(&self.name)).await {
                Ok(Ok(found)) => return self.take(found),
                Ok(Err(kube::Error::Api(status))) if status.code == 403 => match settling.next() {
                    Some(pause) => tokio::time::sleep(pause).await,
                    None => return false,
                },
                _ => return false,
            }
        }
    }

    /// Takes in how it is now. `true` if it stays so.
    fn take(&self, now: Option<K>) -> bool {
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
        self.cut_off.store(true, Ordering::Relaxed);
        self.tell.send_if_modified(|known| {
            let waits = matches!(known, Known::Unknown(_));
            if waits {
                *known = Known::Unknown(Some(error.to_string()));
            }
            waits
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::pretended::{Asked, api_server, refusal};
    use super::*;
    use serde_json::{Value, json};

    fn pod() -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "job", "namespace": "ci"},
            "spec": {"containers": [], "volumes": [
                {"name": "a", "configMap": {"name": "conf"}}, {"name": "b", "secret": {"secretName": "word"}},
            ]},
        }))
        .unwrap()
    }

    fn object(line: &str) -> Value {
        let (kind, name) = if line.contains("configmaps") {
            ("ConfigMap", "conf")
        } else {
            ("Secret", "word")
        };
        json!({"kind": kind, "apiVersion": "v1", "metadata": {"name": name, "namespace": "ci", "resourceVersion": "7"}})
    }

    /// Objects that are there; `lists` says what becomes of the list that a watch begins with.
    fn watched(lists: bool) -> (Watched, Asked) {
        let (client, asked) = api_server(move |line| {
            if line.contains("watch=true") {
                (200, None)
            } else if !line.contains("fieldSelector") {
                (200, Some(object(line)))
            } else if lists {
                let list = json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": "9"}, "items": [object(line)]});
                (200, Some(list))
            } else {
                (403, Some(refusal()))
            }
        });
        (Watched::new(client), asked)
    }

    async fn read(watched: &Watched) -> Held {
        let held = watched.hold(&pod());
        assert!(held.config_map("conf").await.unwrap().is_some());
        assert!(held.secret("word").await.unwrap().is_some());
        held
    }

    async fn until(holds: impl Fn() -> bool) {
        let waited = async {
            while !holds() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_mins(1), waited).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn the_next_job_finds_its_config_map_known_for_a_while_and_its_secret_never() {
        let (watched, asked) = watched(true);
        drop(read(&watched).await);
        until(|| asked.times("watch=true") >= 1).await;
        drop(read(&watched).await);
        assert_eq!(asked.times("/configmaps/conf"), 1);
        assert_eq!(asked.times("/secrets/word"), 2);
        watched.sweep();
        drop(read(&watched).await);
        assert_eq!(asked.times("/configmaps/conf"), 1, "the last job began just now");
        tokio::time::advance(REST).await;
        watched.sweep();
        drop(read(&watched).await);
        assert_eq!(asked.times("/configmaps/conf"), 2);
    }

    fn trusting() -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "job", "namespace": "ci"},
            "spec": {"containers": [], "volumes": [
                {"name": "a", "projected": {"sources": [{"clusterTrustBundle": {"name": "corporate", "path": "ca.pem"}}]}},
            ]},
        }))
        .unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn trust_anchors_are_watched_once_for_all_pods_and_by_nobody_without_one() {
        let (client, asked) = api_server(|line| {
            if line.contains("watch=true") {
                return (200, None);
            }
            let bundle =
                json!({"metadata": {"name": "corporate", "resourceVersion": "7"}, "spec": {"trustBundle": ""}});
            let list =
                json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": "9"}, "items": [bundle]});
            (200, Some(list))
        });
        let watched = Watched::new(client);
        let other = watched.hold(&Pod::default());
        assert!(other.trust_bundles().await.unwrap().is_empty());
        assert_eq!(asked.times("clustertrustbundles"), 0);
        let held = [watched.hold(&trusting()), watched.hold(&trusting())];
        for held in &held {
            let all = held.trust_bundles().await.unwrap();
            assert_eq!(all.keys().collect::<Vec<_>>(), ["corporate"]);
        }
        until(|| asked.times("watch=true") > 0).await;
        assert_eq!(asked.times("clustertrustbundles"), 2, "one list and one watch");
        drop(held);
        assert!(lock(&watched.0.bundles).upgrade().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn an_api_server_without_trust_anchors_is_no_riddle() {
        let missing = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "NotFound", "code": 404,
            "message": "the server could not find the requested resource",
        });
        let (client, _asked) = api_server(move |_| (404, Some(missing.clone())));
        let held = Watched::new(client).hold(&trusting());
        let error = held.trust_bundles().await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "could not list ClusterTrustBundles: this API server does not serve them"
        );
    }

    /// A node may not go on watching what none of its Pods needs; what it knew then may be old when the next Pod comes.
    #[tokio::test(start_paused = true)]
    async fn what_could_not_be_watched_any_longer_is_not_handed_on() {
        let (watched, asked) = watched(false);
        let first = read(&watched).await;
        let cut_off = || {
            let entries = lock(&watched.0.config_maps);
            entries.values().any(|entry| {
                let entry = entry.upgrade();
                entry.is_some_and(|entry| entry.cut_off.load(Ordering::Relaxed))
            })
        };
        until(cut_off).await;
        drop(read(&watched).await);
        assert_eq!(asked.times("/configmaps/conf"), 2);
        assert!(
            first.config_map("conf").await.unwrap().is_some(),
            "a Pod keeps what it knows"
        );
    }
}
