//! What the emulator is told to do wrong, and the host it pretends to be: `$TART_HOME/.sim/switches.json`.
//!
//! The file is read anew by every command, so a switch flipped now holds for the next one. An unknown switch is an error:
//! a test that misspells its fault must not pass.

use crate::failure::Failure;
use crate::host;
use crate::locks;
use crate::store::Home;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The host and its faults.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
pub struct Switches {
    /// The first two or three octets of guests' addresses; all of 127/8 answers on Linux.
    pub addresses: String,
    /// A registry shared with other homes; by default this home has its own.
    pub registry: Option<PathBuf>,
    /// How many macOS VMs the kernel allows at once.
    pub vm_limit: u32,
    /// Whether the caller owns an Aqua session. Unset: asks `launchctl` if there is one, and believes yes without.
    pub aqua: Option<bool>,
    /// The size of the disk in GB; unset means endless. What does not fit is not pulled, and on a full one nothing is cloned.
    pub capacity_gb: Option<u64>,
    /// What goes wrong in the next downloads.
    pub pull: Option<PullFault>,
    /// How many of the next downloads the fault hits; unset means all.
    pub pull_times: Option<u32>,
    /// The guest never asks for an address.
    pub no_network: bool,
    /// How much later than its address the guest agent of a guest is there.
    pub agent_ms: u64,
    /// No guest agent comes up, whatever the image holds.
    pub no_agent: bool,
    /// `tart run` forgets its lock once the guest is up: the VM runs and is listed as stopped (tart #967).
    pub lose_lock: bool,
    /// A VM that ends leaves its slot taken until the host reboots (tart #1217).
    pub leak_slot: bool,
    /// Guests ignore a request to shut down.
    pub deaf_guest: bool,
    /// `tart run` ignores SIGINT.
    pub deaf_run: bool,
    /// The leases file is cut short.
    pub truncated_leases: bool,
    /// The keychain cannot be opened, as after a boot without login.
    pub keychain_locked: bool,
    /// `Failed to perform garbage collection: ...` before every command but pull and clone.
    pub gc_error: Option<String>,
    /// The next commands of a name fail like this.
    pub fail: BTreeMap<String, ForcedFailure>,
    /// Commands of a name take this long before they do anything.
    pub delay_ms: BTreeMap<String, u64>,
}

/// What goes wrong in a download.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum PullFault {
    /// The connection breaks; each of the five attempts counts as a download of [`Switches::pull_times`].
    Network,
    /// It never ends.
    Stall,
    /// The disk fills in the middle and the process aborts (tart #989).
    DiskFull,
    /// The registry answers with this status.
    Status(u16),
}

/// A failure on request.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ForcedFailure {
    /// What it says on standard error.
    pub text: String,
    /// Its exit code.
    pub code: u8,
    /// How often; unset means always.
    #[serde(default)]
    pub times: Option<u32>,
}

impl Default for Switches {
    fn default() -> Self {
        Self {
            addresses: "127.64".to_owned(),
            registry: None,
            vm_limit: 2,
            aqua: None,
            capacity_gb: None,
            pull: None,
            pull_times: None,
            no_network: false,
            agent_ms: 0,
            no_agent: false,
            lose_lock: false,
            leak_slot: false,
            deaf_guest: false,
            deaf_run: false,
            truncated_leases: false,
            keychain_locked: false,
            gc_error: None,
            fail: BTreeMap::new(),
            delay_ms: BTreeMap::new(),
        }
    }
}

impl Switches {
    pub(crate) fn load(home: &Home) -> Result<Self, Failure> {
        match std::fs::read(home.switches()) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map_err(|error| Failure::Emulator(format!("{}: {error}", home.switches().display()))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => host::switches(),
            Err(error) => Err(Failure::io("cannot read the switches", &error)),
        }
    }

    pub(crate) fn save(&self, home: &Home) -> Result<(), Failure> {
        std::fs::create_dir_all(home.sim())?;
        let fresh = home.sim().join(format!("switches.{}.tmp", std::process::id()));
        std::fs::write(&fresh, serde_json::to_vec_pretty(self)?)?;
        std::fs::rename(fresh, home.switches())?;
        Ok(())
    }

    /// Reads, changes and writes the switches while nobody else does.
    pub(crate) fn change<T>(home: &Home, change: impl FnOnce(&mut Self) -> T) -> Result<T, Failure> {
        let _guard = locks::exclusive(&home.switches_lock())?;
        let mut switches = Self::load(home)?;
        let result = change(&mut switches);
        switches.save(home)?;
        Ok(result)
    }

    /// The fault of this download, if one is due.
    pub(crate) fn take_pull_fault(home: &Home) -> Result<Option<PullFault>, Failure> {
        if Self::load(home)?.pull.is_none() {
            return Ok(None);
        }
        Self::change(home, |switches| match &mut switches.pull_times {
            None => switches.pull.clone(),
            Some(0) => None,
            Some(times) => {
                *times -= 1;
                switches.pull.clone()
            }
        })
    }

    /// The failure that was ordered for a command, if one is due.
    pub(crate) fn take_failure(home: &Home, command: &str) -> Result<Option<ForcedFailure>, Failure> {
        if !Self::load(home)?.fail.contains_key(command) {
            return Ok(None);
        }
        Self::change(home, |switches| {
            let forced = switches.fail.get_mut(command)?;
            match &mut forced.times {
                None => Some(forced.clone()),
                Some(0) => None,
                Some(times) => {
                    *times -= 1;
                    Some(forced.clone())
                }
            }
        })
    }
}
