//! What is asked of the Instance API.

use russet_api::values::ServerId;
use serde_json::{Value, json};

use crate::ids::{ImageId, ProjectId};
use crate::instance::types::VolumeType;

/// Scaleway counts in powers of ten.
const BYTES_PER_GB: u64 = 1_000_000_000;

/// An Instance to be made. It is off until it is switched on.
#[derive(Clone, Debug)]
pub struct CreateInstance {
    /// Its name; not unique.
    pub name: String,
    /// Size and price, such as `PRO2-S`.
    pub commercial_type: String,
    /// What it starts from: see [`crate::Client::local_images`].
    pub image: ImageId,
    /// How it is found again if the answer is lost.
    pub tags: Vec<String>,
    /// Whether it gets a public address while it is on. Without one it reaches nothing outside its Private Networks.
    pub dynamic_ip: bool,
    /// Its root volume; the default of the image if there is none here.
    pub root_volume: Option<RootVolume>,
}

/// The volume an Instance starts from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootVolume {
    /// Its size.
    pub gb: u32,
    /// What it is made of. Images for block storage need [`VolumeType::Block`].
    pub volume_type: VolumeType,
}

impl CreateInstance {
    pub(super) fn body(&self, project: &ProjectId) -> Value {
        let mut body = json!({
            "name": self.name,
            "commercial_type": self.commercial_type,
            "image": self.image,
            "project": project,
            "tags": self.tags,
            "dynamic_ip_required": self.dynamic_ip,
        });
        if let (Some(root), Some(body)) = (&self.root_volume, body.as_object_mut()) {
            let volume = json!({
                "boot": true,
                "size": u64::from(root.gb) * BYTES_PER_GB,
                "volume_type": root.volume_type.as_str(),
            });
            body.insert("volumes".to_owned(), json!({ "0": volume }));
        }
        body
    }
}

/// What to do with an Instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Switch on.
    Poweron,
    /// Switch off. Refused when it is off already.
    Poweroff,
    /// Switch off and delete, with its local volumes.
    Terminate,
    /// Restart.
    Reboot,
}

impl Action {
    /// The word on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Poweron => "poweron",
            Self::Poweroff => "poweroff",
            Self::Terminate => "terminate",
            Self::Reboot => "reboot",
        }
    }
}

/// Which Instances. Everything named here must hold; an empty filter takes all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InstanceFilter {
    /// Exactly this name.
    pub name: Option<String>,
    /// All of these tags.
    pub tags: Vec<String>,
}

/// Which public addresses. Everything named here must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IpFilter {
    /// All of these tags.
    pub tags: Vec<String>,
    /// Of this Instance.
    pub server: Option<ServerId>,
}

/// Which volumes. Everything named here must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeFilter {
    /// Exactly this name.
    pub name: Option<String>,
    /// All of these tags.
    pub tags: Vec<String>,
    /// Of this Instance.
    pub server: Option<ServerId>,
}
