//! The emulated Mac, driven over its real SSH server.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking, its helpers too"
)]

mod faults;
mod files;
mod guests;
mod harness;
mod launchd;
mod rootless;
mod session;
#[path = "../shared/mod.rs"]
mod shared;
mod sudo;
mod tools;
