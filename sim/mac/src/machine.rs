//! One machine: what it is, and what is on its disk.

use crate::disk;
use crate::fleet::Settings;
use crate::join::Join;
use russet_node::{Memory, Store};
use russet_sim_scaleway::Host;
use russet_telemetry::Secret;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// How far a machine is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Nobody told it anything since it was installed.
    Idle,
    /// It was told to join and is at it.
    Joining,
    /// Its Node is there and kept alive.
    Joined,
    /// It gave up; `message` says why. Another `/join` starts afresh.
    Failed,
}

/// The answer of `GET /state`.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct State {
    /// 1 for the first installation, one more after each wipe.
    pub generation: u32,
    /// How far it is.
    pub phase: Phase,
    /// In words.
    pub message: String,
    /// The hash of the last `/join`, empty before.
    pub hash: String,
}

/// What survives a reboot and not a wipe.
#[derive(Debug)]
pub(crate) struct Disk {
    /// The last orders.
    pub(crate) join: Option<Arc<Join>>,
    /// What the agent remembers: the node's key, its certificate once there is one, its labels.
    pub(crate) memory: Memory,
    phase: Phase,
    message: String,
}

/// A machine as long as it is the same installation.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) host: Host,
    pub(crate) settings: Arc<Settings>,
    password: Secret<String>,
    disk: Mutex<Disk>,
    /// Joins that shall fail, on the order of a test.
    spoiled: Mutex<u32>,
    /// New orders were written to the disk.
    pub(crate) ordered: Notify,
}

impl Machine {
    pub(crate) fn new(host: Host, settings: Arc<Settings>) -> Self {
        let kept = settings.disks.as_deref().and_then(|dir| disk::load(dir, &host));
        let (join, memory) = match kept {
            Some(kept) => (kept.join.map(Arc::new), kept.memory),
            None => (None, Memory::default()),
        };
        let (phase, message) = match &join {
            Some(join) => (Phase::Joining, format!("started again as {}", join.node_name)),
            None => (Phase::Idle, "installed, waiting for orders".to_owned()),
        };
        Self {
            password: Secret::new(host.password.clone()),
            host,
            settings,
            disk: Mutex::new(Disk {
                join,
                memory,
                phase,
                message,
            }),
            spoiled: Mutex::new(0),
            ordered: Notify::new(),
        }
    }

    pub(crate) fn provider_id(&self) -> String {
        format!("scw-applesilicon://{}/{}", self.host.zone, self.host.server_id)
    }

    pub(crate) fn admits(&self, username: &str, password: &[u8]) -> bool {
        self.password.matches(password) && username == self.host.username
    }

    pub(crate) fn disk(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn state(&self) -> State {
        let disk = self.disk();
        State {
            generation: self.host.generation,
            phase: disk.phase,
            message: disk.message.clone(),
            hash: disk.join.as_ref().map(|join| join.hash.clone()).unwrap_or_default(),
        }
    }

    /// Takes orders.
    pub(crate) fn order(&self, join: Join) {
        {
            let mut disk = self.disk();
            disk.phase = Phase::Joining;
            disk.message = format!("joining as {}", join.node_name);
            disk.join = Some(Arc::new(join));
        }
        self.save();
        self.ordered.notify_one();
    }

    /// Keeps what is on the disk for the next start, where that is wanted.
    pub(crate) fn save(&self) {
        if let Some(dir) = &self.settings.disks
            && let Err(error) = disk::save(dir, &self.host, &self.disk())
        {
            tracing::warn!(server = %self.host.server_id, %error, "the disk of a machine could not be written");
        }
    }

    /// Nothing survives.
    pub(crate) fn erase(&self) {
        if let Some(dir) = &self.settings.disks {
            disk::erase(dir, &self.host);
        }
    }

    pub(crate) fn tell(&self, phase: Phase, message: impl Into<String>) {
        let mut disk = self.disk();
        disk.phase = phase;
        disk.message = message.into();
    }

    pub(crate) fn spoil(&self, times: u32) {
        *self.spoiled.lock().unwrap_or_else(PoisonError::into_inner) = times;
    }

    /// Whether this join shall fail; counts down.
    pub(crate) fn is_spoiled(&self) -> bool {
        let mut left = self.spoiled.lock().unwrap_or_else(PoisonError::into_inner);
        let spoiled = *left > 0;
        *left = left.saturating_sub(1);
        spoiled
    }
}

impl Store for Machine {
    fn load(&self) -> Memory {
        self.disk().memory.clone()
    }

    /// A disk that cannot be written is the emulator's trouble, which says so itself.
    fn save(&self, memory: &Memory) -> io::Result<()> {
        self.disk().memory = memory.clone();
        Self::save(self);
        Ok(())
    }
}
