//! All Linux servers of one emulated Scaleway.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use russet_cluster::node::{self, Network};
use russet_parts::{Manifest, Tools};
use russet_sim_scaleway::{BoxChange, BoxEvent, BoxFactory, Follower};
use tokio::sync::{Mutex, watch};

use crate::error::Error;
use crate::habits::Habits;
use crate::image::{Image, TREE, XFS_TREE};
use crate::row::{Power, Row};
use crate::server::{self, Server, Site, State};

/// The programs real servers need, by the names of `russet-parts`.
pub fn tools() -> Vec<&'static str> {
    node::TOOLS.into_iter().chain([TREE, XFS_TREE]).collect()
}

/// What nodes run: the one version of Kubernetes there is.
pub(crate) fn kubernetes_version() -> String {
    let manifest = Manifest::embedded();
    manifest
        .tool("kubelet")
        .map(|(part, _)| part.version.clone())
        .unwrap_or_default()
}

/// How to make real servers.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where disks are; those of an earlier run are used again.
    pub state: PathBuf,
    /// `sim-linux`, which is also what runs inside of servers.
    pub program: PathBuf,
    /// At least [`tools`].
    pub tools: Tools,
    /// What servers are plugged into. Their public addresses must be of its range of nodes.
    pub network: Network,
    /// A kubeconfig with which kube-proxy runs beside each kubelet; none: there is no kube-proxy.
    pub proxy_kubeconfig: Option<PathBuf>,
    /// Archives of container images that nodes have besides `pause` and `busybox`.
    pub images: Vec<PathBuf>,
}

/// The servers, made and unmade as Scaleway says. Cheap to clone; when the last clone is dropped, all power is cut.
#[derive(Debug, Clone)]
pub struct Fleet(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    site: Option<Arc<Site>>,
    habits: Arc<Habits>,
    servers: Mutex<BTreeMap<String, Arc<Mutex<Server>>>>,
}

impl Fleet {
    /// A fleet without servers. Needs root.
    pub async fn new(options: Options) -> Result<Self, Error> {
        node::check()?;
        std::fs::create_dir_all(&options.state).map_err(Error::io("make a folder", &options.state))?;
        let state = options
            .state
            .canonicalize()
            .map_err(Error::io("find a folder", &options.state))?;
        let program = options
            .program
            .canonicalize()
            .map_err(Error::io("find sim-linux", &options.program))?;
        let image = Image::prepare(&state, &options.tools, &options.images).await?;
        let site = Site {
            state,
            program,
            network: options.network,
            image,
            kubernetes: kubernetes_version(),
            proxy_kubeconfig: options.proxy_kubeconfig,
        };
        Ok(Self::with(Some(Arc::new(site)), Habits::default()))
    }

    /// A fleet without servers, for those who are not root. Its servers are no machines: user data with a join program makes
    /// a Node that is kept alive, has the label `sim.russet.dev/synthetic` and runs no Pods. It is forgotten with the process.
    pub fn synthetic() -> Self {
        Self::paper(Habits::default())
    }

    /// The same, but that Nodes are remembered in a folder: those of an earlier run are kept alive by this one.
    pub fn synthetic_in(state: &Path) -> Result<Self, Error> {
        Ok(Self::paper(Habits::remembering(state)?))
    }

    fn paper(habits: Habits) -> Self {
        // The first of a process wins; another one was chosen on purpose.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        Self::with(None, habits)
    }

    fn with(site: Option<Arc<Site>>, habits: Habits) -> Self {
        Self(Arc::new(Inner {
            site,
            habits: Arc::new(habits),
            servers: Mutex::default(),
        }))
    }

    /// Where the API server is by now, whatever servers were told when they joined; from their next boot on.
    pub fn follow_api_server(&self, server: &str) {
        self.0.habits.follow(server);
    }

    /// Brings a server into the state of its row. The same row twice is one row.
    pub async fn apply(&self, row: Row) {
        let slot = self.slot(&row).await;
        let mut server = slot.lock().await;
        if server.row.generation != row.generation {
            server.forget().await;
        }
        let (before, after) = ((server.row.power, server.row.boots), (row.power, row.boots));
        let is_new = !server.is_known();
        let restarted = before.1 != after.1 || before.0 == Power::Off;
        match row.power {
            Power::Off => {
                server.update(row).await;
                server.switch_off().await;
            }
            Power::On if server.is_on() && before.1 != after.1 => {
                server.switch_off().await;
                server.update(row).await;
                server.switch_on().await;
            }
            Power::On => {
                server.update(row).await;
                // One that switched itself off stays off until somebody starts it.
                if is_new || restarted {
                    server.switch_on().await;
                }
            }
        }
    }

    async fn slot(&self, row: &Row) -> Arc<Mutex<Server>> {
        let mut servers = self.0.servers.lock().await;
        if let Some(slot) = servers.get(row.server_id.as_str()) {
            return Arc::clone(slot);
        }
        let server = Server::new(self.0.site.clone(), Arc::clone(&self.0.habits), row.clone());
        let asked = server.asked();
        let slot = Arc::new(Mutex::new(server));
        tokio::spawn(heed(Arc::downgrade(&slot), asked));
        servers.insert(row.server_id.to_string(), Arc::clone(&slot));
        slot
    }

    /// The server belongs to nobody any more: nothing of it stays.
    pub async fn remove(&self, id: impl AsRef<str>) {
        let removed = self.0.servers.lock().await.remove(id.as_ref());
        if let Some(slot) = removed {
            slot.lock().await.forget().await;
        }
    }

    /// Removes servers that are not among these.
    pub(crate) async fn keep_only(&self, present: impl Fn(&str) -> bool) {
        let gone: Vec<String> = {
            let servers = self.0.servers.lock().await;
            servers.keys().filter(|id| !present(id)).cloned().collect()
        };
        for id in gone {
            self.remove(&id).await;
        }
    }

    async fn server(&self, id: &str) -> Result<Arc<Mutex<Server>>, Error> {
        let servers = self.0.servers.lock().await;
        servers
            .get(id)
            .cloned()
            .ok_or_else(|| Error::Unknown { id: id.to_owned() })
    }

    /// How far a server is, and what becomes of it.
    pub async fn watch(&self, id: impl AsRef<str>) -> Result<watch::Receiver<State>, Error> {
        Ok(self.server(id.as_ref()).await?.lock().await.state())
    }

    /// Runs a program on a server as root, and returns what it printed.
    pub async fn run(&self, id: impl AsRef<str>, program: &str, args: &[&str]) -> Result<String, Error> {
        let slot = self.server(id.as_ref()).await?;
        let server = slot.lock().await;
        let args: Vec<String> = args.iter().map(|&arg| arg.to_owned()).collect();
        server.run(program, &args).await
    }

    /// Cuts the power without Scaleway knowing, as a server that hangs.
    pub async fn cut_power(&self, id: impl AsRef<str>) -> Result<(), Error> {
        self.server(id.as_ref()).await?.lock().await.switch_off().await;
        Ok(())
    }

    /// Gives the power back.
    pub async fn restore_power(&self, id: impl AsRef<str>) -> Result<(), Error> {
        let slot = self.server(id.as_ref()).await?;
        let mut server = slot.lock().await;
        server.switch_on().await;
        Ok(())
    }

    /// Off and on again.
    pub async fn reboot(&self, id: impl AsRef<str>) -> Result<(), Error> {
        self.cut_power(&id).await?;
        self.restore_power(&id).await
    }

    /// Process 1 of a server that is on, as this machine sees it, and the name of its cgroup: for those who want to see
    /// that nothing stays.
    pub async fn traces(&self, id: impl AsRef<str>) -> Result<(Option<u32>, String), Error> {
        let slot = self.server(id.as_ref()).await?;
        let server = slot.lock().await;
        Ok((server.pid(), server.cgroup()?))
    }
}

impl BoxFactory for Fleet {
    async fn changed(&self, event: &BoxEvent) {
        match event.change {
            BoxChange::Added | BoxChange::Changed => self.apply(event.row.clone()).await,
            BoxChange::Gone => self.remove(&event.row.server_id).await,
        }
    }
}

/// Rows say how things are, so the table alone is enough.
impl Follower<BoxEvent> for Fleet {
    async fn catch_up(&self, _: &[BoxEvent], rows: Vec<Row>) {
        let present: BTreeSet<&str> = rows.iter().map(|row| row.server_id.as_str()).collect();
        self.keep_only(|id| present.contains(id)).await;
        for row in rows {
            self.apply(row).await;
        }
    }

    async fn happened(&self, event: &BoxEvent) {
        self.changed(event).await;
    }
}

/// Does what a server asks for itself.
async fn heed(slot: Weak<Mutex<Server>>, mut asked: watch::Receiver<Option<server::Power>>) {
    while asked.changed().await.is_ok() {
        let Some(power) = *asked.borrow_and_update() else {
            continue;
        };
        let Some(slot) = slot.upgrade() else {
            return;
        };
        let mut server = slot.lock().await;
        server.switch_off().await;
        if power == server::Power::Reboot {
            server.switch_on().await;
        }
    }
}
