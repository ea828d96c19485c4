//! The end of everything that a Pod has here.

use std::collections::BTreeMap;

use russet_vm::VmName;
use tokio::time::Instant;

use crate::pods::Host;
use crate::pods::machine::{Life, Machine, Plan};

/// Ends what is left of a Pod that nobody knows any more.
pub(in crate::pods) async fn bury(host: Host, uid: String) {
    farewell(&host, &uid, BTreeMap::new()).await;
}

/// Ends the VMs at once, and leaves nothing.
pub(super) async fn farewell(host: &Host, uid: &str, machines: BTreeMap<String, Machine>) {
    let mut machines: Vec<Machine> = machines.into_values().collect();
    for (vm, entry) in host.shop.ledger.of_pod(uid) {
        if !machines.iter().any(|machine| machine.vm == vm) {
            let room = host.folders.room(&vm);
            let plan = Plan::adopted(&entry, false);
            machines.push(Machine::start(host.shop.clone(), vm, room, plan));
        }
    }
    for machine in &machines {
        machine.stop_by(Instant::now());
    }
    for mut machine in machines {
        let over = |life: &Life| matches!(life, Life::Failed { .. } | Life::Ended { gone: true, .. });
        // An error means that the task has ended, after its last word.
        let _ = machine.life.wait_for(over).await;
    }
    host.roster.remove(uid);
    host.directory.remove(uid);
    host.evictions.forget(uid);
    for (vm, entry) in host.shop.ledger.of_pod(uid) {
        // The clone of an agent that died may have come after it was given up.
        if entry.given_up
            && let Err(error) = host.shop.runtime.delete(&VmName::from(vm.clone())).await
        {
            tracing::info!(%vm, %error, "a virtual machine that came late could not be deleted; it is swept later");
        }
        if let Err(error) = host.shop.ledger.forget(&vm) {
            tracing::warn!(%vm, %error, "an old entry could not be removed");
        }
    }
    if let Err(error) = host.folders.remove_pod(uid) {
        tracing::warn!(uid, %error, "what a Pod left could not be removed");
    }
}
