//! What the tests share: the real parts, and waiting.

use std::time::{Duration, Instant};

use russet_cluster::{
    ControlPlane, Supervisor,
    control_plane::{Durability, Error, Extras, Options},
    process::{Snapshot, State},
};
use russet_parts::{Bars, Manifest, Store, Tools};
use tempfile::TempDir;
use tokio::sync::OnceCell;

static TOOLS: OnceCell<Tools> = OnceCell::const_new();

/// The programs of the control plane and of Cluster API, obtained on first use.
async fn tools() -> Tools {
    TOOLS
        .get_or_init(async || {
            let store = Store::new(Manifest::embedded(), russet_parts::Options::from_env());
            let names = [
                "etcd",
                "kube-apiserver",
                "kube-controller-manager",
                "kube-scheduler",
                "capi-core",
                "cluster-api-config",
            ];
            store
                .ensure(&names, &Bars::lines())
                .await
                .expect("the real parts can be obtained")
        })
        .await
        .clone()
}

/// Where a control plane is put up. The processes go before the folder.
pub(crate) struct Stage {
    pub(crate) tools: Tools,
    pub(crate) supervisor: Supervisor,
    pub(crate) dir: TempDir,
}

impl Stage {
    pub(crate) async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let supervisor = Supervisor::new(dir.path());
        let tools = tools().await;
        Self { tools, supervisor, dir }
    }

    /// Those of a control plane that is thrown away after the test.
    pub(crate) fn options(&self, extras: Extras) -> Options {
        Options {
            extras,
            durability: Durability::Throwaway,
            ..Options::new(self.dir.path())
        }
    }

    pub(crate) async fn start(&self, options: Options) -> Result<ControlPlane, Error> {
        ControlPlane::start(&self.tools, &self.supervisor, options).await
    }
}

/// Polls until `condition` holds; fails the test after half a minute.
pub(crate) async fn eventually(what: &str, condition: impl AsyncFn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !condition().await {
        assert!(Instant::now() < deadline, "did not happen within 30 s: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A process that is gone, or only waits to be read by its parent.
pub(crate) fn is_gone(pid: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return true;
    };
    stat.rsplit_once(')')
        .is_none_or(|(_, rest)| rest.trim_start().starts_with('Z'))
}

pub(crate) fn find(supervisor: &Supervisor, name: &str) -> Snapshot {
    supervisor
        .snapshot()
        .into_iter()
        .find(|snapshot| snapshot.name == name)
        .expect("known to the supervisor")
}

pub(crate) fn pids(supervisor: &Supervisor) -> Vec<u32> {
    supervisor
        .snapshot()
        .iter()
        .filter_map(|snapshot| snapshot.pid)
        .collect()
}

/// Waits for a state, on the supervisor's own change notices.
pub(crate) async fn in_state(supervisor: &Supervisor, name: &str, state: State) -> Snapshot {
    let mut changed = supervisor.changed();
    let wait = async {
        loop {
            let snapshot = find(supervisor, name);
            if snapshot.state == state {
                return snapshot;
            }
            changed.changed().await.expect("the supervisor lives");
        }
    };
    tokio::time::timeout(Duration::from_secs(30), wait)
        .await
        .unwrap_or_else(|_| panic!("{name} never got {state}"))
}
