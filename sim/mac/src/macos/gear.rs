//! Settings of a Mac that live in no file a script would read: names, sleep, VLANs, volumes, formulae, the tailnet.

use super::pf::Pf;
use std::collections::{BTreeMap, BTreeSet};

/// Survives a reboot, not a reinstall.
#[derive(Debug, Default)]
pub(super) struct Gear {
    /// HostName, LocalHostName, ComputerName.
    pub(super) names: BTreeMap<String, String>,
    /// What `pmset -a` set.
    pub(super) power: BTreeMap<String, String>,
    pub(super) vlans: Vec<Vlan>,
    pub(super) volumes: Vec<Volume>,
    pub(super) brew: Brew,
    pub(super) pf: Pf,
    pub(super) tailscale: Tailscale,
    /// Seconds until the screen locks; none is off. A fresh Mac locks at once.
    pub(super) screen_lock: Option<u32>,
    /// Ranges that are exempt from Local Network privacy since the last boot. [facts 3]
    pub(super) local_network: Vec<String>,
    /// Programs somebody allowed to use the local network, by path and code hash.
    pub(super) local_network_grants: BTreeMap<String, String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Vlan {
    pub(super) name: String,
    pub(super) parent: String,
    pub(super) device: String,
    pub(super) tag: u16,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Volume {
    pub(super) name: String,
    pub(super) quota: u64,
    pub(super) mounted: bool,
    pub(super) owners: bool,
}

/// Homebrew. [facts 5]
#[derive(Debug, Default)]
pub(super) struct Brew {
    pub(super) taps: BTreeSet<String>,
    pub(super) trusted: BTreeSet<String>,
    /// Name to version.
    pub(super) installed: BTreeMap<String, String>,
    pub(super) pinned: BTreeSet<String>,
}

/// The open-source tailscaled. [facts 7]
#[derive(Debug, Default)]
pub(super) struct Tailscale {
    /// The daemon that runs now.
    pub(super) daemon: Option<Daemon>,
    pub(super) serial: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Daemon {
    pub(super) serial: u64,
    pub(super) socket: String,
    pub(super) state: String,
}

impl Gear {
    pub(super) fn new(host_name: &str) -> Self {
        let mut gear = Self {
            screen_lock: Some(0),
            ..Self::default()
        };
        for kind in ["ComputerName", "LocalHostName"] {
            gear.names.insert(kind.to_owned(), host_name.to_owned());
        }
        for (name, value) in [
            ("sleep", "1"),
            ("displaysleep", "10"),
            ("disksleep", "10"),
            ("powernap", "1"),
            ("womp", "1"),
        ] {
            gear.power.insert(name.to_owned(), value.to_owned());
        }
        gear
    }

    /// What a boot forgets: pf is loaded and not enabled, daemons are gone.
    pub(super) fn reboot(&mut self) {
        self.pf = Pf::default();
        self.tailscale.daemon = None;
    }
}
