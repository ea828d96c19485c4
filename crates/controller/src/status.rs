//! Writing status: only when it changed, only what is ours.
//!
//! The patch is the difference between the status we read and the status we want, both through the same type. Fields that
//! another version or another writer put there are in neither, so they stay.

use kube::api::{Patch, PatchParams};
use kube::core::object::HasStatus;
use kube::{Resource, ResourceExt as _};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::apply::{Applier, Error, Known, Target, Verdict, digest, merge_diff};
use crate::compare::{self, Flavour};

/// What writing a status came to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StatusWritten {
    /// Whether a request was made.
    pub sent: bool,
    /// Paths that were sent and not stored.
    pub pruned: Vec<String>,
}

impl Applier {
    /// Brings the status of `live` to `wanted`. Conditions and all other lists are replaced as a whole, under the version they
    /// were read at, so start from a clone of the live status and change what is yours.
    pub async fn write_status<K>(&self, live: &K, wanted: &K::Status) -> Result<StatusWritten, Error>
    where
        K: Resource<DynamicType = ()> + HasStatus,
        K::Status: Serialize,
    {
        let object = Target::of(live)?;
        // Remembered apart from the object itself, which has digests of its own.
        let target = Target::new(
            object.resource().clone(),
            object.namespace(),
            &format!("{}/status", object.name()),
        );
        let unreadable = |error: serde_json::Error| object.unreadable(&error);
        let before = live
            .status()
            .map(serde_json::to_value)
            .transpose()
            .map_err(unreadable)?
            .unwrap_or_else(|| json!({}));
        let after = serde_json::to_value(wanted).map_err(unreadable)?;
        let Some(change) = merge_diff(&before, &after) else {
            return Ok(StatusWritten::default());
        };
        let hash = digest(&after);
        let version = live.resource_version().unwrap_or_default();
        let known = Known {
            uid: live.meta().uid.as_deref().unwrap_or_default(),
            version: &version,
            hash: None,
            subset: false,
        };
        // The cache still shows what was there before our last write of this very status.
        if let Verdict::Skip { pruned } = self.memory().verdict(&target, &hash, Some(&known), Instant::now()) {
            return Ok(StatusWritten { sent: false, pruned });
        }
        let patch = status_patch(&change, &version, live.uid().as_deref());
        self.check()?;
        let params = PatchParams {
            field_manager: Some(self.manager().to_owned()),
            ..PatchParams::default()
        };
        let result = self
            .api(&object)
            .patch_status(object.name(), &params, &Patch::Merge(&patch))
            .await;
        self.wrote("status", &object, result.is_ok());
        let answer = result.map_err(|error| object.failed("write the status of", error))?;
        let stored = answer.data.get("status").cloned().unwrap_or_else(|| json!({}));
        let flavour = Flavour::of_group(&object.resource().group);
        let pruned: Vec<String> = compare::missing(&after, &stored, flavour)
            .into_iter()
            .map(|path| format!("status.{path}"))
            .collect();
        self.memory().remember(&target, &hash, &answer, &pruned, Instant::now());
        Ok(StatusWritten { sent: true, pruned })
    }
}

/// The body of the patch. Version and uid make it miss an object that is not the one we read.
fn status_patch(change: &Value, version: &str, uid: Option<&str>) -> Value {
    json!({"metadata": {"resourceVersion": version, "uid": uid}, "status": change})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_difference_is_written_and_only_to_the_version_that_was_read() {
        let before = json!({"phase": "A", "observedGeneration": 1, "old": true});
        let after = json!({"phase": "A", "observedGeneration": 2});
        let change = merge_diff(&before, &after).unwrap();
        assert_eq!(
            status_patch(&change, "7", Some("u")),
            json!({"metadata": {"resourceVersion": "7", "uid": "u"}, "status": {"observedGeneration": 2, "old": null}})
        );
        assert_eq!(merge_diff(&after, &after), None);
    }
}
