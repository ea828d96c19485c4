//! Finalizers: nothing is paid for before the promise to clean it up is stored.
//!
//! ```text
//!                 no finalizer            finalizer
//!   alive         Add, then Apply         Apply
//!   being deleted Gone                    Cleanup, then remove
//! ```
//!
//! **Guarantees.** [`Applier::finalized`] runs `apply` only after the finalizer is stored in the API server, and removes it
//! only after `cleanup` succeeded. **Assumption.** `cleanup` must succeed when `apply` never ran or ran half. **Caveat.** The
//! finalizer may stay when the process dies between cleanup and removal; cleanup then runs again.

use kube::api::{DynamicObject, Patch, PatchParams};
use kube::{Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::apply::{Applier, Error, Target};

/// What to do with an object, judged by its finalizers and deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Store the finalizer first, then apply.
    Add,
    /// Apply.
    Apply,
    /// Clean up, then remove the finalizer.
    Cleanup,
    /// It is being deleted and owes us nothing.
    Gone,
}

/// Decides from the object alone.
pub fn step<K: Resource>(object: &K, finalizer: &str) -> Step {
    let ours = object.finalizers().iter().any(|name| name == finalizer);
    match (object.meta().deletion_timestamp.is_some(), ours) {
        (false, false) => Step::Add,
        (false, true) => Step::Apply,
        (true, true) => Step::Cleanup,
        (true, false) => Step::Gone,
    }
}

/// What the caller has to do now; the finalizer is in place.
#[derive(Debug, Clone)]
pub enum Event<K> {
    /// The object is alive, and its finalizer is stored.
    Apply(K),
    /// The object is being deleted: clean up, then call [`Applier::remove_finalizer`].
    Cleanup(K),
    /// Nothing to do.
    Gone,
}

impl Applier {
    /// Stores the finalizer if it is missing and says which branch to take.
    pub async fn finalized<K>(&self, object: &K, finalizer: &str) -> Result<Event<K>, Error>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned,
    {
        match step(object, finalizer) {
            Step::Gone => Ok(Event::Gone),
            Step::Cleanup => Ok(Event::Cleanup(object.clone())),
            Step::Apply => Ok(Event::Apply(object.clone())),
            Step::Add => {
                let mut all = object.finalizers().to_vec();
                all.push(finalizer.to_owned());
                let written = self.write_finalizers(object, &all).await?;
                let target = Target::of(object)?;
                let typed = serde_json::to_value(&written).and_then(serde_json::from_value);
                typed.map(Event::Apply).map_err(|error| target.unreadable(&error))
            }
        }
    }

    /// Removes the finalizer after a successful clean-up. An object that is gone already is fine.
    pub async fn remove_finalizer<K>(&self, object: &K, finalizer: &str) -> Result<(), Error>
    where
        K: Resource<DynamicType = ()>,
    {
        let left: Vec<String> = object
            .finalizers()
            .iter()
            .filter(|name| *name != finalizer)
            .cloned()
            .collect();
        if left.len() == object.finalizers().len() {
            return Ok(());
        }
        match self.write_finalizers(object, &left).await {
            Err(Error::Request { source, .. }) if matches!(&*source, kube::Error::Api(s) if s.is_not_found()) => Ok(()),
            other => other.map(|_| ()),
        }
    }

    /// The list is written whole, so it is written under the version it was read at: a finalizer that somebody else added in
    /// between must not be lost.
    async fn write_finalizers<K>(&self, object: &K, finalizers: &[String]) -> Result<DynamicObject, Error>
    where
        K: Resource<DynamicType = ()>,
    {
        let target = Target::of(object)?;
        self.check()?;
        let patch = json!({"metadata": {
            "finalizers": finalizers,
            "resourceVersion": object.resource_version(),
            "uid": object.uid(),
        }});
        let params = PatchParams {
            field_manager: Some(self.manager().to_owned()),
            ..PatchParams::default()
        };
        let result = self
            .api(&target)
            .patch(target.name(), &params, &Patch::Merge(&patch))
            .await;
        self.wrote("finalizer", &target, result.is_ok());
        result.map_err(|error| target.failed("write the finalizers of", error))
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    #[test]
    fn every_combination_has_its_step() {
        let object = |deleted: bool, finalizers: &[&str]| -> ConfigMap {
            let mut value = json!({"metadata": {"name": "a", "finalizers": finalizers}});
            if deleted {
                value["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
            }
            serde_json::from_value(value).unwrap()
        };
        assert_eq!(step(&object(false, &[]), "f"), Step::Add);
        assert_eq!(step(&object(false, &["other"]), "f"), Step::Add);
        assert_eq!(step(&object(false, &["f", "other"]), "f"), Step::Apply);
        assert_eq!(step(&object(true, &["f"]), "f"), Step::Cleanup);
        assert_eq!(step(&object(true, &["other"]), "f"), Step::Gone);
    }
}
