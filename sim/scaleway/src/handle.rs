//! The control API for whoever runs the emulator in the same process.

use crate::bill::Bill;
use crate::boxes::{BoxEvent, LinuxBox};
use crate::core::Core;
use crate::deed::{Deed, DeedError, Minis, Which};
use crate::fault::Fault;
use crate::host::{Host, HostEvent};
use crate::ids::Id;
use crate::journal::Entry;
use crate::settings::Settings;
use crate::snapshot::{Snapshot, SnapshotError};
use jiff::Timestamp;
use russet_sim_kit::FaultId;
use russet_sim_kit::clock::Factor;
use russet_sim_kit::fault::glob;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// A cheap handle on a running emulator.
#[derive(Debug, Clone)]
pub struct Handle(pub(crate) Arc<Core>);

impl Handle {
    /// Emulated time.
    pub fn now(&self) -> Timestamp {
        self.0.look(|_, now| now)
    }

    /// Moves emulated time forward; everything that is due happens before this returns.
    pub fn advance(&self, by: Duration) {
        self.0.change(|state, _| state.clock.advance(by));
    }

    /// Changes the pace of emulated time.
    pub fn set_clock_factor(&self, factor: Factor) {
        self.0.change(|state, _| state.clock.set_factor(factor));
    }

    /// The switches.
    pub fn settings(&self) -> Settings {
        self.0.look(|state, _| state.world.settings.clone())
    }

    /// Changes switches.
    pub fn set(&self, change: impl FnOnce(&mut Settings)) {
        self.0.change(|state, _| change(&mut state.world.settings));
    }

    /// Does what somebody else does; answers the ids of servers that came of it.
    pub fn perform(&self, deed: Deed) -> Result<Vec<Id>, DeedError> {
        self.0.change(|state, now| state.perform(now, vec![deed]))
    }

    /// Makes minis that are delivered and ready.
    pub fn add_minis(&self, minis: Minis) -> Result<Vec<Id>, DeedError> {
        self.perform(Deed::AddMinis(minis))
    }

    /// Somebody renames a server.
    pub fn rename(&self, server: impl Into<Which>, name: &str) -> Result<(), DeedError> {
        let deed = Deed::Rename {
            server: server.into(),
            name: name.to_owned(),
        };
        self.perform(deed).map(drop)
    }

    /// Somebody deletes a server.
    pub fn vanish(&self, server: impl Into<Which>) -> Result<(), DeedError> {
        self.perform(Deed::Vanish { server: server.into() }).map(drop)
    }

    /// Injects a fault.
    pub fn inject(&self, fault: Fault) -> FaultId {
        self.0.change(|state, _| state.faults.add(fault))
    }

    /// Takes all faults away.
    pub fn clear_faults(&self) {
        self.0.change(|state, _| state.faults.clear());
    }

    /// The faults that still wait.
    pub fn faults(&self) -> Vec<(FaultId, Fault)> {
        self.0.look(|state, _| state.faults.all().to_vec())
    }

    /// Every request so far.
    pub fn journal(&self) -> Vec<Entry> {
        self.0.look(|state, _| state.journal.after(0))
    }

    /// How many requests fit; see [`Fault::path`] for the pattern.
    pub fn calls(&self, method: &str, path: &str) -> usize {
        let fits = |entry: &Entry| entry.method == method && glob(path, &entry.path);
        self.0.look(|state, _| state.journal.count(fits))
    }

    /// Forgets the requests so far.
    pub fn clear_journal(&self) {
        self.0.change(|state, _| state.journal.clear());
    }

    /// What is owed now.
    pub fn bill(&self) -> Bill {
        self.0.look(|state, now| state.world.bill.bill(now))
    }

    /// Every server of every project, as the API would show it.
    pub fn servers(&self) -> Vec<Value> {
        self.0.look(|state, now| {
            let servers = state.world.apple.servers.iter();
            servers.map(|server| state.world.show(server, now)).collect()
        })
    }

    /// How many servers of a type can be ordered, whichever product has it.
    pub fn stock(&self, zone: &crate::Zone, server_type: &str) -> Option<u32> {
        self.0.look(|state, _| state.world.stock(zone, server_type))
    }

    /// The machine behind a server.
    pub fn host(&self, server: impl Into<Which>) -> Option<Host> {
        let which = server.into();
        self.0.look(|state, _| {
            let (_, id) = state.world.which(&which).ok()?;
            state.world.host(&id)
        })
    }

    /// What happened to machines after the event with this number.
    pub fn events_after(&self, number: u64) -> Vec<HostEvent> {
        self.0.tick();
        self.0.events(|state| &state.events, number)
    }

    /// Every Instance of every project, as the API would show it.
    pub fn instances(&self) -> Vec<Value> {
        self.0.look(|state, _| state.world.all_instances())
    }

    /// Every Elastic Metal server of every project, as the API would show it.
    pub fn metals(&self) -> Vec<Value> {
        self.0.look(|state, _| state.world.all_metals())
    }

    /// Every volume of Instances, local or block, as its API would show it.
    pub fn volumes(&self) -> Vec<Value> {
        self.0.look(|state, _| state.world.all_volumes())
    }

    /// Every public address that somebody keeps, as the API would show it.
    pub fn addresses(&self) -> Vec<Value> {
        self.0.look(|state, _| state.world.all_addresses())
    }

    /// Every Linux machine.
    pub fn boxes(&self) -> Vec<LinuxBox> {
        self.0.look(|state, _| state.world.boxes())
    }

    /// The Linux machine behind a server.
    pub fn linux_box(&self, server: impl Into<Which>) -> Option<LinuxBox> {
        let which = server.into();
        self.0.look(|state, _| {
            let (_, id) = state.world.which(&which).ok()?;
            state.world.boxes().into_iter().find(|row| row.server_id == id)
        })
    }

    /// What changed about Linux machines after the event with this number.
    pub fn box_events_after(&self, number: u64) -> Vec<BoxEvent> {
        self.0.tick();
        self.0.events(|state| &state.box_events, number)
    }

    /// Everything, to be restored later.
    pub fn snapshot(&self) -> Snapshot {
        self.0.snapshot()
    }

    /// Makes everything as it was.
    pub fn restore(&self, snapshot: Snapshot) -> Result<(), SnapshotError> {
        self.0.restore(snapshot)
    }
}
