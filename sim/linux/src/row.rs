//! A server as the emulated Scaleway describes it, in `/_sim/boxes` and `/_sim/box-events`.

use std::net::IpAddr;

use russet_sim_scaleway::{BoxKind, LinuxBox};
use russet_telemetry::Secret;
use serde::Deserialize;

/// Which product a server belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A virtual one.
    Instance,
    /// Elastic Metal.
    Metal,
}

/// Whether a server runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Power {
    /// It does.
    On,
    /// It does not; its disk stays as it was.
    Off,
}

/// The leg in a Private Network.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct PrivateLeg {
    /// Which network.
    pub private_network_id: String,
    /// Address and prefix, as DHCP would give them.
    pub address: String,
    /// The hardware address.
    pub mac: String,
    /// The VLAN on the one card of an Elastic Metal server; none for an Instance, which has a card for it.
    pub vlan: Option<u32>,
}

/// A file system that the installation was asked to make.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Filesystem {
    /// For example `xfs`.
    pub format: String,
    /// Where it is mounted.
    pub mountpoint: String,
}

/// A server. Fields that make no difference to the machine are not read.
#[derive(Debug, Clone, Deserialize)]
pub struct Row {
    /// Whose machine it is.
    pub server_id: String,
    /// Which product.
    pub kind: Kind,
    /// Its name.
    pub name: String,
    /// Where it is.
    pub zone: String,
    /// One more after each wipe: another generation has nothing of the disk before.
    pub generation: u32,
    /// How often it was started; grew while the power is on: it was rebooted.
    #[serde(default)]
    pub boots: u32,
    /// Whether it runs.
    pub power: Power,
    /// None until there is one.
    pub public_ip: Option<IpAddr>,
    /// None while the network is dark, whatever the API shows.
    pub private: Option<PrivateLeg>,
    /// What the metadata service has.
    pub user_data: Option<Secret<String>>,
    /// Who may log in.
    pub authorized_keys: Vec<String>,
    /// Its host name.
    pub hostname: String,
    /// The image.
    pub os: String,
    /// What its disks were divided into, if that was asked for.
    #[serde(default)]
    pub filesystems: Vec<Filesystem>,
    /// The account of the authorised keys.
    pub ssh_user: String,
    /// Where SSH listens.
    #[serde(default = "ssh_port")]
    pub ssh_port: u16,
    /// Seed of the host key of this installation (Ed25519, base64).
    pub host_key: Secret<String>,
}

fn ssh_port() -> u16 {
    22
}

impl Row {
    /// Short, valid in file, host and interface names, and different for all servers of a test.
    pub(crate) fn tag(&self) -> String {
        use sha2::Digest as _;
        use std::fmt::Write as _;
        let digest = sha2::Sha256::digest(self.server_id.as_bytes());
        digest.iter().take(5).fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    }
}

impl From<&russet_sim_scaleway::Filesystem> for Filesystem {
    fn from(made: &russet_sim_scaleway::Filesystem) -> Self {
        Self {
            format: made.format.clone(),
            mountpoint: made.mountpoint.clone(),
        }
    }
}

impl From<&LinuxBox> for Row {
    fn from(made: &LinuxBox) -> Self {
        Self {
            server_id: made.server_id.to_string(),
            kind: match made.kind {
                BoxKind::Instance => Kind::Instance,
                BoxKind::Metal => Kind::Metal,
            },
            name: made.name.clone(),
            zone: made.zone.to_string(),
            generation: made.generation,
            boots: made.boots,
            power: match made.power {
                russet_sim_scaleway::Power::On => Power::On,
                russet_sim_scaleway::Power::Off => Power::Off,
            },
            public_ip: made.public_ip,
            private: made.private.as_ref().map(|leg| PrivateLeg {
                private_network_id: leg.private_network_id.to_string(),
                address: leg.address.clone(),
                mac: leg.mac.clone(),
                vlan: leg.vlan,
            }),
            user_data: made.user_data.clone().map(Secret::new),
            authorized_keys: made.authorized_keys.clone(),
            hostname: made.hostname.clone(),
            os: made.os.clone(),
            filesystems: made.filesystems.iter().map(Filesystem::from).collect(),
            ssh_user: made.ssh_user.clone(),
            ssh_port: made.ssh_port,
            host_key: Secret::new(made.host_key.seed_base64().to_owned()),
        }
    }
}

/// One entry of the event feed.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Event {
    pub(crate) number: u64,
    pub(crate) change: Change,
    #[serde(rename = "box")]
    pub(crate) row: Row,
}

/// What happened to a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Change {
    Added,
    Changed,
    Gone,
}
