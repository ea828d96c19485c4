//! Whose child an object is.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Resource;
use kube::api::ApiResource;
use russet_api::labels::APP_MANAGED_BY;
use serde_json::json;

use super::desired::entry_object;
use super::{Desired, Error, OWNER_UID, Target};

/// The object that children belong to, and the manager that makes them.
///
/// A child in reach of an owner reference gets one, so that garbage collection removes it with its owner. Every child also
/// gets two labels, manager and owner uid; they find children across namespaces and keep us from pruning what another
/// controller attached to the same owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    target: Target,
    uid: String,
}

impl Owner {
    /// The owner of what is made for `object`, which must exist already.
    pub fn of<K: Resource<DynamicType = ()>>(object: &K) -> Result<Self, Error> {
        let target = Target::of(object)?;
        match object.meta().uid.clone() {
            Some(uid) => Ok(Self { target, uid }),
            None => Err(Error::Render {
                what: target.to_string(),
                problem: "metadata.uid is empty".to_owned(),
            }),
        }
    }

    /// Its uid.
    pub fn uid(&self) -> &str {
        &self.uid
    }

    /// Its namespace.
    pub fn namespace(&self) -> Option<&str> {
        self.target.namespace()
    }

    /// Which object it is.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// The reference for children.
    pub fn reference(&self) -> OwnerReference {
        let ApiResource { api_version, kind, .. } = self.target.resource();
        OwnerReference {
            api_version: api_version.clone(),
            kind: kind.clone(),
            name: self.target.name().to_owned(),
            uid: self.uid.clone(),
            controller: Some(true),
            block_owner_deletion: None,
        }
    }

    /// A selector for the children that this manager made for this owner.
    pub fn selector(&self, manager: &str) -> String {
        format!("{APP_MANAGED_BY}={manager},{OWNER_UID}={}", self.uid)
    }

    /// Whether an object may be written in the name of this owner.
    pub fn owns(&self, meta: &ObjectMeta) -> bool {
        let referenced = meta
            .owner_references
            .iter()
            .flatten()
            .any(|reference| reference.uid == self.uid);
        referenced || label(meta, OWNER_UID) == Some(self.uid.as_str())
    }

    /// Whether an object may be deleted when it is no longer wanted: this owner's, and made by this manager.
    pub fn may_prune(&self, meta: &ObjectMeta, manager: &str) -> bool {
        self.owns(meta) && label(meta, APP_MANAGED_BY) == Some(manager) && meta.deletion_timestamp.is_none()
    }

    /// The desired object, marked as a child.
    pub(super) fn stamp(&self, desired: &Desired, manager: &str) -> Result<Desired, Error> {
        let target = desired.target().clone();
        let mut value = desired.value().clone();
        let metadata = value.as_object_mut().and_then(|root| entry_object(root, "metadata"));
        let Some(metadata) = metadata else {
            return Err(Error::Render {
                what: target.to_string(),
                problem: "metadata is not an object".to_owned(),
            });
        };
        if let Some(labels) = entry_object(metadata, "labels") {
            labels.insert(APP_MANAGED_BY.to_owned(), manager.into());
            labels.insert(OWNER_UID.to_owned(), self.uid.clone().into());
        }
        // A reference across namespaces is invalid, and garbage collection would delete the child for it.
        let reachable = self.namespace().is_none() || self.namespace() == target.namespace();
        if reachable {
            metadata.insert("ownerReferences".to_owned(), json!([self.reference()]));
        }
        Desired::from_value(target, value)
    }
}

fn label<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.labels.as_ref()?.get(key).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    fn owner() -> Owner {
        let object: ConfigMap =
            serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "n", "uid": "u-1"}})).unwrap();
        Owner::of(&object).unwrap()
    }

    fn meta(value: serde_json::Value) -> ObjectMeta {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn only_what_this_manager_made_for_this_owner_may_be_pruned() {
        let reference = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "p", "uid": "u-1"}]);
        let ours = meta(json!({"labels": {APP_MANAGED_BY: "m", OWNER_UID: "u-1"}, "ownerReferences": reference}));
        let across = meta(json!({"labels": {APP_MANAGED_BY: "m", OWNER_UID: "u-1"}}));
        let attached = meta(json!({"labels": {APP_MANAGED_BY: "other"}, "ownerReferences": reference}));
        let adopted = meta(json!({"ownerReferences": reference}));
        let stranger = meta(json!({"labels": {APP_MANAGED_BY: "m", OWNER_UID: "u-2"}}));
        let going = meta(
            json!({"labels": {APP_MANAGED_BY: "m", OWNER_UID: "u-1"}, "deletionTimestamp": "2026-01-01T00:00:00Z"}),
        );
        for (meta, owns, prunes) in [
            (ours, true, true),
            (across, true, true),
            (attached, true, false),
            (adopted, true, false),
            (stranger, false, false),
            (going, true, false),
        ] {
            assert_eq!(
                (owner().owns(&meta), owner().may_prune(&meta, "m")),
                (owns, prunes),
                "{meta:?}"
            );
        }
    }

    #[test]
    fn a_child_in_another_namespace_gets_labels_but_no_reference() {
        let near: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "c", "namespace": "n"}})).unwrap();
        let far: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "c", "namespace": "far"}})).unwrap();
        let stamp = |object| owner().stamp(&Desired::new(object).unwrap(), "m").unwrap().value()["metadata"].clone();
        assert_eq!(stamp(&near)["ownerReferences"][0]["uid"], "u-1");
        assert_eq!(stamp(&far).get("ownerReferences"), None);
        assert_eq!(stamp(&far)["labels"], json!({APP_MANAGED_BY: "m", OWNER_UID: "u-1"}));
    }

    #[test]
    fn the_digest_covers_the_marks_of_the_owner() {
        let child: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "c", "namespace": "n"}})).unwrap();
        let plain = Desired::new(&child).unwrap();
        assert_ne!(owner().stamp(&plain, "m").unwrap().hash(), plain.hash());
    }
}
