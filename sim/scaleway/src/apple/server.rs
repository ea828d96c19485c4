//! A Mac mini, and how the API shows it.

use super::catalog::Os;
use crate::call::encode;
use crate::host::HostKey;
use crate::ids::{Id, Zone};
use crate::settings::Passwords;
use crate::table::rows;
use crate::words::words;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::net::IpAddr;

/// What hides a secret.
pub(crate) const SEALED: &str = "<sealed>";
/// The one account on every mini.
pub(crate) const USERNAME: &str = "m1";

words! {
    /// What a server is doing.
    pub enum Status {
        /// Ordered, not delivered.
        Starting = "starting",
        /// Usable.
        Ready = "ready",
        /// Something failed; reboot, reinstall and delete are still possible.
        Error = "error",
        /// Rebooting.
        Rebooting = "rebooting",
        /// The private-network feature is being switched.
        Updating = "updating",
        /// About to be locked.
        Locking = "locking",
        /// Nothing goes.
        Locked = "locked",
        /// About to be usable again.
        Unlocking = "unlocking",
        /// Being wiped and installed.
        Reinstalling = "reinstalling",
        /// Something else goes on.
        Busy = "busy",
    }
}

/// Whether the private-network feature is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VpcStatus {
    /// On.
    VpcEnabled,
    /// Changing.
    VpcUpdating,
    /// Off.
    VpcDisabled,
}

/// How long the customer stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Commitment {
    /// Paid by the hour, at least for a day.
    #[serde(rename = "duration_24h")]
    Duration24h,
    /// Paid by the month, renewed until cancelled.
    RenewedMonthly,
    /// Paid by the hour.
    None,
}

impl Commitment {
    pub(crate) const WORDS: [&'static str; 3] = ["duration_24h", "renewed_monthly", "none"];

    pub(crate) fn from_word(word: &str) -> Self {
        match word {
            "renewed_monthly" => Self::RenewedMonthly,
            "none" => Self::None,
            _ => Self::Duration24h,
        }
    }
}

/// What one installation put on the disk.
#[derive(Clone, serde::Serialize, serde::Deserialize)]
pub(crate) struct Installation {
    /// 1 for the first one, one more after each wipe.
    pub(crate) generation: u32,
    pub(crate) os: Id,
    pub(crate) password: String,
    /// Until when the password is shown.
    pub(crate) disclosed_until: Timestamp,
    pub(crate) vnc_port: u16,
    pub(crate) host_key: HostKey,
    /// Public keys of the project when the installation began. Keys registered later never get in.
    pub(crate) authorized_keys: Vec<String>,
}

/// What happens when the present state ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Ending {
    Delivered,
    Reinstalled,
    Rebooted,
    Failed,
}

/// A change that is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Pending {
    pub(crate) ending: Ending,
    /// None: it is stuck.
    pub(crate) at: Option<Timestamp>,
}

/// A switch of the private-network feature that is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct VpcPending {
    pub(crate) to: VpcStatus,
    pub(crate) at: Option<Timestamp>,
}

/// What a connectivity diagnostic finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "the fields of the API")]
pub struct Health {
    /// The machine runs.
    pub is_server_alive: bool,
    /// Scaleway's agent on it answers.
    pub is_agent_alive: bool,
    /// Port 22 answers.
    pub is_ssh_port_up: bool,
    /// Remote desktop answers.
    pub is_vnc_port_up: bool,
}

impl Default for Health {
    fn default() -> Self {
        Self {
            is_server_alive: true,
            is_agent_alive: true,
            is_ssh_port_up: true,
            is_vnc_port_up: true,
        }
    }
}

/// A Mac mini.
#[derive(Clone, serde::Serialize, serde::Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "the fields of the API")]
#[expect(clippy::struct_field_names, reason = "`type` is a word of the language")]
pub(crate) struct Server {
    pub(crate) id: Id,
    pub(crate) zone: Zone,
    pub(crate) server_type: String,
    pub(crate) name: String,
    pub(crate) project_id: Id,
    pub(crate) organization_id: Id,
    pub(crate) address: IpAddr,
    pub(crate) ssh_port: u16,
    pub(crate) mac: String,
    pub(crate) status: Status,
    pub(crate) pending: Option<Pending>,
    pub(crate) delivered: bool,
    pub(crate) vpc_status: VpcStatus,
    pub(crate) vpc_pending: Option<VpcPending>,
    pub(crate) commitment: Commitment,
    pub(crate) cancelled: bool,
    pub(crate) created_at: Timestamp,
    pub(crate) updated_at: Timestamp,
    pub(crate) deletable_at: Timestamp,
    pub(crate) deletion_scheduled: bool,
    pub(crate) bandwidth: u64,
    pub(crate) kext: bool,
    pub(crate) tags: Vec<String>,
    pub(crate) passwords: Passwords,
    pub(crate) health: Health,
    pub(crate) installation: Installation,
}

rows!(Server);

impl Server {
    /// `sudo_password` and `vnc_url` as they are shown at a moment.
    pub(crate) fn credentials(&self, now: Timestamp) -> (String, String) {
        let password = &self.installation.password;
        let url = format!(
            "vnc://{USERNAME}:{}@{}:{}",
            encode(password),
            self.address,
            self.installation.vnc_port
        );
        let sealed = || SEALED.to_owned();
        if now >= self.installation.disclosed_until {
            return (sealed(), sealed());
        }
        match self.passwords {
            Passwords::Shown => (password.clone(), url),
            Passwords::OnlyInVncUrl => (String::new(), url),
            Passwords::SealedButInVncUrl => (sealed(), url),
            Passwords::Sealed => (sealed(), sealed()),
        }
    }

    /// As GET and lists show it.
    pub(crate) fn wire(&self, now: Timestamp, os: Option<&Os>) -> Value {
        let (sudo_password, vnc_url) = self.credentials(now);
        json!({
            "id": self.id,
            "type": self.server_type,
            "name": self.name,
            "project_id": self.project_id,
            "organization_id": self.organization_id,
            "ip": self.address,
            "vnc_url": vnc_url,
            "ssh_username": USERNAME,
            "sudo_password": sudo_password,
            "vnc_port": self.installation.vnc_port,
            "os": os.map(|os| os.wire(&self.zone)),
            "status": self.status,
            "created_at": self.created_at,
            "updated_at": self.updated_at,
            "deletable_at": self.deletable_at,
            "deletion_scheduled": self.deletion_scheduled,
            "zone": self.zone,
            "srn": format!("srn:apple-silicon:zone/{}:server/{}", self.zone, self.id),
            "delivered": self.delivered,
            "vpc_status": self.vpc_status,
            "commitment": {"type": self.commitment, "cancelled": self.cancelled},
            "public_bandwidth_bps": self.bandwidth,
            "tags": self.tags,
            "applied_runner_configuration_ids": [],
            "kext_enabled": self.kext,
        })
    }

    /// As the answer to an order shows it: nothing secret yet.
    pub(crate) fn wire_sealed(&self, now: Timestamp, os: Option<&Os>) -> Value {
        let mut shown = self.wire(now, os);
        if let Some(fields) = shown.as_object_mut() {
            fields.insert("vnc_url".to_owned(), SEALED.into());
            fields.insert("sudo_password".to_owned(), SEALED.into());
        }
        shown
    }
}
