//! One emulated Mac: its files, its power, what runs on it.

use super::boot::{Boot, Job, Process};
use super::desk;
use super::error::MacError;
use super::faults::{Quirks, SshFault, Xcode};
use super::image::{self, Fresh, GROUPS, Owners, STAFF, UID};
use super::launchd::domain::Domain;
use super::launchd::{Launchd, SSHD};
use super::memory::MemoryDisk;
use super::orders::RunAs;
use super::ssh;
use super::state::State;
use super::system::System;
use super::tree::Tree;
use russet_sim_scaleway::Host;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// What all Macs of an emulator share.
#[derive(Debug)]
pub(super) struct Kit {
    pub(super) dir: PathBuf,
    pub(super) system: System,
    /// How long a second of launchd is.
    pub(super) second: Duration,
    /// How long a Mac is away when it reboots by itself.
    pub(super) reboot: Duration,
    /// Connections that sshd serves at once.
    pub(super) connections: usize,
    pub(super) quirks: Quirks,
    /// The first two numbers of addresses in the tailnet.
    pub(super) tailnet: [u8; 2],
    /// The size of disks in memory; none are folders.
    pub(super) memory_disks: Option<u64>,
    /// Whether the emulator runs as root.
    pub(super) as_root: bool,
}

/// A handle to an emulated Mac. It stays valid when the Mac is wiped, but then answers for the old installation.
#[derive(Debug, Clone)]
pub struct Mac(pub(super) Arc<Inner>);

/// The Mac itself.
#[derive(Debug)]
pub(super) struct Inner {
    pub(super) host: Host,
    pub(super) kit: Arc<Kit>,
    pub(super) tree: Tree,
    state: Mutex<State>,
    power: tokio::sync::Mutex<Power>,
    /// Whether anything listens on the port of SSH.
    pub(super) door: watch::Sender<bool>,
    pub(super) slots: Arc<Semaphore>,
    pub(super) ssh: Arc<russh::server::Config>,
    /// Where the files are for those who mount them.
    inside_root: PathBuf,
    disk: Option<MemoryDisk>,
    /// When the emulator made it.
    pub(super) since: Instant,
    /// Counts changes of jobs.
    pub(super) changes: watch::Sender<u64>,
}

#[derive(Debug, Default)]
enum Power {
    #[default]
    Off,
    On(On),
}

#[derive(Debug)]
struct On {
    cut: CancellationToken,
    tasks: TaskTracker,
    /// Made when the first process is needed.
    boot: Option<Arc<Boot>>,
}

impl Inner {
    /// Installs macOS, or takes over the disk of the same installation.
    pub(super) fn new(host: Host, kit: Arc<Kit>) -> Result<Self, MacError> {
        let mount = root_of(&kit.dir, &host);
        let disk = match kit.memory_disks {
            Some(size) => Some(MemoryDisk::make(&mount, size, kit.as_root)?),
            None => None,
        };
        let root = match &disk {
            // Below the mount point, so that a fresh installation can be renamed into place.
            Some(disk) => disk.outside_path().join("root"),
            None => mount.clone(),
        };
        let keys = ssh::host_keys(&host)?;
        if !root.exists() {
            // Written aside and renamed: a half installation is none.
            let half = root.with_extension("half");
            if half.exists() {
                std::fs::remove_dir_all(&half).map_err(MacError::io("remove", &half))?;
            }
            let host_keys: Vec<(String, String)> = keys
                .iter()
                .map(|key| {
                    let kind = match key.algorithm() {
                        russh::keys::Algorithm::Ed25519 => "ed25519",
                        _ => "ecdsa",
                    };
                    (kind.to_owned(), key.public_key().to_openssh().unwrap_or_default())
                })
                .collect();
            let fresh = Fresh {
                username: &host.username,
                host_name: &host.name,
                authorized_keys: &host.authorized_keys,
                host_keys: &host_keys,
            };
            image::install(&half, &fresh, Owners { real: kit.as_root })?;
            if matches!(kit.quirks.xcode, Xcode::Ready | Xcode::Unlicensed) {
                super::system::make_folder(&half.join("Applications/Xcode.app/Contents/Developer"), 0o755)?;
            }
            std::fs::rename(&half, &root).map_err(MacError::io("rename", &half))?;
        }
        image::complete(&root, &guests(kit.tailnet, host.address))?;
        let tree = Tree::open(&root, &kit.dir.join("system"), kit.as_root).map_err(MacError::io("open", &root))?;
        Ok(Self {
            state: Mutex::new(State::new(host.password.clone(), &host.name, kit.quirks.clone())),
            ssh: ssh::config(keys),
            slots: Arc::new(Semaphore::new(kit.connections)),
            inside_root: if disk.is_some() { mount.join("root") } else { mount },
            disk,
            host,
            kit,
            tree,
            power: tokio::sync::Mutex::default(),
            door: watch::Sender::new(true),
            since: Instant::now(),
            changes: watch::Sender::new(0),
        })
    }

    /// The folder that is removed with the installation; empty where the disk is in memory.
    pub(super) fn folder(&self) -> PathBuf {
        root_of(&self.kit.dir, &self.host)
    }

    pub(super) fn memory_disk(&self) -> Option<&MemoryDisk> {
        self.disk.as_ref()
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Switches on. On return it answers, if its address can be had.
    pub(super) async fn switch_on(self: &Arc<Self>) {
        let mut power = self.power.lock().await;
        if matches!(*power, Power::On(_)) {
            return;
        }
        let on = On {
            cut: CancellationToken::new(),
            tasks: TaskTracker::new(),
            boot: None,
        };
        self.state().reboot();
        if let Err(error) = self.tree.give("/dev/console", 0, 0) {
            tracing::debug!(%error, "the console of an emulated Mac could not be taken back");
        }
        self.refresh_door();
        match desk::open(self) {
            Ok(listener) => spawn(&on, desk::serve(Arc::clone(self), listener)),
            Err(error) => tracing::error!(%error, "an emulated Mac has no socket for its tools"),
        }
        let listener = if *self.door.borrow() { self.listen().await } else { None };
        spawn(&on, ssh::serve(Arc::clone(self), listener, on.cut.clone()));
        *power = Power::On(on);
        drop(power);
        self.network_boots();
        self.launchd_boots();
        if !self.quirk(|quirks| quirks.headless) {
            self.loginwindow_starts();
        }
    }

    /// What is read once, at boot: the rules of pf, which stays off, and the exemption of TN3179. [facts 3, 4]
    fn network_boots(&self) {
        let read = |path: &str| self.tree.read_text(path);
        let rules = read("/etc/pf.conf").unwrap_or_default();
        let preferences = "/var/root/Library/Preferences/com.apple.network.local-network.plist";
        let exempt = self
            .tree
            .read(preferences)
            .ok()
            .and_then(|bytes| plist::Value::from_reader(std::io::Cursor::new(bytes)).ok())
            .and_then(|value| {
                let ranges = value
                    .as_dictionary()?
                    .get("AllowedEthernetLocalNetworkAddresses")?
                    .as_array()?;
                Some(
                    ranges
                        .iter()
                        .filter_map(|range| range.as_string().map(str::to_owned))
                        .collect(),
                )
            })
            .unwrap_or_default();
        let mut state = self.state();
        state.gear.local_network = exempt;
        if let Err(bad) = state.gear.pf.load(None, "/etc/pf.conf", &rules, read) {
            tracing::debug!(bad = bad.0, "pf.conf of an emulated Mac was not loaded at boot");
        }
    }

    fn quirk<T>(&self, of: impl FnOnce(&Quirks) -> T) -> T {
        of(&self.state().quirks)
    }

    /// Where SSH listens; none if the address is taken.
    pub(super) async fn listen(&self) -> Option<TcpListener> {
        let address = SocketAddr::new(self.host.address, self.host.ssh_port);
        match TcpListener::bind(address).await {
            Ok(listener) => Some(listener),
            Err(error) => {
                tracing::error!(%address, %error, "an emulated Mac cannot have its address");
                None
            }
        }
    }

    /// Cuts the power. On return nothing of it runs.
    pub(super) async fn switch_off(&self) {
        let on = match std::mem::take(&mut *self.power.lock().await) {
            Power::Off => return,
            Power::On(on) => on,
        };
        on.cut.cancel();
        if let Some(boot) = on.boot {
            boot.halt().await;
        }
        on.tasks.close();
        on.tasks.wait().await;
    }

    /// Cuts the power without waiting for the end.
    pub(super) fn drop_power(&self) {
        if let Ok(mut power) = self.power.try_lock()
            && let Power::On(on) = std::mem::take(&mut *power)
        {
            on.cut.cancel();
        }
    }

    /// Goes away and comes back, in a task of its own: whoever asked may be running on the Mac.
    pub(super) fn reboot(self: &Arc<Self>) {
        let mac = Arc::clone(self);
        tokio::spawn(async move {
            mac.switch_off().await;
            tokio::time::sleep(mac.kit.reboot).await;
            mac.switch_on().await;
        });
    }

    /// Runs a task that ends with the power.
    pub(super) async fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        if let Power::On(on) = &*self.power.lock().await {
            spawn(on, task);
        }
    }

    /// The namespaces, made now if nothing needed them before.
    pub(super) async fn boot(&self) -> Result<Arc<Boot>, MacError> {
        let mut power = self.power.lock().await;
        let Power::On(on) = &mut *power else {
            return Err(MacError::Off);
        };
        if let Some(boot) = &on.boot {
            return Ok(Arc::clone(boot));
        }
        let layout = self.kit.system.layout(&self.inside_root);
        let launchd = self.kit.system.launchd();
        let boot = Boot::start(&launchd, layout, self.kit.as_root, self.disk.as_ref()).await?;
        Ok(Arc::clone(on.boot.insert(Arc::new(boot))))
    }

    /// Starts a program on the Mac.
    pub(super) async fn run(&self, mut job: Job) -> Result<Process, MacError> {
        if !self.kit.as_root {
            job.env
                .insert(super::inside::UID_VARIABLE.to_owned(), job.run_as.uid.to_string());
        }
        self.boot().await?.run(job).await
    }

    /// Who a process runs as.
    pub(super) fn run_as(&self, uid: u32) -> RunAs {
        let (gid, groups) = if uid == UID {
            (STAFF, GROUPS.to_vec())
        } else {
            (uid, vec![uid])
        };
        RunAs {
            uid,
            gid,
            groups,
            switch: self.kit.as_root,
        }
    }

    /// The account of the owner.
    pub(super) fn name_of(&self, uid: u32) -> &str {
        if uid == UID { &self.host.username } else { "root" }
    }

    /// Counts a command: it may be the last before the power is cut.
    pub(super) async fn count_command(self: &Arc<Self>) {
        let last = {
            let mut state = self.state();
            match &mut state.faults.reboot_at_command {
                Some(0 | 1) => {
                    state.faults.reboot_at_command = None;
                    true
                }
                Some(left) => {
                    *left -= 1;
                    false
                }
                None => false,
            }
        };
        if last {
            self.reboot();
            // The power goes off under whoever called.
            std::future::pending::<()>().await;
        }
    }

    /// Waits until the jobs are so.
    pub(super) async fn wait_for(&self, is_so: impl Fn(&Launchd) -> bool + Send) {
        let mut changes = self.changes.subscribe();
        loop {
            changes.borrow_and_update();
            if is_so(&self.state().launchd) {
                return;
            }
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    /// Opens or closes the port of SSH, as the faults and launchd say.
    pub(super) fn refresh_door(&self) {
        let open = {
            let state = self.state();
            let loaded = state.launchd.jobs.contains_key(&(Domain::System, SSHD.to_owned()));
            loaded && state.faults.ssh != SshFault::Refuse
        };
        self.door.send_if_modified(|now| std::mem::replace(now, open) != open);
    }
}

fn spawn(on: &On, task: impl Future<Output = ()> + Send + 'static) {
    let cut = on.cut.clone();
    on.tasks.spawn(async move {
        let _ = cut.run_until_cancelled_owned(task).await;
    });
}

/// The beginning of the addresses that guests of a Mac have. All of them are on one loopback, and no two Macs may share one: not of one
/// emulator, whose Macs differ in their own addresses, nor of two, which differ in their tailnets.
fn guests([_, tailnet]: [u8; 2], address: IpAddr) -> String {
    let [three, four] = match address {
        IpAddr::V4(address) => {
            let [_, _, three, four] = address.octets();
            [three, four]
        }
        IpAddr::V6(_) => [0, 1],
    };
    format!("127.{}.{four}", 128 + (tailnet % 16) * 8 + three % 8)
}

/// Where the files of an installation are.
pub(super) fn root_of(dir: &Path, host: &Host) -> PathBuf {
    dir.join("macs")
        .join(host.server_id.to_string())
        .join(format!("generation-{}", host.generation))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn guests_of_two_macs_have_no_address_in_common() {
        let mut seen = BTreeSet::new();
        for tailnet in 100..116 {
            for number in 0..2048_u16 {
                let [three, four] = number.to_be_bytes();
                let prefix = guests([127, tailnet], IpAddr::from([127, 77, three, four]));
                assert!(format!("{prefix}.2").parse::<std::net::Ipv4Addr>().is_ok(), "{prefix}");
                assert!(seen.insert(prefix));
            }
        }
    }
}
