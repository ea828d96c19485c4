//! The program that makes a Linux server a node of the cluster.
//!
//! [`render`] turns a [`Join`] into one bash program. Its steps are files of their own (`steps/*.sh`), the same for every
//! server; what differs is assigned to variables at the top, quoted, so no value of a Join can become code.
//!
//! ```text
//! guard (bash? root? lock?) ─► packages ─► swap ─► kernel ─► data ─► private-network ─► containerd ─► kubelet-files
//!        ─► kubelet-package ─► watchdog ─► kubelet ─► joined
//! ```
//!
//! Invariants
//! 1. Any step may be cut off at any point; running the program again finishes the job. A second run changes nothing.
//! 2. Two runs never overlap: the second ends at once with [`exit::BUSY`].
//! 3. No secret is printed, passed as an argument or exported. A file that holds one has mode 0600 before it has content.
//! 4. A failing line leaves the name of its step and the end of its output in [`STATUS`], and a non-zero exit code.
//! 5. Nothing happens before the whole program has arrived: all of it is one function, called by the last line.
//! 6. A run does not need the connection that started it: output goes to files, a hang-up is ignored.

mod cloud_init;
mod invalid;
mod kubelet;
mod render;
mod report;
mod step;
pub(crate) mod validate;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use russet_telemetry::Secret;

pub use self::{
    cloud_init::cloud_init,
    invalid::Invalid,
    render::{Rendered, render},
    report::{JoinReport, JoinState, Unreadable, parse_report},
    step::{Step, steps},
};

/// Where the program is put by cloud-init.
pub const SCRIPT: &str = "/opt/bootstrap-node.sh";
/// What a run says about itself; readable by everybody, holds no secret. See [`parse_report`].
pub const STATUS: &str = "/var/lib/tuist/join/status";
/// Output of the last run, for people; readable by root.
pub const LOG: &str = "/var/lib/tuist/join/log";
/// Runs a program that arrives on standard input, as root, from the account that the image comes with.
pub const SSH_COMMAND: &str = "sudo -n -- bash -s";
/// Prints the report; prints nothing and succeeds if there was no run yet.
pub const REPORT_COMMAND: &str = "if [ -e /var/lib/tuist/join/status ]; then cat /var/lib/tuist/join/status; fi";

/// Exit codes of the program.
pub mod exit {
    /// The node has its certificate and its kubelet runs.
    pub const DONE: u32 = 0;
    /// A step failed; the report names it.
    pub const FAILED: u32 = 1;
    /// The program was not given to bash and could not help itself.
    pub const NOT_BASH: u32 = 64;
    /// Another run is under way; nothing was done.
    pub const BUSY: u32 = 75;
    /// The program did not run as root; nothing was done.
    pub const NOT_ROOT: u32 = 77;
}

/// Everything a server needs to know to join. Checked by [`render`].
#[derive(Clone, Debug)]
pub struct Join {
    /// Name of the Node; the name of the machine.
    pub node_name: String,
    /// Identity of the server, `scaleway://…`.
    pub provider_id: String,
    /// Labels the Node registers with. The kubelet may not give itself every label; see [`Invalid::ReservedLabel`].
    pub labels: BTreeMap<String, String>,
    /// Taints the Node registers with, so that nothing is scheduled before they are there.
    pub taints: Vec<Taint>,
    /// With which the kubelet asks for its first certificate.
    pub bootstrap_kubeconfig: Secret<String>,
    /// Who signs the clients of the kubelet, in PEM.
    pub cluster_ca_pem: String,
    /// Where Pods ask for names.
    pub cluster_dns: Vec<IpAddr>,
    /// `cluster.local`.
    pub cluster_domain: String,
    /// Release of the kubelet.
    pub kubernetes: KubernetesChannel,
    /// How the server is on the Private Network.
    pub private_network: PrivateNet,
    /// Which address the Node publishes as its InternalIP.
    pub node_address: NodeAddress,
    /// Where images, volumes and the kubelet's files are.
    pub data: Data,
    /// How the program reaches the server.
    pub form: Form,
}

/// A taint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taint {
    pub key: String,
    /// May be empty.
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
}

/// How a server is on the Private Network.
///
/// `address` is what the address management of Scaleway says, such as `172.16.0.5/22`. With it nothing is asked of the
/// network's DHCP server, which sometimes stops answering; without it DHCP is asked once and the answer kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PrivateNet {
    /// Not at all.
    None,
    /// By a card of its own (Instance).
    Nic { mac: String, address: Option<String> },
    /// By a VLAN on the card of the default route (Elastic Metal).
    Vlan { id: u16, address: Option<String> },
}

/// Which address a Node publishes as its InternalIP. The API server and, with most network plugins, the other nodes dial
/// it, so it must be one that they can reach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NodeAddress {
    /// The one on the Private Network; without such a network as [`Self::DefaultRoute`].
    #[default]
    PrivateNetwork,
    /// The one of the card that leads to the world.
    DefaultRoute,
}

/// Where the big things lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Data {
    /// On the root file system.
    #[default]
    None,
    /// On the XFS file system that is mounted at `/data`, with project quotas. Images may take this many GiB of it
    /// (0: no limit), so that they cannot take the disk from the caches.
    Nvme { images_gib: u32 },
}

impl Data {
    /// What images may take unless told otherwise.
    pub const IMAGES_GIB: u32 = 64;
}

/// How the program reaches the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As user data, at first boot.
    CloudInit,
    /// Over SSH, by [`SSH_COMMAND`].
    Ssh,
}

/// A minor release of Kubernetes, such as `v1.35`; the kubelet is kept within it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KubernetesChannel {
    minor: u16,
}

impl KubernetesChannel {
    /// The channel `v1.<minor>`.
    pub fn v1(minor: u16) -> Self {
        Self { minor }
    }
}

impl FromStr for KubernetesChannel {
    type Err = Invalid;

    /// Reads `v1.35` and, because the API server says so much, `v1.35.4`, of which the patch is dropped.
    fn from_str(text: &str) -> Result<Self, Invalid> {
        let invalid = || Invalid::Channel { text: text.to_owned() };
        let digits = |part: &&str| !part.is_empty() && part.len() <= 4 && part.bytes().all(|c| c.is_ascii_digit());
        let mut parts = text.strip_prefix('v').unwrap_or(text).split('.');
        let major = parts.next();
        let minor = parts.next().filter(digits).ok_or_else(invalid)?;
        let patch = parts.next();
        if major != Some("1") || parts.next().is_some() || patch.is_some_and(|patch| !digits(&patch)) {
            return Err(invalid());
        }
        Ok(Self::v1(minor.parse().map_err(|_| invalid())?))
    }
}

impl fmt::Display for KubernetesChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v1.{}", self.minor)
    }
}
