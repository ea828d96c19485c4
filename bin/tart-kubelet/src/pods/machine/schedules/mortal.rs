//! A runtime whose caller can die at any moment, and a ledger that can kill it.

use super::{Chance, Judge};
use crate::ledger::{Entry, LedgerError, Shelf, Stage};
use futures::future::BoxFuture;
use russet_vm::{
    Credentials, Digest, DiskUsage, Error, Exec, ExecRequest, Exit, GuestCommand, Hardware, ImageRef, Launch, Listing,
    Pinned, PodVm, Power, Process, Pull, Runtime, Source, Step, Synthetic, VmName,
};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// How long a list may take, half of it before it is looked and half of it after.
const LIST: u64 = 120;

/// Whether an agent lives.
#[derive(Debug, Default)]
pub(super) struct Pulse {
    dead: AtomicBool,
    died: Notify,
}

impl Pulse {
    pub(super) fn kill(&self) {
        self.dead.store(true, Ordering::Relaxed);
        self.died.notify_one();
    }

    pub(super) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed)
    }

    pub(super) async fn died(&self) {
        if !self.is_dead() {
            self.died.notified().await;
        }
    }
}

/// What goes wrong at one of the next calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// A list gets no answer.
    List,
    /// A clone finds the disk full.
    NoSpace,
    /// A clone fails, and its VM appears all the same a little later.
    LateClone,
    /// A start is given up, and its VM starts all the same a little later.
    LateStart,
    /// A start fails.
    Start,
    /// A stop fails.
    Stop,
    /// A deletion fails.
    Delete,
    /// A guest is asked something, and its VM is said not to run although it does.
    Exec,
}

/// The runtime of one agent. What an agent has begun on the host goes on when the agent is dead, as processes do.
#[derive(Clone, Debug)]
pub(super) struct Mortal {
    pub(super) host: Synthetic,
    pub(super) pulse: Arc<Pulse>,
    pub(super) judge: Judge,
    pub(super) chance: Chance,
    pub(super) faults: Arc<Mutex<Vec<Fault>>>,
}

impl Mortal {
    /// The dead hear no answers and ask no questions.
    async fn alive<T>(&self, call: impl Future<Output = T>) -> T {
        if self.pulse.is_dead() {
            std::future::pending::<()>().await;
        }
        let answer = call.await;
        if self.pulse.is_dead() {
            std::future::pending::<()>().await;
        }
        answer
    }

    fn fault(&self, which: Fault) -> bool {
        let mut faults = self.faults.lock().unwrap();
        let found = faults.iter().position(|fault| *fault == which);
        found.map(|index| faults.remove(index)).is_some()
    }

    /// Begins something on the host that nobody can call back.
    async fn begun<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> T {
        self.alive(async { tokio::spawn(work).await.unwrap() }).await
    }
}

fn failed(command: &str) -> Error {
    Error::Timeout {
        command: command.to_owned(),
        after: Duration::from_secs(1),
    }
}

impl Runtime for Mortal {
    fn version(&self) -> BoxFuture<'_, Result<String, Error>> {
        Box::pin(self.alive(self.host.version()))
    }

    fn pull<'a>(&'a self, image: &'a ImageRef, how: Pull<'a>) -> BoxFuture<'a, Result<Digest, Error>> {
        Box::pin(self.alive(self.host.pull(image, how)))
    }

    fn resolve<'a>(&'a self, image: &'a ImageRef) -> BoxFuture<'a, Result<Option<Digest>, Error>> {
        Box::pin(self.alive(self.host.resolve(image)))
    }

    fn login<'a>(&'a self, credentials: &'a Credentials) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(self.alive(self.host.login(credentials)))
    }

    fn remove_image<'a>(&'a self, image: &'a Pinned) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(self.alive(self.host.remove_image(image)))
    }

    fn clone_vm<'a>(&'a self, source: &'a Source, name: &'a VmName) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            if self.fault(Fault::NoSpace) {
                return Err(Error::NoSpace("tart clone".to_owned()));
            }
            let (host, from, to) = (self.host.clone(), source.clone(), name.clone());
            let work = async move { host.clone_vm(&from, &to).await };
            if self.fault(Fault::LateClone) {
                self.alive(async { drop(tokio::spawn(work)) }).await;
                return Err(failed("tart clone"));
            }
            self.begun(work).await
        })
    }

    fn configure<'a>(&'a self, name: &'a VmName, hardware: Hardware) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(self.alive(self.host.configure(name, hardware)))
    }

    fn start<'a>(&'a self, name: &'a VmName, launch: &'a Launch) -> BoxFuture<'a, Result<Process, Error>> {
        Box::pin(async move {
            if self.fault(Fault::Start) {
                return Err(failed("tart run"));
            }
            let (host, judge, vm, launch) = (self.host.clone(), self.judge.clone(), name.clone(), launch.clone());
            let work = async move {
                let process = host.start(&vm, &launch).await?;
                judge.started(&host, &vm).await;
                Ok(process)
            };
            if self.fault(Fault::LateStart) {
                self.alive(async { drop(tokio::spawn(work)) }).await;
                return Err(failed("tart run"));
            }
            self.begun(work).await
        })
    }

    fn power<'a>(&'a self, name: &'a VmName) -> BoxFuture<'a, Result<Option<Power>, Error>> {
        Box::pin(self.alive(self.host.power(name)))
    }

    fn ended<'a>(&'a self, name: &'a VmName) -> BoxFuture<'a, Result<Exit, Error>> {
        Box::pin(self.alive(self.host.ended(name)))
    }

    fn address<'a>(&'a self, name: &'a VmName) -> BoxFuture<'a, Result<Option<Ipv4Addr>, Error>> {
        Box::pin(self.alive(self.host.address(name)))
    }

    fn exec<'a>(&'a self, name: &'a VmName, request: ExecRequest) -> BoxFuture<'a, Result<Exec, Error>> {
        Box::pin(self.alive(async move {
            if self.fault(Fault::Exec) {
                return Err(Error::NotRunning(name.to_string()));
            }
            self.host.exec(name, request).await
        }))
    }

    fn spawn<'a>(
        &'a self,
        name: &'a VmName,
        id: &'a str,
        command: &'a GuestCommand,
    ) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(self.alive(self.host.spawn(name, id, command)))
    }

    fn step<'a>(&'a self, name: &'a VmName, id: &'a str) -> BoxFuture<'a, Result<Option<Step>, Error>> {
        Box::pin(self.alive(self.host.step(name, id)))
    }

    fn stop<'a>(&'a self, name: &'a VmName, grace: Duration) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            if self.fault(Fault::Stop) {
                return Err(failed("tart stop"));
            }
            self.alive(self.host.stop(name, grace)).await
        })
    }

    fn delete<'a>(&'a self, name: &'a VmName) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            if self.fault(Fault::Delete) {
                return Err(failed("tart delete"));
            }
            self.alive(self.host.delete(name)).await
        })
    }

    fn list(&self) -> BoxFuture<'_, Result<Listing, Error>> {
        Box::pin(self.alive(async {
            if self.fault(Fault::List) {
                return Err(failed("tart list"));
            }
            tokio::time::sleep(self.chance.up_to(LIST / 2)).await;
            let listing = self.host.list().await;
            tokio::time::sleep(self.chance.up_to(LIST / 2)).await;
            listing
        }))
    }

    fn disk(&self) -> BoxFuture<'_, Result<DiskUsage, Error>> {
        Box::pin(self.alive(self.host.disk()))
    }
}

/// What happens at a write.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fuse {
    /// The agent dies before it is written.
    DieBefore,
    /// The agent dies when it is written.
    DieAfter,
    /// The disk is full.
    Full,
}

/// Entries that survive agents, as if on a disk.
#[derive(Clone, Debug, Default)]
pub(super) struct Disk {
    pub(super) entries: Arc<Mutex<BTreeMap<PodVm, Entry>>>,
    /// After how many more writes what happens.
    pub(super) fuse: Arc<Mutex<Option<(u8, Fuse)>>>,
}

/// The disk as one agent sees it.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) disk: Disk,
    pub(super) pulse: Arc<Pulse>,
    pub(super) judge: Judge,
}

impl Page {
    /// Changes what is on the disk, if the agent lives long enough.
    fn change(&self, change: impl FnOnce(&mut BTreeMap<PodVm, Entry>)) -> Result<(), LedgerError> {
        let no = || {
            let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
            Err(LedgerError::new("written", "/", full))
        };
        if self.pulse.is_dead() {
            return no();
        }
        let burnt = {
            let mut fuse = self.disk.fuse.lock().unwrap();
            match fuse.take() {
                Some((0, how)) => Some(how),
                Some((left, how)) => {
                    *fuse = Some((left - 1, how));
                    None
                }
                None => None,
            }
        };
        match burnt {
            Some(Fuse::Full) => return no(),
            Some(Fuse::DieBefore) => {
                self.pulse.kill();
                return no();
            }
            Some(Fuse::DieAfter) => self.pulse.kill(),
            None => {}
        }
        change(&mut self.disk.entries.lock().unwrap());
        Ok(())
    }
}

impl Shelf for Page {
    fn load(&self) -> Result<BTreeMap<PodVm, Entry>, LedgerError> {
        Ok(self.disk.entries.lock().unwrap().clone())
    }

    fn put(&self, vm: &PodVm, entry: &Entry) -> Result<(), LedgerError> {
        if entry.stage == Stage::Planned {
            // A place was taken, after a list that may have been as old as this.
            self.judge.placed(vm, Instant::now() - Duration::from_millis(LIST));
        }
        self.change(|entries| {
            entries.insert(vm.clone(), entry.clone());
        })
    }

    fn remove(&self, vm: &PodVm) -> Result<(), LedgerError> {
        self.change(|entries| {
            entries.remove(vm);
        })
    }
}
