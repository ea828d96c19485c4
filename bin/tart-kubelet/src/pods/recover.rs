//! What an agent finds on its host when it starts, and what it finds there later that should not be.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use russet_vm::{Error, Owner, PodVm, Runtime, VmName};

use crate::ledger::{Entry, Ledger, Stage, reconcile};

const AGAIN: Duration = Duration::from_secs(1);
const SLOWEST: Duration = Duration::from_secs(30);

/// Brings the ledger up to the host, for as long as that takes: a start without knowing what runs could be one too many.
/// Returns the VMs that may run.
pub(super) async fn recover(runtime: &Arc<dyn Runtime>, ledger: &Ledger) -> BTreeSet<PodVm> {
    let mut pause = AGAIN;
    loop {
        match attempt(runtime, ledger).await {
            Ok(occupied) => return occupied,
            Err(error) => {
                tracing::warn!(%error, "the virtual machines of this host cannot be listed; no Pod is run before that");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(SLOWEST);
            }
        }
    }
}

async fn attempt(runtime: &Arc<dyn Runtime>, ledger: &Ledger) -> anyhow::Result<BTreeSet<PodVm>> {
    let listing = runtime.list().await?;
    let written: BTreeMap<PodVm, Entry> = ledger.all().into_iter().collect();
    let mut found = reconcile(&written, &listing);
    for vm in std::mem::take(&mut found.late) {
        match runtime.delete(&VmName::from(vm.clone())).await {
            Ok(()) => tracing::info!(%vm, "deleted a virtual machine that nothing is written about"),
            // It was being started when its agent died.
            Err(Error::Running(_)) => {
                found.occupied.insert(vm.clone());
                found.unwritten.push(vm);
            }
            // It may be about to start all the same: it keeps a place until it is gone.
            Err(error) => {
                tracing::info!(%vm, %error, "a virtual machine that nobody waits for could not be deleted; it is tried again");
                ledger.write(&vm, by_name(&vm, Stage::Planned))?;
                found.occupied.insert(vm);
            }
        }
    }
    for vm in &found.unwritten {
        tracing::warn!(%vm, "a virtual machine of ours is not in the ledger; its name tells whose it is");
        ledger.write(vm, by_name(vm, Stage::Cloned))?;
    }
    if !found.foreign.is_empty() {
        tracing::info!(vms = ?found.foreign, "virtual machines of others run here, and take places");
    }
    Ok(found.occupied)
}

/// All that a name tells. One that runs is cloned, and how far it is is found when it is looked at; one that does not was planned, and goes.
fn by_name(vm: &PodVm, stage: Stage) -> Entry {
    Entry {
        pod: vm.shown_pod().to_owned(),
        planned: Timestamp::now(),
        image: String::new(),
        shares: Vec::new(),
        stage,
        running: None,
        given_up: false,
    }
}

/// Deletes VMs of ours that do not run and that nobody waits for: the clone of an agent that died may come late.
pub(super) async fn sweep(runtime: &Arc<dyn Runtime>, ledger: &Ledger) {
    let Ok(listing) = runtime.list().await else { return };
    for listed in listing.vms.into_iter().filter(|listed| !listed.running) {
        let Owner::Ours(VmName::Pod(vm)) = listed.owner else {
            continue;
        };
        let over = ledger
            .get(&vm)
            .is_none_or(|entry| matches!(entry.stage, Stage::Deleted(_)));
        if !over {
            continue;
        }
        tracing::info!(%vm, "deleting a virtual machine that nobody waits for");
        if let Err(error) = runtime.delete(&VmName::from(vm)).await {
            tracing::info!(%error, "it could not be deleted; it is tried again");
        }
    }
}
