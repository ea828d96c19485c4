//! A real Linux node: containerd, runc, CNI, kubelet and kube-proxy, in namespaces of this machine. Root only.
//!
//! ```text
//! Network::create ─► ControlPlane::start(address = network.gateway()) ─► LinuxNode::start
//!
//!   namespaces ─► address ─► containerd, images ─► kubelet joins ─► pod range, routes ─► kube-proxy ─► Ready
//! ```
//!
//! The node joins like any other machine: a bootstrap token, a certificate signing request, the Node authorizer. Inside, all
//! programs use their usual paths, since `/run`, `/var/lib` and `/var/log` are the node's own.
//!
//! Nothing stays behind, however the run ends: processes, mounts, interfaces and firewall rules go with their namespaces
//! (`holder.rs` says how that is made certain), the network's interface goes with its other end (`network.rs`), and
//! cgroups are removed by a guard that outlives the node by a moment. Should that be killed too, [`sweep`] does it later.

mod agents;
pub mod cgroup;
mod containerd;
mod error;
pub mod holder;
pub mod image;
pub mod join;
mod linux;
mod machine;
mod network;
mod object;
mod options;
mod owner;
mod range;
mod seat;
pub mod system;

pub use self::{
    error::Error,
    linux::{LinuxNode, Object},
    network::{Cable, Network},
    options::{Options, Pods},
    owner::{sweep, sweep_cgroups},
    range::{Invalid, Range},
    system::check,
};

/// The programs of a node, by the names of `russet-parts`.
pub const TOOLS: [&str; 8] = [
    "busybox",
    "cni-plugins",
    "containerd",
    "containerd-shim-runc-v2",
    "ctr",
    "kube-proxy",
    "kubelet",
    "runc",
];
