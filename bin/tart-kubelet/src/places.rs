//! The places for VMs on this host. macOS allows two at a time, by licence and by its kernel; a third is never tried.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use russet_vm::{Error, Owner, PodVm, Runtime, VmName};
use tokio::sync::Notify;

/// How many VMs of macOS a Mac may run.
pub(crate) const LIMIT: usize = 2;
/// Somebody else's VM ends without telling us.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// The places. A place is held from before a VM starts until it surely runs no more.
#[derive(Debug)]
pub(crate) struct Places {
    runtime: Arc<dyn Runtime>,
    limit: usize,
    held: Mutex<BTreeSet<PodVm>>,
    /// Those who wait stand in line; only the first looks.
    line: tokio::sync::Mutex<()>,
    freed: Notify,
}

/// A place. Dropped, it is free, unless its VM is still seen to run.
#[derive(Debug)]
pub(crate) struct Place {
    places: Arc<Places>,
    vm: PodVm,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.held().remove(&self.vm);
        self.places.freed.notify_waiters();
    }
}

impl Places {
    /// With what may run already. Nobody may take a place before all of that is known.
    pub(crate) fn new(runtime: Arc<dyn Runtime>, limit: usize, occupied: BTreeSet<PodVm>) -> Arc<Self> {
        Arc::new(Self {
            runtime,
            limit,
            held: Mutex::new(occupied),
            line: tokio::sync::Mutex::default(),
            freed: Notify::new(),
        })
    }

    fn held(&self) -> MutexGuard<'_, BTreeSet<PodVm>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The place of a VM that has one already, since an earlier agent gave it.
    pub(crate) fn keep(self: &Arc<Self>, vm: &PodVm) -> Option<Place> {
        self.held().contains(vm).then(|| Place {
            places: Arc::clone(self),
            vm: vm.clone(),
        })
    }

    /// Waits for a place, in the order of asking. `full` hears who has them, as long as that is so.
    pub(crate) async fn take(
        self: &Arc<Self>,
        vm: &PodVm,
        mut full: impl FnMut(BTreeSet<String>),
    ) -> Result<Place, Error> {
        let _turn = self.line.lock().await;
        loop {
            let freed = self.freed.notified();
            let others = self.others(vm).await?;
            if others.len() < self.limit {
                self.held().insert(vm.clone());
                return Ok(Place {
                    places: Arc::clone(self),
                    vm: vm.clone(),
                });
            }
            full(others);
            let _ = tokio::time::timeout(LOOK_AGAIN, freed).await;
        }
    }

    /// How many there are.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Whoever else has a place, or runs without asking.
    pub(crate) async fn others(&self, vm: &PodVm) -> Result<BTreeSet<String>, Error> {
        let listing = self.runtime.list().await?;
        let mut names: BTreeSet<String> = listing
            .vms
            .into_iter()
            .filter(|listed| listed.running)
            .map(|listed| match listed.owner {
                Owner::Ours(name) => name.to_string(),
                Owner::Foreign(name) => name,
            })
            .collect();
        names.extend(self.held().iter().map(ToString::to_string));
        names.remove(&VmName::from(vm.clone()).to_string());
        Ok(names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use russet_vm::synthetic::{Host, Settings, Synthetic};

    fn vm(pod: &str) -> PodVm {
        PodVm::new("ci", pod, "main", "0b5d7f3c-8a4e-4f0c-9d1a-2b3c4d5e6f70", 0).unwrap()
    }

    fn places(host: &Host, occupied: &[&str]) -> Arc<Places> {
        let runtime = Arc::new(Synthetic::new(host.clone()));
        Places::new(runtime, LIMIT, occupied.iter().map(|pod| vm(pod)).collect())
    }

    #[tokio::test(start_paused = true)]
    async fn a_third_waits_until_one_of_the_two_has_ended() {
        let places = places(&Host::new(Settings::default()), &[]);
        let first = places.take(&vm("a"), |_| {}).await.unwrap();
        let _second = places.take(&vm("b"), |_| {}).await.unwrap();
        let mut seen = BTreeSet::new();
        {
            let c = vm("c");
            let third = places.take(&c, |others| seen = others);
            assert!(tokio::time::timeout(LOOK_AGAIN * 3, third).await.is_err());
        }
        assert_eq!(seen.len(), 2, "{seen:?}");
        drop(first);
        places.take(&vm("c"), |_| {}).await.unwrap();
    }

    /// What an earlier agent started counts, though this one has started nothing.
    #[tokio::test(start_paused = true)]
    async fn places_outlive_the_agent_that_gave_them() {
        let places = places(&Host::new(Settings::default()), &["a", "b"]);
        let c = vm("c");
        assert!(
            tokio::time::timeout(LOOK_AGAIN * 3, places.take(&c, |_| {}))
                .await
                .is_err()
        );
        let kept = places.keep(&vm("a")).unwrap();
        assert!(places.keep(&vm("c")).is_none());
        drop(kept);
        places.take(&vm("c"), |_| {}).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn somebody_elses_vm_takes_a_place() {
        let host = Host::new(Settings::default());
        host.add_foreign("packer", true);
        let places = places(&host, &["a"]);
        let (b, mut seen) = (vm("b"), BTreeSet::new());
        let taken = tokio::time::timeout(LOOK_AGAIN * 3, places.take(&b, |others| seen = others)).await;
        assert!(taken.is_err());
        assert!(seen.contains("packer"), "{seen:?}");
    }
}
