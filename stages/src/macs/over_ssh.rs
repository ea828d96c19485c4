//! Minis that are whole emulated Macs, which the provider sets up over SSH as it would real ones.

use std::net::Ipv4Addr;
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use russet_sim_mac::macos::Options;
use russet_sim_scaleway::{AddressPlan, NoBoxes};
use russet_testkit::cluster::tools;
use russet_testkit::program::program;
use serde_json::json;
use tempfile::TempDir;
use tokio::net::TcpListener;

use super::{Fleet, Ground};

/// No Mac has this address. Whoever holds a port here has it on the addresses of all Macs.
const RESERVATION: &str = "127.78.255.254:0";

/// Second numbers of addresses in emulated tailnets. All Macs of this machine share one loopback, so each emulator has a tailnet of its
/// own, as each `russet up` has.
const TAILNETS: RangeInclusive<u8> = 100..=115;
/// Where agents answer the API server; no Mac has the last address of a tailnet, and who listens there has all of it.
const KUBELET: u16 = 10250;
/// The flag that names the archive of `tart`.
const TART: &str = "--tart-tarball-path=";

/// How Macs are reached, and where they live.
#[derive(Debug)]
pub struct Doors {
    port: u16,
    /// None where nothing listens on Macs.
    tailnet: Option<u8>,
    disks: TempDir,
    reserved: Vec<TcpListener>,
}

async fn claim_tailnet() -> Result<(u8, TcpListener)> {
    // `russet up` takes the first that is free.
    for number in TAILNETS.rev() {
        if let Ok(listener) = TcpListener::bind((Ipv4Addr::new(127, number, 255, 254), KUBELET)).await {
            return Ok((number, listener));
        }
    }
    bail!("all emulated tailnets of this machine are taken")
}

impl Doors {
    /// For Macs that are still to come, whose disks are in this folder, and on which programs really listen: on a tailnet of their own.
    pub async fn on_tailnet(dir: &Path) -> Result<Self> {
        let (tailnet, claimed) = claim_tailnet().await?;
        let mut doors = Self::open(dir).await?;
        doors.tailnet = Some(tailnet);
        doors.reserved.push(claimed);
        Ok(doors)
    }

    /// The same for Macs on which nothing listens. There are few tailnets, so these take none.
    pub async fn open(dir: &Path) -> Result<Self> {
        let reserved = TcpListener::bind(RESERVATION)
            .await
            .with_context(|| format!("failed to take a port of {RESERVATION}"))?;
        Ok(Self {
            port: reserved.local_addr()?.port(),
            tailnet: None,
            disks: tempfile::tempdir_in(dir).context("failed to make a folder for the disks of Macs")?,
            reserved: vec![reserved],
        })
    }

    /// How to emulate them. Their launchd is in a hurry: its ten seconds between two starts are a tenth of one.
    pub async fn emulator(&self) -> Result<Options> {
        let mut options = Options::new(self.disks.path(), program("sim-mac", "russet-sim-mac")?);
        options.zsh = Some(tools(&["zsh"]).await?.path("zsh")?.to_owned());
        options.second = Duration::from_millis(10);
        options.reboot = Duration::from_millis(100);
        // Where programs can really listen.
        if let Some(number) = self.tailnet {
            options.tailnet = [127, number];
        }
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
        let mut args = vec![
            "--host-bootstrap=ssh".to_owned(),
            format!("--host-ssh-port={}", self.port),
            "--host-settle-time=300ms".to_owned(),
        ];
        args.extend(self.tailnet.map(|number| format!("--tailnet-cidr=127.{number}.0.0/16")));
        args
    }
}

impl Fleet {
    /// One whose minis are Macs, with further flags for the provider: at least which agent they get. Without an archive of `tart` among them
    /// hosts bring their own, or none.
    pub async fn over_ssh(args: &[&str]) -> Result<Self> {
        let mut ground = Ground::shared().await?;
        // Beside the cluster, whose folder is removed also after a process that was killed.
        ground.doors = Some(Doors::on_tailnet(ground.cluster.dir()).await?);
        let without_tart = (!args.iter().any(|arg| arg.starts_with(TART))).then_some(TART);
        let args: Vec<&str> = args.iter().copied().chain(without_tart).collect();
        Self::running(ground, NoBoxes, &args, json!({})).await
    }
}
