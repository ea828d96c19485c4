//! What is said between the machine and whoever made it.
//!
//! Orders for a boot are a file; afterwards the manager inside prints one JSON line per [`Told`] and ends when its standard
//! input does. Stubbed commands ask the manager over a socket inside.

use serde::{Deserialize, Serialize};

/// The machine's own folder inside, out of the way of everything a server has.
pub(crate) const FOLDER: &str = "/usr/lib/russet-box";
/// This program, inside.
pub(crate) const PROGRAM: &str = "/usr/lib/russet-box/box";
/// What it is told when it shall manage the machine.
pub const MANAGE: &str = "manage-the-server-this-runs-in";
/// Its orders.
pub(crate) const ORDERS: &str = "/run/russet-box/boot.json";
/// Where stubbed commands ask.
pub(crate) const SOCKET: &str = "/run/russet-box/control.sock";
/// The card that leads to the world, as Scaleway's images name it.
pub(crate) const PUBLIC_CARD: &str = "ens2";
/// The card of a Private Network.
pub(crate) const PRIVATE_CARD: &str = "ens5";
/// The cable that becomes the VLAN once somebody makes one.
pub(crate) const VLAN_CABLE: &str = "boxvlan";

/// How to boot.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Boot {
    pub(crate) generation: u32,
    /// The Private Network, read anew whenever it matters: it may be attached while the machine runs.
    pub(crate) private: Option<Private>,
    /// Disks to make before anything is mounted, unless they are there.
    pub(crate) disks: Vec<Blank>,
    /// Whether the metadata service has user data. It is in a file beside this one.
    pub(crate) user_data: bool,
    /// What the packages of the emulated mirrors are.
    pub(crate) kubernetes: String,
    /// Extra services the machine comes with.
    pub(crate) services: Vec<String>,
    /// Where the API server is by now, if somebody said so.
    pub(crate) api_server: Option<String>,
}

/// A disk that is a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Blank {
    /// Where the file is.
    pub(crate) file: String,
    /// The file system on it.
    pub(crate) format: String,
    /// Where it will be mounted.
    pub(crate) mountpoint: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Private {
    /// With its prefix.
    pub(crate) address: String,
    /// Of an Elastic Metal server.
    pub(crate) vlan: Option<u32>,
}

/// Where a machine is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Told {
    /// The services that a boot starts were started.
    Booted,
    /// cloud-init is over.
    CloudInit { outcome: CloudInit },
    /// Something inside asked for another power state.
    Power { power: Power },
}

/// How cloud-init ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CloudInit {
    /// There was nothing to do, at this boot or at all.
    Nothing,
    /// Everything ran.
    Done,
    /// Something failed; the log inside says more.
    Failed(String),
}

/// Asked for from inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Power {
    Reboot,
    Off,
}
