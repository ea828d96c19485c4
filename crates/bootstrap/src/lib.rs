//! How a machine becomes a node.
//!
//! ```text
//! linux::Join ── render ──► Rendered (one bash program) ─┬─ cloud_init ──► user data of an Instance
//!                                                        └─ ssh::Session::run ──► standard input of `bash -s`
//! /var/lib/tuist/join/status ──► linux::parse_report ──► JoinReport
//!
//! mac::Fleet, mac::Host ── plan ──► steps ── Engine ──► look at all, change what differs, look again
//! ```
//!
//! - [`mac`]: the plan of Mac hosts: what should be so, as data, and the engine that makes it so over SSH.
//! - [`linux`]: the join program of Linux servers: steps as data, one renderer, one report.
//! - [`ssh`]: an SSH client with typed errors, pinned host keys and a deadline on everything. It knows nothing of nodes.

pub mod linux;
pub mod mac;
mod quote;
pub mod ssh;
