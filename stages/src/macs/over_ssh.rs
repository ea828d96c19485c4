//! Minis that are whole emulated Macs, which the provider sets up over SSH as it would real ones.

use std::time::Duration;

use anyhow::{Context, Result};
use russet_sim_mac::macos::Options;
use russet_sim_scaleway::{AddressPlan, NoBoxes, Settings};
use russet_testkit::cluster::{Extras, TestCluster, tools};
use russet_testkit::program::program;
use tempfile::TempDir;
use tokio::net::TcpListener;

use super::{Fleet, Manner};

/// No Mac has this address. Whoever holds a port here has it on the addresses of all Macs.
const RESERVATION: &str = "127.78.255.254:0";

/// How Macs are reached, and where they live.
#[derive(Debug)]
pub struct Doors {
    port: u16,
    disks: TempDir,
    _reserved: TcpListener,
}

impl Doors {
    /// For Macs that are still to come.
    pub async fn open() -> Result<Self> {
        let reserved = TcpListener::bind(RESERVATION)
            .await
            .with_context(|| format!("failed to take a port of {RESERVATION}"))?;
        Ok(Self {
            port: reserved.local_addr()?.port(),
            disks: tempfile::tempdir().context("failed to make a folder for the disks of Macs")?,
            _reserved: reserved,
        })
    }

    /// How to emulate them. Their launchd is in a hurry: its ten seconds between two starts are a tenth of one.
    pub async fn emulator(&self) -> Result<Options> {
        let mut options = Options::new(self.disks.path(), program("sim-mac", "russet-sim-mac")?);
        options.zsh = Some(tools(&["zsh"]).await?.path("zsh")?.to_owned());
        options.second = Duration::from_millis(10);
        options.reboot = Duration::from_millis(100);
        // Where programs can really listen.
        options.tailnet = [127, 100];
        Ok(options)
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Where the emulated Scaleway says they are.
    pub fn addresses(&self) -> AddressPlan {
        AddressPlan::LoopbackEach { ssh_port: self.port }
    }

    pub(super) fn provider_args(&self) -> Vec<String> {
        vec![
            "--host-bootstrap=ssh".to_owned(),
            format!("--host-ssh-port={}", self.port),
            "--host-settle-time=300ms".to_owned(),
            // Virtual machines are other stories.
            "--tart-tarball-path=".to_owned(),
        ]
    }
}

impl Fleet {
    /// One of its own whose minis are Macs, with further flags for the provider: at least which agent they get.
    pub async fn over_ssh(args: &[&str]) -> Result<Self> {
        let cluster = TestCluster::start(Extras {
            controller_manager: true,
            cluster_api: true,
            ..Extras::default()
        })
        .await?;
        let doors = Doors::open().await?;
        let fleet = Self::assembled(cluster, Manner::Test, Settings::default(), NoBoxes, Some(doors)).await?;
        fleet.with_provider(args).await
    }
}
