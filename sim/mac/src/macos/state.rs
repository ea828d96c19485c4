//! What a Mac knows that is not in a file.

use super::faults::{Faults, Quirks};
use super::launchd::Launchd;
use serde::Serialize;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// A tool that was called, or a command that came over SSH.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Called {
    /// `ssh` for a command, or the name of the tool.
    pub tool: String,
    /// The words.
    pub args: Vec<String>,
    /// Who called.
    pub uid: u32,
    /// How it ended; none while it runs, or when the power was cut.
    pub code: Option<i32>,
}

/// Survives a reboot, not a reinstall.
#[derive(Debug)]
pub(super) struct State {
    pub(super) password: String,
    pub(super) faults: Faults,
    pub(super) quirks: Quirks,
    pub(super) launchd: Launchd,
    /// Everything that was called, oldest first.
    pub(super) calls: Vec<Called>,
    /// Calls that no part of the emulator knows.
    pub(super) unexpected: Vec<String>,
    /// Wrong passwords in a row.
    pub(super) sudo_failures: u32,
    /// Sudo remembers until then whom it knows (the ticket of five minutes, as a count of boots).
    pub(super) boots: u32,
    pub(super) failed_logins: Vec<IpAddr>,
    pub(super) banned: BTreeSet<IpAddr>,
}

impl State {
    pub(super) fn new(password: String, quirks: Quirks) -> Self {
        Self {
            password,
            faults: Faults::default(),
            quirks,
            launchd: Launchd::default(),
            calls: Vec::new(),
            unexpected: Vec::new(),
            sudo_failures: 0,
            boots: 0,
            failed_logins: Vec::new(),
            banned: BTreeSet::new(),
        }
    }

    /// Remembers a call; the number is for its end.
    pub(super) fn called(&mut self, tool: &str, args: &[String], uid: u32) -> usize {
        self.calls.push(Called {
            tool: tool.to_owned(),
            args: args.to_vec(),
            uid,
            code: None,
        });
        self.calls.len() - 1
    }

    pub(super) fn ended(&mut self, call: usize, code: i32) {
        if let Some(call) = self.calls.get_mut(call) {
            call.code = Some(code);
        }
    }

    /// A tool did its work by itself, and may have met words it does not know.
    pub(super) fn noted(&mut self, call: usize, unexpected: &str) {
        if !unexpected.is_empty() {
            self.unexpected.push(unexpected.to_owned());
        }
        self.ended(call, 0);
    }

    /// What a new boot does not remember.
    pub(super) fn reboot(&mut self) {
        self.boots += 1;
        self.launchd.reboot();
        self.sudo_failures = 0;
        self.failed_logins.clear();
        self.banned.clear();
    }
}
