//! The cache node: one `kura` for everybody on this machine, with its data in the state directory.

use crate::state::Layout;
use anyhow::{Context, Result};
use russet_cluster::ports::Ports;
use russet_cluster::process::{Probe, Restart, Spec, Supervisor};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

/// Its name among the parts, and of its program.
pub(crate) const NAME: &str = "kura";

/// The program, when it lies where cargo and packages put it: beside this one.
pub(crate) fn program(russet: &Path) -> Option<PathBuf> {
    let beside = russet.parent()?.join(NAME);
    beside.is_file().then_some(beside)
}

/// Starts the node on loopback, open to this machine only, and returns its URL.
pub(crate) async fn start(program: &Path, layout: &Layout, supervisor: &Supervisor) -> Result<String> {
    let home = layout.cache();
    std::fs::create_dir_all(&home).with_context(|| format!("failed to make {}", home.display()))?;
    let ports = Ports::pick(&home, Ipv4Addr::LOCALHOST, &[NAME])?;
    let address = ports.socket(NAME);
    let url = format!("http://{address}");
    let spec = Spec::new(NAME, program, layout.logs().join("kura.log"))
        .args(["serve", "--bind-address", "127.0.0.1", "--auth-anonymous", "read-write"])
        .args(["--port".to_owned(), address.port().to_string()])
        .args(["--data-dir".to_owned(), home.join("data").display().to_string()])
        .listens(address)
        .probe(Probe::Http {
            url: format!("{url}/ready"),
        })
        .restart(Restart::DEFAULT);
    supervisor.start(spec).await.context("failed to start the cache node")?;
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_the_one_beside_ours_or_none() {
        let dir = tempfile::tempdir().unwrap();
        let russet = dir.path().join("russet");
        assert_eq!(program(&russet), None);
        std::fs::write(dir.path().join("kura"), "").unwrap();
        assert_eq!(program(&russet), Some(dir.path().join("kura")));
    }
}
