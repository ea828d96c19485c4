//! What a kubelet decides about a Pod, as a library: no VM, no process and no API server in it.
//!
//! ```text
//!   Pod ──▶ admit ──refused──▶ status (Failed, in words)
//!            │ taken on
//!            ▼
//!   Pod + PodFacts ──▶ lifecycle::next ──▶ Plan: prepare, start, postStart, stop, finish ──▶ the agent does it
//!            ▲   │                          env, volumes: what a VM is given                     │
//!            │   └──▶ status ──▶ patch      probe: how it is                                     │
//!            └──────────────────────────── what happened ◀──────────────────────────────────────┘
//! ```
//!
//! **One container is one VM.** A VM has one image and one kernel, and containers of a Pod have images of their own, so each
//! instance of a container is a fresh clone of its image in a VM of its own, named after Pod, container and attempt. Init
//! containers take their turns, so a Pod with any number of them and one main container needs one VM at a time; a sidecar or a
//! second main container needs a second. Volumes are folders of the host that all VMs of the Pod share, which is how init
//! containers hand over what they made. What VMs cannot share is the network: containers of one Pod do not meet on localhost,
//! and the Pod's address is that of its first main container.
//!
//! It behaves as the kubelet of v1.35 does, with the same phases, conditions, reasons and texts; [`admit`] refuses what a VM
//! cannot do and says why. Time, randomness, network and objects are arguments, so all of it is the same on every system and
//! in every test.

pub mod admit;
pub mod backoff;
pub mod env;
pub mod evict;
pub mod facts;
pub mod lifecycle;
mod objects;
pub mod probe;
pub mod quantity;
pub mod spec;
pub mod status;
#[cfg(test)]
mod testing;
mod time;
pub mod volumes;

pub use objects::{Claim, Context, Objects, References, Token, TokenKey, mounted_tokens, references};
