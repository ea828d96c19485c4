//! What decisions need to know about a Linux server, virtual or bare metal.
//!
//! One type for both: what differs between an Instance and an Elastic Metal server is which states it goes through, and that is
//! a matter of [`State`].

use std::net::IpAddr;

use russet_api::values::ServerId;
use russet_scaleway::{PrivateNetworkId, ProjectId};

/// Beginning of the tag that names the machine a server belongs to.
pub const MACHINE_TAG: &str = "machine-uid=";
/// On everything the provider makes.
pub const TAG: &str = "capi";
/// On a server that was taken, not ordered: it is wiped and freed, never deleted.
pub const ADOPTED_TAG: &str = "capi-adopted";

/// On a server that could not be on Private Networks when it was taken: what that costs ends when it is freed.
pub const NETWORKING_TAG: &str = "capi-networking";

/// Which product of Scaleway's a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Product {
    /// A virtual server.
    Instance,
    /// A bare-metal server.
    Metal,
}

/// What a server does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Ordered, and not handed over yet.
    Ordered,
    /// Handed over without an operating system.
    Bare,
    /// Its operating system is being installed.
    Installing,
    /// Off.
    Stopped,
    /// On its way up.
    Starting,
    /// Up; a bare-metal server also has its operating system.
    Running,
    /// On its way down.
    Stopping,
    /// On its way out.
    Deleting,
    /// Scaleway locked it.
    Locked,
    /// It does not get well by itself; Scaleway's word for it.
    Failed(String),
    /// Something else, which ends by itself; Scaleway's word for it.
    Busy(String),
}

/// Whether a bare-metal server can be on Private Networks. Instances always can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Networking {
    /// Not ordered.
    Off,
    /// Being set up, or ended.
    Enabling,
    /// It can.
    On,
    /// Scaleway could not set it up.
    Failed,
}

/// A server on a Private Network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// Its id.
    pub id: String,
    /// The network.
    pub network: PrivateNetworkId,
    /// How far it is.
    pub state: AttachmentState,
    /// Hardware address of the interface, if it has one of its own.
    pub mac: Option<String>,
    /// VLAN on the server's network card, if it shares that.
    pub vlan: Option<u32>,
}

/// How far an attachment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachmentState {
    /// Not usable yet.
    Pending,
    /// Usable.
    Attached,
    /// Being ended.
    Leaving,
    /// Scaleway could not do it.
    Failed,
}

/// Which API a volume belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum VolumeKind {
    /// Of the Instance API.
    Local,
    /// Of the Block Storage API.
    Block,
}

/// A volume of a server; it is paid for until it is deleted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Volume {
    /// Its id.
    pub id: String,
    /// Where it is deleted.
    pub kind: VolumeKind,
}

/// A server, without its secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Its id.
    pub id: ServerId,
    /// Its name; for people, and what adoption goes by.
    pub name: String,
    /// Its project.
    pub project: ProjectId,
    /// Its tags: whose it is.
    pub tags: Vec<String>,
    /// Commercial type or offer.
    pub type_: String,
    /// What is installed, as far as Scaleway says.
    pub os: Option<String>,
    /// Who its image lets in.
    pub user: String,
    /// What it does.
    pub state: State,
    /// Its public IPv4 address.
    pub address: Option<IpAddr>,
    /// Whether it can be on Private Networks.
    pub networking: Networking,
    /// Its volumes.
    pub volumes: Vec<Volume>,
    /// Public addresses that outlive it.
    pub ips: Vec<String>,
}

impl Server {
    /// The machine it says it belongs to.
    pub fn owner(&self) -> Option<&str> {
        self.tags.iter().find_map(|tag| tag.strip_prefix(MACHINE_TAG))
    }

    /// Whether it is on Private Networks only for us, and that has to end.
    pub fn has_networking_for_us(&self) -> bool {
        self.networking != Networking::Off && self.tags.iter().any(|tag| tag == NETWORKING_TAG)
    }

    /// Whether it was taken rather than ordered.
    pub fn is_adopted(&self) -> bool {
        self.tags.iter().any(|tag| tag == ADOPTED_TAG)
    }
}

impl crate::host::Listed for Server {
    fn id(&self) -> &ServerId {
        &self.id
    }
}

/// The tag of a machine's server.
pub fn machine_tag(uid: &str) -> String {
    format!("{MACHINE_TAG}{uid}")
}
