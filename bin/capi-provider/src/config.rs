//! Flags and environment of the provider, validated once.
//!
//! The names are those of the program it replaces: charts, scripts and habits know them. A flag that nobody knows is said
//! and ignored, because an image and a chart of different days must not end in a crash loop and a rolled-back release.

mod host;
mod lenient;
mod linux;

use std::num::NonZeroU32;
use std::time::Duration;

use clap::{Args, Parser};
use russet_api::values::{Invalid, PoolPrefix, Zone};
use russet_controller::{CommonArgs, duration};
use russet_scaleway::Rate;
use serde::Serialize;

use crate::bootstrap::BootstrapArgs;
use crate::cluster::ClusterArgs;
use crate::egress::EgressArgs;
use crate::identity::IdentityArgs;
use crate::machine::Effects;
use crate::provider::VERSION;
use crate::rules::Rules;
use crate::runner_token::RunnerTokenArgs;

pub use host::HostArgs;
pub use lenient::{Ignored, lenient};
pub use linux::{LinuxArgs, LinuxNodeAddress, LinuxSettings};

/// Makes Mac minis at Scaleway into Machines of the cluster it runs in.
#[derive(Debug, Parser)]
#[command(
    name = "cluster-api-provider-scaleway-applesilicon",
    version = VERSION,
    after_help = "The Scaleway API key comes from SCW_ACCESS_KEY and SCW_SECRET_KEY, the project from SCW_DEFAULT_PROJECT_ID; SCW_API_URL \
                  names another place for the API, such as an emulator."
)]
pub struct Cli {
    /// What all controllers share.
    #[command(flatten)]
    pub common: CommonArgs,
    /// What the provider adds.
    #[command(flatten)]
    pub provider: ProviderArgs,
    /// How hosts are set up.
    #[command(flatten)]
    pub bootstrap: BootstrapArgs,
    /// What is put on hosts.
    #[command(flatten)]
    pub host: HostArgs,
    /// What hosts join with.
    #[command(flatten)]
    pub identity: IdentityArgs,
    /// How Cluster API core reaches the cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// How hosts are reached over the tailnet.
    #[command(flatten)]
    pub egress: EgressArgs,
    /// Where runner tokens come from.
    #[command(flatten)]
    pub github: RunnerTokenArgs,
}

/// Flags of the provider itself.
#[derive(Args, Clone, Debug, Serialize)]
#[command(next_help_heading = "Provider options")]
#[serde(rename_all = "camelCase")]
pub struct ProviderArgs {
    /// Namespace of the claims and of fleet keys. All providers that share a pool of hosts in a cluster must share it.
    #[arg(long, value_name = "NAMESPACE", default_value = "default")]
    pub secrets_namespace: String,

    /// Only objects whose label cluster.x-k8s.io/watch-filter has this value.
    #[arg(long, value_name = "VALUE")]
    pub watch_filter: Option<String>,

    /// Read everything, write nothing, and say in the log what would be done.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub dry_run: bool,

    /// Machines that are worked on at once.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub machine_max_concurrent_reconciles: u16,

    /// Beginning of the names of hosts that machines without spec.adoptPoolPrefix may take.
    #[arg(
        long,
        value_name = "PREFIX",
        env = "CAPI_DEFAULT_ADOPT_POOL_PREFIX",
        default_value = ""
    )]
    pub default_adopt_pool_prefix: String,

    /// Calls to Scaleway in a second, all of them together; twice as many at once after a quiet time. Scaleway publishes no limits, and
    /// whoever shares the API key has to share this.
    #[arg(long, value_name = "N", env = "CAPI_SCALEWAY_CALLS_PER_SECOND", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub scaleway_calls_per_second: u16,

    /// Time between two lists of the Macs of a zone.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration::parse)]
    pub inventory_interval: Duration,

    /// No Mac is taken and no Linux server ordered or taken once those in use, of all kinds together, cost more than this many euros
    /// per hour; 0 for no cap. Volumes and addresses do not count.
    #[arg(long, value_name = "EUROS", env = "CAPI_MAX_HOURLY_SPEND", default_value_t = 0.0)]
    pub max_hourly_spend: f64,

    /// How long a host is only marked before it is used. 0s if no other cluster takes hosts from the same pools.
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = duration::parse)]
    pub claim_settle_time: Duration,

    /// Time between the last sight of a running wipe and the first sight of a ready host that is believed.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration::parse)]
    pub min_wipe_time: Duration,

    /// After this long a call to Scaleway whose answer was lost can no longer arrive. A call is sent within a sixth of it and given up
    /// after another third; a twelfth is for clocks that differ.
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = duration::parse)]
    pub call_flight_time: Duration,

    /// Beginning of the names of orphans that are wiped and put back into the pool of --default-adopt-pool-prefix. Only names that no
    /// other cluster of the project gives to its machines. Empty: orphans are only reported.
    #[arg(
        long,
        value_name = "PREFIX",
        env = "CAPI_ORPHAN_RECLAIM_CLAIM_NAME_PREFIX",
        default_value = ""
    )]
    pub orphan_reclaim_claim_name_prefix: String,

    /// Zones that are looked through for orphans besides those of machines, separated by commas.
    #[arg(
        long,
        value_name = "ZONES",
        env = "CAPI_ORPHAN_RECLAIM_ZONES",
        default_value = "fr-par-1"
    )]
    pub orphan_reclaim_zones: String,

    /// How often orphans are looked for.
    #[arg(long, value_name = "DURATION", default_value = "15m", value_parser = duration::parse)]
    pub orphan_reclaim_interval: Duration,

    /// Linux machines.
    #[command(flatten)]
    #[serde(flatten)]
    pub linux: LinuxArgs,
}

/// Flags that do not fit together or cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not what it should be.
    #[error("--{flag}: {source}")]
    Value {
        /// The flag.
        flag: &'static str,
        /// Why.
        source: Invalid,
    },
    /// Not a sum of money.
    #[error("--max-hourly-spend {0} is no sum of money; write 2.5, or 0 for no cap")]
    Spend(f64),
    /// A flag of Linux machines.
    #[error("--{flag}: {why}")]
    Linux {
        /// The flag.
        flag: &'static str,
        /// Why.
        why: String,
    },
    /// A time that would make a busy loop, or a flight shorter than clocks may differ.
    #[error("--{flag} must be at least {least:?}")]
    TooShort {
        /// The flag.
        flag: &'static str,
        /// The least.
        least: Duration,
    },
}

/// The provider's own settings, valid by construction.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Namespace of claims and keys.
    pub secrets_namespace: String,
    /// Only objects with this label value.
    pub watch_filter: Option<String>,
    /// Whether anything is written.
    pub effects: Effects,
    /// Machines at once.
    pub concurrency: u16,
    /// How often Scaleway is called.
    pub rate: Rate,
    /// The pool of machines that name none.
    pub default_pool: Option<PoolPrefix>,
    /// Time between two lists.
    pub inventory_interval: Duration,
    /// Euros per hour.
    pub spend_cap: Option<f64>,
    /// How long things may take.
    pub rules: Rules,
    /// Zones that are always read.
    pub zones: Vec<Zone>,
    /// How often orphans are looked for.
    pub orphan_interval: Duration,
    /// Orphans of names that begin like this are put back into the default pool.
    pub reclaim_prefix: Option<String>,
    /// How hosts are set up.
    pub bootstrap: BootstrapArgs,
    /// Linux machines.
    pub linux: LinuxSettings,
}

impl Settings {
    /// Validates flags.
    pub fn from_args(provider: ProviderArgs, bootstrap: BootstrapArgs) -> Result<Self, Error> {
        let value = |flag| move |source| Error::Value { flag, source };
        let pool = provider.default_adopt_pool_prefix.trim();
        let default_pool = (!pool.is_empty()).then(|| PoolPrefix::try_from(pool)).transpose();
        let zones = provider.orphan_reclaim_zones.split(',').map(str::trim);
        let zones = zones
            .filter(|zone| !zone.is_empty())
            .map(Zone::try_from)
            .collect::<Result<_, _>>();
        let cap = provider.max_hourly_spend;
        if !cap.is_finite() || cap < 0.0 {
            return Err(Error::Spend(cap));
        }
        let often = Duration::from_millis(100);
        for (flag, time, least) in [
            ("inventory-interval", provider.inventory_interval, often),
            ("orphan-reclaim-interval", provider.orphan_reclaim_interval, often),
            ("call-flight-time", provider.call_flight_time, Duration::from_secs(6)),
        ] {
            if time < least {
                return Err(Error::TooShort { flag, least });
            }
        }
        let rules = Rules {
            settle: provider.claim_settle_time,
            min_wipe: provider.min_wipe_time,
            reboot_after: bootstrap.bootstrap_reboot_after,
            give_back_after: bootstrap.bootstrap_max_attempts,
            held_again: bootstrap.bootstrap_held_interval,
            look_every: bootstrap.bootstrap_look_interval,
            ..Rules::with_flight(provider.call_flight_time)
        };
        Ok(Self {
            linux: provider.linux.settings(rules.clone())?,
            secrets_namespace: provider.secrets_namespace,
            watch_filter: provider.watch_filter.filter(|value| !value.is_empty()),
            effects: if provider.dry_run {
                Effects::DryRun
            } else {
                Effects::Real
            },
            concurrency: provider.machine_max_concurrent_reconciles,
            rate: rate(provider.scaleway_calls_per_second),
            default_pool: default_pool.map_err(value("default-adopt-pool-prefix"))?,
            inventory_interval: provider.inventory_interval,
            spend_cap: (cap > 0.0).then_some(cap),
            rules,
            zones: zones.map_err(value("orphan-reclaim-zones"))?,
            orphan_interval: provider.orphan_reclaim_interval,
            reclaim_prefix: Some(provider.orphan_reclaim_claim_name_prefix).filter(|prefix| !prefix.is_empty()),
            bootstrap,
        })
    }
}

fn rate(per_second: u16) -> Rate {
    let per_second = NonZeroU32::MIN.saturating_add(u32::from(per_second).saturating_sub(1));
    Rate {
        burst: per_second.saturating_mul(NonZeroU32::MIN.saturating_add(1)),
        interval: Duration::from_secs(1) / per_second.get(),
    }
}

/// The Scaleway API, from the environment, called as often as the settings allow.
pub fn scaleway(settings: &Settings) -> Result<russet_scaleway::Config, russet_scaleway::config::Invalid> {
    #[expect(clippy::disallowed_methods, reason = "this is where the environment is read")]
    let config = russet_scaleway::Config::from_settings(|name| std::env::var(name).ok())?;
    Ok(russet_scaleway::Config {
        rate: settings.rate,
        attempt_timeout: settings.rules.call_timeout(),
        ..config
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn settings(args: &[&str]) -> Result<Settings, Error> {
        let args = ["capi-provider"].iter().chain(args);
        let Cli {
            provider, bootstrap, ..
        } = Cli::try_parse_from(args).unwrap();
        Settings::from_args(provider, bootstrap)
    }

    #[test]
    fn the_flags_are_consistent_and_the_help_names_the_program_people_know() {
        Cli::command().debug_assert();
        let help = Cli::command().render_long_help().to_string();
        assert!(help.contains("cluster-api-provider-scaleway-applesilicon"), "{help}");
        assert!(help.contains("SCW_SECRET_KEY"), "{help}");
    }

    #[test]
    fn the_defaults_are_those_of_the_program_it_replaces() {
        let settings = settings(&[]).unwrap();
        assert_eq!(settings.secrets_namespace, "default");
        assert_eq!(settings.concurrency, 4);
        assert_eq!(settings.rate, Rate::default(), "the client's own");
        assert_eq!(settings.default_pool, None);
        assert_eq!((settings.rules.reboot_after, settings.rules.give_back_after), (3, 8));
        assert_eq!(settings.zones, [Zone::default()]);
        assert_eq!(settings.orphan_interval, Duration::from_mins(15));
        assert_eq!(settings.spend_cap, None);
        assert_eq!(settings.effects, Effects::Real);
        settings.rules.check(Duration::from_secs(20)).unwrap();
    }

    #[test]
    fn a_bad_value_names_its_flag() {
        for (args, word) in [
            (["--default-adopt-pool-prefix=a b"], "default-adopt-pool-prefix"),
            (["--orphan-reclaim-zones=fr-par-1,moon"], "orphan-reclaim-zones"),
            (["--max-hourly-spend=NaN"], "max-hourly-spend"),
            (["--inventory-interval=1ms"], "inventory-interval"),
            (["--call-flight-time=5s"], "call-flight-time"),
            (["--linux-kubernetes-version=latest"], "linux-kubernetes-version"),
            (["--linux-cluster-dns=coredns"], "linux-cluster-dns"),
        ] {
            let error = settings(&args).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn every_flag_of_the_program_it_replaces_is_known() {
        let known: Vec<String> = Cli::command()
            .get_arguments()
            .filter_map(|arg| arg.get_long().map(ToOwned::to_owned))
            .collect();
        for flag in [
            "api-server-url",
            "node-identity-cluster-role",
            "tailscale-egress-proxy-group",
            "tailscale-egress-namespace",
            "tailscale-egress-magicdns-suffix",
            "tartkubelet-max-update-attempts",
            "tartkubelet-terminal-retry-after",
            "metrics-bind-address",
            "health-probe-bind-address",
            "leader-elect",
            "namespace",
            "watch-filter",
            "secrets-namespace",
            "tartkubelet-binary-path",
            "tart-tarball-path",
            "tailscale-binaries-path",
            "node-exporter-binary-path",
            "log-shipper-binary-path",
            "log-ship-url",
            "log-ship-env",
            "tailscale-auth-key-secret-name",
            "tailscale-tags",
            "tailscale-accept-routes",
            "vm-kura-egress-cidr",
            "vm-cluster-dns-ip",
            "vm-cache-pn-name",
            "vm-cache-pn-cidr",
            "ssh-ingress-allow-cidrs",
            "runner-cache-volume-gib",
            "cache-volume-master-cap-gib",
            "cache-volume-cas-gib",
            "tartkubelet-host-cpu",
            "tartkubelet-host-memory-mb",
            "tartkubelet-max-pods",
            "bootstrap-reboot-after",
            "bootstrap-max-attempts",
            "tartkubelet-max-update-attempts",
            "tartkubelet-terminal-retry-after",
            "machine-max-concurrent-reconciles",
            "fleet-spread-deployment",
            "fleet-spread-namespace",
            "default-adopt-pool-prefix",
            "orphan-reclaim-claim-name-prefix",
            "orphan-reclaim-zones",
            "orphan-reclaim-interval",
        ] {
            assert!(known.iter().any(|name| name == flag), "--{flag} is missing");
        }
    }
}
