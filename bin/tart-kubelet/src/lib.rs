//! `tart-kubelet`: what makes a Mac a Node.
//!
//! ```text
//!   config (flags, environment) ──▶ run ─┬─▶ russet-node: certificate, Node, Lease, status
//!   host (disk, memory, address, macOS) ─┤        ▲ what the host sees of itself
//!                                        ├─▶ pods: each Pod as virtual machines, by russet-pod and russet-vm
//!                                        │        └─▶ ledger (what is on this host), places (never a third VM)
//!                                        ├─▶ housekeeping: is the host fit to run Pods; images, disk, evictions
//!                                        ├─▶ api: the kubelet API on :10250 (logs, exec, port-forward), by russet-kubelet-api
//!                                        └─▶ serve: /healthz /readyz /version, /metrics
//! ```
//!
//! It runs under launchd as the user of the desktop session, since virtual machines need one, and keeps its key in a folder of
//! that user. Ending it changes nothing: the Node stays, virtual machines go on, and the next start goes on with both. A host that shall
//! be reached over the tailnet and is not on it has no agent at all, rather than one that listens where strangers can dial; one that got
//! another address there has an agent that ends, and another that answers on the new one.

mod api;
pub mod config;
mod file;
pub mod forward;
pub mod host;
mod housekeeping;
mod keep;
mod ledger;
mod meters;
mod parting;
mod places;
pub mod pods;
mod run;
mod serve;

pub use keep::Folder;
pub use meters::Meters;
pub use run::{SUPERVISE, run};

/// The version, and the sources that it was built from.
pub const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "+", env!("RUSSET_BUILD_ID"));
