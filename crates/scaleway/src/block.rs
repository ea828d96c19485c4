//! Block storage: volumes that outlive the Instance they were made for.

use jiff::Timestamp;
use russet_api::values::Zone;
use serde::Deserialize;

use crate::call::{Call, Endpoint};
use crate::client::Client;
use crate::error::Error;
use crate::filter::{has_tags, is_named, only_ours};
use crate::ids::{ProjectId, VolumeId};
use crate::wire::null_is_default;

const PERMISSION: &str = "BlockStorageFullAccess";
static LIST: Endpoint = Endpoint::read("block.list_volumes", PERMISSION);
static DELETE: Endpoint = Endpoint::remove("block.delete_volume", PERMISSION);

words! {
    /// What a volume does at the moment.
    pub enum VolumeStatus {
        /// Being made.
        Creating = "creating",
        /// Nobody uses it.
        Available = "available",
        /// Somebody uses it; it cannot be deleted.
        InUse = "in_use",
        /// Being deleted.
        Deleting = "deleting",
        /// Deleted.
        Deleted = "deleted",
        /// Being enlarged.
        Resizing = "resizing",
        /// Being filled from a snapshot.
        Snapshotting = "snapshotting",
        /// Locked by Scaleway.
        Locked = "locked",
        /// Its speed is being changed.
        Updating = "updating",
        /// Broken.
        Error = "error",
    }
}

/// A volume.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Volume {
    /// Its id.
    pub id: VolumeId,
    /// Its name; not unique.
    #[serde(default, deserialize_with = "null_is_default")]
    pub name: String,
    /// Its project.
    pub project_id: ProjectId,
    /// Its tags.
    #[serde(default, deserialize_with = "null_is_default")]
    pub tags: Vec<String>,
    /// In bytes.
    #[serde(default)]
    pub size: Option<u64>,
    /// What it does at the moment.
    pub status: VolumeStatus,
    /// Who uses it.
    #[serde(default, deserialize_with = "null_is_default")]
    pub references: Vec<Reference>,
    /// When it was made.
    #[serde(default)]
    pub created_at: Option<Timestamp>,
}

/// A use of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Reference {
    /// Such as `instance_server`.
    #[serde(default, deserialize_with = "null_is_default")]
    pub product_resource_type: String,
    /// Id of what uses it.
    #[serde(default, deserialize_with = "null_is_default")]
    pub product_resource_id: String,
}

/// Which volumes. Everything named here must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeFilter {
    /// Exactly this name.
    pub name: Option<String>,
    /// All of these tags.
    pub tags: Vec<String>,
}

listing!(Volumes { volumes: Volume });
row!(Volume);

impl Client {
    /// The block volumes of the project in this zone, oldest first.
    pub async fn block_volumes(&self, zone: &Zone, filter: &VolumeFilter) -> Result<Vec<Volume>, Error> {
        let mut call = Call::new(&LIST, format!("/block/v1/zones/{zone}/volumes"))
            .query("project_id", self.project().as_str())
            .query("order_by", "created_at_asc")
            .queries("tags", filter.tags.iter().map(String::as_str));
        if let Some(name) = &filter.name {
            call = call.query("name", name);
        }
        let mut found = self.list::<Volumes, _>(call).await?;
        only_ours(&LIST, self.project(), &mut found, |volume| &volume.project_id);
        found.retain(|volume| is_named(&volume.name, filter.name.as_deref()) && has_tags(&volume.tags, &filter.tags));
        Ok(found)
    }

    /// Deletes a block volume for good. Refused while somebody uses it.
    pub async fn delete_block_volume(&self, zone: &Zone, id: &VolumeId) -> Result<(), Error> {
        self.send(Call::new(&DELETE, format!("/block/v1/zones/{zone}/volumes/{id}")))
            .await
    }
}
