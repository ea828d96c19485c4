//! Emulated Macs behind an emulated Scaleway, without a cluster: for what is set up over SSH.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use russet_sim_mac::macos::{Mac, Macs, Options};
use russet_sim_scaleway::{DEFAULT_SECRET_KEY, Factor, Host, Id, Minis, Options as SimOptions, Sim};
use russet_testkit::wait::{self, Look, PATIENCE};
use tempfile::TempDir;

use super::over_ssh::Doors;

/// Macs, and the files that they are set up with. Emulated time moves by hand.
#[derive(Debug)]
pub struct Rack {
    // Field order is drop order.
    pub sim: Sim,
    pub macs: Macs,
    ids: Vec<Id>,
    dir: TempDir,
    doors: Doors,
}

impl Rack {
    /// So many free Macs that are there.
    pub async fn new(count: u32) -> Result<Self> {
        Self::with(count, |_| {}).await
    }

    /// The same, emulated otherwise than usual.
    pub async fn with(count: u32, change: impl FnOnce(&mut Options)) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let doors = Doors::open(dir.path()).await?;
        let mut options = doors.emulator().await?;
        options.second = Duration::from_millis(50);
        change(&mut options);
        let macs = Macs::new(options)?;
        let options = SimOptions {
            clock_factor: Factor::MANUAL,
            addresses: doors.addresses(),
            ..SimOptions::default()
        };
        let sim = Sim::start_with(options, macs.clone()).await?;
        let ids = sim.handle().add_minis(Minis {
            name: "tuist-pool-0".into(),
            count,
            ..Minis::default()
        })?;
        let rack = Self {
            sim,
            macs,
            ids,
            dir,
            doors,
        };
        for number in 0..rack.ids.len() {
            rack.mac(number).await?;
        }
        Ok(rack)
    }

    /// The servers, in order.
    pub fn ids(&self) -> &[Id] {
        &self.ids
    }

    /// Where their sshd listens.
    pub fn port(&self) -> u16 {
        self.doors.port()
    }

    /// What Scaleway knows of a Mac.
    pub fn host(&self, number: usize) -> Result<Host> {
        let id = self.ids.get(number).context("there are fewer Macs")?;
        self.sim.handle().host(id).context("there is no such server")
    }

    /// A Mac as it is installed now; one that is being installed is waited for.
    pub async fn mac(&self, number: usize) -> Result<Mac> {
        self.mac_of(&self.host(number)?.server_id).await
    }

    /// The same, by its server.
    pub async fn mac_of(&self, server: &Id) -> Result<Mac> {
        wait::until("the Mac of a server", PATIENCE, || async {
            let mac = self.macs.mac(server).await;
            Ok(mac.map_or_else(|| Look::not_yet(server), Look::Done))
        })
        .await
    }

    /// Installs a Mac anew, as an operator does in the console: everything on it is gone when emulated time has passed.
    pub async fn reinstall(&self, host: &Host) -> Result<()> {
        let (url, zone, id) = (self.sim.url(), &host.zone, &host.server_id);
        let answer = reqwest::Client::builder()
            .no_proxy()
            .build()?
            .post(format!(
                "{url}/apple-silicon/v1alpha1/zones/{zone}/servers/{id}/reinstall"
            ))
            .header("x-auth-token", DEFAULT_SECRET_KEY)
            .header("content-type", "application/json")
            .body("{}")
            .send()
            .await?;
        ensure!(answer.status().is_success(), "{}", answer.text().await?);
        Ok(())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A file that Macs are set up with.
    pub fn put(&self, name: &str, content: &str) -> Result<PathBuf> {
        let path = self.path(name);
        put(&path, content.as_bytes())?;
        Ok(path)
    }

    /// An archive of programs.
    pub fn archive(&self, name: &str, files: &[(&str, &str)]) -> Result<PathBuf> {
        let path = self.path(name);
        archive(&path, files)?;
        Ok(path)
    }
}

/// Writes a file that appears whole or not at all, as files of a new image do.
pub fn put(path: &Path, content: &[u8]) -> Result<()> {
    let next = path.with_extension("next");
    std::fs::write(&next, content)
        .and_then(|()| std::fs::rename(&next, path))
        .with_context(|| format!("failed to write {}", path.display()))
}

/// An archive with these programs, which appears whole or not at all.
pub fn archive(path: &Path, files: &[(&str, &str)]) -> Result<()> {
    let folder = tempfile::tempdir()?;
    for (name, content) in files {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().context("a folder")?)?;
        std::fs::write(&path, content)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))?;
    }
    pack(path, folder.path())
}

/// An archive of a folder, which appears whole or not at all.
pub fn pack(path: &Path, folder: &Path) -> Result<()> {
    let next = path.with_extension("next");
    let mut tar = Command::new("tar");
    tar.arg("-czf").arg(&next).arg("-C").arg(folder).arg(".");
    ensure!(tar.status().context("failed to run tar")?.success(), "tar failed");
    Ok(std::fs::rename(next, path)?)
}
