//! What tests see of a Mac and do to it.

use super::error::MacError;
use super::faults::{Faults, Quirks};
use super::launchd::domain::Domain;
use super::mac::Mac;
use super::state::Called;
use russet_sim_scaleway::Host;
use std::path::Path;

impl Mac {
    /// The machine as Scaleway knows it.
    pub fn host(&self) -> &Host {
        &self.0.host
    }

    /// The Mac's `/` on this system.
    pub fn root(&self) -> &Path {
        self.0.tree.root()
    }

    /// What is wrong with it.
    pub fn faults(&self) -> Faults {
        self.0.state().faults.clone()
    }

    /// Makes things go wrong, or right again.
    pub fn set_faults(&self, change: impl FnOnce(&mut Faults)) {
        change(&mut self.0.state().faults);
        self.0.refresh_door();
    }

    /// Which way it goes where the sources disagree.
    pub fn quirks(&self) -> Quirks {
        self.0.state().quirks.clone()
    }

    /// Makes it another kind of Mac.
    pub fn set_quirks(&self, change: impl FnOnce(&mut Quirks)) {
        change(&mut self.0.state().quirks);
    }

    /// Leaves this many bytes on the disk, or all there are; only where disks are in memory ([`super::Options::memory_disks`]).
    pub fn leave_on_disk(&self, left: Option<u64>) -> Result<(), MacError> {
        match self.0.memory_disk() {
            Some(disk) => disk.leave(left),
            None => Err(MacError::Switch(
                "only a disk in memory can be full: start the Macs with memory_disks (sim-mac --memory-disks)"
                    .to_owned(),
            )),
        }
    }

    /// Everything that was called on it, oldest first.
    pub fn calls(&self) -> Vec<Called> {
        self.0.state().calls.iter().cloned().collect()
    }

    /// Calls with words that the emulator does not know. Tests want none.
    pub fn unexpected(&self) -> Vec<String> {
        self.0.state().unexpected.clone()
    }

    /// How often property lists were registered again with Background Task Management.
    pub fn btm_churn(&self) -> u32 {
        self.0.state().launchd.btm.churn()
    }

    /// How many processes of launchd were killed for their signature so far.
    pub fn code_kills(&self) -> u32 {
        self.0.state().launchd.amfi.kills
    }

    /// The process of a job of the system, for example `dev.tuist.tart-kubelet`.
    pub fn daemon_pid(&self, label: &str) -> Option<i32> {
        let key = (Domain::System, label.to_owned());
        self.0.state().launchd.jobs.get(&key)?.pid()
    }

    /// The ranges that agents may reach without anybody clicking, as read at the last boot.
    pub fn local_network_exempt(&self) -> Vec<String> {
        self.0.state().gear.local_network.clone()
    }

    /// Somebody clicked: this program may use the local network, as long as its signature stays what it is.
    pub fn grant_local_network(&self, program: &str) {
        let mut state = self.0.state();
        if let Some(cdhash) = state.launchd.amfi.cdhash(&self.0.tree, program) {
            state.gear.local_network_grants.insert(program.to_owned(), cdhash);
        }
    }

    /// Whether that grant still holds.
    pub fn has_local_network(&self, program: &str) -> bool {
        let mut state = self.0.state();
        let now = state.launchd.amfi.cdhash(&self.0.tree, program);
        now.is_some() && state.gear.local_network_grants.get(program) == now.as_ref()
    }

    /// The rules of pf that are looked at: of an anchor, or all of the main ruleset.
    pub fn pf_rules(&self, anchor: Option<&str>) -> Vec<String> {
        let state = self.0.state();
        let pf = &state.gear.pf;
        match anchor {
            _ if !pf.enabled => Vec::new(),
            None => pf.main.filter.clone(),
            Some(anchor) if pf.is_evaluated(anchor) => {
                let rules = pf.anchors.get(anchor);
                rules
                    .map(|rules| [rules.translation.clone(), rules.filter.clone()].concat())
                    .unwrap_or_default()
            }
            Some(_) => Vec::new(),
        }
    }

    /// Who is logged in at the screen; `root` is nobody.
    pub fn console_user(&self) -> String {
        self.0.console_user().to_owned()
    }

    /// Cuts the power and gives it back. On return it answers again.
    pub async fn reboot(&self) {
        self.0.switch_off().await;
        self.0.switch_on().await;
    }

    /// Cuts the power without Scaleway knowing, as a machine that hangs.
    pub async fn cut_power(&self) {
        self.0.switch_off().await;
    }

    /// Gives the power back.
    pub async fn restore_power(&self) {
        self.0.switch_on().await;
    }
}
