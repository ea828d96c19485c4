//! All emulated Macs behind one emulated Scaleway.

use super::error::MacError;
use super::faults::Quirks;
use super::mac::{Inner, Kit, Mac};
use super::system::{Shell, System};
use russet_sim_scaleway::{Host, HostChange, HostEvent, HostFactory, Id};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;

/// How to emulate.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where the disks of the Macs are. A disk of the same installation is taken over.
    pub dir: PathBuf,
    /// The `sim-mac` program, which is also what runs inside.
    pub binary: PathBuf,
    /// zsh, if there is one; a static one is best, since it runs inside.
    pub zsh: Option<PathBuf>,
    /// How long a second of launchd is: its ten seconds between two starts need not be ten seconds of a test.
    pub second: Duration,
    /// How long a Mac is away that reboots by itself.
    pub reboot: Duration,
    /// Connections that sshd serves at once; macOS has 42. [facts 5]
    pub connections: usize,
    /// What Macs are like at first.
    pub quirks: Quirks,
    /// The first two numbers of addresses in the tailnet; with 127 and something, programs can really listen there.
    pub tailnet: [u8; 2],
    /// Disks of this size in memory, which can be full and are gone with the emulator; none are folders, which stay.
    pub memory_disks: Option<u64>,
}

impl Options {
    /// The usual Macs, in this folder, with this `sim-mac` inside.
    pub fn new(dir: impl Into<PathBuf>, binary: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            binary: binary.into(),
            zsh: None,
            second: Duration::from_secs(1),
            reboot: Duration::from_secs(1),
            connections: 42,
            quirks: Quirks::default(),
            tailnet: [100, 64],
            memory_disks: None,
        }
    }
}

/// The Macs, made and unmade as Scaleway says. Cheap to clone; when the last clone is dropped, all power is cut.
#[derive(Debug, Clone)]
pub struct Macs(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    kit: Arc<Kit>,
    macs: Mutex<BTreeMap<Id, Mac>>,
}

impl Drop for Shared {
    /// The tasks of a Mac hold on to it; only this lets them go.
    fn drop(&mut self) {
        for mac in self.macs.get_mut().values() {
            mac.0.drop_power();
        }
    }
}

impl Macs {
    /// No Macs yet.
    pub fn new(options: Options) -> Result<Self, MacError> {
        for tool in ["unshare", "setpriv"] {
            if !Path::new("/usr/bin").join(tool).exists() {
                return Err(MacError::Missing(if tool == "unshare" { "unshare" } else { "setpriv" }));
            }
        }
        super::system::make_folder(&options.dir, 0o700)?;
        let dir = options.dir.canonicalize().map_err(MacError::io("find", &options.dir))?;
        let binary = options
            .binary
            .canonicalize()
            .map_err(MacError::io("find", &options.binary))?;
        let zsh = match &options.zsh {
            Some(path) => Some(path.canonicalize().map_err(MacError::io("find", path))?),
            None => None,
        };
        let as_root = rustix::process::geteuid().is_root();
        let system = System::make(&dir, &binary, zsh.as_deref(), as_root)?;
        if system.shell_kind == Shell::Bash {
            tracing::warn!("no zsh: /bin/zsh of the emulated Macs is bash, which differs in many ways");
        }
        Ok(Self(Arc::new(Shared {
            kit: Arc::new(Kit {
                dir,
                system,
                second: options.second,
                reboot: options.reboot,
                connections: options.connections,
                quirks: options.quirks,
                tailnet: options.tailnet,
                memory_disks: options.memory_disks,
                as_root,
            }),
            macs: Mutex::new(BTreeMap::new()),
        })))
    }

    /// Which shell runs commands.
    pub fn shell(&self) -> Shell {
        self.0.kit.system.shell_kind
    }

    /// The Mac of a server.
    pub async fn mac(&self, server: &Id) -> Option<Mac> {
        self.0.macs.lock().await.get(server).cloned()
    }

    /// All of them.
    pub async fn all(&self) -> Vec<Mac> {
        self.0.macs.lock().await.values().cloned().collect()
    }

    /// Brings a Mac into the state after a change. The same change twice is one change.
    pub async fn apply(&self, change: HostChange, host: &Host) {
        let mut macs = self.0.macs.lock().await;
        match change {
            HostChange::Installed => {
                let same = |mac: &Mac| mac.host().generation == host.generation;
                if !macs.get(&host.server_id).is_some_and(same) {
                    forget(&mut macs, &host.server_id).await;
                    match Inner::new(host.clone(), Arc::clone(&self.0.kit)) {
                        Ok(inner) => {
                            macs.insert(host.server_id.clone(), Mac(Arc::new(inner)));
                        }
                        Err(error) => tracing::error!(server = %host.server_id, %error, "a Mac could not be installed"),
                    }
                }
            }
            HostChange::Wiped | HostChange::Gone => return forget(&mut macs, &host.server_id).await,
            HostChange::Rebooting | HostChange::Rebooted => {}
        }
        let Some(mac) = macs.get(&host.server_id).cloned() else {
            return;
        };
        drop(macs);
        if change == HostChange::Rebooting {
            mac.0.switch_off().await;
        } else {
            mac.0.switch_on().await;
        }
    }

    /// Forgets Macs that are not among these.
    pub async fn keep_only(&self, present: impl Fn(&Id) -> bool) {
        let mut macs = self.0.macs.lock().await;
        let gone: Vec<Id> = macs.keys().filter(|id| !present(id)).cloned().collect();
        for id in gone {
            forget(&mut macs, &id).await;
        }
    }

    /// Cuts all power and waits until nothing runs.
    pub async fn switch_off(&self) {
        for mac in self.all().await {
            mac.0.switch_off().await;
        }
    }
}

/// Cuts the power and wipes the disk.
async fn forget(macs: &mut BTreeMap<Id, Mac>, server: &Id) {
    let Some(mac) = macs.remove(server) else { return };
    mac.0.switch_off().await;
    let root = mac.0.folder();
    let wiped = tokio::task::spawn_blocking(move || std::fs::remove_dir_all(root)).await;
    if let Ok(Err(error)) = wiped {
        tracing::warn!(%server, %error, "the disk of a Mac could not be wiped");
    }
}

impl HostFactory for Macs {
    async fn changed(&self, event: &HostEvent) {
        self.apply(event.change, &event.host).await;
    }
}
