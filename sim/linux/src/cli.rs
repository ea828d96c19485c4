//! Flags of `sim-linux`.

use std::path::PathBuf;

/// The Linux servers behind a running sim-scaleway
///
/// As root each Instance and Elastic Metal server of the emulated Scaleway is a machine of namespaces, with a real sshd, in
/// which user data is carried out and a real kubelet can join. Without root see --synthetic.
#[derive(Debug, Clone, clap::Parser)]
#[command(name = "sim-linux", version, after_help = EXAMPLES)]
pub struct Cli {
    /// The sim-scaleway whose servers these are
    #[arg(
        long,
        env = "SCW_API_URL",
        default_value = "http://127.0.0.1:4280",
        value_name = "URL"
    )]
    pub scaleway: String,
    /// Where the disks of servers are, or what synthetic Nodes remember; used again at the next start
    #[arg(long, value_name = "DIR", required_unless_present = "synthetic")]
    pub state: Option<PathBuf>,
    /// Make Nodes without machines, which needs no root: join programs are read, not run, and Pods never start
    #[arg(long, conflicts_with_all = ["network", "proxy_kubeconfig", "images"])]
    pub synthetic: bool,
    /// Where the API server is by now, whatever servers were told when they joined
    #[arg(long, value_name = "URL")]
    pub api_server: Option<String>,
    /// Plug servers into the network that another process made for this folder; without it sim-linux makes one
    #[arg(long, value_name = "DIR")]
    pub network: Option<PathBuf>,
    /// Run kube-proxy on every server, with this kubeconfig
    #[arg(long, value_name = "FILE")]
    pub proxy_kubeconfig: Option<PathBuf>,
    /// An archive of container images that servers have without a registry; may be given more than once
    #[arg(long = "images", value_name = "FILE")]
    pub images: Vec<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  Servers for the emulated Scaleway, on a network of their own (the range of public addresses is printed):
    sim-linux --state /var/tmp/boxes

  Nodes only, on a laptop and without root:
    sim-linux --synthetic";

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_flags_are_consistent_and_the_help_has_examples() {
        Cli::command().debug_assert();
        let help = Cli::command().render_long_help().to_string();
        assert!(help.contains("sim-linux --state"), "{help}");
    }
}
