//! One emulated Mac: its files, its power, what runs on it.

use super::boot::{Boot, Job, Process};
use super::desk;
use super::error::MacError;
use super::faults::{Faults, Quirks, SshFault};
use super::image::{self, Fresh, GROUPS, Owners, STAFF, UID};
use super::launchd::domain::Domain;
use super::launchd::{Launchd, SSHD};
use super::orders::RunAs;
use super::ssh;
use super::state::{Called, State};
use super::system::System;
use super::tree::Tree;
use russet_sim_scaleway::Host;
use std::future::Future;
use std::net::SocketAddr;
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
        let root = root_of(&kit.dir, &host);
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
            std::fs::rename(&half, &root).map_err(MacError::io("rename", &half))?;
        }
        let tree = Tree::open(&root, &kit.dir.join("system"), kit.as_root).map_err(MacError::io("open", &root))?;
        Ok(Self {
            state: Mutex::new(State::new(host.password.clone(), kit.quirks.clone())),
            ssh: ssh::config(keys),
            slots: Arc::new(Semaphore::new(kit.connections)),
            host,
            kit,
            tree,
            power: tokio::sync::Mutex::default(),
            door: watch::Sender::new(true),
            since: Instant::now(),
            changes: watch::Sender::new(0),
        })
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
        self.launchd_boots();
        if !self.quirk(|quirks| quirks.headless) {
            self.loginwindow_starts();
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
        let layout = self.kit.system.layout(self.tree.root());
        let boot = Boot::start(&self.kit.system.launchd(), layout, self.kit.as_root).await?;
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

    pub(super) fn home_of(&self, uid: u32) -> String {
        if uid == UID {
            format!("/Users/{}", self.host.username)
        } else {
            "/var/root".to_owned()
        }
    }

    /// Counts a command: it may be slow, and it may be the last before the power is cut.
    pub(super) async fn count_command(self: &Arc<Self>) {
        let (slow, last) = {
            let mut state = self.state();
            let slow = state.faults.slow_milliseconds;
            let last = match &mut state.faults.reboot_at_command {
                Some(0 | 1) => {
                    state.faults.reboot_at_command = None;
                    true
                }
                Some(left) => {
                    *left -= 1;
                    false
                }
                None => false,
            };
            (slow, last)
        };
        if slow > 0 {
            tokio::time::sleep(Duration::from_millis(slow)).await;
        }
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

/// Where the files of an installation are.
pub(super) fn root_of(dir: &Path, host: &Host) -> PathBuf {
    dir.join("macs")
        .join(host.server_id.to_string())
        .join(format!("generation-{}", host.generation))
}

impl Mac {
    /// The machine as Scaleway knows it.
    pub fn host(&self) -> &Host {
        &self.0.host
    }

    /// The Mac's `/` on this system.
    pub fn root(&self) -> &Path {
        self.0.tree.root()
    }

    /// What is wrong with it.
    pub fn faults(&self) -> Faults {
        self.0.state().faults.clone()
    }

    /// Makes things go wrong, or right again.
    pub fn set_faults(&self, change: impl FnOnce(&mut Faults)) {
        change(&mut self.0.state().faults);
        self.0.refresh_door();
    }

    /// Which way it goes where the sources disagree.
    pub fn quirks(&self) -> Quirks {
        self.0.state().quirks.clone()
    }

    /// Makes it another kind of Mac.
    pub fn set_quirks(&self, change: impl FnOnce(&mut Quirks)) {
        change(&mut self.0.state().quirks);
    }

    /// Everything that was called on it, oldest first.
    pub fn calls(&self) -> Vec<Called> {
        self.0.state().calls.clone()
    }

    /// Calls with words that the emulator does not know. Tests want none.
    pub fn unexpected(&self) -> Vec<String> {
        self.0.state().unexpected.clone()
    }

    /// How often property lists were registered again with Background Task Management.
    pub fn btm_churn(&self) -> u32 {
        self.0.state().launchd.btm.churn()
    }

    /// The process of a job of the system, for example `dev.tuist.tart-kubelet`.
    pub fn daemon_pid(&self, label: &str) -> Option<i32> {
        let key = (Domain::System, label.to_owned());
        self.0.state().launchd.jobs.get(&key)?.pid()
    }

    /// Who is logged in at the screen; `root` is nobody.
    pub fn console_user(&self) -> String {
        self.0.console_user().to_owned()
    }

    /// Cuts the power and gives it back. On return it answers again.
    pub async fn reboot(&self) {
        self.0.switch_off().await;
        self.0.switch_on().await;
    }

    /// Cuts the power without Scaleway knowing, as a machine that hangs.
    pub async fn cut_power(&self) {
        self.0.switch_off().await;
    }

    /// Gives the power back.
    pub async fn restore_power(&self) {
        self.0.switch_on().await;
    }
}
