//! An emulated `tart`, the command that runs macOS VMs on a Mac.
//!
//! Whoever drives `tart` meets here the same words, exit codes and habits as on a Mac: what `facts/macos-host.md` 6 found in
//! the source of Tart 2.32.1 is emulated to the letter, and what had to be guessed says so beside the code. A VM is a
//! process tree in its own mount and pid namespaces. It has an address, directory shares at
//! `/Volumes/My Shared Files`, a guest agent behind `control.sock` that runs real programs for `tart exec`, and a disk that
//! outlives a stop.
//!
//! ```text
//! tart run x ── holds the lock on vms/x/config.json, one of two VM slots, handles SIGINT, SIGUSR1, SIGUSR2
//!    └─ unshare ── guest init (process 1): mounts shares ─▶ boot script ─▶ agent on vms/x/control.sock
//! tart exec x ─────────────────────────────────────────────────────────────▶ ┘
//! ```
//!
//! The world around it lives in `$TART_HOME/.sim`: the registry, the leases of the DHCP server, the slots of the kernel, and
//! `switches.json`, through which it misbehaves on request ([`Switches`]). Tests reach all of that through [`Control`].
//!
//! Emulated Macs (`sim/mac`) pose as `tart` with this library, from a bundle that [`write_bundle`] makes.
//!
//! Guests need `unshare` of util-linux and user namespaces, or root; everything else runs anywhere.

mod agent;
mod arguments;
mod bundle;
mod commands;
mod config;
mod control;
mod counted;
mod credentials;
mod exec;
mod failure;
mod guest;
mod guest_root;
mod host;
mod image;
mod lease;
mod locks;
mod nc;
mod print;
mod pull;
mod run;
mod run_arguments;
mod running;
mod space;
mod store;
mod switches;
pub mod terminal;
mod vm;

pub use bundle::{BUNDLE, write_bundle};
pub use control::{Control, ControlError};
pub use image::{Image, Os};
pub use switches::{ForcedFailure, PullFault, Switches};

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

/// The version this emulates; what later ones changed is left out.
pub const VERSION: &str = "2.32.1";

/// Whether a program that embeds the emulator was started as `tart`, or as a process of one of its guests.
pub fn poses(program: &Path, first: Option<&OsString>) -> bool {
    let named = program
        .file_name()
        .is_some_and(|name| name == "tart" || name == "sim-tart");
    let words = [guest::WORD, nc::WORD, terminal::WORD];
    named || first.is_some_and(|first| words.iter().any(|word| first == word))
}

/// Runs one `tart` command line, the program's name left out.
pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let mut words = Vec::new();
    for word in args {
        match word.into_string() {
            Ok(word) => words.push(word),
            Err(word) => {
                print::complain(&format!("Error: not UTF-8: {}", word.to_string_lossy()));
                return ExitCode::from(64);
            }
        }
    }
    match words.split_first() {
        Some((first, _)) if first == guest::WORD => guest::main(),
        Some((first, rest)) if first == nc::WORD => nc::main(rest),
        Some((first, rest)) if first == terminal::WORD => terminal::main(rest),
        _ => commands::main(&words),
    }
}
