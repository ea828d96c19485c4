//! What is known of the cluster from watches that go on: nothing at first, and from then on what was heard last.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::runtime::watcher::{self, Event};
use kube::{Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use super::lasting::Lasting;
use super::server::ServerError;

/// What is not known after this is not waited for any longer; it is asked for again.
const PATIENCE: Duration = Duration::from_secs(20);

/// What is known, or why nothing is yet.
pub(crate) type Known<T> = Result<T, Option<String>>;

/// All objects of a kind, or what is needed of them, by namespace and name.
pub(super) type All<V> = BTreeMap<(String, String), V>;

/// What is known, once something is.
pub(super) async fn known<T, R>(
    from: &watch::Receiver<Known<T>>,
    what: &str,
    read: impl FnOnce(&T) -> R,
) -> Result<R, ServerError> {
    let mut from = from.clone();
    let told = tokio::time::timeout(PATIENCE, from.wait_for(|known| !matches!(known, Err(None)))).await;
    match told.as_ref().map(|told| told.as_deref()) {
        Ok(Ok(Ok(known))) => Ok(read(known)),
        Ok(Ok(Err(Some(why)))) => Err(ServerError::Refused {
            what: what.to_owned(),
            why: why.clone(),
        }),
        _ => Err(ServerError::Late { what: what.to_owned() }),
    }
}

/// What was known stays; if nothing was, those who wait are told why.
pub(super) fn interrupted<T>(tell: &watch::Sender<Known<T>>, what: &str, error: &watcher::Error) {
    tracing::debug!(what, %error, "a watch was interrupted; it goes on");
    tell.send_if_modified(|known| {
        let waits = known.is_err();
        if waits {
            *known = Err(Some(said(error)));
        }
        waits
    });
}

fn said(error: &watcher::Error) -> String {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status)) if status.is_not_found() => {
            "this API server does not serve them".to_owned()
        }
        watcher::Error::InitialListFailed(kube::Error::Api(status)) => status.message.clone(),
        other => other.to_string(),
    }
}

/// Follows all objects of a kind and tells what is needed of them; `changed` hears of each change.
pub(super) async fn follow_all<K, V>(
    mut events: Lasting<K>,
    tell: watch::Sender<Known<All<V>>>,
    what: &'static str,
    needed: fn(K) -> V,
    changed: impl Fn() + Send,
) where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
    V: Send + Sync,
{
    let key = |object: &K| (object.namespace().unwrap_or_default(), object.name_any());
    let mut listed = All::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => {
                listed.clear();
                continue;
            }
            Ok(Event::InitApply(object)) => {
                listed.insert(key(&object), needed(object));
                continue;
            }
            Ok(Event::InitDone) => drop(tell.send_replace(Ok(std::mem::take(&mut listed)))),
            Ok(Event::Apply(object)) => change(&tell, |all| drop(all.insert(key(&object), needed(object)))),
            Ok(Event::Delete(object)) => change(&tell, |all| drop(all.remove(&key(&object)))),
            Err(error) => {
                interrupted(&tell, what, &error);
                continue;
            }
        }
        changed();
    }
}

fn change<V>(tell: &watch::Sender<Known<All<V>>>, how: impl FnOnce(&mut All<V>)) {
    tell.send_modify(|known| {
        if let Ok(all) = known {
            how(all);
        }
    });
}
