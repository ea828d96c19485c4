//! What a Mac knows that is not in a file.

use super::faults::{Faults, Quirks};
use super::gear::Gear;
use super::launchd::Launchd;
use serde::Serialize;
use std::collections::{BTreeSet, VecDeque};
use std::net::IpAddr;

/// A Mac that runs for days calls a script every minute.
const REMEMBERED: usize = 20_000;

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
    pub(super) gear: Gear,
    /// Everything that was called, oldest first.
    pub(super) calls: VecDeque<Called>,
    /// How many of them were forgotten.
    forgotten: usize,
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
    pub(super) fn new(password: String, host_name: &str, quirks: Quirks) -> Self {
        Self {
            password,
            faults: Faults::default(),
            quirks,
            launchd: Launchd::default(),
            gear: Gear::new(host_name),
            calls: VecDeque::new(),
            forgotten: 0,
            unexpected: Vec::new(),
            sudo_failures: 0,
            boots: 0,
            failed_logins: Vec::new(),
            banned: BTreeSet::new(),
        }
    }

    /// Remembers a call; the number is for its end.
    pub(super) fn called(&mut self, tool: &str, args: &[String], uid: u32) -> usize {
        if self.calls.len() >= REMEMBERED {
            self.calls.pop_front();
            self.forgotten += 1;
        }
        self.calls.push_back(Called {
            tool: tool.to_owned(),
            args: args.to_vec(),
            uid,
            code: None,
        });
        self.forgotten + self.calls.len() - 1
    }

    pub(super) fn ended(&mut self, call: usize, code: i32) {
        let place = call.checked_sub(self.forgotten);
        if let Some(call) = place.and_then(|place| self.calls.get_mut(place)) {
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
        self.gear.reboot();
        self.sudo_failures = 0;
        self.failed_logins.clear();
        self.banned.clear();
    }
}
