//! A Mac on Linux: macOS as far as a script over SSH can see it, on a machine that tests can break.
//!
//! ```text
//!                 ┌───────────────────────── the emulator, one process ─────────────────────────┐
//!   client ──SSH──▶ ssh ── exec ──▶ boot ──socket──▶ process 1 ── zsh -c … ── launchctl, sudo, … │
//!   Scaleway ─────▶ macs ── power, wipe                (init, inside namespaces)   (inside)      │
//!   tests ────────▶ Mac: faults, quirks, calls, unexpected     desk ◀──────socket──┘             │
//!                 └──────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Real are the SSH server, the shell, the files, the users, the processes and how they end. Emulated is what only macOS has. Each
//! behaviour names its source, `[facts N]` being a section of the sheet about macOS hosts, or says that it is a guess; where
//! sources disagree there is a switch in [`Quirks`], and what goes wrong in the field is one in [`Faults`].
//!
//! A Mac costs a folder and a listening socket. Its namespaces, two processes of Linux, are made when something first runs on it.
//!
//! Invariants
//! 1. Nothing of a Mac outlives its power, and nothing of any Mac the emulator: see [`boot`].
//! 2. A tool that is called in a way the emulator does not know fails as the real one would, and is in [`Mac::unexpected`].
//! 3. What the emulator knows is not inside the Mac: a reboot, a full disk or a root shell there cannot change it.

#![expect(
    clippy::format_push_string,
    clippy::format_collect,
    reason = "what tools print is put together from lines; `write!` to a string adds a result that cannot be an error"
)]
#![expect(
    clippy::struct_excessive_bools,
    reason = "switches, flags of tools and keys of property lists are what they are"
)]

mod amfi;
mod boot;
mod call;
mod control;
mod desk;
mod error;
mod faults;
mod frame;
mod gear;
mod handle;
mod image;
mod init;
mod inside;
mod launchd;
mod local;
mod mac;
mod macs;
mod memory;
mod orders;
mod pf;
mod session;
mod signing;
mod ssh;
mod ssh_command;
mod sshd_config;
mod state;
mod sudo;
mod system;
mod tools;
mod tree;
mod wire;

pub use control::serve_control;
pub use error::MacError;
pub use faults::{Faults, Quirks, SshFault, Xcode};
pub use inside::inside;
pub use mac::Mac;
pub use macs::{Macs, Options};
pub use state::Called;
pub use system::Shell;
