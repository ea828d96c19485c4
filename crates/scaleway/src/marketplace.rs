//! Marketplace: which image a label means in a zone today.

use russet_api::values::Zone;
use serde::Deserialize;

use crate::call::{Call, Endpoint};
use crate::client::Client;
use crate::error::Error;
use crate::ids::ImageId;
use crate::wire::null_is_default;

/// The marketplace is public; no permission set is needed.
const PERMISSION: &str = "(none, the marketplace is public)";
static LIST: Endpoint = Endpoint::read("marketplace.list_local_images", PERMISSION);

words! {
    /// What the root volume of an image is made of.
    pub enum LocalImageType {
        /// A disk of the hypervisor.
        Local = "instance_local",
        /// Block storage.
        Sbs = "instance_sbs",
    }
}

/// An image in a zone.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct LocalImage {
    /// Its id, which an Instance is made from.
    pub id: ImageId,
    /// Its zone.
    pub zone: Zone,
    /// Such as `x86_64`.
    #[serde(default, deserialize_with = "null_is_default")]
    pub arch: String,
    /// Its label, such as `ubuntu_noble`.
    #[serde(default, deserialize_with = "null_is_default")]
    pub label: String,
    /// The types of Instances it runs on.
    #[serde(default, deserialize_with = "null_is_default")]
    pub compatible_commercial_types: Vec<String>,
}

impl LocalImage {
    /// Whether an Instance of this type can start from it.
    pub fn runs_on(&self, commercial_type: &str) -> bool {
        self.compatible_commercial_types
            .iter()
            .any(|known| known.eq_ignore_ascii_case(commercial_type))
    }
}

listing!(LocalImages {
    local_images: LocalImage
});
row!(LocalImage);

impl Client {
    /// The images of this label in this zone, one per architecture and generation of hardware.
    pub async fn local_images(
        &self,
        label: &str,
        zone: &Zone,
        type_: &LocalImageType,
    ) -> Result<Vec<LocalImage>, Error> {
        let call = Call::new(&LIST, "/marketplace/v2/local-images".to_owned())
            .query("image_label", label)
            .query("zone", zone.as_str())
            .query("type", type_.as_str());
        let mut found = self.list::<LocalImages, _>(call).await?;
        found.retain(|image| image.zone == *zone);
        Ok(found)
    }
}
