//! Objects that another writer writes too.
//!
//! The egress Services of a Mac are written by us and by the Tailscale operator, which puts its state into the same object
//! (incident `egress-service-race`). Server-side apply is not enough there: the other writer updates whole objects. So we
//! read, change our part, and replace under the resourceVersion we read; when the other was faster, we read again after a
//! short random pause (without one, a writer in a loop that is a little quicker than we are would win every round).

use kube::Resource;
use kube::api::{DynamicObject, PostParams};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tracing::debug;

use super::{Applier, Error, Target, merge_diff, merge_into};
use crate::backoff::{self, Limits};
use crate::error::{Class, Classify};

/// How often to meet another writer before giving the reconcile up. Two writers alternate; more than a few rounds means that
/// something writes in a loop.
const MAX_ATTEMPTS: u32 = 12;

/// How an update of a shared object ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SharedChange {
    /// It did not exist and was created.
    Created,
    /// It was changed.
    Updated,
    /// It was already as wanted; nothing was sent.
    Unchanged,
}

/// A shared object after an update.
#[derive(Debug, Clone)]
pub struct Shared<K> {
    /// The live object.
    pub object: K,
    /// What happened.
    pub change: SharedChange,
    /// How many rounds it took.
    pub attempts: u32,
}

impl Applier {
    /// Creates or changes an object together with other writers.
    ///
    /// `initial` is used when the object does not exist; `change` is called on it, or on what is there, once per round, and must
    /// touch only what is ours. Fields that the type `K` does not know survive: only the difference made by `change` is
    /// carried over to the object as it was read.
    pub async fn update_shared<K, F>(&self, initial: K, mut change: F) -> Result<Shared<K>, Error>
    where
        K: Resource<DynamicType = ()> + Clone + Serialize + DeserializeOwned,
        F: FnMut(&mut K),
    {
        let target = Target::of(&initial)?;
        let api = self.api(&target);
        for attempts in 1..=MAX_ATTEMPTS {
            let live = self.read(&target).await?;
            let existed = live.is_some();
            let Some(wanted) = edited(&target, live.as_ref(), &initial, &mut change)? else {
                let object = live.map_or_else(|| Ok(initial.clone()), |live| typed(&target, &live))?;
                return Ok(Shared {
                    object,
                    change: SharedChange::Unchanged,
                    attempts,
                });
            };
            self.check()?;
            let params = PostParams {
                field_manager: Some(self.manager().to_owned()),
                ..PostParams::default()
            };
            let (verb, result) = if existed {
                ("update", api.replace(target.name(), &params, &wanted).await)
            } else {
                ("create", api.create(&params, &wanted).await)
            };
            self.wrote(verb, &target, result.is_ok());
            match result {
                Ok(object) => {
                    let change = if existed {
                        SharedChange::Updated
                    } else {
                        SharedChange::Created
                    };
                    return Ok(Shared {
                        object: typed(&target, &object)?,
                        change,
                        attempts,
                    });
                }
                Err(error) if error.class() == Class::Conflict => {
                    let pause = backoff::delay(attempts - 1, &Limits::RACE, &mut rand::rng());
                    debug!(object = %target, attempts, ?pause, "another writer was faster, reading again");
                    tokio::time::sleep(pause).await;
                }
                Err(error) => return Err(target.failed(verb, error)),
            }
        }
        Err(Error::Contended {
            what: target,
            attempts: MAX_ATTEMPTS,
        })
    }
}

/// The object with our change in it; none when there is nothing to change.
fn edited<K>(
    target: &Target,
    live: Option<&DynamicObject>,
    initial: &K,
    change: &mut impl FnMut(&mut K),
) -> Result<Option<DynamicObject>, Error>
where
    K: Clone + Serialize + DeserializeOwned,
{
    let unreadable = |error: serde_json::Error| target.unreadable(&error);
    let Some(live) = live else {
        let mut object = initial.clone();
        change(&mut object);
        let value = serde_json::to_value(&object).map_err(unreadable)?;
        return serde_json::from_value(value).map(Some).map_err(unreadable);
    };
    let mut raw = serde_json::to_value(live).map_err(unreadable)?;
    let mut object: K = serde_json::from_value(raw.clone()).map_err(unreadable)?;
    let before = serde_json::to_value(&object).map_err(unreadable)?;
    change(&mut object);
    let after = serde_json::to_value(&object).map_err(unreadable)?;
    let Some(patch) = merge_diff(&before, &after) else {
        return Ok(None);
    };
    merge_into(&mut raw, &patch);
    if let Some(metadata) = raw.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    serde_json::from_value(raw).map(Some).map_err(unreadable)
}

fn typed<K: DeserializeOwned>(target: &Target, object: &DynamicObject) -> Result<K, Error> {
    serde_json::to_value(object)
        .and_then(serde_json::from_value)
        .map_err(|error| target.unreadable(&error))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Service;
    use serde_json::json;

    use super::*;

    fn service(value: Value) -> Service {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn fields_our_types_do_not_know_survive_an_edit() {
        let initial = service(json!({"metadata": {"name": "s", "namespace": "n"}}));
        let target = Target::of(&initial).unwrap();
        let live: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "s", "namespace": "n", "resourceVersion": "7", "labels": {"theirs": "1"}},
            "spec": {"externalName": "old.example", "fieldOfTheFuture": {"keep": true}},
            "status": {"conditions": []},
        }))
        .unwrap();
        let mut set = |service: &mut Service| {
            service.spec.get_or_insert_default().external_name = Some("new.example".into());
        };
        let edited = edited(&target, Some(&live), &initial, &mut set).unwrap().unwrap();
        let value = serde_json::to_value(edited).unwrap();
        assert_eq!(
            value["spec"],
            json!({"externalName": "new.example", "fieldOfTheFuture": {"keep": true}})
        );
        assert_eq!(value["metadata"]["labels"], json!({"theirs": "1"}));
        assert_eq!(value["metadata"]["resourceVersion"], "7");
    }

    #[test]
    fn an_edit_that_changes_nothing_is_not_sent() {
        let initial = service(json!({"metadata": {"name": "s", "namespace": "n"}}));
        let target = Target::of(&initial).unwrap();
        let live: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "namespace": "n"}, "spec": {"type": "ClusterIP"},
        }))
        .unwrap();
        assert!(
            edited(&target, Some(&live), &initial, &mut |_: &mut Service| {})
                .unwrap()
                .is_none()
        );
    }
}
