//! Flags that all controllers share, validated once into typed values.
//!
//! The names and defaults are those of controller-runtime programs, since our controllers replace such programs under the
//! same charts.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args};
use russet_telemetry::Format;
use serde::Serialize;

use crate::duration;
use crate::leader::{Timing, TimingError};
use crate::scope::{self, Scope};

/// Flags shared by all controllers; flatten them into your own `Args`.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Controller options")]
pub struct CommonArgs {
    /// Where to serve /metrics: ":8080", "127.0.0.1:9000", or "0" for nowhere.
    #[arg(long, value_name = "ADDRESS", default_value = ":8080")]
    pub metrics_bind_address: String,

    /// Where to serve /healthz and /readyz: ":8081", "127.0.0.1:9001", or "0" for nowhere.
    #[arg(long, value_name = "ADDRESS", default_value = ":8081")]
    pub health_probe_bind_address: String,

    /// Act only while holding the Lease, so that several replicas may run.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true", action = ArgAction::Set)]
    pub leader_elect: bool,

    /// Namespace of the Lease; by default that of the kubeconfig context or of the Pod.
    #[arg(long, value_name = "NAMESPACE")]
    pub leader_election_namespace: Option<String>,

    /// How long a standby waits for a silent leader.
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = duration::parse)]
    pub leader_election_lease_duration: Duration,

    /// How long a leader goes on without a successful renewal; must be shorter than the lease duration.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration::parse)]
    pub leader_election_renew_deadline: Duration,

    /// How often leader and standby look at the Lease.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration::parse)]
    pub leader_election_retry_period: Duration,

    /// Name of this process in the Lease; by default the host name and a random suffix. Must be unique.
    #[arg(long, value_name = "NAME")]
    pub leader_election_identity: Option<String>,

    /// Watch these namespaces only; repeat it or separate with commas. Without it, all namespaces.
    #[arg(long = "namespace", visible_alias = "watch-namespace", value_name = "NAMESPACE")]
    pub namespaces: Vec<String>,

    /// kubeconfig file; without it, KUBECONFIG, ~/.kube/config or the Pod's ServiceAccount.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// How many objects a controller works on at once.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub concurrency: u16,

    /// How long running reconciles may take to finish after a signal.
    #[arg(long, value_name = "DURATION", default_value = "20s", value_parser = duration::parse)]
    pub drain_timeout: Duration,

    /// auto, human or json.
    #[arg(long, value_name = "FORMAT", default_value = "auto")]
    pub log_format: Format,

    /// Which log lines are shown, for example "info,russet_controller=debug".
    #[arg(long, value_name = "FILTER", env = "RUST_LOG", default_value = russet_telemetry::log::DEFAULT_FILTER)]
    pub log_filter: String,

    /// Check flags and kubeconfig, then exit: 0 when they are usable.
    #[arg(long)]
    pub check_config: bool,

    /// Print the configuration in effect as JSON, then exit.
    #[arg(long)]
    pub print_config: bool,
}

/// Why flags were refused.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not an address.
    #[error("--{flag} {value:?} is not an address; write \":8080\", \"127.0.0.1:8080\" or \"0\" for none")]
    Address {
        /// Which flag.
        flag: &'static str,
        /// Its value.
        value: String,
    },
    /// A bad namespace.
    #[error("--namespace: {0}")]
    Namespace(#[from] scope::Error),
    /// Periods that do not fit.
    #[error("--leader-election-*: {0}")]
    Timing(#[from] TimingError),
    /// An identity the Lease cannot hold.
    #[error("--leader-election-identity must not be empty")]
    Identity,
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Run the controllers.
    Run,
    /// Check the configuration.
    Check,
    /// Print the configuration.
    Print,
}

/// Leader election as configured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Election {
    /// Namespace of the Lease; none for that of the client.
    pub namespace: Option<String>,
    /// The periods.
    #[serde(serialize_with = "timing")]
    pub timing: Timing,
}

fn timing<S: serde::Serializer>(timing: &Timing, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!(
        "lease {:?}, renew {:?}, retry {:?}",
        timing.lease_duration, timing.renew_deadline, timing.retry_period
    ))
}

/// The shared configuration, valid by construction.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Config {
    /// Where metrics are served.
    pub metrics: Option<SocketAddr>,
    /// Where probes are served.
    pub probes: Option<SocketAddr>,
    /// Leader election, if any.
    pub election: Option<Election>,
    /// Who this process is.
    pub identity: String,
    /// Where controllers look.
    pub scope: Scope,
    /// kubeconfig file.
    pub kubeconfig: Option<PathBuf>,
    /// Objects at once.
    pub concurrency: u16,
    /// Time to drain.
    pub drain_timeout: Duration,
    /// Log format.
    pub log_format: Format,
    /// Log filter.
    pub log_filter: String,
    /// What to do.
    #[serde(skip)]
    pub mode: Mode,
}

impl Config {
    /// Validates flags. `fallback_identity` is used when none was given; it must be unique per process.
    pub fn from_args(args: CommonArgs, fallback_identity: impl FnOnce() -> String) -> Result<Self, Error> {
        let timing = Timing {
            lease_duration: args.leader_election_lease_duration,
            renew_deadline: args.leader_election_renew_deadline,
            retry_period: args.leader_election_retry_period,
        };
        let election = if args.leader_elect {
            Some(Election {
                namespace: args.leader_election_namespace,
                timing: timing.validate()?,
            })
        } else {
            None
        };
        let identity = args.leader_election_identity.unwrap_or_else(fallback_identity);
        if identity.is_empty() {
            return Err(Error::Identity);
        }
        Ok(Self {
            metrics: address("metrics-bind-address", &args.metrics_bind_address)?,
            probes: address("health-probe-bind-address", &args.health_probe_bind_address)?,
            election,
            identity,
            scope: Scope::parse(&args.namespaces)?,
            kubeconfig: args.kubeconfig,
            concurrency: args.concurrency,
            drain_timeout: args.drain_timeout,
            log_format: args.log_format,
            log_filter: args.log_filter,
            mode: match (args.check_config, args.print_config) {
                (true, _) => Mode::Check,
                (false, true) => Mode::Print,
                (false, false) => Mode::Run,
            },
        })
    }
}

/// A name for this process that no other process has: the host and a random suffix.
pub fn unique_identity() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let suffix: u32 = rand::random();
    format!("{host}_{suffix:08x}")
}

/// Parses ":8080" (all interfaces), "host:port", and "0" or "" for none.
fn address(flag: &'static str, value: &str) -> Result<Option<SocketAddr>, Error> {
    let refuse = || Error::Address {
        flag,
        value: value.to_owned(),
    };
    match value.trim() {
        "" | "0" => Ok(None),
        text => match text.strip_prefix(':') {
            Some(port) => Ok(Some(
                (Ipv4Addr::UNSPECIFIED, port.parse().map_err(|_| refuse())?).into(),
            )),
            None => text.parse().map(Some).map_err(|_| refuse()),
        },
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        common: CommonArgs,
    }

    fn config(args: &[&str]) -> Result<Config, Error> {
        let args = ["test"].iter().chain(args);
        Config::from_args(Cli::try_parse_from(args).unwrap().common, || "me".to_owned())
    }

    #[test]
    fn the_defaults_are_those_of_controller_runtime() {
        let config = config(&[]).unwrap();
        assert_eq!(config.metrics, Some(([0, 0, 0, 0], 8080).into()));
        assert_eq!(config.probes, Some(([0, 0, 0, 0], 8081).into()));
        assert_eq!(config.election.unwrap().timing, Timing::default());
        assert_eq!(config.scope, Scope::Cluster);
        assert_eq!(config.identity, "me");
    }

    #[test]
    fn addresses_take_all_forms_of_the_charts() {
        let config = config(&["--metrics-bind-address=0", "--health-probe-bind-address", "127.0.0.1:0"]).unwrap();
        assert_eq!(
            (config.metrics, config.probes),
            (None, Some(([127, 0, 0, 1], 0).into()))
        );
    }

    #[test]
    fn leader_election_is_a_go_style_boolean() {
        assert!(config(&["--leader-elect"]).unwrap().election.is_some());
        assert!(config(&["--leader-elect=true"]).unwrap().election.is_some());
        assert!(config(&["--leader-elect=false"]).unwrap().election.is_none());
    }

    #[test]
    fn namespaces_come_under_both_names() {
        let config = config(&["--namespace", "a,b", "--watch-namespace=c"]).unwrap();
        assert_eq!(config.scope.to_string(), "a,b,c");
    }

    #[test]
    fn bad_values_name_the_flag() {
        for (args, word) in [
            (["--metrics-bind-address=:http"], "metrics-bind-address"),
            (["--health-probe-bind-address=localhost"], "health-probe-bind-address"),
            (["--namespace=Bad"], "--namespace"),
            (["--leader-election-renew-deadline=15s"], "renew deadline"),
            (["--leader-election-identity="], "identity"),
        ] {
            let error = config(&args).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn the_effective_configuration_can_be_printed() {
        let text = serde_json::to_string(&config(&["--namespace=a"]).unwrap()).unwrap();
        assert!(text.contains("\"namespaces\":[\"a\"]"), "{text}");
        assert!(text.contains("lease 15s, renew 10s, retry 2s"), "{text}");
    }

    #[test]
    fn identities_differ_between_processes() {
        assert_ne!(unique_identity(), unique_identity());
    }
}
