//! The provider killed at every call it makes, on a real kube-apiserver with an emulated Scaleway.
//!
//! ```text
//!   case ──▶ Replica ──kube──▶ Cut ──▶ kube-apiserver        one for all cases, a namespace each
//!              │                └─ the same life: one dies, both are silent
//!              └──Scaleway──▶ Gate ──▶ emulator              one per case
//!                               └─ Watchman: knows every call, looks at every effect before it is let through
//! ```
//!
//! Everything a host is reached and joined by is real, too: the fleet's key in IAM, a bootstrap token that a signing request is made
//! with, an egress Service. A run without faults is recorded first. Then each of its writes to Kubernetes and each of its calls to
//! Scaleway is the one at which the provider dies, before it, after it, or with the call still on its way; or the one that fails. A fresh
//! provider must make everything whole. Macs are played here, Linux servers in [`linux`]; how is the same, [`suite`]. Nothing waits for
//! the time in which a lost call may arrive: providers ask the [`clock`] of their world.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::needless_pass_by_value,
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests stand outside of #[test] functions, where these lints take them for production code"
)]

mod cases;
mod clock;
mod gate;
mod interleaved;
mod ledger;
mod life;
mod linux;
mod reclaim;
mod replica;
mod setter;
mod stage;
mod stories;
mod suite;
mod updates;
mod world;
