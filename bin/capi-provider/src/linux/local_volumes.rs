//! Volumes on the disk of a server that is gone, and the claims on them.
//!
//! A local volume is on one Node. When the server behind that Node is given up, the data is gone, but volume and claim would stay for
//! ever, and a Pod of that claim waits for a Node that never comes back. Without its claim it is free: a `StatefulSet` makes a new
//! one, wherever there is room.
//!
//! ```text
//!   volumes of our class on exactly this Node ──▶ their claims, if still the ones that were bound ──▶ the volumes
//! ```
//!
//! The volumes say which claims there are, so they go last: whatever a crash leaves is found again.

use k8s_openapi::api::core::v1::{
    Node, NodeSelectorRequirement, NodeSelectorTerm, ObjectReference, PersistentVolume, PersistentVolumeClaim,
};
use kube::api::{Api, DeleteParams, ListParams, Preconditions};
use kube::runtime::events::{Event, EventType, Recorder};
use kube::{Client, Resource, ResourceExt as _};
use russet_api::events::linux::LOCAL_VOLUME_LOST;
use serde::de::DeserializeOwned;
use tracing::{debug, info};

use crate::machine::Error;
use crate::pages;

/// By this label of its Node a local volume says where it is.
const HOSTNAME: &str = "kubernetes.io/hostname";

/// What became of the volumes of a Node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Forgotten {
    /// Nothing of them is left that was not told to go.
    All,
    /// There is a Node of this name, so its volumes may be used.
    NodeStays,
    /// The Node is on its way out.
    NodeLeaves,
}

/// The volumes of one StorageClass.
pub(crate) struct LocalVolumes {
    client: Client,
    recorder: Recorder,
    class: String,
}

impl LocalVolumes {
    pub(crate) fn new(client: Client, recorder: Recorder, class: String) -> Self {
        Self {
            client,
            recorder,
            class,
        }
    }

    /// Deletes claims and volumes that are on this Node and nowhere else. Only for a server that was given up.
    pub(crate) async fn forget(&self, node: &str) -> Result<Forgotten, Error> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        match nodes.get_opt(node).await.map_err(Error::kube("read the Node"))? {
            None => {}
            Some(left) if left.metadata.deletion_timestamp.is_some() => return Ok(Forgotten::NodeLeaves),
            Some(_) => return Ok(Forgotten::NodeStays),
        }
        let volumes: Api<PersistentVolume> = Api::all(self.client.clone());
        let (mut lost, everything) = (Vec::new(), ListParams::default());
        let listed = pages::each(&volumes, &everything, |volume| {
            if is_lost(&volume, &self.class, node) {
                lost.push(volume);
            }
        });
        listed.await.map_err(Error::kube("list PersistentVolumes"))?;
        for volume in &lost {
            self.forget_claim(volume, node).await?;
        }
        for volume in &lost {
            if delete(&volumes, volume, "delete a PersistentVolume").await? {
                let name = volume.name_any();
                info!(volume = name, node, "deleted a volume whose disk is gone");
                let why = format!("the volume was on the disk of Node {node}, whose server is gone");
                self.tell(&volume.object_ref(&()), why).await;
            }
        }
        Ok(Forgotten::All)
    }

    async fn forget_claim(&self, volume: &PersistentVolume, node: &str) -> Result<(), Error> {
        let Some(bound) = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref()) else {
            return Ok(());
        };
        let (Some(namespace), Some(name)) = (&bound.namespace, &bound.name) else {
            return Ok(());
        };
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), namespace);
        let found = claims.get_opt(name).await;
        let Some(claim) = found.map_err(Error::kube("read a PersistentVolumeClaim"))? else {
            return Ok(());
        };
        if !is_bound(&claim, volume, bound) {
            info!(
                claim = name,
                namespace, "a claim of this name is another by now and stays"
            );
            return Ok(());
        }
        if delete(&claims, &claim, "delete a PersistentVolumeClaim").await? {
            info!(claim = name, namespace, node, "deleted a claim whose volume is gone");
            let why = format!(
                "the volume {} was on the disk of Node {node}, whose server is gone; the claim is deleted, so that a new one can be \
                 bound elsewhere",
                volume.name_any()
            );
            self.tell(&claim.object_ref(&()), why).await;
        }
        Ok(())
    }

    async fn tell(&self, about: &ObjectReference, why: String) {
        let event = Event {
            type_: EventType::Warning,
            reason: LOCAL_VOLUME_LOST.to_owned(),
            note: Some(why),
            action: "Delete".to_owned(),
            secondary: None,
        };
        if let Err(error) = self.recorder.publish(&event, about).await {
            debug!(%error, "an event could not be written");
        }
    }
}

/// Deletes this very object. False: there was nothing to do any more.
async fn delete<K>(api: &Api<K>, object: &K, what: &'static str) -> Result<bool, Error>
where
    K: Resource + Clone + std::fmt::Debug + DeserializeOwned,
{
    if object.meta().deletion_timestamp.is_some() {
        return Ok(false);
    }
    let this_one = DeleteParams::default().preconditions(Preconditions {
        uid: object.meta().uid.clone(),
        resource_version: None,
    });
    match api.delete(&object.name_any(), &this_one).await {
        Ok(_) => Ok(true),
        // Another of the same name is none of ours.
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(false),
        Err(error) => Err(Error::kube(what)(error)),
    }
}

/// Whether a volume is of this class and can be used on this Node only.
fn is_lost(volume: &PersistentVolume, class: &str, node: &str) -> bool {
    let Some(spec) = &volume.spec else { return false };
    let affinity = spec.node_affinity.as_ref().and_then(|it| it.required.as_ref());
    let terms = affinity.map(|required| required.node_selector_terms.as_slice());
    // One term is enough to be somewhere, so every one of them has to name this Node.
    spec.storage_class_name.as_deref() == Some(class)
        && terms.is_some_and(|terms| !terms.is_empty() && terms.iter().all(|term| is_only(term, node)))
}

fn is_only(term: &NodeSelectorTerm, node: &str) -> bool {
    let names = |requirement: &NodeSelectorRequirement, key: &str| {
        requirement.key == key
            && requirement.operator == "In"
            && requirement
                .values
                .as_deref()
                .is_some_and(|values| matches!(values, [only] if only == node))
    };
    let labels = term.match_expressions.iter().flatten();
    let fields = term.match_fields.iter().flatten();
    labels.into_iter().any(|it| names(it, HOSTNAME)) || fields.into_iter().any(|it| names(it, "metadata.name"))
}

/// Whether a claim is the one that a volume was bound to, and bound to it still.
fn is_bound(claim: &PersistentVolumeClaim, volume: &PersistentVolume, bound: &ObjectReference) -> bool {
    let same = bound.uid.is_none() || bound.uid == claim.metadata.uid;
    let wanted = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_ref());
    same && wanted.is_some() && wanted == volume.metadata.name.as_ref()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const CLASS: &str = "scw-local-nvme";

    fn volume(class: &str, terms: &Value) -> PersistentVolume {
        serde_json::from_value(json!({
            "metadata": {"name": "pvc-1", "uid": "v1"},
            "spec": {
                "storageClassName": class,
                "claimRef": {"namespace": "caches", "name": "data-0", "uid": "c1"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
            },
        }))
        .unwrap()
    }

    fn on(key: &str, operator: &str, values: &[&str]) -> Value {
        json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]})
    }

    #[test]
    fn a_volume_is_lost_only_if_it_can_be_nowhere_else() {
        let here = on(HOSTNAME, "In", &["cache-1"]);
        let by_field = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["cache-1"]}]});
        for (terms, expected) in [
            (json!([here]), true),
            (json!([by_field]), true),
            (json!([here, by_field]), true),
            // Terms are alternatives.
            (json!([here, on(HOSTNAME, "In", &["cache-2"])]), false),
            (json!([on(HOSTNAME, "In", &["cache-1", "cache-2"])]), false),
            (json!([on(HOSTNAME, "NotIn", &["cache-1"])]), false),
            (json!([on(HOSTNAME, "In", &["cache-10"])]), false),
            (json!([on("topology.kubernetes.io/zone", "In", &["cache-1"])]), false),
            (json!([{}]), false),
            (json!([]), false),
        ] {
            assert_eq!(is_lost(&volume(CLASS, &terms), CLASS, "cache-1"), expected, "{terms}");
        }
    }

    #[test]
    fn a_volume_of_another_class_or_without_a_place_is_never_lost() {
        let here = json!([on(HOSTNAME, "In", &["cache-1"])]);
        assert!(!is_lost(&volume("scw-bssd", &here), CLASS, "cache-1"));
        let anywhere = serde_json::from_value(json!({"spec": {"storageClassName": CLASS}})).unwrap();
        assert!(!is_lost(&anywhere, CLASS, "cache-1"));
    }

    #[test]
    fn a_claim_goes_only_if_it_is_the_one_that_was_bound() {
        let volume = volume(CLASS, &json!([on(HOSTNAME, "In", &["cache-1"])]));
        let bound = volume.spec.clone().unwrap().claim_ref.unwrap();
        let claim = |uid: &str, volume: Option<&str>| {
            serde_json::from_value(json!({
                "metadata": {"name": "data-0", "namespace": "caches", "uid": uid}, "spec": {"volumeName": volume},
            }))
            .unwrap()
        };
        assert!(is_bound(&claim("c1", Some("pvc-1")), &volume, &bound));
        assert!(!is_bound(&claim("c2", None), &volume, &bound), "made anew");
        assert!(
            !is_bound(&claim("c2", Some("pvc-1")), &volume, &bound),
            "made anew for it"
        );
        assert!(
            !is_bound(&claim("c1", Some("pvc-2")), &volume, &bound),
            "elsewhere by now"
        );
        let by_name = ObjectReference { uid: None, ..bound };
        assert!(
            is_bound(&claim("c3", Some("pvc-1")), &volume, &by_name),
            "asked for by name"
        );
        assert!(!is_bound(&claim("c3", None), &volume, &by_name));
    }
}
