//! The Pods of this Node, each run as virtual machines.
//!
//! ```text
//!   API server ──watch (spec.nodeName = us)──▶ Pods ──▶ Worker, one per Pod ──▶ Machine, one per VM ──▶ Runtime
//!                                               │         │  ▲ facts               │  ▲
//!                                               │         ▼  │ plan                ▼  │
//!   host ─list──▶ recover ──▶ places, ledger ───┘      russet-pod (decides)      ledger, places
//! ```
//!
//! A Pod that vanished while nobody looked leaves a VM that nobody wants, and a Pod that is there may have one already. So nothing
//! is started before the host was looked at ([`recover`]), and nothing is taken away before the API server has told all Pods.

mod around;
pub(crate) mod directory;
mod evictions;
pub(crate) mod folder;
pub(crate) mod guest;
pub(crate) mod images;
pub(crate) mod journal;
mod known;
mod lasting;
pub(crate) mod lock;
pub(crate) mod machine;
#[cfg(test)]
mod pretended;
mod reach;
mod record;
mod recover;
mod roster;
mod server;
mod trash;
mod watched;
mod worker;

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt as _};
use russet_pod::quantity::Amount;
use russet_vm::Runtime;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use self::around::Around;
use self::directory::Directory;
pub use self::directory::Handle;
pub(crate) use self::evictions::Evictions;
use self::folder::Folders;
use self::images::Images;
use self::lasting::Lasting;
use self::lock::Lock;
pub use self::lock::LockError;
use self::machine::Shop;
use self::reach::Reach;
use self::roster::Roster;
use self::server::Server;
use self::watched::Watched;
use self::worker::{Wanted, Worker};
use crate::config::Cidr;
use crate::housekeeping;
pub use crate::housekeeping::Keeping;
use crate::ledger::{Ledger, LedgerError};
use crate::meters::Meters;
use crate::places::{LIMIT, Places};

/// How often VMs are looked for that nobody wants.
const SWEEP: Duration = Duration::from_mins(5);

/// What the Pods of a Node are run with.
#[derive(Clone)]
pub struct Options {
    /// The Node's name.
    pub node: String,
    /// Where the ledger, volumes and logs are.
    pub state: PathBuf,
    /// Folders and files beside that of which no Pod may have a part, such as the kubeconfig.
    pub kept: Vec<PathBuf>,
    /// What runs virtual machines.
    pub runtime: Arc<dyn Runtime>,
    /// The API server, once the Node has joined.
    pub client: watch::Receiver<Option<Client>>,
    /// The same for watches, which are silent for longer than an answer may be.
    pub watching: watch::Receiver<Option<Client>>,
    /// Where the Node is reached at the moment.
    pub address: Arc<dyn Fn() -> Option<IpAddr> + Send + Sync>,
    /// What the Node offers.
    pub capacity: russet_node::Capacity,
    /// Who may read metrics of guests.
    pub scrapers: Vec<Cidr>,
    /// Pods open ports on the tailnet alone, as the agent does.
    pub tailnet_only: bool,
    /// Ports of the agent itself, which no Pod can have.
    pub own_ports: Vec<u16>,
    /// What is counted.
    pub meters: Arc<Meters>,
    /// How the host is kept in order.
    pub keeping: Keeping,
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("node", &self.node)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

/// What all Pods share.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    pub(crate) options: Options,
    pub(crate) shop: Shop,
    pub(crate) evictions: Evictions,
    pub(crate) server: Server,
    pub(crate) watched: Watched,
    pub(crate) around: Around,
    pub(crate) folders: Folders,
    pub(crate) reach: Reach,
    pub(crate) roster: Roster,
    pub(crate) directory: Directory,
}

impl Host {
    /// The images of the host.
    pub(crate) fn images(&self) -> &Images {
        &self.shop.images
    }

    /// What no Pod may have a part of: the node's key and the Secrets of other Pods, and the disks of other VMs.
    pub(crate) fn kept(&self) -> Vec<PathBuf> {
        let mut kept = self.options.kept.clone();
        kept.push(self.options.state.clone());
        kept
    }

    /// What the Node offers to Pods.
    pub(crate) fn allocatable(&self) -> BTreeMap<String, Amount> {
        let capacity = self.options.capacity;
        let disk = self.options.keeping.disk.look();
        let disk = disk.map(|disk| ("ephemeral-storage".to_owned(), Amount::units(disk.total)));
        let fixed = BTreeMap::from([
            ("cpu".to_owned(), Amount::units(capacity.cpu.into())),
            (
                "memory".to_owned(),
                Amount::units(u64::from(capacity.memory_mib) * 1024 * 1024),
            ),
            ("pods".to_owned(), Amount::units(capacity.pods.into())),
        ]);
        fixed.into_iter().chain(disk).collect()
    }
}

/// Why the Pods of a Node cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The state folder is not ours alone.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// What is in it cannot be read.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

/// The Pods of a Node.
#[derive(Debug)]
pub struct Pods {
    /// In a box, as it is large and whoever awaits the Pods carries it.
    options: Box<Options>,
    lock: Arc<Lock>,
    ledger: Ledger,
    directory: Directory,
}

/// A Pod's task.
#[derive(Debug)]
struct Seat {
    wanted: watch::Sender<Wanted>,
    task: JoinHandle<()>,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Pods {
    /// Takes the state folder for this agent alone, and reads the ledger. Without both nothing can be run. Blocks for up to 15 s while
    /// another agent is about to end.
    pub fn open(options: Options) -> Result<Self, OpenError> {
        // First: the ledger is read once, and must not change any more after that.
        let lock = Arc::new(Lock::take(&options.state, lock::PATIENCE)?);
        let ledger = Ledger::open(options.state.join("vms"))?;
        Ok(Self {
            options: Box::new(options),
            lock,
            ledger,
            directory: Directory::default(),
        })
    }

    /// What others may know of the Pods.
    pub fn handle(&self) -> Handle {
        Handle {
            node: self.options.node.clone(),
            directory: self.directory.clone(),
            ledger: self.ledger.clone(),
            folders: Folders::new(&self.options.state),
            runtime: Arc::clone(&self.options.runtime),
            _lock: Arc::clone(&self.lock),
        }
    }

    /// Runs Pods until it is dropped. VMs go on then, and the next agent with them.
    pub async fn run(self) -> Infallible {
        let Self {
            options,
            lock: _lock,
            ledger,
            directory,
        } = self;
        let options = *options;
        // Also while `tart` does not answer, which the next line waits for: it tells the Node that it was deleted.
        let around = Around::watch(&options.watching, &options.node, options.keeping.board.clone());
        let occupied = recover::recover(&options.runtime, &ledger).await;
        let places = Places::new(Arc::clone(&options.runtime), LIMIT, occupied);
        let images = Images::new(
            Arc::clone(&options.runtime),
            Arc::clone(&options.meters),
            &options.state,
            &options.keeping,
            ledger.clone(),
            directory.clone(),
        );
        let host = Host {
            shop: Shop {
                runtime: Arc::clone(&options.runtime),
                ledger,
                places,
                pace: Arc::default(),
                meters: Arc::clone(&options.meters),
                images,
                board: options.keeping.board.clone(),
                logs: options.keeping.logs,
            },
            evictions: Evictions::default(),
            server: Server::new(
                options.client.clone(),
                options.node.clone(),
                Arc::clone(&options.meters),
            ),
            watched: Watched::new(options.watching.clone()),
            around,
            folders: Folders::new(&options.state),
            reach: Reach::default(),
            roster: Roster::default(),
            directory,
            options,
        };
        let trash = host.folders.trash().clone();
        let watch = Watch {
            host: host.clone(),
            seats: BTreeMap::new(),
            listed: Vec::new(),
            told: false,
        };
        tokio::select! {
            never = watch.run() => never,
            never = housekeeping::run(host) => never,
            never = trash.keep_empty() => never,
        }
    }
}

struct Watch {
    host: Host,
    /// By the Pod's uid: names are used again.
    seats: BTreeMap<String, Seat>,
    /// What a list that is being told has told so far.
    listed: Vec<Pod>,
    /// All Pods have been told once. From then on each has a seat.
    told: bool,
}

impl Watch {
    async fn run(mut self) -> Infallible {
        let mine = watcher::Config::default().fields(&format!("spec.nodeName={}", self.host.options.node));
        let mut events = Lasting::new(self.host.options.watching.clone(), Api::<Pod>::all, mine);
        let mut sweep = tokio::time::interval_at(tokio::time::Instant::now() + SWEEP, SWEEP);
        loop {
            tokio::select! {
                event = events.next() => match event {
                    Some(Ok(event)) => self.hear(event),
                    Some(Err(error)) => tracing::debug!(%error, "the watch of Pods was interrupted; it goes on"),
                    // Whoever joins is gone, and so shall we be.
                    None => std::future::pending::<()>().await,
                },
                _ = sweep.tick() => self.sweep(),
            }
            self.host.options.meters.pods(self.seats.len());
        }
    }

    fn hear(&mut self, event: watcher::Event<Pod>) {
        match event {
            watcher::Event::Init => self.listed.clear(),
            watcher::Event::InitApply(pod) => self.listed.push(pod),
            watcher::Event::Apply(pod) => self.apply(pod),
            watcher::Event::Delete(pod) => {
                if let Some(uid) = pod.uid() {
                    self.lose(&uid);
                }
            }
            watcher::Event::InitDone => {
                let mut listed = std::mem::take(&mut self.listed);
                // As they are admitted: those that run already, then the oldest first.
                let known: BTreeSet<String> = self
                    .host
                    .shop
                    .ledger
                    .all()
                    .iter()
                    .map(|(vm, _)| vm.uid().to_owned())
                    .collect();
                listed.sort_by_key(|pod| {
                    let runs = pod.uid().is_some_and(|uid| known.contains(&uid));
                    (!runs, pod.creation_timestamp(), pod.name_any())
                });
                let seen: BTreeSet<String> = listed.iter().filter_map(kube::ResourceExt::uid).collect();
                for pod in listed {
                    self.apply(pod);
                }
                let gone: Vec<String> = self.seats.keys().filter(|uid| !seen.contains(*uid)).cloned().collect();
                for uid in gone {
                    self.lose(&uid);
                }
                self.told = true;
                self.bury(&seen);
            }
        }
        self.seats.retain(|_, seat| !seat.task.is_finished());
    }

    fn apply(&mut self, pod: Pod) {
        let Some(uid) = pod.uid() else { return };
        let pod = Arc::new(pod);
        match self.seats.get(&uid) {
            Some(seat) if !seat.task.is_finished() => {
                seat.wanted.send_replace(Wanted::Pod(pod));
            }
            _ => {
                let (wanted, heard) = watch::channel(Wanted::Pod(Arc::clone(&pod)));
                let worker = Worker::new(self.host.clone(), uid.clone(), pod, heard);
                let task = tokio::spawn(worker.run());
                self.seats.insert(uid, Seat { wanted, task });
            }
        }
    }

    fn lose(&mut self, uid: &str) {
        if let Some(seat) = self.seats.get(uid) {
            seat.wanted.send_replace(Wanted::Gone);
        }
    }

    /// Ends what is left of Pods that vanished while nobody looked.
    fn bury(&mut self, there: &BTreeSet<String>) {
        let ledger = self
            .host
            .shop
            .ledger
            .all()
            .into_iter()
            .map(|(vm, _)| vm.uid().to_owned());
        let left: BTreeSet<String> = ledger.chain(self.host.folders.uids()).collect();
        for uid in left {
            if there.contains(&uid) || self.seats.contains_key(&uid) {
                continue;
            }
            tracing::info!(uid, "a Pod is gone; ending what is left of it");
            let (wanted, _) = watch::channel(Wanted::Gone);
            let task = tokio::spawn(worker::farewell::bury(self.host.clone(), uid.clone()));
            self.seats.insert(uid, Seat { wanted, task });
        }
    }

    /// Looks for VMs that nothing is written about, such as the late clone of an agent that died, and for what could not be
    /// removed when its Pod went.
    fn sweep(&mut self) {
        self.seats.retain(|_, seat| !seat.task.is_finished());
        self.host.watched.sweep();
        if self.told {
            self.bury(&BTreeSet::new());
        }
        if self.host.options.keeping.keep_unused {
            return;
        }
        let host = self.host.clone();
        tokio::spawn(async move { recover::sweep(&host.shop.runtime, &host.shop.ledger).await });
    }
}
