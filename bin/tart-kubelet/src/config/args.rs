//! The flags. Names, defaults and environment are those hosts have had before; what is new says so.

use std::ffi::OsStr;
use std::path::PathBuf;

use clap::{ArgAction, CommandFactory as _, FromArgMatches as _, Parser, ValueEnum};
use russet_telemetry::log::Format;

use super::Cidr;

/// Where the address of the Node comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum NodeIpSource {
    /// The first IPv4 address of the host that is neither local to it nor to its virtual machines.
    Auto,
    /// The tailnet and nothing else: without it the agent does not start.
    Tailscale,
}

/// What runs virtual machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RuntimeKind {
    /// The `tart` command.
    Tart,
    /// Nothing: they are only told of.
    Synthetic,
}

/// Where screens are asked for unless a host says otherwise.
pub(super) const VNC_CONTROL_DIR: &str = "/var/lib/tart-vnc-control";
/// What one account's master takes at most unless a host says otherwise.
pub(super) const CACHE_VOLUME_CAP_GIB: u32 = 20;

const EXAMPLES: &str = "\
Examples:
  What launchd runs on a Mac of a fleet:
    tart-kubelet --node-name=mac-1 --kubeconfig=/etc/tart-kubelet/kubeconfig \\
      --provider-id=scw-applesilicon://fr-par-3/1f0e --node-labels=tuist.dev/fleet=runners --node-ip-source=tailscale

  Are the flags right?
    tart-kubelet --check-config --node-labels=tuist.dev/fleet=runners";

/// Makes a Mac a Kubernetes Node
#[derive(Clone, Debug, Parser)]
#[command(name = "tart-kubelet", version = crate::VERSION, after_help = EXAMPLES)]
pub struct Args {
    /// Name of the Node; by default that of the host
    #[arg(long, value_name = "NAME", env = "TART_KUBELET_NODE_NAME")]
    pub node_name: Option<String>,

    /// Which machine this is, such as scw-applesilicon://<zone>/<id>
    #[arg(long, value_name = "ID", env = "TART_KUBELET_PROVIDER_ID", default_value = "")]
    pub provider_id: String,

    /// Address of the Node, whatever --node-ip-source would find
    #[arg(long, value_name = "ADDRESS", env = "TART_KUBELET_NODE_IP", default_value = "")]
    pub node_ip: String,

    /// Where the address comes from
    #[arg(long, value_enum, env = "TART_KUBELET_NODE_IP_SOURCE", default_value = "auto")]
    pub node_ip_source: NodeIpSource,

    /// From where metrics of virtual machines may be read, but never by virtual machines of this host (may be given more than once); by default from private and local networks and the tailnet
    #[arg(long, value_name = "CIDR")]
    pub scrape_allowed_cidr: Vec<Cidr>,

    /// Labels of the Node, as key=value,key=value
    #[arg(long, value_name = "LABELS", env = "TART_KUBELET_NODE_LABELS", default_value = "")]
    pub node_labels: String,

    /// Taints of the Node at its registration, as key=value:effect,key=value:effect (new; named as kubelets have it)
    #[arg(
        long,
        value_name = "TAINTS",
        env = "TART_KUBELET_REGISTER_WITH_TAINTS",
        default_value = ""
    )]
    pub register_with_taints: String,

    /// CPU cores the Node offers
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub host_cpu: u32,

    /// Memory the Node offers
    #[arg(long, value_name = "MB", default_value_t = 16384)]
    pub host_memory_mb: u32,

    /// Pods the Node takes
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub max_pods: u32,

    /// Where metrics are; with an address on the tailnet, :8080 is :8080 there. 0: nowhere
    #[arg(long, value_name = "ADDRESS", default_value = ":8080")]
    pub metrics_bind_address: String,

    /// Where probes are; :8081 is :8081 on the tailnet, else on the loopback. 0: nowhere
    #[arg(long, value_name = "ADDRESS", default_value = ":8081")]
    pub health_probe_bind_address: String,

    /// Where the kubelet API is, which kubectl logs and exec need; :10250 is :10250 on the tailnet if there is one. 0: nowhere (new)
    #[arg(long, value_name = "ADDRESS", default_value = ":10250")]
    pub kubelet_bind_address: String,

    /// Whose client certificates the kubelet API believes; by default those of the authority in the kubeconfig (new)
    #[arg(long, value_name = "FILE")]
    pub client_ca_file: Option<PathBuf>,

    /// tart
    #[arg(long, value_name = "FILE", default_value = "/usr/local/bin/tart")]
    pub tart_binary: PathBuf,

    /// Where tart keeps virtual machines and images; by default ~/.tart (new)
    #[arg(long, value_name = "DIR", env = "TART_HOME")]
    pub tart_home: Option<PathBuf>,

    /// Whose ~ that is
    #[arg(long, value_name = "DIR", env = "HOME", hide = true)]
    pub home: Option<PathBuf>,

    /// What runs virtual machines; those of a benchmark are not real
    #[arg(long, value_enum, default_value = "tart", hide = true)]
    pub runtime: RuntimeKind,

    /// tailscale (new)
    #[arg(long, value_name = "FILE", default_value = "/usr/local/bin/tailscale")]
    pub tailscale_binary: PathBuf,

    /// Where screens of virtual machines are asked for; empty relays none (accepted; no effect yet)
    #[arg(
        long,
        value_name = "DIR",
        env = "TART_KUBELET_VNC_CONTROL_DIR",
        default_value = VNC_CONTROL_DIR
    )]
    pub vnc_control_dir: String,

    /// Host by which screens are reached; by default the address of the Node (accepted; no effect yet)
    #[arg(long, value_name = "HOST", env = "TART_KUBELET_VNC_RELAY_HOST", default_value = "")]
    pub vnc_relay_host: String,

    /// Port of screens; 0 takes a free one (accepted; no effect yet)
    #[arg(long, value_name = "PORT", env = "TART_KUBELET_VNC_RELAY_PORT", default_value_t = 0)]
    pub vnc_relay_port: u16,

    /// Where caches of runners are; empty for none (accepted; no effect yet)
    #[arg(long, value_name = "DIR", env = "TART_KUBELET_RUNNER_CACHE_ROOT", default_value = "")]
    pub runner_cache_root: String,

    /// Most that one account's master may take of it (accepted; no effect yet)
    #[arg(
        long,
        value_name = "GIB",
        env = "TART_KUBELET_CACHE_VOLUME_CAP_GIB",
        default_value_t = CACHE_VOLUME_CAP_GIB
    )]
    pub cache_volume_cap_gib: u32,

    /// What of it is for compilation caches (accepted; no effect yet)
    #[arg(
        long,
        value_name = "GIB",
        env = "TART_KUBELET_CACHE_VOLUME_CAS_GIB",
        default_value_t = 0
    )]
    pub cache_volume_cas_gib: u32,

    /// Keep virtual machines that nobody seems to use: builders make such
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = ArgAction::Set)]
    pub disable_vm_gc: bool,

    /// A log of a container that is longer is set aside (new; named as kubelets have it)
    #[arg(long, value_name = "SIZE", default_value = "10Mi")]
    pub container_log_max_size: String,

    /// How many files the log of a container has at most, at least 2 (new; named as kubelets have it)
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub container_log_max_files: usize,

    /// How often the host is asked how it is, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 30, hide = true)]
    pub housekeeping_interval: u64,

    /// Where an emulated host says how full its disk is
    #[arg(long, value_name = "FILE", hide = true)]
    pub disk_report: Option<PathBuf>,

    /// launchctl, where it is not in its usual place; only macOS has one
    #[arg(long, value_name = "FILE", hide = true)]
    pub launchctl_binary: Option<PathBuf>,

    /// sysctl, which knows how short memory is
    #[arg(long, value_name = "FILE", hide = true, default_value = "/usr/sbin/sysctl")]
    pub sysctl_binary: PathBuf,

    /// ps, which knows how many processes run
    #[arg(long, value_name = "FILE", hide = true, default_value = "/bin/ps")]
    pub ps_binary: PathBuf,

    /// What the Node joins with
    #[arg(long, value_name = "FILE", default_value = "/etc/tart-kubelet/kubeconfig")]
    pub kubeconfig: PathBuf,

    /// Where the API server is and who vouches for it, as kube-public/cluster-info has it; wins over --kubeconfig (new)
    #[arg(long, value_name = "FILE")]
    pub cluster_info: Option<PathBuf>,

    /// Where the node's key and memory are (new)
    #[arg(
        long,
        value_name = "DIR",
        env = "TART_KUBELET_STATE_DIR",
        default_value = "/var/lib/tart-kubelet"
    )]
    pub state_dir: PathBuf,

    /// What the Node says its kubelet is; Cluster API compares it with the version of the Machine (new)
    #[arg(long, value_name = "VERSION", default_value = russet_node::KUBELET_VERSION)]
    pub kubelet_version: String,

    /// How log lines look: auto, human or json (new)
    #[arg(long, value_name = "FORMAT", default_value = "auto")]
    pub log_format: Format,

    /// Which log lines are shown, such as info,russet_node=debug (new)
    #[arg(long, value_name = "FILTER", env = "TART_KUBELET_LOG", default_value = "")]
    pub log_filter: String,

    /// As earlier releases had it: debug, info, error or a number
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub zap_log_level: String,

    /// Accepted for compatibility and not used
    #[arg(long, hide = true, default_value = "")]
    pub zap_encoder: String,

    /// Accepted for compatibility and not used
    #[arg(long, hide = true, num_args = 0..=1, default_value = "", default_missing_value = "true")]
    pub zap_devel: String,

    /// Accepted for compatibility and not used
    #[arg(long, hide = true, default_value = "")]
    pub zap_stacktrace_level: String,

    /// Accepted for compatibility and not used
    #[arg(long, hide = true, default_value = "")]
    pub zap_time_encoding: String,

    /// Check the flags and end (new)
    #[arg(long)]
    pub check_config: bool,
}

impl Args {
    /// What this process was told. Hosts set a variable to nothing to mean that it is not set.
    pub fn read() -> Self {
        let is_empty = |name: &OsStr| std::env::var_os(name).is_some_and(|value| value.is_empty());
        let matches = without(Self::command(), is_empty).get_matches();
        Self::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
    }
}

/// The command without these variables.
pub(super) fn without(command: clap::Command, ignored: impl Fn(&OsStr) -> bool) -> clap::Command {
    command.mut_args(|arg| {
        let drop = arg.get_env().is_some_and(&ignored);
        if drop { arg.env(None::<&'static str>) } else { arg }
    })
}
