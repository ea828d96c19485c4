//! `tart-kubelet`: what makes a Mac a Node.
//!
//! ```text
//!   config (flags, environment) ──▶ run ─┬─▶ russet-node: certificate, Node, Lease, status
//!   host (disk, memory, address, macOS) ─┤        ▲ what the host sees of itself
//!                                        └─▶ serve: /healthz /readyz, /metrics
//! ```
//!
//! It runs under launchd as the user of the desktop session, since virtual machines need one, and keeps its key in a folder of
//! that user. Ending it changes nothing: the Node stays, and the next start goes on with the same certificate. A host that shall
//! be reached over the tailnet and is not on it has no agent at all, rather than one that listens where strangers can dial.

pub mod config;
pub mod forward;
pub mod host;
mod keep;
mod run;
mod serve;

pub use keep::Folder;
pub use run::run;
