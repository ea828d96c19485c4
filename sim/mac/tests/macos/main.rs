//! The emulated Mac, driven over its real SSH server.

mod files;
mod harness;
mod launchd;
mod session;
mod sudo;
