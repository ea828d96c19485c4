//! Cluster API infrastructure provider for Scaleway: Mac minis that are adopted, healed and given back, and never leaked.
//!
//! What is decided about a Mac is pure; [`machine`] is the shell around it, [`provider`] puts the process together.
//!
//! ```text
//!              ┌──────────── decide ────────────┐
//!  machine ───►│                                │──► Look     the caller reads something and asks again
//!  claims  ───►│  pure: no client, no clock,    │──► Act      one write to Kubernetes
//!  host    ───►│  no chance of its own          │──► Fly      one call to Scaleway, driven by `flight`
//!  pool    ───►│                                │──► Rest     nothing to do now, with a reason for people
//!              └────────────────────────────────┘
//! ```
//!
//! # How a host is kept from being lost, doubled or wiped under its owner
//! Scaleway knows a Mac's owner only by its name; a rename is unconditional and the last one wins. Nothing can be built on
//! that alone, so three rules work together, and a property test runs two replicas through them with crashes everywhere:
//!
//! 1. **One claim per host.** Before anything is done to a host a claim object named after it is created in Kubernetes,
//!    which only one can win. It names the machine by uid, and is dropped last.
//! 2. **One call in flight per machine.** Before each call that changes a host, the attempt is written to the machine's status with
//!    a compare-and-swap; the call is sent only shortly after. A definite answer ends the attempt. Without one, no further call is
//!    made until the lost one can no longer arrive ([`rules::Rules::flight`]). So a replica that was paused cannot
//!    wipe a host that has found its next owner.
//! 3. **Look right before.** Between writing down and sending, the host is read and must bear the name we gave it, in our
//!    project. A host that bears another name is left alone and reported.
//!
//! Against controllers of *other* clusters that share a pool, which see no claims of ours, a claimed host carries a marker name
//! for a while ([`rules::Rules::settle`]) before it is used; who overwrote whose marker is then plain to both.
//!
//! A host enters the pool only after its wipe was seen to run and to end.
//!
//! # Times
//! [`rules::Rules`] holds them. Our own limiter may make a call wait; a call that would be sent after its time is not sent.

pub mod api_server;
pub mod bootstrap;
pub mod candidates;
pub mod capi;
pub mod claims;
pub mod claims_store;
pub mod clock;
pub mod cluster;
pub mod config;
pub mod decide;
pub mod egress;
pub mod fleet_key;
pub mod flight;
pub mod host;
pub mod identity;
pub mod images;
pub mod inventory;
pub mod journal;
pub mod kubeconfig;
pub mod leftovers;
pub mod linux;
pub mod machine;
pub mod machine_ref;
pub mod metrics;
pub mod names;
pub mod orphan_report;
pub mod orphans;
mod pages;
pub mod private_network;
pub mod provider;
pub mod reclaim;
pub mod registry;
pub mod rollout;
pub mod rules;
pub mod runner_token;
pub mod situation;
pub mod spend;
pub mod surroundings;
pub mod tailnet_key;
pub mod waiting;
pub mod whereabouts;

pub use decide::{Action, Decision, Machine, Need, Seen, decide};
