//! Flags of `sim-mac`.

use crate::fleet::{DEFAULT_PORT, Options};
use crate::macos;
use russet_node::KUBELET_VERSION as DEFAULT_KUBELET_VERSION;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// The Mac minis behind a running sim-scaleway
///
/// Each mini of the emulated Scaleway answers on its own loopback address. It is a stand-in agent: told to join, it asks for
/// a certificate with the bootstrap kubeconfig it was given, registers its Node and keeps it alive. It has no virtual machines: a Pod
/// that is put there fails at once and says so.
#[derive(Debug, Clone, clap::Parser)]
#[command(name = "sim-mac", version, after_help = EXAMPLES)]
pub struct Cli {
    /// The sim-scaleway whose machines these are
    #[arg(
        long,
        env = "SCW_API_URL",
        default_value = "http://127.0.0.1:4280",
        value_name = "URL"
    )]
    pub scaleway: String,
    /// The port on the address of every machine; 0 takes a free one and prints it
    #[arg(long, default_value_t = DEFAULT_PORT)]
    pub port: u16,
    /// Keep the disks of machines in this folder and go on from them at the next start
    #[arg(long, value_name = "DIR")]
    pub disks: Option<PathBuf>,
    /// Where the API server is by now, whatever the kubeconfigs say that machines were given
    #[arg(long, value_name = "URL")]
    pub api_server: Option<http::Uri>,
    /// What Nodes say their kubelet is; must be the version of the MachineDeployments to the letter
    #[arg(long, default_value = DEFAULT_KUBELET_VERSION, value_name = "VERSION", value_parser = version)]
    pub kubelet_version: String,
    /// Emulate macOS behind each machine, with SSH on its address, and keep the files in this folder
    #[arg(long, value_name = "DIR")]
    pub macos: Option<PathBuf>,
    /// The zsh of the Macs, best a static one; without it their shell is bash
    #[arg(long, value_name = "PATH", requires = "macos")]
    pub zsh: Option<PathBuf>,
    /// Disks of this many bytes in memory instead of folders: they can be full, and are gone with this process
    #[arg(long, value_name = "BYTES", requires = "macos")]
    pub memory_disks: Option<u64>,
    /// Macs have a display; without one, as in a data centre, loginwindow logs in by itself only when it is started again
    #[arg(long, requires = "macos")]
    pub display: bool,
    /// The first two numbers of the Macs' addresses in the tailnet; with 127.100 programs can really listen there
    #[arg(long, value_name = "N.N", default_value = "100.64", value_parser = two_numbers)]
    pub tailnet: [u8; 2],
    /// Where the control API of the Macs listens (faults, reboots, what was called)
    #[arg(long, value_name = "ADDRESS", requires = "macos")]
    pub control: Option<SocketAddr>,
}

const EXAMPLES: &str = "\
Examples:
  Five minis that can join a cluster:
    sim-scaleway --pool 5 &
    sim-mac --scaleway http://127.0.0.1:4280

  Five Macs to log in to, and one of them that drops connections:
    sim-mac --macos /tmp/macs --zsh /usr/bin/zsh --control 127.0.0.1:4281 &
    curl -X PATCH -d '{\"ssh\": {\"drop_after\": 100000}}' http://127.0.0.1:4281/_sim/macs/tuist-pool-1/faults

  What one of them is doing (user and password: curl http://127.0.0.1:4280/_sim/hosts):
    curl -u m1:PASSWORD http://127.77.0.1:10251/state";

/// Cluster API takes nothing but `v` and a full version.
fn version(text: &str) -> Result<String, String> {
    let numbers: Option<Vec<u32>> = text
        .strip_prefix('v')
        .map(|rest| rest.split(['-', '+']).next().unwrap_or_default())
        .and_then(|core| core.split('.').map(|number| number.parse().ok()).collect());
    match numbers {
        Some(numbers) if numbers.len() == 3 => Ok(text.to_owned()),
        _ => Err(format!("{text:?} is not a version such as {DEFAULT_KUBELET_VERSION}")),
    }
}

fn two_numbers(text: &str) -> Result<[u8; 2], String> {
    let numbers = text
        .split_once('.')
        .and_then(|(one, two)| Some([one.parse().ok()?, two.parse().ok()?]));
    numbers.ok_or_else(|| format!("{text:?} is not the beginning of an address such as 100.64"))
}

impl Cli {
    /// What to emulate.
    pub fn options(&self) -> std::io::Result<Options> {
        let macos = match &self.macos {
            Some(dir) => Some(self.macs(dir)?),
            None => None,
        };
        Ok(Options {
            macos,
            port: self.port,
            kubelet_version: self.kubelet_version.clone(),
            disks: self.disks.clone(),
            api_server: self.api_server.clone(),
            refuse_pods: true,
            ..Options::default()
        })
    }

    fn macs(&self, dir: &Path) -> std::io::Result<macos::Options> {
        let mut options = macos::Options::new(dir, std::env::current_exe()?);
        options.zsh.clone_from(&self.zsh);
        options.memory_disks = self.memory_disks;
        options.tailnet = self.tailnet;
        options.quirks.headless = !self.display;
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_flags_are_consistent_and_the_help_has_examples() {
        Cli::command().debug_assert();
        let help = Cli::command().render_long_help().to_string();
        assert!(help.contains("sim-scaleway --pool 5"), "{help}");
    }

    #[test]
    fn a_version_is_complete() {
        for good in ["v1.35.4", "v1.36.0-rc.1", "v1.35.4+tart"] {
            assert!(version(good).is_ok(), "{good}");
        }
        for bad in ["1.35.4", "v1.35", "v1.35.x", ""] {
            assert!(version(bad).is_err(), "{bad}");
        }
    }
}
