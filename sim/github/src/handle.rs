//! The control API for whoever runs the emulator in the same process.

use crate::core::Core;
use crate::deed::{Deed, DeedError};
use crate::fault::Fault;
use crate::journal::Entry;
use crate::settings::Settings;
use jiff::Timestamp;
use russet_sim_kit::FaultId;
use russet_sim_kit::fault::glob;
use std::sync::Arc;
use std::time::Duration;

/// A cheap handle on a running emulator.
#[derive(Debug, Clone)]
pub struct Handle(pub(crate) Arc<Core>);

impl Handle {
    /// Emulated time, as a client's right clock shows it; GitHub's own may be off, see [`Settings::skew_seconds`].
    pub fn now(&self) -> Timestamp {
        self.0.lock().clock.now()
    }

    /// Moves emulated time forward.
    pub fn advance(&self, by: Duration) {
        self.0.lock().clock.advance(by);
    }

    /// Changes switches.
    pub fn set(&self, change: impl FnOnce(&mut Settings)) {
        change(&mut self.0.lock().world.settings);
    }

    /// Does what somebody else does.
    pub fn perform(&self, deed: Deed) -> Result<(), DeedError> {
        self.0.lock().perform(vec![deed])
    }

    /// Injects a fault.
    pub fn inject(&self, fault: Fault) -> FaultId {
        self.0.lock().faults.add(fault)
    }

    /// Takes all faults away.
    pub fn clear_faults(&self) {
        self.0.lock().faults.clear();
    }

    /// Every request so far.
    pub fn journal(&self) -> Vec<Entry> {
        self.0.lock().journal.after(0)
    }

    /// How many requests fit; see [`Fault::path`] for the pattern.
    pub fn calls(&self, method: &str, path: &str) -> usize {
        let fits = |entry: &Entry| entry.method == method && glob(path, &entry.path);
        self.0.lock().journal.count(fits)
    }

    /// The names of an organisation's runners.
    pub fn runner_names(&self, org: &str) -> Vec<String> {
        self.0.lock().world.runner_names(org)
    }

    /// How many tokens are good now: of installations, and for registration.
    pub fn tokens(&self) -> (usize, usize) {
        let state = self.0.lock();
        state.world.tokens(state.now())
    }
}
