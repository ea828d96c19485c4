//! Writes to our object, each only if it is still the one that was read.

use kube::api::{Api, Patch, PatchParams};
use kube::{Resource as _, ResourceExt as _};
use russet_api::ScalewayAppleSiliconMachineStatus as Status;
use russet_api::annotations::cluster_api::BLOCK_MOVE;
use russet_api::finalizers::APPLE_SILICON_MACHINE;
use russet_controller::apply::merge_diff;
use serde_json::{Value, json};

use super::status::Draft;
use super::{Context, Error, MANAGER, Mac};

fn params() -> PatchParams {
    PatchParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PatchParams::default()
    }
}

impl Context {
    pub(super) fn api(&self, mac: &Mac) -> Api<Mac> {
        Api::namespaced(self.client.clone(), &mac.namespace().unwrap_or_default())
    }

    /// Brings the status to `wanted`. None: there was nothing to write.
    pub(super) async fn write_status(&self, mac: &Mac, wanted: &Status) -> Result<Option<Mac>, Error> {
        let render = |source| Error::Render {
            what: "a status",
            source,
        };
        let before = match &mac.status {
            Some(status) => serde_json::to_value(status).map_err(render)?,
            None => json!({}),
        };
        let after = serde_json::to_value(wanted).map_err(render)?;
        let Some(change) = merge_diff(&before, &after) else {
            return Ok(None);
        };
        let patch = json!({
            "metadata": {"resourceVersion": mac.resource_version(), "uid": mac.uid()},
            "status": change,
        });
        let written = self
            .api(mac)
            .patch_status(&mac.name_any(), &params(), &Patch::Merge(&patch))
            .await
            .map_err(Error::kube("write the status of the machine"))?;
        self.memory.wrote(&written);
        let stored = written
            .status
            .as_ref()
            .map(serde_json::to_value)
            .transpose()
            .map_err(render)?;
        let intent = |status: &Value| status.get("intent").cloned();
        if stored.as_ref().and_then(intent) != intent(&after) {
            return Err(Error::Pruned);
        }
        Ok(Some(written))
    }

    /// Writes a status that was drafted for this object.
    pub(super) async fn write_draft(&self, mac: &Mac, draft: Draft) -> Result<Option<Mac>, Error> {
        let wanted = draft.finish();
        let written = self.write_status(mac, &wanted).await?;
        self.show_phase(mac, &wanted);
        Ok(written)
    }

    /// Patches metadata and spec.
    async fn patch(&self, mac: &Mac, what: &'static str, mut patch: Value) -> Result<Mac, Error> {
        if let Some(metadata) = patch.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("resourceVersion".to_owned(), json!(mac.resource_version()));
            metadata.insert("uid".to_owned(), json!(mac.uid()));
        }
        let written = self
            .api(mac)
            .patch(&mac.name_any(), &params(), &Patch::Merge(&patch))
            .await
            .map_err(Error::kube(what))?;
        self.memory.wrote(&written);
        Ok(written)
    }

    pub(super) async fn add_finalizer(&self, mac: &Mac) -> Result<(), Error> {
        let mut all = mac.finalizers().to_vec();
        all.push(APPLE_SILICON_MACHINE.to_owned());
        let patch = json!({"metadata": {"finalizers": all}});
        self.patch(mac, "add the finalizer", patch).await.map(drop)
    }

    pub(super) async fn remove_finalizer(&self, mac: &Mac) -> Result<(), Error> {
        let left: Vec<&String> = mac
            .finalizers()
            .iter()
            .filter(|name| *name != APPLE_SILICON_MACHINE)
            .collect();
        let patch = json!({"metadata": {"finalizers": left}});
        match self.patch(mac, "remove the finalizer", patch).await {
            Err(Error::Kube { source, .. }) if matches!(&*source, kube::Error::Api(s) if s.is_not_found()) => Ok(()),
            other => other.map(drop),
        }
    }

    /// While something is done to a host, `clusterctl move` must not copy the object: it carries no status.
    pub(super) async fn block_move(&self, mac: &Mac) -> Result<(), Error> {
        let patch = json!({"metadata": {"annotations": {BLOCK_MOVE: ""}}});
        self.patch(mac, "hold clusterctl move", patch).await.map(drop)
    }

    pub(super) async fn unblock_move(&self, mac: &Mac) -> Result<(), Error> {
        let patch = json!({"metadata": {"annotations": {BLOCK_MOVE: null}}});
        self.patch(mac, "let clusterctl move go on", patch).await.map(drop)
    }

    /// The host is handed over: nothing is done to it any more, so a move may come.
    pub(super) async fn set_provider_id(&self, mac: &Mac, id: &str) -> Result<(), Error> {
        let patch = json!({"metadata": {"annotations": {BLOCK_MOVE: null}}, "spec": {"providerID": id}});
        self.patch(mac, "write spec.providerID", patch).await.map(drop)
    }

    /// The version of the object in the API server now; none if it is gone or is another of the same name.
    pub(super) async fn live_version(&self, mac: &Mac) -> Result<Option<String>, Error> {
        let live = self.live(mac).await?;
        Ok(live.and_then(|live| live.resource_version()))
    }

    pub(super) async fn live(&self, mac: &Mac) -> Result<Option<Mac>, Error> {
        let live = self.api(mac).get_opt(&mac.name_any()).await;
        let live = live.map_err(Error::kube("read the machine"))?;
        Ok(live.filter(|live| live.meta().uid == mac.meta().uid))
    }
}

/// Whether `clusterctl move` is held.
pub(super) fn is_move_blocked(mac: &Mac) -> bool {
    mac.annotations().contains_key(BLOCK_MOVE)
}
