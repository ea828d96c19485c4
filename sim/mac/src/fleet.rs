//! All machines of one emulated Scaleway.

use crate::agent;
use crate::error::FleetError;
use crate::machine::{Machine, State};
use crate::macos::{self, Macs};
use jiff::Timestamp;
use russet_node::{Capacity, KUBELET_VERSION as DEFAULT_KUBELET_VERSION};
use russet_sim_kit::wire::connection;
use russet_sim_scaleway::{Host, HostChange, HostEvent, HostFactory, Id};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Where machines answer unless told otherwise; the default of the provider's `--stand-in-port`.
pub const DEFAULT_PORT: u16 = 10_251;
/// No machine ever has this address (see `AddressPlan`). A fleet holds its port here, so that the system gives the port to
/// nobody else, and two fleets that would share one find out at their start.
const RESERVATION: Ipv4Addr = Ipv4Addr::new(127, 77, 255, 254);
/// When the address of a machine is taken.
const LISTEN_AGAIN: Duration = Duration::from_secs(1);

/// How to emulate.
#[derive(Debug, Clone)]
pub struct Options {
    /// The port of all machines; 0 takes a free one.
    pub port: u16,
    /// What Nodes say their kubelet is.
    pub kubelet_version: String,
    /// What Nodes offer.
    pub capacity: Capacity,
    /// How often a Lease is renewed.
    pub lease_every: Duration,
    /// How often a status is reported that did not change.
    pub status_every: Duration,
    /// Where the disks of machines are kept for the next start; none to forget them.
    pub disks: Option<PathBuf>,
    /// Where machines find the API server, if not where their orders say: it moved since, and nothing on their disks knows.
    pub api_server: Option<http::Uri>,
    /// Pods on a stand-in fail at once; otherwise they are whoever's who watches them, such as a test.
    pub refuse_pods: bool,
    /// The same machines also as Macs with SSH; none for the stand-in alone.
    pub macos: Option<macos::Options>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            port: 0,
            kubelet_version: DEFAULT_KUBELET_VERSION.to_owned(),
            capacity: Capacity::default(),
            lease_every: Duration::from_secs(10),
            status_every: Duration::from_mins(5),
            disks: None,
            api_server: None,
            refuse_pods: false,
            macos: None,
        }
    }
}

/// What all machines share.
#[derive(Debug)]
pub(crate) struct Settings {
    port: u16,
    pub(crate) kubelet_version: String,
    pub(crate) capacity: Capacity,
    pub(crate) lease_every: Duration,
    pub(crate) status_every: Duration,
    pub(crate) disks: Option<PathBuf>,
    pub(crate) api_server: Option<http::Uri>,
    pub(crate) refuse_pods: bool,
}

/// The machines, made and unmade as Scaleway says. Cheap to clone; when the last clone is dropped, all power is cut.
#[derive(Debug, Clone)]
pub struct Fleet(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    settings: Arc<Settings>,
    macs: Mutex<BTreeMap<Id, Mac>>,
    macos: Option<Macs>,
    _port: TcpListener,
}

#[derive(Debug)]
struct Mac {
    machine: Arc<Machine>,
    /// None while nothing runs on it.
    power: Option<Power>,
}

#[derive(Debug)]
struct Power {
    task: JoinHandle<()>,
    cut: DropGuard,
}

impl Fleet {
    /// A fleet without machines.
    pub async fn new(options: Options) -> Result<Self, FleetError> {
        // The first of a process wins; another one was chosen on purpose.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        if let Some(dir) = &options.disks {
            std::fs::create_dir_all(dir).map_err(|source| FleetError::Disks {
                dir: dir.clone(),
                source,
            })?;
        }
        let address = SocketAddr::from((RESERVATION, options.port));
        let taken = |source| FleetError::Port { address, source };
        let reserved = TcpListener::bind(address).await.map_err(taken)?;
        let port = reserved.local_addr().map_err(taken)?.port();
        let macos = options.macos.map(Macs::new).transpose()?;
        Ok(Self(Arc::new(Inner {
            macos,
            settings: Arc::new(Settings {
                port,
                kubelet_version: options.kubelet_version,
                capacity: options.capacity,
                lease_every: options.lease_every,
                status_every: options.status_every,
                disks: options.disks,
                api_server: options.api_server,
                refuse_pods: options.refuse_pods,
            }),
            macs: Mutex::new(BTreeMap::new()),
            _port: reserved,
        })))
    }

    /// The Macs with SSH, if there are any.
    pub fn macs(&self) -> Option<&Macs> {
        self.0.macos.as_ref()
    }

    /// Where machines answer: the provider's `--stand-in-port`.
    pub fn port(&self) -> u16 {
        self.0.settings.port
    }

    /// What a machine would answer to `GET /state`; none if there is no such machine. Also answers for one without power.
    pub async fn state(&self, server: &Id) -> Option<State> {
        self.0.macs.lock().await.get(server).map(|mac| mac.machine.state())
    }

    /// Cuts the power without Scaleway knowing, as a machine that hangs. False if there is no such machine.
    pub async fn cut_power(&self, server: &Id) -> bool {
        let mut macs = self.0.macs.lock().await;
        let Some(mac) = macs.get_mut(server) else {
            return false;
        };
        mac.switch_off().await;
        true
    }

    /// Gives the power back. False if there is no such machine.
    pub async fn restore_power(&self, server: &Id) -> bool {
        let mut macs = self.0.macs.lock().await;
        let Some(mac) = macs.get_mut(server) else {
            return false;
        };
        mac.switch_on().await;
        true
    }

    /// Lets the next joins of a machine fail, until it is wiped. False if there is no such machine.
    pub async fn fail_joins(&self, server: &Id, times: u32) -> bool {
        let macs = self.0.macs.lock().await;
        macs.get(server).is_some_and(|mac| {
            mac.machine.spoil(times);
            true
        })
    }

    /// Brings a machine into the state after a change. The same change twice is one change.
    pub(crate) async fn apply(&self, change: HostChange, host: &Host) {
        if let Some(macs) = &self.0.macos {
            macs.apply(change, host).await;
        }
        let mut macs = self.0.macs.lock().await;
        match change {
            HostChange::Installed => {
                let same = |mac: &Mac| mac.machine.host.generation == host.generation;
                if !macs.get(&host.server_id).is_some_and(same) {
                    forget(&mut macs, &host.server_id).await;
                    let machine = Arc::new(Machine::new(host.clone(), Arc::clone(&self.0.settings)));
                    macs.insert(host.server_id.clone(), Mac { machine, power: None });
                }
            }
            HostChange::Wiped | HostChange::Gone => return forget(&mut macs, &host.server_id).await,
            HostChange::Rebooting | HostChange::Rebooted => {}
        }
        let Some(mac) = macs.get_mut(&host.server_id) else {
            return;
        };
        if change == HostChange::Rebooting {
            mac.switch_off().await;
        } else {
            mac.switch_on().await;
        }
    }

    /// Forgets machines that are not among these.
    pub(crate) async fn keep_only(&self, present: impl Fn(&Id) -> bool) {
        if let Some(macs) = &self.0.macos {
            macs.keep_only(&present).await;
        }
        let mut macs = self.0.macs.lock().await;
        let gone: Vec<Id> = macs.keys().filter(|id| !present(id)).cloned().collect();
        for id in gone {
            forget(&mut macs, &id).await;
        }
    }
}

async fn forget(macs: &mut BTreeMap<Id, Mac>, server: &Id) {
    if let Some(mut mac) = macs.remove(server) {
        mac.switch_off().await;
        mac.machine.erase();
    }
}

impl HostFactory for Fleet {
    async fn changed(&self, event: &HostEvent) {
        self.apply(event.change, &event.host).await;
    }
}

impl Mac {
    /// On return the machine answers, if its address can be had.
    async fn switch_on(&mut self) {
        if self.power.is_some() {
            return;
        }
        let machine = Arc::clone(&self.machine);
        let listener = listen(&machine).await;
        let cut = CancellationToken::new();
        let task = tokio::spawn({
            let cut = cut.clone();
            async move {
                let _ = cut.run_until_cancelled_owned(run(machine, listener)).await;
            }
        });
        self.power = Some(Power {
            task,
            cut: cut.drop_guard(),
        });
    }

    /// On return nothing of the machine runs.
    async fn switch_off(&mut self) {
        if let Some(Power { task, cut }) = self.power.take() {
            drop(cut);
            if let Err(error) = task.await {
                tracing::error!(%error, "the task of a machine ended badly");
            }
        }
    }
}

async fn listen(machine: &Machine) -> Option<TcpListener> {
    let address = SocketAddr::new(machine.host.address, machine.settings.port);
    match TcpListener::bind(address).await {
        Ok(listener) => Some(listener),
        Err(error) => {
            tracing::error!(%address, %error, "a machine cannot have its address; has every machine one of its own?");
            None
        }
    }
}

/// A machine that is on: it listens, answers, and does what its orders say. Dropped, it is off.
async fn run(machine: Arc<Machine>, listener: Option<TcpListener>) {
    let listener = match listener {
        Some(listener) => listener,
        None => loop {
            tokio::time::sleep(LISTEN_AGAIN).await;
            if let Some(listener) = listen(&machine).await {
                break listener;
            }
        },
    };
    let booted = Timestamp::now();
    let mut connections = JoinSet::new();
    let mut agent = Box::pin(carry_out(Arc::clone(&machine), booted));
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => { connections.spawn(connection(stream, Arc::clone(&machine), CancellationToken::new())); }
                Err(error) => {
                    tracing::warn!(%error, "could not accept a connection");
                    tokio::time::sleep(LISTEN_AGAIN).await;
                }
            },
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            () = machine.ordered.notified() => agent = Box::pin(carry_out(Arc::clone(&machine), booted)),
            () = &mut agent => {}
        }
    }
}

/// The agent, which stays when it has given up: only other orders wake it.
async fn carry_out(machine: Arc<Machine>, booted: Timestamp) {
    Box::pin(agent::run(&machine, booted)).await;
    std::future::pending::<()>().await;
}
