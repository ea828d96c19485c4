//! Writes to our object, each only if it is still the one that was read.

use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams};
use russet_api::annotations::cluster_api::BLOCK_MOVE;
use russet_controller::apply::merge_diff;
use serde_json::{Value, json};

use super::status::Draft;
use super::{Context, Error};
use crate::linux::kind::{LinuxKind, Status};
use crate::machine::MANAGER;

fn params() -> PatchParams {
    PatchParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PatchParams::default()
    }
}

fn render(source: serde_json::Error) -> Error {
    Error::Render {
        what: "a status",
        source,
    }
}

impl Context {
    pub(super) fn api<K: LinuxKind>(&self, object: &K) -> Api<K> {
        Api::namespaced(self.client.clone(), &object.namespace().unwrap_or_default())
    }

    /// Brings the status to `wanted`. None: there was nothing to write.
    async fn write_status<K: LinuxKind>(&self, object: &K, wanted: &Status) -> Result<Option<K>, Error> {
        let before = serde_json::to_value(object.status()).map_err(render)?;
        let after = serde_json::to_value(wanted).map_err(render)?;
        let Some(change) = merge_diff(&before, &after) else {
            return Ok(None);
        };
        let patch = json!({
            "metadata": {"resourceVersion": object.resource_version(), "uid": object.uid()},
            "status": change,
        });
        let written = self
            .api(object)
            .patch_status(&object.name_any(), &params(), &Patch::Merge(&patch))
            .await
            .map_err(Error::kube("write the status of the machine"))?;
        self.memory.wrote(&written);
        // As it is stored: times there have no fractions.
        let stored = serde_json::to_value(written.status()).map_err(render)?;
        if stored.get("intent") != after.get("intent") {
            return Err(Error::Pruned);
        }
        Ok(Some(written))
    }

    /// Writes a status that was drafted for this object.
    pub(super) async fn write_draft<K: LinuxKind>(&self, object: &K, draft: Draft) -> Result<Option<K>, Error> {
        let wanted = draft.finish();
        let written = self.write_status(object, &wanted).await?;
        self.show_phase(object, &wanted);
        Ok(written)
    }

    /// Patches metadata and spec.
    async fn patch<K: LinuxKind>(&self, object: &K, what: &'static str, mut patch: Value) -> Result<K, Error> {
        if let Some(metadata) = patch.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("resourceVersion".to_owned(), json!(object.resource_version()));
            metadata.insert("uid".to_owned(), json!(object.uid()));
        }
        let written = self
            .api(object)
            .patch(&object.name_any(), &params(), &Patch::Merge(&patch))
            .await
            .map_err(Error::kube(what))?;
        self.memory.wrote(&written);
        Ok(written)
    }

    pub(super) async fn add_finalizer<K: LinuxKind>(&self, object: &K) -> Result<(), Error> {
        let mut all = object.finalizers().to_vec();
        all.push(K::FINALIZER.to_owned());
        let patch = json!({"metadata": {"finalizers": all}});
        self.patch(object, "add the finalizer", patch).await.map(drop)
    }

    pub(super) async fn remove_finalizer<K: LinuxKind>(&self, object: &K) -> Result<(), Error> {
        let left: Vec<&String> = object
            .finalizers()
            .iter()
            .filter(|name| *name != K::FINALIZER)
            .collect();
        let patch = json!({"metadata": {"finalizers": left}});
        match self.patch(object, "remove the finalizer", patch).await {
            Err(Error::Kube { source, .. }) if matches!(&*source, kube::Error::Api(s) if s.is_not_found()) => Ok(()),
            other => other.map(drop),
        }
    }

    /// While something is done, `clusterctl move` must not copy the object: it carries no status.
    /// The object as it is then.
    pub(super) async fn hold_move<K: LinuxKind>(&self, object: &K) -> Result<K, Error> {
        if is_move_blocked(object) {
            return Ok(object.clone());
        }
        let patch = json!({"metadata": {"annotations": {BLOCK_MOVE: ""}}});
        self.patch(object, "hold clusterctl move", patch).await
    }

    pub(super) async fn unblock_move<K: LinuxKind>(&self, object: &K) -> Result<(), Error> {
        let patch = json!({"metadata": {"annotations": {BLOCK_MOVE: null}}});
        self.patch(object, "let clusterctl move go on", patch).await.map(drop)
    }

    pub(super) async fn set_provider_id<K: LinuxKind>(&self, object: &K, id: &str) -> Result<(), Error> {
        let patch = json!({"metadata": {}, "spec": {"providerID": id}});
        self.patch(object, "write spec.providerID", patch).await.map(drop)
    }

    /// The object in the API server now; none if it is gone or is another of the same name.
    pub(super) async fn live<K: LinuxKind>(&self, object: &K) -> Result<Option<K>, Error> {
        let live = self.api(object).get_opt(&object.name_any()).await;
        let live = live.map_err(Error::kube("read the machine"))?;
        Ok(live.filter(|live| live.meta().uid == object.meta().uid))
    }
}

/// Whether `clusterctl move` is held.
pub(super) fn is_move_blocked<K: LinuxKind>(object: &K) -> bool {
    object.annotations().contains_key(BLOCK_MOVE)
}
