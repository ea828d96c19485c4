//! Our agent as a process, with the emulated `tart`.

use anyhow::{Context, Result};
use russet_sim_tart::Image;
use russet_stages::macs::host::{Agent, MacHost};
use russet_testkit::TestCluster;
use std::path::Path;
use tempfile::TempDir;

pub(super) const NODE: &str = "mac-bench";
pub(super) const IMAGE: &str = "ghcr.io/acme/mac:v1";
/// Nobody else's on this machine.
const ADDRESS: &str = "127.77.20.1";

pub(super) struct Ours {
    // Field order is drop order.
    agent: Agent,
    host: MacHost,
    _dir: TempDir,
}

impl Ours {
    pub(super) async fn start(cluster: &TestCluster, program: &Path, tart: &Path) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("russet-bench-").tempdir()?;
        let host = MacHost::new(dir.path(), NODE, tart)?;
        let client = cluster.client().await?;
        host.invite(cluster, &client).await?;
        host.control.push(IMAGE, &Image::default())?;
        let address = format!("--node-ip={ADDRESS}");
        let agent = host.start(program, &[&address, "--max-pods=3", "--provider-id=bench://1"])?;
        host.approve_serving(&client).await?;
        Ok(Self { agent, host, _dir: dir })
    }

    pub(super) fn pid(&self) -> Result<u32> {
        let ended = || format!("the agent has ended: {}", self.log());
        self.agent.pid().with_context(ended)
    }

    pub(super) fn log(&self) -> String {
        self.host.log()
    }
}
