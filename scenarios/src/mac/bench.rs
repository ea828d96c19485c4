//! Emulated Macs without a cluster.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use russet_bootstrap::mac::{Agent, Artifact, Artifacts, Firewall, Fleet};
use russet_sim_mac::macos::Macs;
use russet_sim_scaleway::{Factor, Id, Minis, Sim};
use russet_stages::macs::over_ssh::Doors;
use tempfile::TempDir;

use super::Mini;

/// A few Macs.
pub(super) struct Bench {
    sim: Sim,
    macs: Macs,
    ids: Vec<Id>,
    artifacts: Artifacts,
    dir: TempDir,
    _doors: Doors,
}

/// Writes a file that appears whole or not at all, as files of a new image do.
pub(super) fn put(path: &Path, content: &[u8]) -> Result<()> {
    let next = path.with_extension("next");
    std::fs::write(&next, content)
        .and_then(|()| std::fs::rename(&next, path))
        .with_context(|| format!("failed to write {}", path.display()))
}

/// An archive with these programs.
pub(super) fn archive(path: &Path, files: &[(&str, &str)]) -> Result<()> {
    let folder = tempfile::tempdir()?;
    for (name, content) in files {
        let path = folder.path().join(name);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        let mut file = std::fs::File::create(&path)?;
        file.write_all(content.as_bytes())?;
        file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    }
    pack(path, folder.path())
}

/// An archive of a folder.
pub(super) fn pack(path: &Path, folder: &Path) -> Result<()> {
    let packed = Command::new("tar")
        .arg("-czf")
        .arg(path)
        .arg("-C")
        .arg(folder)
        .arg(".")
        .status();
    ensure!(packed.context("failed to run tar")?.success(), "tar failed");
    Ok(())
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
        let dir = tempfile::tempdir()?;
        let doors = Doors::open(dir.path()).await?;
        let macs = Macs::new(doors.emulator().await?)?;
        let options = russet_sim_scaleway::Options {
            clock_factor: Factor::MANUAL,
            addresses: doors.addresses(),
            ..russet_sim_scaleway::Options::default()
        };
        let sim = Sim::start_with(options, macs.clone()).await?;
        let ids = sim.handle().add_minis(Minis {
            count,
            ..Minis::default()
        })?;
        Ok(Self {
            sim,
            macs,
            ids,
            artifacts: Artifacts::default(),
            dir,
            _doors: doors,
        })
    }

    /// One of them, once it answers.
    pub(super) async fn mini(&self, number: usize) -> Result<Mini> {
        let id = self.ids.get(number).context("there are fewer Macs")?;
        Mini::find(self.sim.handle(), &self.macs, id).await
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
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
