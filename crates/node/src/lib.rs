//! What a machine does to be a Node: it gets a certificate of its own, registers, and says that it lives.
//!
//! ```text
//!   bootstrap kubeconfig ──▶ identity: key ─ request ─ certificate ──renewed as itself──┐
//!                                                │                                      │
//!   Spec (what its owner wants) ──▶ Agent ──▶ Node ──▶ Lease every 10 s ◀───────────────┘
//!   Machine (what it sees of itself) ──┘        └────▶ status when it changed, or after 5 min
//!                                               ▲
//!         Lease gone, or the machine saw it ────┘ (somebody deleted the Node: it registers again)
//! ```
//!
//! `tart-kubelet` is this on a Mac; the emulated Macs are this without one. Nothing here starts a process, reads the environment
//! or knows what a virtual machine is.
//!
//! What is promised
//! - A machine is only itself: under the Node authorizer and NodeRestriction it needs no right beyond those of every node.
//! - A Node of another machine is never taken over: `providerID` is set at registration, filled when empty, never overwritten.
//! - Only labels this agent set are taken off again, those of images that are there included. Taints are set at registration and never touched: core removes one.
//! - A certificate is given up only for another one: an API server that refuses it may be the wrong one, and the token of the kubeconfig
//!   is long gone by then. Both are tried, for as long as it takes.
//! - A disk that is full ends no agent that has joined: what it remembers is written down later.
//! - The Lease never waits for the status, and neither for a certificate.
//! - The Node is never deleted or marked here: a restart for a new binary is no news, and whoever owns the Machine takes care. What
//!   nobody looked at since the restart stays as the Node says it.

mod agent;
mod error;
mod identity;
mod kubeconfig;
mod notes;
mod object;
mod pace;
mod rules;
mod sight;
mod spec;
mod spread;

pub use agent::{Agent, News, Rhythm};
pub use error::Error;
pub use identity::{Identity, KeptMemory, Memory, ServingIdentity, Store};
pub use kubeconfig::{Unusable, check as check_kubeconfig, connection, connection_to};
pub use rules::{BadLabel, BadTaint, check_label, check_taint, is_node_name, is_restricted};
pub use sight::{Condition, Machine, Resident, ResidentImage, Sight, System};
pub use spec::{Capacity, Spec};
pub use spread::spread;

/// What Nodes say their kubelet is: the release whose contract is kept. Cluster API compares it with `Machine.spec.version` to the
/// letter.
pub const KUBELET_VERSION: &str = "v1.35.4";
