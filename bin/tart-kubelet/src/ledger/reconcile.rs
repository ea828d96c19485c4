//! The ledger beside the host: what the one says and what the other shows, after an agent was away. Pure.

use std::collections::{BTreeMap, BTreeSet};

use russet_vm::{Listing, Owner, PodVm, VmName};

use super::{Entry, Stage};

/// What an agent finds when it starts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// VMs that may run now, ours by their names. Each takes one of the host's places.
    pub(crate) occupied: BTreeSet<PodVm>,
    /// VMs of ours that run and that nothing is written about: the ledger was lost.
    pub(crate) unwritten: Vec<PodVm>,
    /// VMs of ours that do not run and that nothing is written about: the ledger was lost, or they came after they were given up.
    pub(crate) late: Vec<PodVm>,
    /// Running VMs that are not ours. They take places, too.
    pub(crate) foreign: BTreeSet<String>,
}

/// Compares them.
pub(crate) fn reconcile(ledger: &BTreeMap<PodVm, Entry>, listing: &Listing) -> Found {
    let mut found = Found::default();
    let mut there = BTreeSet::new();
    for vm in &listing.vms {
        match &vm.owner {
            Owner::Foreign(name) if vm.running => {
                found.foreign.insert(name.clone());
            }
            Owner::Ours(VmName::Pod(name)) => {
                there.insert(name.clone());
                if vm.running {
                    found.occupied.insert(name.clone());
                }
                match (ledger.contains_key(name), vm.running) {
                    (true, _) => {}
                    (false, true) => found.unwritten.push(name.clone()),
                    (false, false) => found.late.push(name.clone()),
                }
            }
            Owner::Foreign(_) | Owner::Ours(VmName::Golden(_)) => {}
        }
    }
    // One that was about to start when its agent died may be starting right now, unseen, and even one that has ended since, if it
    // was started twice, or that an agent knew by its name alone. Only one that is gone surely does not.
    let starting = ledger
        .iter()
        .filter(|(name, entry)| !matches!(entry.stage, Stage::Deleted(_)) && there.contains(name));
    found.occupied.extend(starting.map(|(name, _)| name.clone()));
    found
}
