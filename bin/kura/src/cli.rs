//! The command line.

use crate::config::args::Args;
use clap::{Args as _, CommandFactory as _, FromArgMatches as _};
use std::path::PathBuf;

/// The build cache node
#[derive(Debug, clap::Parser)]
#[command(name = "kura", version = crate::VERSION, args_conflicts_with_subcommands = true)]
#[command(
    after_help = "Secrets are read from the environment only: KURA_AUTH_JWT_SECRET, KURA_CONTROL_PLANE_CLIENT_SECRET,\n\
    KURA_TURBOREPO_SIGNATURE_KEY, KURA_ANALYTICS_SIGNING_KEY.\n\
    Without a command, kura serves."
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Settings of `serve`, which is what happens without a command.
    #[command(flatten)]
    pub serve: Args,
}

/// What to do.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Serve the cache
    Serve(Box<Args>),
    /// Say what is stored, by kind and namespace; or, of a running node, what was hit and missed, by tool and project
    Inspect(Inspect),
    /// Read every stored byte and compare checksums
    Verify(Look),
    /// Be the build cache of the go command (GOCACHEPROG)
    Cacheprog(crate::cacheprog::Args),
    /// Print the version
    Version,
}

/// Settings of `inspect`.
#[derive(Debug, clap::Args)]
pub struct Inspect {
    /// Where to look.
    #[command(flatten)]
    pub look: Look,
    /// URL of a running node, as http://127.0.0.1:4000: show its hits and misses instead of a store's contents
    #[arg(long)]
    pub node: Option<String>,
}

/// Settings of commands that only look.
#[derive(Debug, Clone, clap::Args)]
pub struct Look {
    /// Folder of the store
    #[arg(long, env = "KURA_DATA_DIR", default_value = "kura-data")]
    pub data_dir: PathBuf,
    /// Print JSON instead of a table
    #[arg(long)]
    pub json: bool,
    /// Give up after this time; 0 means never
    #[arg(long, env = "KURA_LOOK_TIMEOUT_SECS", default_value_t = 3600)]
    pub timeout_secs: u64,
}

/// A setting that was given and changes nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Idle {
    /// The variable.
    pub name: String,
    /// Why.
    pub reason: String,
}

impl Cli {
    /// Reads arguments and environment; also which settings were given in vain.
    ///
    /// Deployments set a variable to nothing to mean that it is not set, so those are taken for absent.
    pub fn read() -> (Self, Vec<Idle>) {
        let command = forget_empty(Self::command()).mut_subcommand("serve", forget_empty);
        let matches = command.get_matches();
        let cli = Self::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
        let of_serve = matches.subcommand_matches("serve").unwrap_or(&matches);
        let idle = idle(of_serve);
        (cli, idle)
    }
}

fn forget_empty(command: clap::Command) -> clap::Command {
    command.mut_args(|arg| {
        let empty = arg.get_env().is_some_and(crate::config::is_empty);
        if empty { arg.env(None::<&'static str>) } else { arg }
    })
}

/// What was given, by argument or variable, although its help says that it has no effect.
fn idle(matches: &clap::ArgMatches) -> Vec<Idle> {
    use clap::parser::ValueSource::{CommandLine, EnvVariable};
    let command = Args::augment_args(clap::Command::new("serve"));
    let given = command.get_arguments().filter(|arg| {
        let known = matches.try_contains_id(arg.get_id().as_str()).unwrap_or(false);
        known
            && matches!(
                matches.value_source(arg.get_id().as_str()),
                Some(CommandLine | EnvVariable)
            )
    });
    given
        .filter_map(|arg| {
            let (name, help) = (arg.get_env()?.to_str()?, arg.get_help()?.to_string());
            let (_, reason) = help.split_once("No effect: ")?;
            Some(Idle {
                name: name.to_owned(),
                reason: reason.to_owned(),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn serving_is_what_happens_without_a_command() {
        let cli = Cli::parse_from(["kura", "--port", "1"]);
        assert!(cli.command.is_none());
        assert_eq!(cli.serve.listen.port, 1);
        let cli = Cli::parse_from(["kura", "serve", "--port", "2"]);
        assert!(matches!(cli.command, Some(Command::Serve(args)) if args.listen.port == 2));
    }

    /// Every setting can be given in the environment.
    #[test]
    fn every_setting_has_a_variable() {
        let command = Cli::command();
        let serve = command.get_subcommands().find(|sub| sub.get_name() == "serve").unwrap();
        for arg in serve.get_arguments() {
            let name = arg.get_id().as_str();
            if matches!(name, "check_config" | "print_config" | "help") {
                continue;
            }
            assert!(arg.get_env().is_some(), "{name} has no variable");
        }
    }

    /// Every variable an existing deployment may set, in the order of the reference's documentation.
    const KNOWN: &str = "KURA_PORT KURA_INTERNAL_PORT KURA_TENANT_ID KURA_REGION KURA_TMP_DIR KURA_DATA_DIR KURA_NODE_URL \
        KURA_OTEL_SERVICE_NAME KURA_OTEL_DEPLOYMENT_ENVIRONMENT KURA_TMP_DIR_MAX_BYTES KURA_CAS_CAPACITY_BYTES KURA_PEERS \
        KURA_PEER_GATEWAY_URL KURA_DISCOVERY_DNS_NAME KURA_GLOBAL_DISCOVERY_DNS_NAME KURA_MESH_PEERS_SYNC KURA_HTTPS_PORT \
        KURA_PUBLIC_TLS_CERT_PATH KURA_PUBLIC_TLS_KEY_PATH KURA_INTERNAL_TLS_CA_CERT_PATH KURA_INTERNAL_TLS_CERT_PATH \
        KURA_INTERNAL_TLS_KEY_PATH KURA_FILE_DESCRIPTOR_POOL_SIZE KURA_FILE_DESCRIPTOR_ACQUIRE_TIMEOUT_MS \
        KURA_SEGMENT_HANDLE_CACHE_SIZE KURA_DRAIN_COMPLETION_TIMEOUT_MS KURA_ACCELERATED_FILE_SERVING_ENABLED \
        KURA_ACCELERATED_FILE_SERVING_MODE KURA_ACCELERATED_FILE_SERVING_MAX_CONCURRENT \
        KURA_ACCELERATED_FILE_SERVING_CHUNK_BYTES KURA_ACTION_CACHE_EVICTION_CASCADE_ENABLED KURA_MEMORY_SOFT_LIMIT_BYTES \
        KURA_MEMORY_HARD_LIMIT_BYTES KURA_MEMORY_FLOOR_BYTES KURA_SNAPSHOT_CACHE_MAX_BYTES \
        KURA_SNAPSHOT_INDEX_MAX_ENTRIES KURA_MANIFEST_CACHE_MAX_BYTES KURA_MAX_KEYVALUE_BYTES \
        KURA_METADATA_STORE_MAX_OPEN_FILES KURA_METADATA_STORE_MAX_BACKGROUND_JOBS \
        KURA_METADATA_STORE_MAX_WRITE_BUFFERS KURA_METADATA_STORE_READ_CACHE_BYTES \
        KURA_METADATA_STORE_WRITE_BUFFER_POOL_BYTES KURA_METADATA_STORE_WRITE_BUFFER_BYTES KURA_OUTBOX_MAX_DEPTH \
        KURA_REPLICATION_BANDWIDTH_LIMIT_BYTES_PER_SECOND KURA_REPLICATION_PUBLIC_LATENCY_TARGET_MS \
        KURA_REPLICATION_UPLOAD_STALL_MS KURA_CONTROL_PLANE_URL KURA_CONTROL_PLANE_CLIENT_ID \
        KURA_CONTROL_PLANE_CLIENT_SECRET KURA_ENROLL_ON_BOOT KURA_REGISTRATION_URL KURA_ADVERTISED_HTTP_URL \
        KURA_REGISTRATION_INTERVAL_MS KURA_USAGE_WINDOW_SECS KURA_USAGE_FLUSH_INTERVAL_MS \
        KURA_USAGE_DELIVERY_INTERVAL_MS KURA_USAGE_BATCH_SIZE KURA_USAGE_MAX_BUCKETS KURA_USAGE_OUTBOX_MAX_DEPTH \
        KURA_MULTIPART_UPLOAD_TTL_MS KURA_MULTIPART_JANITOR_INTERVAL_MS KURA_MULTIPART_MAX_ACTIVE_UPLOADS \
        KURA_MULTIPART_MAX_STORED_BYTES KURA_BACKFILL_MARGIN_PERCENT KURA_BACKFILL_READY_RING_PERCENT \
        KURA_BACKFILL_BATCH_BYTES KURA_AUTH_ENABLED KURA_AUTH_TUIST_URL KURA_AUTH_TUIST_CONNECT_TIMEOUT_MS \
        KURA_AUTH_TUIST_REQUEST_TIMEOUT_MS KURA_AUTH_JWT_SECRET KURA_AUTH_JWT_PUBLIC_KEY KURA_AUTH_JWT_ALGORITHM \
        KURA_AUTH_JWT_ISSUER KURA_AUTH_JWT_AUDIENCES KURA_AUTH_CACHE_MAX_ENTRIES KURA_ANALYTICS_SERVER_URL \
        KURA_ANALYTICS_SIGNING_KEY KURA_ANALYTICS_BATCH_SIZE KURA_ANALYTICS_BATCH_TIMEOUT_MS \
        KURA_ANALYTICS_QUEUE_CAPACITY KURA_ANALYTICS_REQUEST_TIMEOUT_MS \
        KURA_ANALYTICS_CIRCUIT_BREAKER_FAILURE_THRESHOLD KURA_ANALYTICS_CIRCUIT_BREAKER_OPEN_MS \
        KURA_OTEL_EXPORTER_OTLP_TRACES_ENDPOINT KURA_SENTRY_DSN KURA_NODE_COUNTRY KURA_NODE_SUBDIVISION \
        KURA_TOKIO_WORKER_THREADS RUST_LOG KURA_TEST_FORCE_MEMORY_PRESSURE KURA_GRPC_PORT KURA_BACKFILL_ENABLED";

    #[test]
    fn every_variable_of_an_existing_deployment_is_known() {
        let command = Args::augment_args(clap::Command::new("serve"));
        let names: Vec<_> = command
            .get_arguments()
            .filter_map(|arg| Some(arg.get_env()?.to_str()?.to_owned()))
            .collect();
        for name in KNOWN.split_whitespace() {
            let secret = crate::config::SECRETS.contains(&name);
            assert!(secret || names.iter().any(|known| known == name), "{name} is not known");
            let hidden = !(secret && names.iter().any(|known| known == name));
            assert!(hidden, "{name} is a secret and has a flag");
        }
    }

    #[test]
    fn what_has_no_effect_says_why_and_is_told() {
        let command = Args::augment_args(clap::Command::new("serve"));
        let mut idle_settings = 0;
        for arg in command.get_arguments() {
            let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
            let grouped = arg
                .get_help_heading()
                .is_some_and(|heading| heading.contains("no effect"));
            assert_eq!(grouped, help.contains("No effect: "), "{}", arg.get_id());
            idle_settings += usize::from(grouped);
        }
        assert!(idle_settings > 30, "{idle_settings}");
        let matches = command.get_matches_from(["serve", "--grpc-port", "50051", "--peers", "http://a", "--port", "1"]);
        let names: Vec<_> = idle(&matches).into_iter().map(|idle| idle.name).collect();
        assert_eq!(names, ["KURA_PEERS", "KURA_GRPC_PORT"]);
    }
}
