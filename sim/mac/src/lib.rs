//! Emulated Mac minis, the machines behind the emulated Scaleway API.
//!
//! This is the first version: a stand-in agent where SSH, launchd and `tart-kubelet` will be. What it does to the cluster
//! is real all the same. A machine that is told to join takes the bootstrap kubeconfig it was given, makes a key, asks for
//! a certificate, waits until somebody approves and signs it, and with that identity, under the Node authorizer and
//! NodeRestriction like any kubelet, creates its Node, renews its Lease and reports its status.
//!
//! ```text
//!   sim/scaleway ──HostFactory, or /_sim/events──▶ Fleet ── one Mac per server, one task per Mac that is on
//!                                                             │
//!   provider ──POST /join, GET /state on the mini's address──▶ wire ──▶ join (checked) ──▶ disk
//!                                                                                           │
//!   kube-apiserver ◀── certificate request, Node, Lease, status ── agent ◀──────────────────┘
//! ```
//!
//! What happens to a machine at Scaleway happens here: a wiped one forgets everything and answers to another password, a
//! rebooting one is silent and comes back with its disk. A machine that leaves never deletes its Node: whoever owns the
//! Machine does.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use russet_sim_mac::{Fleet, Options};
//! use russet_sim_scaleway::{Minis, Sim};
//!
//! let fleet = Fleet::new(Options::default()).await?;
//! let sim = Sim::start_with(russet_sim_scaleway::Options::default(), fleet.clone()).await?;
//! sim.handle().add_minis(Minis { count: 3, ..Minis::default() })?;
//! println!("--stand-in-port={}", fleet.port());
//! # Ok(()) }
//! ```

mod agent;
pub mod cli;
mod disk;
mod error;
mod fleet;
mod follow;
mod join;
mod machine;
pub mod macos;
mod refuse;
mod wire;

pub use error::FleetError;
pub use fleet::{DEFAULT_PORT, Fleet, Options};
pub use follow::follow;
pub use join::{BadJoin, Join, Taint};
pub use machine::{Phase, State};
pub use russet_node::{Capacity, KUBELET_VERSION as DEFAULT_KUBELET_VERSION};
