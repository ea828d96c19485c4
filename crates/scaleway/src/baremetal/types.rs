//! What the API says about Elastic Metal servers.

use std::net::{IpAddr, Ipv4Addr};

use jiff::Timestamp;
use russet_api::values::ServerId;
use russet_telemetry::Secret;
use serde::Deserialize;

use crate::ids::{OfferId, OptionId, OsId, PrivateNetworkId, ProjectId, SshKeyId};
use crate::wire::{null_is_default, optional_ip};

words! {
    /// What a server does at the moment.
    pub enum Status {
        /// Being brought.
        Delivering = "delivering",
        /// On.
        Ready = "ready",
        /// Being switched off.
        Stopping = "stopping",
        /// Off.
        Stopped = "stopped",
        /// Being switched on.
        Starting = "starting",
        /// Broken.
        Error = "error",
        /// Being given up.
        Deleting = "deleting",
        /// Locked by Scaleway.
        Locked = "locked",
        /// Ordered, and there is none.
        OutOfStock = "out_of_stock",
        /// Ordered.
        Ordered = "ordered",
        /// Being wiped.
        Resetting = "resetting",
        /// Moving to another offer.
        Migrating = "migrating",
    }
}

words! {
    /// How far an installation is.
    pub enum InstallStatus {
        /// Not begun.
        ToInstall = "to_install",
        /// Under way.
        Installing = "installing",
        /// Done.
        Completed = "completed",
        /// Failed.
        Error = "error",
    }
}

words! {
    /// How far an option is.
    pub enum OptionStatus {
        /// On.
        Enabled = "option_status_enable",
        /// Being switched on.
        Enabling = "option_status_enabling",
        /// Being switched off.
        Disabling = "option_status_disabling",
        /// Failed.
        Error = "option_status_error",
    }
}

words! {
    /// How far an attachment to a Private Network is.
    pub enum AttachmentStatus {
        /// Being made.
        Attaching = "attaching",
        /// Made. Without the option of Private Networks it carries nothing all the same.
        Attached = "attached",
        /// Failed.
        Error = "error",
        /// Being removed.
        Detaching = "detaching",
        /// Locked by Scaleway.
        Locked = "locked",
    }
}

/// An Elastic Metal server.
#[derive(Clone, Debug, Deserialize)]
pub struct Server {
    /// Its id.
    pub id: ServerId,
    /// Its name; not unique.
    pub name: String,
    /// Its project.
    pub project_id: ProjectId,
    /// For people.
    #[serde(default, deserialize_with = "null_is_default")]
    pub description: String,
    /// Its tags.
    #[serde(default, deserialize_with = "null_is_default")]
    pub tags: Vec<String>,
    /// What it does at the moment.
    pub status: Status,
    /// What was ordered.
    pub offer_id: OfferId,
    /// Such as `EM-B220E-NVME`.
    #[serde(default, deserialize_with = "null_is_default")]
    pub offer_name: String,
    /// Its public addresses; none before it is delivered.
    #[serde(default, deserialize_with = "null_is_default")]
    pub ips: Vec<Ip>,
    /// What is installed, or being installed.
    #[serde(default)]
    pub install: Option<Installed>,
    /// Its options.
    #[serde(default, deserialize_with = "null_is_default")]
    pub options: Vec<ServerOption>,
    /// It cannot be deleted.
    #[serde(default)]
    pub protected: bool,
    /// When it was ordered.
    #[serde(default)]
    pub created_at: Option<Timestamp>,
    #[serde(default)]
    user_data: Option<Secret<String>>,
}

impl Server {
    /// Its first public IPv4 address.
    pub fn public_ipv4(&self) -> Option<Ipv4Addr> {
        self.ips.iter().find_map(|ip| match ip.address {
            Some(IpAddr::V4(address)) => Some(address),
            _ => None,
        })
    }

    /// Whether it is on and its installation is done.
    pub fn is_installed(&self) -> bool {
        let done = |install: &Installed| install.status == InstallStatus::Completed;
        self.status == Status::Ready && self.install.as_ref().is_some_and(done)
    }

    /// How far its option of Private Networks is; nothing if it has none.
    pub fn private_network_option(&self) -> Option<&ServerOption> {
        self.options.iter().find(|option| option.private_network.is_some())
    }

    /// Whether the API still keeps a text it boots with. What it says is never told.
    pub fn has_user_data(&self) -> bool {
        self.user_data.as_ref().is_some_and(|text| !text.expose().is_empty())
    }
}

/// A public address of a server.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Ip {
    /// The address.
    #[serde(default, deserialize_with = "optional_ip")]
    pub address: Option<IpAddr>,
}

/// What is installed on a server.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Installed {
    /// The image.
    pub os_id: OsId,
    /// The name the server has for itself.
    #[serde(default, deserialize_with = "null_is_default")]
    pub hostname: String,
    /// Who may log in.
    #[serde(default, deserialize_with = "null_is_default")]
    pub ssh_key_ids: Vec<SshKeyId>,
    /// How far it is.
    pub status: InstallStatus,
    /// Who to log in as.
    #[serde(default, deserialize_with = "null_is_default")]
    pub user: String,
}

/// An option of a server.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ServerOption {
    /// Its id.
    pub id: OptionId,
    /// For people.
    #[serde(default, deserialize_with = "null_is_default")]
    pub name: String,
    /// How far it is.
    pub status: OptionStatus,
    /// It is the option of Private Networks.
    #[serde(default)]
    pub private_network: Option<PrivateNetworkOption>,
}

/// What the option of Private Networks gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct PrivateNetworkOption {
    /// Bits per second.
    #[serde(default)]
    pub bandwidth_in_bps: Option<u64>,
}

/// An option that can be had.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct MetalOption {
    /// Its id.
    pub id: OptionId,
    /// For people.
    #[serde(default, deserialize_with = "null_is_default")]
    pub name: String,
    /// We may switch it.
    #[serde(default)]
    pub manageable: bool,
    /// It is the option of Private Networks.
    #[serde(default)]
    pub private_network: Option<PrivateNetworkOption>,
}

/// An operating system image.
#[expect(clippy::struct_excessive_bools, reason = "the API says them one by one")]
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Os {
    /// Its id.
    pub id: OsId,
    /// Such as `Ubuntu`.
    #[serde(default, deserialize_with = "null_is_default")]
    pub name: String,
    /// Such as `24.04 LTS (Noble Numbat)`.
    #[serde(default, deserialize_with = "null_is_default")]
    pub version: String,
    #[serde(default = "yes")]
    enabled: bool,
    #[serde(default = "yes")]
    allowed: bool,
    /// It reads user data when it first boots.
    #[serde(default)]
    pub cloud_init_supported: bool,
    /// Its disks can be divided otherwise than by default.
    #[serde(default)]
    pub custom_partitioning_supported: bool,
}

fn yes() -> bool {
    true
}

impl Os {
    /// Whether it is offered today, and to us.
    pub fn can_be_installed(&self) -> bool {
        self.enabled && self.allowed
    }

    /// Whether it is what Instances call by this label: `ubuntu_noble` is Ubuntu 24.04 LTS (Noble Numbat). Elastic Metal has
    /// names and versions for people instead of labels, so each word of the label has to be a word of those.
    pub fn is_labelled(&self, label: &str) -> bool {
        let text = format!("{} {}", self.name, self.version).to_ascii_lowercase();
        let words: Vec<&str> = text
            .split(|c: char| !c.is_ascii_alphanumeric() && c != '.')
            .filter(|word| !word.is_empty())
            .collect();
        let label = label.to_ascii_lowercase();
        let mut parts = label.split(['_', '-']).filter(|part| !part.is_empty()).peekable();
        parts.peek().is_some() && parts.all(|part| words.contains(&part))
    }
}

/// A server on a Private Network.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Attachment {
    /// Its id: what IPAM calls the resource.
    pub id: String,
    /// The server.
    pub server_id: ServerId,
    /// The network.
    pub private_network_id: PrivateNetworkId,
    /// The VLAN to use on the host; comes late, and comes even if the option is off and nothing gets through.
    #[serde(default, deserialize_with = "known_vlan")]
    pub vlan: Option<u32>,
    /// How far it is.
    pub status: AttachmentStatus,
}

/// Zero is no VLAN but one that is not known yet.
fn known_vlan<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    Ok(Option::deserialize(deserializer)?.filter(|vlan| *vlan != 0))
}

/// Something that happened to a server.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Event {
    /// Its id.
    pub id: String,
    /// What happened, for people.
    #[serde(default, deserialize_with = "null_is_default")]
    pub action: String,
    /// When.
    #[serde(default)]
    pub created_at: Option<Timestamp>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_known_by_the_words_of_its_label() {
        let os = |name: &str, version: &str| -> Os {
            serde_json::from_value(serde_json::json!({"id": "o1", "name": name, "version": version})).unwrap()
        };
        let noble = os("Ubuntu", "24.04 LTS (Noble Numbat)");
        for good in ["ubuntu_noble", "Ubuntu_Noble", "ubuntu-24.04"] {
            assert!(noble.is_labelled(good), "{good}");
        }
        for bad in ["", "_", "ubuntu_jammy", "ubuntu_nob", "debian", "24"] {
            assert!(!noble.is_labelled(bad), "{bad}");
        }
        assert!(os("Debian", "12 (Bookworm)").is_labelled("debian_bookworm"));
        assert!(os("ubuntu_noble", "").is_labelled("ubuntu_noble"));
    }

    #[test]
    fn a_vlan_of_zero_or_null_is_not_known_yet() {
        let vlan = |value: &str| {
            let body = format!(
                r#"{{"id":"a1","server_id":"s1","private_network_id":"n1","status":"attaching","vlan":{value}}}"#
            );
            serde_json::from_str::<Attachment>(&body).unwrap().vlan
        };
        assert_eq!((vlan("null"), vlan("0"), vlan("2319")), (None, None, Some(2319)));
    }

    #[test]
    fn a_server_is_installed_only_when_it_is_on_and_the_installation_is_done() {
        let server = |status: &str, install: &str| -> Server {
            let body = format!(
                r#"{{"id":"s1","name":"em-1","project_id":"p1","offer_id":"o1","status":"{status}","install":{install},
                    "user_data":"Y2FuYXJ5","ips":[{{"address":"2001:db8::1"}},{{"address":"51.15.0.9"}}]}}"#
            );
            serde_json::from_str(&body).unwrap()
        };
        let done = r#"{"os_id":"os1","status":"completed"}"#;
        assert!(server("ready", done).is_installed());
        assert!(!server("delivering", done).is_installed());
        assert!(!server("ready", "null").is_installed());
        assert!(!server("ready", r#"{"os_id":"os1","status":"installing"}"#).is_installed());
        let server = server("ready", done);
        assert_eq!(server.public_ipv4(), Some(Ipv4Addr::new(51, 15, 0, 9)));
        assert!(server.has_user_data() && !format!("{server:?}").contains("Y2FuYXJ5"));
    }
}
