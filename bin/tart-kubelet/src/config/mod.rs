//! What the agent is told: flags and environment, checked once and turned into types.

mod args;
mod cidr;
mod listen;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::api::core::v1::Taint;
use russet_node::{Capacity, Spec};
use russet_pod::quantity::Amount;
use russet_telemetry::log::Format;
use russet_vm::log::Rotation;

pub use args::{Args, NodeIpSource, RuntimeKind};
pub use cidr::Cidr;
pub use listen::Listen;

/// A flag that makes no sense.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// Not an address.
    #[error("--node-ip {0:?} is not an address")]
    NodeIp(String),
    /// No object can have such a name.
    #[error("--node-name {0:?} is not a name a Node can have (lower-case letters, digits, '-' and '.', at most 253)")]
    NodeName(String),
    /// Neither the flag nor the host says.
    #[error("the host has no name that a Node can have ({0:?}); give --node-name")]
    NoName(String),
    /// Not `key=value`.
    #[error("--node-labels: {0:?} is not key=value")]
    LabelForm(String),
    /// A label the Node cannot have.
    #[error("--node-labels: {0}")]
    Label(#[from] russet_node::BadLabel),
    /// Not `key=value:effect`.
    #[error("--register-with-taints: {0:?} is not key=value:effect with NoSchedule, PreferNoSchedule or NoExecute")]
    TaintForm(String),
    /// A taint no Node can have.
    #[error("--register-with-taints: {0}")]
    Taint(#[from] russet_node::BadTaint),
    /// Not where to listen.
    #[error("{flag} {text:?} is not where to listen; write :8080 or 127.0.0.1:8080, or 0 for nowhere")]
    Listen {
        /// Which flag.
        flag: &'static str,
        /// What it says.
        text: String,
    },
    /// Not a version.
    #[error("--kubelet-version {0:?} is not a version such as v1.35.4")]
    Version(String),
    /// Not a size of a log.
    #[error("--container-log-max-size {0:?} is not a size such as 10Mi")]
    LogSize(String),
    /// Too few files for a log.
    #[error("--container-log-max-files is {0}; a log needs at least 2: one to write and one that was set aside")]
    LogFiles(usize),
    /// Nothing can run there.
    #[error("{0} is 0; a Node without it takes no Pod")]
    Zero(&'static str),
}

/// Everything the agent is told.
#[derive(Clone, Debug)]
pub struct Config {
    /// What the Node is.
    pub spec: Spec,
    /// What it joins with.
    pub kubeconfig: PathBuf,
    /// Where the API server is by now, if not where that says.
    pub cluster_info: Option<PathBuf>,
    /// Where its key and its memory are.
    pub state: PathBuf,
    /// Its address, if it is given.
    pub node_ip: Option<IpAddr>,
    /// Where its address comes from otherwise.
    pub node_ip_source: NodeIpSource,
    /// Where the metrics are.
    pub metrics: Option<Listen>,
    /// Where the probes are.
    pub probes: Option<Listen>,
    /// Where the kubelet API is.
    pub kubelet: Option<Listen>,
    /// Whose client certificates it believes, if not those of the authority in the kubeconfig.
    pub client_ca: Option<PathBuf>,
    /// `tart`.
    pub tart: PathBuf,
    /// Where it keeps virtual machines and images.
    pub tart_home: PathBuf,
    /// What runs virtual machines.
    pub runtime: RuntimeKind,
    /// `tailscale`.
    pub tailscale: PathBuf,
    /// Who may read what virtual machines say.
    pub scrape_allowed: Vec<Cidr>,
    /// What is about virtual machines.
    pub vms: Vms,
    /// How large logs of containers may become.
    pub logs: Rotation,
    /// How often the host is asked how it is.
    pub housekeeping: Duration,
    /// Where an emulated host says how full its disk is.
    pub disk_report: Option<PathBuf>,
    /// `launchctl`, where there is one.
    pub launchctl: Option<PathBuf>,
    /// `sysctl`.
    pub sysctl: PathBuf,
    /// `ps`.
    pub ps: PathBuf,
    /// How log lines look.
    pub log_format: Format,
    /// Which are shown.
    pub log_filter: String,
    /// Only check the flags.
    pub check_only: bool,
    /// What was told in vain.
    pub idle: Vec<Idle>,
}

/// A flag that is given and changes nothing yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Idle {
    /// Which.
    pub flag: &'static str,
    /// Why.
    pub reason: &'static str,
}

/// Settings of virtual machines. Nothing reads those of screens and caches yet; see [`Idle`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vms {
    /// Where screens are asked for; none relays none.
    pub vnc_control: Option<PathBuf>,
    /// Where screens are said to be; else at the address of the Node.
    pub vnc_host: Option<String>,
    /// On which port; 0 is any.
    pub vnc_port: u16,
    /// Where caches of runners are; none has none.
    pub cache_root: Option<PathBuf>,
    /// Most that one account's master may take of it.
    pub cache_cap_gib: u32,
    /// What of it is for compilation caches.
    pub cache_cas_gib: u32,
    /// Builders keep virtual machines that nobody seems to use.
    pub keep_unused: bool,
}

impl Config {
    /// Checks the flags. `Err` says which one is wrong and how it is right.
    pub fn from_args(args: Args) -> Result<Self, ConfigError> {
        let idle = idle(&args);
        let name = node_name(args.node_name)?;
        let labels = labels(&args.node_labels, &name)?;
        for (flag, number) in [
            ("--host-cpu", args.host_cpu),
            ("--host-memory-mb", args.host_memory_mb),
            ("--max-pods", args.max_pods),
        ] {
            if number == 0 {
                return Err(ConfigError::Zero(flag));
            }
        }
        let path = |path: String| Some(path).filter(|path| !path.is_empty()).map(PathBuf::from);
        Ok(Self {
            spec: Spec {
                taints: taints(&args.register_with_taints)?,
                provider_id: args.provider_id.trim().to_owned(),
                labels,
                capacity: Capacity {
                    cpu: args.host_cpu,
                    memory_mib: args.host_memory_mb,
                    pods: args.max_pods,
                },
                kubelet_version: version(args.kubelet_version)?,
                name,
            },
            kubeconfig: args.kubeconfig,
            kubelet: Listen::parse("--kubelet-bind-address", &args.kubelet_bind_address)?,
            client_ca: args.client_ca_file,
            tart_home: args
                .tart_home
                .or_else(|| args.home.map(|home| home.join(".tart")))
                .unwrap_or_else(|| args.state_dir.join("tart")),
            runtime: args.runtime,
            cluster_info: args.cluster_info,
            state: args.state_dir,
            node_ip: node_ip(args.node_ip)?,
            node_ip_source: args.node_ip_source,
            metrics: Listen::parse("--metrics-bind-address", &args.metrics_bind_address)?,
            probes: Listen::parse("--health-probe-bind-address", &args.health_probe_bind_address)?,
            tart: args.tart_binary,
            tailscale: args.tailscale_binary,
            scrape_allowed: if args.scrape_allowed_cidr.is_empty() {
                cidr::defaults()
            } else {
                args.scrape_allowed_cidr
            },
            vms: Vms {
                vnc_control: path(args.vnc_control_dir),
                vnc_host: Some(args.vnc_relay_host).filter(|host| !host.is_empty()),
                vnc_port: args.vnc_relay_port,
                cache_root: path(args.runner_cache_root),
                cache_cap_gib: args.cache_volume_cap_gib,
                cache_cas_gib: args.cache_volume_cas_gib,
                keep_unused: args.disable_vm_gc,
            },
            logs: rotation(args.container_log_max_size, args.container_log_max_files)?,
            housekeeping: Duration::from_secs(args.housekeeping_interval.max(1)),
            disk_report: args.disk_report,
            launchctl: args
                .launchctl_binary
                .or_else(|| cfg!(target_os = "macos").then(|| PathBuf::from("/bin/launchctl"))),
            sysctl: args.sysctl_binary,
            ps: args.ps_binary,
            log_format: args.log_format,
            log_filter: filter(&args.log_filter, &args.zap_log_level),
            check_only: args.check_config,
            idle,
        })
    }
}

/// What hosts may ask for by flags of earlier releases and do not get yet. What is left as it was is no wish.
fn idle(args: &Args) -> Vec<Idle> {
    const SCREENS: &str = "screens of virtual machines are not relayed";
    const CACHES: &str = "runners have no cache volumes";
    let flags = [
        (
            "--vnc-control-dir",
            args.vnc_control_dir == args::VNC_CONTROL_DIR,
            SCREENS,
        ),
        ("--vnc-relay-host", args.vnc_relay_host.is_empty(), SCREENS),
        ("--vnc-relay-port", args.vnc_relay_port == 0, SCREENS),
        ("--runner-cache-root", args.runner_cache_root.is_empty(), CACHES),
        (
            "--cache-volume-cap-gib",
            args.cache_volume_cap_gib == args::CACHE_VOLUME_CAP_GIB,
            CACHES,
        ),
        ("--cache-volume-cas-gib", args.cache_volume_cas_gib == 0, CACHES),
    ];
    let told = flags.into_iter().filter(|(_, default, _)| !default);
    told.map(|(flag, _, reason)| Idle { flag, reason }).collect()
}

/// Nothing leaves it to `--node-ip-source`.
fn node_ip(text: String) -> Result<Option<IpAddr>, ConfigError> {
    if text.is_empty() {
        return Ok(None);
    }
    match text.parse() {
        Ok(address) => Ok(Some(address)),
        Err(_) => Err(ConfigError::NodeIp(text)),
    }
}

fn node_name(given: Option<String>) -> Result<String, ConfigError> {
    if let Some(name) = given.filter(|name| !name.is_empty()) {
        return Some(name.as_str())
            .filter(|name| russet_node::is_node_name(name))
            .map(ToOwned::to_owned)
            .ok_or(ConfigError::NodeName(name));
    }
    let found = rustix::system::uname().nodename().to_string_lossy().to_lowercase();
    let name = found.trim_end_matches(".local").trim_end_matches('.');
    if russet_node::is_node_name(name) {
        Ok(name.to_owned())
    } else {
        Err(ConfigError::NoName(found))
    }
}

fn labels(text: &str, node: &str) -> Result<BTreeMap<String, String>, ConfigError> {
    let mut labels = BTreeMap::new();
    for pair in items(text) {
        let (key, value) = pair
            .split_once('=')
            .ok_or_else(|| ConfigError::LabelForm(pair.to_owned()))?;
        russet_node::check_label(key, value, node)?;
        labels.insert(key.to_owned(), value.to_owned());
    }
    Ok(labels)
}

/// As kubelets write them: `key=value:effect`, or `key:effect`.
fn taints(text: &str) -> Result<Vec<Taint>, ConfigError> {
    let mut taints = Vec::new();
    for item in items(text) {
        let (pair, effect) = item
            .rsplit_once(':')
            .filter(|(_, effect)| ["NoSchedule", "PreferNoSchedule", "NoExecute"].contains(effect))
            .ok_or_else(|| ConfigError::TaintForm(item.to_owned()))?;
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        russet_node::check_taint(key, value)?;
        taints.push(Taint {
            key: key.to_owned(),
            value: Some(value.to_owned()).filter(|value| !value.is_empty()),
            effect: effect.to_owned(),
            time_added: None,
        });
    }
    Ok(taints)
}

fn items(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|item| !item.is_empty())
}

/// Cluster API takes nothing but `v` and a full version.
fn version(text: String) -> Result<String, ConfigError> {
    let numbers: Option<Vec<u32>> = text
        .strip_prefix('v')
        .map(|rest| rest.split(['-', '+']).next().unwrap_or_default())
        .and_then(|core| core.split('.').map(|number| number.parse().ok()).collect());
    match numbers {
        Some(numbers) if numbers.len() == 3 => Ok(text),
        _ => Err(ConfigError::Version(text)),
    }
}

fn rotation(size: String, files: usize) -> Result<Rotation, ConfigError> {
    let bytes = Amount::parse(&size)
        .ok()
        .and_then(|size| u64::try_from(size.value()).ok());
    let Some(bytes) = bytes.filter(|bytes| *bytes > 0) else {
        return Err(ConfigError::LogSize(size));
    };
    if files < 2 {
        return Err(ConfigError::LogFiles(files));
    }
    Ok(Rotation { bytes, files })
}

/// The filter that is given, else the one that the flag of earlier releases means.
fn filter(given: &str, zap: &str) -> String {
    if !given.is_empty() {
        return given.to_owned();
    }
    match zap {
        "debug" => "debug,hyper=info,kube_client=info,rustls=info".to_owned(),
        "error" => "error".to_owned(),
        // A number is how much more than info; a filter of ours needs no more than one step.
        number if number.parse::<u32>().is_ok_and(|number| number > 0) => {
            "debug,hyper=info,kube_client=info,rustls=info".to_owned()
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests;
