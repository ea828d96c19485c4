//! One VM, from the plan to its deletion: a task of its own, so that no VM waits for another.
//!
//! ```text
//! take a place ─▶ planned ─▶ clone, configure ─▶ cloned ─▶ start ─▶ running ─▶ command ─┬─▶ ended by itself ─┐
//!      │               │                            │                  │                └─▶ told to stop ────┤
//!      ▼               ▼ failed, or told to stop    ▼                  ▼ did not come up                     ▼
//!   nothing is left ◀──┴────────────────────────────┴──────────────────┘     deleted ◀─ delete ◀─ stop ◀─ stopped(how)
//! ```
//!
//! The task begins wherever the ledger and the host say an earlier agent was. A VM that was only planned then is given up, and
//! another is made under another name: the clone of the agent that died may still be on its way.

mod driver;
mod ending;
mod live;
mod pace;
#[cfg(test)]
mod schedules;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use russet_vm::log::Rotation;
use russet_vm::{Hardware, Launch, PodVm, Runtime, Screen, Share, Source, VmName};
use tokio::sync::watch;
use tokio::time::Instant;

use self::driver::Driver;
pub(crate) use self::pace::Pace;
use super::folder::Room;
use super::images::Images;
use crate::host::Board;
use crate::ledger::{Ending, Entry, Ledger};
use crate::meters::Meters;
use crate::places::Places;

/// What a VM is made from.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The whole name of its Pod.
    pub(crate) pod: String,
    /// What it is cloned from; not needed for one that is there.
    pub(crate) source: Option<Source>,
    /// The image by its digest.
    pub(crate) image: String,
    /// What it has.
    pub(crate) hardware: Hardware,
    /// How it starts.
    pub(crate) launch: Launch,
    /// Whether a program is started in it, or the image does all by itself.
    pub(crate) command: bool,
    /// What stands for the VM's address in what the container is started with, if that is asked for.
    pub(crate) late: Option<IpAddr>,
    /// What stands in for last words; see `terminationMessagePolicy`.
    pub(crate) message_policy: Option<String>,
    /// What is counted about it.
    pub(crate) tally: Tally,
}

/// What is counted about the way of a Pod to its VMs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    /// Which pool of runners it is in; empty for none.
    pub(crate) pool: String,
    /// How long the image took.
    pub(crate) fetched: Duration,
    /// Whether its base had to be made.
    pub(crate) fresh: bool,
    /// When the Pod was created, until the first of its VMs starts. Its VMs share it, so that a Pod is counted once, whatever is
    /// started again.
    pub(crate) created: Arc<Mutex<Option<Timestamp>>>,
}

impl Tally {
    /// When the Pod was created, for the first who asks.
    fn first_start(&self) -> Option<Timestamp> {
        self.created.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Plan {
    /// For a VM that an earlier agent made.
    pub(crate) fn adopted(entry: &Entry, command: bool) -> Self {
        Self {
            pod: entry.pod.clone(),
            source: None,
            image: entry.image.clone(),
            hardware: Hardware::default(),
            launch: Launch {
                shares: entry.shares.iter().map(Share::from).collect(),
                screen: Screen::None,
            },
            command,
            late: None,
            message_policy: None,
            tally: Tally::default(),
        }
    }
}

/// How far a VM is, for those who watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// It is being made. What holds it up, if anything does, in a sentence.
    Making(Option<String>),
    /// The container runs.
    Running {
        /// Since when.
        since: Timestamp,
        /// Where the VM is reached.
        address: Option<Ipv4Addr>,
    },
    /// It did not come to run, and nothing of it is left.
    Failed {
        /// A word of Kubernetes.
        reason: &'static str,
        /// A sentence.
        message: String,
        /// How long another attempt should wait.
        pause: Duration,
    },
    /// The container has ended.
    Ended {
        /// How.
        ending: Ending,
        /// Whether its VM is gone, too.
        gone: bool,
        /// Where the VM was reached. Whoever looks late sees only the end.
        address: Option<Ipv4Addr>,
    },
}

impl Life {
    /// Where the VM is or was reached.
    pub(crate) fn address(&self) -> Option<Ipv4Addr> {
        match self {
            Self::Running { address, .. } | Self::Ended { address, .. } => *address,
            Self::Making(_) | Self::Failed { .. } => None,
        }
    }
}

/// The parts of a host that all VMs share.
#[derive(Clone, Debug)]
pub(crate) struct Shop {
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) ledger: Ledger,
    pub(crate) places: Arc<Places>,
    pub(crate) pace: Arc<Pace>,
    pub(crate) meters: Arc<Meters>,
    pub(crate) images: Images,
    /// Where the heartbeat reads that macOS has lost count of VMs.
    pub(crate) board: Board,
    /// How large logs of containers may become.
    pub(crate) logs: Rotation,
}

/// A VM's task, as its Pod sees it.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) vm: PodVm,
    pub(crate) life: watch::Receiver<Life>,
    stop: watch::Sender<Option<Instant>>,
    task: tokio::task::JoinHandle<()>,
}

impl Machine {
    /// Begins, or goes on.
    pub(crate) fn start(shop: Shop, vm: PodVm, room: Room, plan: Plan) -> Self {
        let (life, watched) = watch::channel(Life::Making(None));
        let (halt, halted) = watch::channel(None);
        let driver = Driver {
            name: VmName::from(vm.clone()),
            vm: vm.clone(),
            shop,
            room,
            plan,
            life,
            stop: halted,
            place: None,
            started: None,
            failure: None,
        };
        Self {
            vm,
            life: watched,
            stop: halt,
            task: tokio::spawn(driver.run()),
        }
    }

    /// Ends the container by then. A later word counts only if it is for sooner.
    pub(crate) fn stop_by(&self, deadline: Instant) {
        self.stop.send_if_modified(|by| {
            let sooner = by.is_none_or(|by| deadline < by);
            if sooner {
                *by = Some(deadline);
            }
            sooner
        });
    }

    pub(crate) fn now(&self) -> Life {
        self.life.borrow().clone()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // The VM goes on; the next agent finds it.
        self.task.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_counted_once_however_many_vms_it_has() {
        let first = Tally {
            created: Arc::new(Mutex::new(Some(Timestamp::UNIX_EPOCH))),
            ..Tally::default()
        };
        let second = first.clone();
        assert_eq!(second.first_start(), Some(Timestamp::UNIX_EPOCH));
        assert_eq!(first.first_start(), None);
    }
}
