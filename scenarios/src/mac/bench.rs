//! Emulated Macs without a cluster.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use russet_bootstrap::mac::{Agent, Artifact, Artifacts, Firewall, Fleet};
use russet_stages::macs::rack::Rack;

pub(super) use russet_stages::macs::rack::{archive, pack, put};

use super::Mini;

/// A few Macs.
pub(super) struct Bench {
    rack: Rack,
    artifacts: Artifacts,
}

/// The programs of the emulated tailnet, as the release of the real ones has them.
pub(super) fn tailscale(path: &Path) -> Result<()> {
    archive(
        path,
        &[
            ("tailscale", "#!/.sim/bin/tailscale\n"),
            ("tailscaled", "#!/.sim/bin/tailscaled\n"),
        ],
    )
}

impl Bench {
    /// So many Macs.
    pub(super) async fn with(count: u32) -> Result<Self> {
        let rack = Rack::with(count, |options| options.second = Duration::from_millis(10));
        Ok(Self {
            rack: rack.await?,
            artifacts: Artifacts::default(),
        })
    }

    /// One of them, once it answers.
    pub(super) async fn mini(&self, number: usize) -> Result<Mini> {
        let id = self.rack.ids().get(number).context("there are fewer Macs")?;
        Mini::find(self.rack.sim.handle(), &self.rack.macs, id).await
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.rack.path(name)
    }

    /// A file to send.
    fn artifact(&self, path: &Path) -> Result<Artifact> {
        Ok(self.artifacts.get(path)?)
    }

    /// What a fleet wants that has nothing but this agent.
    pub(super) fn fleet(&self, agent: &[u8]) -> Result<Fleet> {
        let path = self.path("agent");
        put(&path, agent)?;
        Ok(plain(self.artifact(&path)?))
    }
}

/// What a fleet wants that has nothing but an agent.
fn plain(program: Artifact) -> Fleet {
    Fleet {
        agent: Agent {
            program,
            cpu: 8,
            memory_mb: 16_384,
            max_pods: 2,
            tailnet_only: false,
            extra: Vec::new(),
        },
        api_server: None,
        tart: None,
        tailnet: None,
        node_exporter: None,
        logs: None,
        firewall: Firewall::default(),
        login_from: None,
        cache_volume_gib: None,
    }
}
