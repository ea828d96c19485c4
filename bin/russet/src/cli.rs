//! The command line, as types. What a flag means is decided here once; the commands get plain values.

use crate::exit;
use clap::{ArgAction, Args, Parser, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Where the state lives unless told otherwise.
pub const DEFAULT_DIR: &str = ".russet";

const ABOUT: &str = "Mac minis as Kubernetes capacity: run the whole of Russet on this machine";

const OVERVIEW: &str = "\
Examples:
  russet up                      start a real cluster here and keep it running until Ctrl-C
  russet status --watch          what runs, how it is, what it uses
  russet kubectl get crd         our kubectl with our kubeconfig
  russet logs kube-apiserver -f  follow one part
  russet down                    stop everything and remove .russet/

";

const STATUS_EXAMPLES: &str = "\
Examples:
  russet status              a table
  russet status --watch      the same, kept up to date
  russet status --json       for scripts; `russet status --help` lists the fields
  russet status >/dev/null && echo healthy

Exits with 3 when nothing runs or something is wrong.";

/// The interface of `--json`. A test compares it with the document.
const STATUS_FIELDS: &str = "\
Fields of --json (fields are added, never renamed; `schema` rises if one changes its meaning; what is unknown is null):
  schema                       1
  state                        ready | starting | stopping | degraded | stopped
  problems[]                   why it is not ready, as sentences
  dir                          the state directory
  up                           the process of `russet up`; null when none runs
    .pid .version .started_at .uptime_seconds .memory_bytes
    .ready_after_seconds       from the start until everything answered
  parts[]                      the supervised processes
    .name .pid .log .address .started_at .uptime_seconds
    .state                     Starting | Running | BackingOff | Stopped | Failed
    .restarts                  since `up` started
    .ready_after_seconds       of its latest start
    .memory_bytes              resident
    .cpu_seconds .cpu_percent  since it started; of one core, over the last moments
    .last_exit                 how it last ended
  cluster                      what the API server says; null when it was not asked
    .server .kubeconfig .context .version
    .reachable .error          whether it answered, and why not
    .nodes.total .nodes.ready
    .crds[].name .established  our CRDs
    .cluster_api.installed .ready .wanted
    .fleet                     Macs and cache nodes; null where their kinds are not served
      .groups[]                MachineDeployments: .name .namespace .wanted .ready .available
        .kind                  Mac | ElasticMetal | Instance
      .macs[]                  .name .namespace .fleet .phase .server_id .address .ready .created_at
        .message               what it waits for
        .hosting               what is on it, as its Node and Pods tell; null while it has no Node
          .address .places     where the Node is dialled; Pods it takes
          .disk_bytes .disk_pressure
          .images[]            .names .bytes
          .vms[]               one per container: .namespace .pod .container .image .address .ready .restarts .created_at .age_seconds
            .phase             what keeps it, else the phase of its Pod
      .servers[]               Linux cache nodes: .name .namespace .fleet .zone .phase .server_id .ready .message .created_at
        .kind                  ElasticMetal | Instance
        .private_address .public_address
        .node_ready            whether its Node is Ready
        .synthetic             no machine: no Pod runs there
        .per_hour_micro_eur    what the emulated account pays for it
  account                      the emulated Scaleway account; null when `up` runs none
    .url .emulated .servers .pooled .pooled_ready
    .per_hour_micro_eur .total_micro_eur";

/// `russet`
#[derive(Debug, Parser)]
#[command(name = "russet", version, about = ABOUT, after_help = format!("{OVERVIEW}{}", exit::TABLE))]
#[command(arg_required_else_help = true, propagate_version = false)]
pub struct Cli {
    /// Say more: -v tells what is done, -vv everything
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub verbose: u8,

    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start a cluster with Cluster API core, emulated Macs and Linux cache nodes, and keep it running until Ctrl-C
    Up(Up),
    /// Stop a running `up` and remove its state
    Down(Down),
    /// Show what runs and whether it is healthy
    Status(Status),
    /// Show the log of one part
    Logs(Logs),
    /// Run kubectl against the cluster of `up`
    Kubectl(Kubectl),
    /// Obtain and list the real parts: etcd, kube-apiserver, Cluster API core, Helm, …
    Parts(Parts),
    /// Look at a Mac: run a command on it, see how it is being set up
    Host(Host),
    /// Try the build cache with a real build tool
    Cache(Cache),
    /// Replay an incident of the past with real parts, and see that it cannot happen again
    Replay(Replay),
    /// Show versions: russet and every pinned part
    Version(Version),
    /// Print a completion script for a shell
    Completions(Completions),
}

/// Where the state lives.
#[derive(Debug, Clone, Args)]
pub struct Dir {
    /// Directory of the cluster's state
    #[arg(long, value_name = "DIR", default_value = DEFAULT_DIR, env = "RUSSET_DIR")]
    pub dir: PathBuf,
}

#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  russet up                         everything on this machine, in the foreground
  russet up --detach                the same, in the background; returns when it is ready
  russet up --pool 20 --macs 12     a bigger fleet of emulated Macs
  russet up --no-linux              without the Linux cache nodes, on a small machine
  russet up --dir /tmp/second       a second cluster beside the first
  russet up --kubeconfig ~/.kube/config --context kind-dev
                                    install our CRDs into a cluster you already have
  russet up --parts-dir ./bin       use these binaries of etcd, kube-apiserver, …

The Linux cache nodes are real as root: namespaces in which a real kubelet joins and runs Pods. Otherwise
they are synthetic, which their Nodes and `russet status` say.

The state survives Ctrl-C and kill -9: the next `up` goes on with the same objects.")]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the command line, independent of the others"
)]
pub struct Up {
    #[command(flatten)]
    pub dir: Dir,

    /// Use an existing cluster instead of starting one
    #[arg(long, value_name = "FILE", conflicts_with_all = ["detach", "durable", "no_capi", "no_fleet", "no_linux", "synthetic_linux", "synthetic_macs", "pool", "macs"])]
    pub kubeconfig: Option<PathBuf>,

    /// Context of that kubeconfig (the current one if not given)
    #[arg(long, value_name = "NAME", requires = "kubeconfig")]
    pub context: Option<String>,

    /// Look for binaries here first (may be given more than once)
    #[arg(long, value_name = "DIR")]
    pub parts_dir: Vec<PathBuf>,

    /// Start in the background and return when everything is ready
    #[arg(long)]
    pub detach: bool,

    /// Let etcd flush every write to the disk: survives a power cut, slower
    #[arg(long)]
    pub durable: bool,

    /// Leave Cluster API core out, and with it the Macs and cache nodes
    #[arg(long)]
    pub no_capi: bool,

    /// Leave the Macs and cache nodes out: no emulated Scaleway, no provider
    #[arg(long)]
    pub no_fleet: bool,

    /// Leave the Linux cache nodes out; those of an earlier start are given up
    #[arg(long, conflicts_with = "synthetic_linux")]
    pub no_linux: bool,

    /// Make the cache nodes synthetic even as root: Nodes without machines, on which no Pod runs
    #[arg(long)]
    pub synthetic_linux: bool,

    /// Let a stand-in agent join for each Mac, instead of setting Macs up over SSH; no Pod runs there; from the first start on
    #[arg(long)]
    pub synthetic_macs: bool,

    /// Minis in the emulated account at its first start
    #[arg(long, value_name = "COUNT", default_value_t = 4, value_parser = clap::value_parser!(u32).range(..=10_000))]
    pub pool: u32,

    /// Minis that become Machines, in three fleets; `kubectl scale machinedeployment` changes it later
    #[arg(long, value_name = "COUNT", default_value_t = 3, value_parser = clap::value_parser!(u32).range(..=10_000))]
    pub macs: u32,

    /// How long everything may take to get ready, once the parts are at hand
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = duration)]
    pub timeout: Duration,

    /// Set by `--detach` on the process it starts.
    #[arg(long, hide = true, conflicts_with = "detach")]
    pub background: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  russet down              stop, and remove the state directory
  russet down --keep-data  stop, and keep everything for the next `up`")]
pub struct Down {
    #[command(flatten)]
    pub dir: Dir,

    /// Stop the processes, keep the state
    #[arg(long)]
    pub keep_data: bool,
}

#[derive(Debug, Args)]
#[command(after_help = STATUS_EXAMPLES, after_long_help = format!("{STATUS_EXAMPLES}\n\n{STATUS_FIELDS}"))]
pub struct Status {
    #[command(flatten)]
    pub dir: Dir,

    /// Print JSON
    #[arg(long)]
    pub json: bool,

    /// Repeat until Ctrl-C
    #[arg(short, long)]
    pub watch: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  russet logs                           which logs there are
  russet logs kube-apiserver            the last 100 lines
  russet logs kube-apiserver -f         and what comes
  russet logs etcd --tail all           everything
  russet logs kube-apiserver --previous what it wrote under the `up` before this one")]
pub struct Logs {
    /// Name of the part, as `russet status` shows it
    pub part: Option<String>,

    #[command(flatten)]
    pub dir: Dir,

    /// Go on as lines are written
    #[arg(short, long)]
    pub follow: bool,

    /// How many lines from the end, or `all`
    #[arg(long, value_name = "N", default_value = "100", value_parser = tail)]
    pub tail: Tail,

    /// The log of the run before: of the earlier `up`
    #[arg(short, long, conflicts_with = "follow")]
    pub previous: bool,
}

/// How much of a log to show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tail {
    All,
    Lines(usize),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  russet kubectl get crd
  russet kubectl -- apply -f examples/runnerpool.yaml
  russet kubectl --dir /tmp/second get nodes")]
pub struct Kubectl {
    #[command(flatten)]
    pub dir: Dir,

    /// Arguments for kubectl
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    pub args: Vec<OsString>,
}

#[derive(Debug, Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
#[command(after_help = "\
Examples:
  russet parts list                     what is pinned, and where each one was found
  russet parts fetch --all              obtain everything now, for work without a network
  russet parts fetch etcd kube-apiserver
  $(russet parts path helm) version     run one

Looked for in this order: --parts-dir and KUBEBUILDER_ASSETS, russet's cache, the official
download, a build with Go.")]
pub struct Parts {
    #[command(subcommand)]
    pub action: PartsAction,

    /// Look for binaries here first (may be given more than once)
    #[arg(long, value_name = "DIR", global = true)]
    pub parts_dir: Vec<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub enum PartsAction {
    /// List every part: version, where it is or would come from
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Obtain parts that are not here yet
    Fetch {
        /// Names of parts, as `russet parts list` shows them
        #[arg(required_unless_present = "all")]
        tools: Vec<String>,
        /// Every part this machine can use
        #[arg(long, conflicts_with = "tools")]
        all: bool,
    },
    /// Print the path of one part
    Path {
        /// Name of the part
        tool: String,
    },
    /// Read every cached part again and compare it with its checksum
    Verify,
}

#[derive(Debug, Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
#[command(after_help = "\
Examples:
  russet host steps mac-1                       how far its set-up is, step by step
  russet host steps mac-1 --watch               the same, kept up to date until it is over
  russet host exec mac-1 -- launchctl print system/dev.tuist.tart-kubelet
  russet host exec mac-1 -- 'tail -n 20 /var/log/tart-kubelet.log | cut -c1-120'

A name is that of the machine, as `russet status` shows it.")]
pub struct Host {
    #[command(subcommand)]
    pub action: HostAction,
}

#[derive(Debug, Subcommand)]
pub enum HostAction {
    /// Run a command on a host over SSH, with the fleet's key and the host key that was seen when it was set up
    Exec(HostExec),
    /// Show the steps of a host's set-up
    Steps(HostSteps),
}

#[derive(Debug, Args)]
pub struct HostName {
    /// Name of the machine
    pub name: String,

    /// Its namespace (found by itself if no other machine has the name)
    #[arg(short, long, value_name = "NAMESPACE")]
    pub namespace: Option<String>,

    #[command(flatten)]
    pub dir: Dir,
}

#[derive(Debug, Args)]
pub struct HostExec {
    #[command(flatten)]
    pub host: HostName,

    /// Port of SSH (that of the emulated Macs of `russet up`, else 22)
    #[arg(long, value_name = "PORT")]
    pub port: Option<u16>,

    /// One word is for the shell of the host; several are a program and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

#[derive(Debug, Args)]
pub struct HostSteps {
    #[command(flatten)]
    pub host: HostName,

    /// Repeat until the set-up is over
    #[arg(short, long)]
    pub watch: bool,
}

#[derive(Debug, Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
#[command(after_help = "\
Examples:
  russet cache try gradle           a tiny Gradle build, twice; the second takes everything from the cache
  russet cache try --list           which tools can be tried, and what each speaks")]
pub struct Cache {
    #[command(subcommand)]
    pub action: CacheAction,
}

#[derive(Debug, Subcommand)]
pub enum CacheAction {
    /// Build a tiny real project twice with a real tool, and show what the cache saved
    Try(Try),
}

#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
#[command(after_help = "\
Examples:
  russet cache try gradle                    against the cache of the running `russet up`
  russet cache try gradle --start            against a cache that lives as long as this command
  russet cache try bazel --url http://cache.example:4000 --project ios
  russet cache try --all --start             every tool, one after the other
  russet cache try --list

The tool is obtained from its registry at a pinned version, into russet's cache folder; nothing is installed on the system.
Both builds start without any local state, so what the second one need not do, the cache did.
A cache that asks for a token gets the one in RUSSET_CACHE_TOKEN.
Exits with 1 when a build fails or the second one took nothing from the cache.")]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the command line, independent of the others"
)]
pub struct Try {
    /// Name of the tool, as `--list` shows it
    #[arg(required_unless_present_any = ["list", "all"], conflicts_with_all = ["list", "all"])]
    pub tool: Option<String>,

    /// List the tools
    #[arg(long)]
    pub list: bool,

    /// Try every tool
    #[arg(long, conflicts_with = "list")]
    pub all: bool,

    /// URL of the cache (that of the running `russet up` if not given)
    #[arg(long, value_name = "URL", value_parser = cache_url)]
    pub url: Option<String>,

    /// Start a cache for this command alone
    #[arg(long, conflicts_with = "url")]
    pub start: bool,

    /// Project in the cache
    #[arg(long, value_name = "NAME", default_value = "russet-try", value_parser = project_name)]
    pub project: String,

    /// Show what the tool printed
    #[arg(long)]
    pub output: bool,

    /// How long one build may take
    #[arg(long, value_name = "TIME", default_value = "3m", value_parser = duration)]
    pub timeout: Duration,

    #[command(flatten)]
    pub dir: Dir,
}

#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
#[command(after_help = "\
Examples:
  russet replay --list
  russet replay crd-pruning
  russet replay --all")]
pub struct Replay {
    /// Name of the incident
    #[arg(required_unless_present_any = ["list", "all"], conflicts_with_all = ["list", "all"])]
    pub name: Option<String>,

    /// List the incidents that can be replayed
    #[arg(long)]
    pub list: bool,

    /// Replay all of them
    #[arg(long, conflicts_with = "list")]
    pub all: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  russet version
  russet version --json | jq -r '.parts[] | [.name, .version] | @tsv'")]
pub struct Version {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  russet completions bash > ~/.local/share/bash-completion/completions/russet
  russet completions zsh > ~/.zfunc/_russet
  russet completions fish > ~/.config/fish/completions/russet.fish")]
pub struct Completions {
    pub shell: clap_complete::Shell,
}

/// `90`, `90s`, `5m` or `1h`.
fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is not a time; write for example 90s, 5m or 1h");
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    let unit = match text.strip_prefix(digits) {
        Some("" | "s") => 1,
        Some("m") => 60,
        Some("h") => 3600,
        _ => return Err(wrong()),
    };
    match number.checked_mul(unit) {
        Some(seconds @ 1..=86_400) => Ok(Duration::from_secs(seconds)),
        _ => Err(format!("`{text}` is out of range; between 1s and 24h")),
    }
}

/// A server's root. Credentials in it would end up in argument lists and logs.
fn cache_url(text: &str) -> Result<String, String> {
    let rest = ["http://", "https://"]
        .iter()
        .find_map(|scheme| text.strip_prefix(scheme));
    match rest {
        Some(rest) if rest.contains('@') => {
            Err("a URL with credentials is visible to everybody; put the token into RUSSET_CACHE_TOKEN".to_owned())
        }
        Some(rest) if !rest.is_empty() && !rest.contains(char::is_whitespace) => {
            Ok(text.trim_end_matches('/').to_owned())
        }
        _ => Err(format!(
            "`{text}` is not a URL of a cache; write for example http://127.0.0.1:4000"
        )),
    }
}

/// One segment of a path, without anything that would have to be escaped.
fn project_name(text: &str) -> Result<String, String> {
    let usable = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if !text.is_empty() && text.chars().all(usable) && !text.starts_with('.') {
        Ok(text.to_owned())
    } else {
        Err(format!("`{text}` is not a project; use letters, digits, -, _ and ."))
    }
}

fn tail(text: &str) -> Result<Tail, String> {
    match text {
        "all" => Ok(Tail::All),
        number => number
            .parse()
            .map(Tail::Lines)
            .map_err(|_| format!("`{text}` is neither a number of lines nor `all`")),
    }
}

#[cfg(test)]
mod tests;
