//! What the API says about Macs.

use std::net::IpAddr;

use jiff::Timestamp;
use percent_encoding::percent_decode_str;
use reqwest::Url;
use russet_api::values::ServerId;
use russet_telemetry::Secret;
use serde::Deserialize;

use crate::ids::{OsId, PrivateNetworkId, ProjectId};
use crate::wire::{null_is_default, optional_ip};

words! {
    /// What a Mac does at the moment.
    pub enum ServerStatus {
        /// Ordered and not delivered yet.
        Starting = "starting",
        /// Running.
        Ready = "ready",
        /// Broken.
        Error = "error",
        /// Restarting.
        Rebooting = "rebooting",
        /// Its network is being changed.
        Updating = "updating",
        /// Being locked by Scaleway.
        Locking = "locking",
        /// Locked by Scaleway.
        Locked = "locked",
        /// Being unlocked.
        Unlocking = "unlocking",
        /// Being wiped and installed again.
        Reinstalling = "reinstalling",
        /// Doing something else.
        Busy = "busy",
    }
}

words! {
    /// Whether a Mac may be on Private Networks.
    pub enum VpcStatus {
        /// Being switched on or off.
        Updating = "vpc_updating",
        /// It may.
        Enabled = "vpc_enabled",
        /// It may not.
        Disabled = "vpc_disabled",
    }
}

words! {
    /// How many Scaleway has.
    pub enum Stock {
        /// None.
        None = "no_stock",
        /// Few.
        Low = "low_stock",
        /// Enough.
        High = "high_stock",
    }
}

words! {
    /// How far an attachment to a Private Network is.
    pub enum AttachmentStatus {
        /// Being made; the VLAN is not known yet.
        Attaching = "attaching",
        /// Made.
        Attached = "attached",
        /// Failed.
        Error = "error",
        /// Being removed.
        Detaching = "detaching",
        /// Locked by Scaleway.
        Locked = "locked",
    }
}

words! {
    /// How far a diagnostic is.
    pub enum DiagnosticStatus {
        /// Running.
        Processing = "processing",
        /// Failed to run.
        Error = "error",
        /// Done.
        Completed = "completed",
    }
}

/// A Mac.
#[derive(Clone, Debug, Deserialize)]
pub struct Server {
    /// Its id.
    pub id: ServerId,
    /// Hardware, such as `M2-L`.
    #[serde(rename = "type")]
    pub type_: String,
    /// Its name: whose it is.
    pub name: String,
    /// Its project.
    pub project_id: ProjectId,
    /// Its public address.
    #[serde(default, deserialize_with = "optional_ip")]
    pub ip: Option<IpAddr>,
    /// Holds the password: read [`Server::password`].
    #[serde(default, deserialize_with = "null_is_default")]
    vnc_url: Secret<String>,
    /// Holds the password: read [`Server::password`].
    #[serde(default, deserialize_with = "null_is_default")]
    sudo_password: Secret<String>,
    /// Who to log in as.
    #[serde(default, deserialize_with = "null_is_default")]
    pub ssh_username: String,
    /// What is installed on it.
    #[serde(default)]
    pub os: Option<Os>,
    /// What it does at the moment.
    pub status: ServerStatus,
    /// When it was ordered.
    #[serde(default)]
    pub created_at: Option<Timestamp>,
    /// When anything last changed about it.
    #[serde(default)]
    pub updated_at: Option<Timestamp>,
    /// When it may be deleted: macOS licences are leased for a day at least.
    #[serde(default)]
    pub deletable_at: Option<Timestamp>,
    /// It goes as soon as it may.
    #[serde(default)]
    pub deletion_scheduled: bool,
    /// It was handed over once. Stays true while it is reinstalled, so it says nothing about now.
    #[serde(default)]
    pub delivered: bool,
    /// Whether it may be on Private Networks.
    #[serde(default = "vpc_disabled")]
    pub vpc_status: VpcStatus,
}

fn vpc_disabled() -> VpcStatus {
    VpcStatus::Disabled
}

/// The administrator password of a Mac, as far as Scaleway tells it.
#[derive(Clone, Debug)]
pub enum Password {
    /// Here it is.
    Known(Secret<String>),
    /// Scaleway sealed it; it is not given out any more until the next reinstallation.
    Sealed,
    /// There is none yet.
    Missing,
}

/// What Scaleway writes in place of a password it no longer gives out.
const SEALED: &str = "<sealed>";

impl Server {
    /// The administrator password, from its own field or from the VNC address, whichever holds it.
    pub fn password(&self) -> Password {
        let direct = self.sudo_password.expose().as_str();
        if !direct.is_empty() && direct != SEALED {
            return Password::Known(self.sudo_password.clone());
        }
        let vnc = self.vnc_url.expose();
        if let Some(password) = Url::parse(vnc).ok().as_ref().and_then(Url::password) {
            let decoded = percent_decode_str(password)
                .decode_utf8()
                .map(|text| Secret::from(&*text));
            if let Some(password) = decoded.ok().filter(|p| !p.expose().is_empty() && p.expose() != SEALED) {
                return Password::Known(password);
            }
        }
        // In an address the brackets of the marker may be percent-encoded.
        let sealed = direct == SEALED || percent_decode_str(vnc).decode_utf8_lossy().contains(SEALED);
        if sealed { Password::Sealed } else { Password::Missing }
    }
}

/// An operating system image.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Os {
    /// Its id.
    pub id: OsId,
    /// Such as `macos-tahoe-26.3`.
    pub name: String,
    /// For people.
    #[serde(default, deserialize_with = "null_is_default")]
    pub label: String,
    /// Such as `Tahoe`; the documentation says it is a number.
    #[serde(default, deserialize_with = "null_is_default")]
    pub family: String,
    /// Not released by Apple yet.
    #[serde(default)]
    pub is_beta: bool,
    /// Such as `26.3`.
    #[serde(default, deserialize_with = "null_is_default")]
    pub version: String,
}

/// A type of hardware.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ServerType {
    /// Such as `M2-L`.
    pub name: String,
    /// How many Scaleway has.
    pub stock: Stock,
    /// What a reinstallation without a named image installs today.
    #[serde(default)]
    pub default_os: Option<Os>,
}

/// A Mac on a Private Network.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Attachment {
    /// Its id.
    pub id: String,
    /// The Mac.
    pub server_id: ServerId,
    /// The network.
    pub private_network_id: PrivateNetworkId,
    /// The VLAN to use on the host; comes late.
    #[serde(default)]
    pub vlan: Option<u32>,
    /// How far it is.
    pub status: AttachmentStatus,
}

/// Whether a Mac can be reached, as Scaleway sees it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Diagnostic {
    /// How far it is.
    pub status: DiagnosticStatus,
    /// All is well.
    #[serde(default)]
    pub is_healthy: bool,
    /// What was looked at.
    #[serde(default)]
    pub health_details: Option<Health>,
    /// What would help: `reboot_server`, `reinstall_server`.
    #[serde(default, deserialize_with = "null_is_default")]
    pub supported_actions: Vec<String>,
}

/// What was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct Health {
    /// The host answers.
    #[serde(default)]
    pub is_server_alive: bool,
    /// SSH answers.
    #[serde(default)]
    pub is_ssh_port_up: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(vnc_url: &str, sudo_password: &str) -> Server {
        serde_json::from_value(serde_json::json!({
            "id": "s1", "type": "M2-L", "name": "tuist-pool-1", "project_id": "p1", "ip": "", "vnc_url": vnc_url,
            "sudo_password": sudo_password, "ssh_username": "m1", "os": null, "status": "ready", "delivered": true,
            "vpc_status": "vpc_enabled", "a_field_of_next_year": 1,
        }))
        .unwrap()
    }

    fn known(server: &Server) -> Option<String> {
        match server.password() {
            Password::Known(password) => Some(password.expose().clone()),
            _ => None,
        }
    }

    #[test]
    fn the_password_is_found_where_scaleway_put_it() {
        assert_eq!(known(&server("", "direct")), Some("direct".to_owned()));
        assert_eq!(
            known(&server("vnc://m1:p%40ss%2F@51.0.0.1:5900", "")),
            Some("p@ss/".to_owned())
        );
        assert_eq!(
            known(&server("vnc://m1:vncpass@51.0.0.1:5900", "<sealed>")),
            Some("vncpass".to_owned())
        );
        assert!(matches!(server("<sealed>", "<sealed>").password(), Password::Sealed));
        assert!(matches!(
            server("vnc://m1:%3Csealed%3E@51.0.0.1:5900", "").password(),
            Password::Sealed
        ));
        assert!(matches!(
            server("vnc://51.0.0.1:5900", "").password(),
            Password::Missing
        ));
        assert!(matches!(server("", "").password(), Password::Missing));
    }

    #[test]
    fn a_printed_server_shows_no_password() {
        let server = server("vnc://m1:canary-vnc@51.0.0.1:5900", "canary-sudo");
        let text = format!("{server:?} {server:#?} {:?}", server.password());
        assert!(!text.contains("canary"), "{text}");
    }

    #[test]
    fn a_state_of_next_year_does_not_make_a_list_unreadable() {
        let status: ServerStatus = serde_json::from_str("\"hibernating\"").unwrap();
        assert_eq!(status, ServerStatus::Other("hibernating".to_owned()));
        assert_eq!(status.as_str(), "hibernating");
    }
}
