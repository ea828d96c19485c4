//! Every setting as a flag and an environment variable. Values are only collected here; [`super::Config`] makes sense of them.
//!
//! Names and defaults follow the node this one replaces, so an existing deployment starts unchanged. What has no meaning here
//! any more is still accepted (see [`Legacy`]) and says so in `--help`. Secrets have no flag: an argument list is world-readable.

use russet_identity::Anonymous;
use std::net::IpAddr;
use std::path::PathBuf;

/// All settings.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// What to do instead of serving.
    #[command(flatten)]
    pub inquiry: Inquiry,
    /// Sockets.
    #[command(flatten)]
    pub listen: Listen,
    /// Identity of the node.
    #[command(flatten)]
    pub node: Node,
    /// Disk.
    #[command(flatten)]
    pub storage: Storage,
    /// Limits.
    #[command(flatten)]
    pub limits: Limits,
    /// Trust.
    #[command(flatten)]
    pub auth: Auth,
    /// Control plane.
    #[command(flatten)]
    pub control: Control,
    /// Webhooks.
    #[command(flatten)]
    pub analytics: Analytics,
    /// Logs and traces.
    #[command(flatten)]
    pub telemetry: Telemetry,
    /// The mesh.
    #[command(flatten)]
    pub mesh: Mesh,
    /// What is accepted and ignored.
    #[command(flatten)]
    pub legacy: Legacy,
}

/// Questions about the configuration.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct Inquiry {
    /// Check the configuration, print what would be used in one line, and exit
    #[arg(long, conflicts_with = "print_config")]
    pub check_config: bool,
    /// Print the configuration as JSON, secrets redacted, and exit
    #[arg(long)]
    pub print_config: bool,
}

/// Where requests come from.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Listening")]
pub struct Listen {
    /// Port for HTTP/1.1 and prior-knowledge HTTP/2 without TLS; 0 picks a free one
    #[arg(long, env = "KURA_PORT", default_value_t = 4000)]
    pub port: u16,
    /// Address to bind; default: loopback, or all interfaces once authorisation, KURA_AUTH_ANONYMOUS or KURA_NODE_URL is set
    #[arg(long, env = "KURA_BIND_ADDRESS")]
    pub bind_address: Option<IpAddr>,
    /// Port for TLS, used when certificate and key are given
    #[arg(long, env = "KURA_HTTPS_PORT", default_value_t = 4443)]
    pub https_port: u16,
    /// Certificate chain of the TLS port (PEM); read again when the file changes
    #[arg(long, env = "KURA_PUBLIC_TLS_CERT_PATH", requires = "public_tls_key_path")]
    pub public_tls_cert_path: Option<PathBuf>,
    /// Private key of the TLS port (PEM)
    #[arg(long, env = "KURA_PUBLIC_TLS_KEY_PATH", requires = "public_tls_cert_path")]
    pub public_tls_key_path: Option<PathBuf>,
    /// Threads that serve requests [default: one per core]
    #[arg(long, env = "KURA_TOKIO_WORKER_THREADS")]
    pub tokio_worker_threads: Option<usize>,
    /// A request header must be complete within this time
    #[arg(long, env = "KURA_HTTP_HEADER_TIMEOUT_MS", default_value_t = 30_000)]
    pub http_header_timeout_ms: u64,
    /// A body, or a reader of an answer, that does not move for this long is cut off
    #[arg(long, env = "KURA_HTTP_STALL_TIMEOUT_MS", default_value_t = 60_000)]
    pub http_stall_timeout_ms: u64,
    /// A connection without a request for this long is closed
    #[arg(long, env = "KURA_HTTP_IDLE_TIMEOUT_MS", default_value_t = 60_000)]
    pub http_idle_timeout_ms: u64,
    /// How long SIGTERM waits for requests in flight
    #[arg(long, env = "KURA_DRAIN_COMPLETION_TIMEOUT_MS", default_value_t = 240_000)]
    pub drain_completion_timeout_ms: u64,
}

/// Who the node is.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Node")]
pub struct Node {
    /// The account whose data this node holds
    #[arg(long, env = "KURA_TENANT_ID", default_value = "default")]
    pub tenant_id: String,
    /// Region reported by probes and usage events
    #[arg(long, env = "KURA_REGION", default_value = "local")]
    pub region: String,
    /// URL at which other nodes reach this one; its host is the node's name [default: http://127.0.0.1:<port>]
    #[arg(long, env = "KURA_NODE_URL")]
    pub node_url: Option<String>,
    /// Country reported in metrics
    #[arg(long, env = "KURA_NODE_COUNTRY")]
    pub node_country: Option<String>,
    /// Subdivision of the country reported in metrics
    #[arg(long, env = "KURA_NODE_SUBDIVISION")]
    pub node_subdivision: Option<String>,
}

/// Where data lives.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Storage")]
pub struct Storage {
    /// Folder of the store; one process at a time
    #[arg(long, env = "KURA_DATA_DIR", default_value = "kura-data")]
    pub data_dir: PathBuf,
    /// Folder for uploads in parts [default: <data dir>/multipart]
    #[arg(long, env = "KURA_TMP_DIR")]
    pub tmp_dir: Option<PathBuf>,
    /// Bytes that uploads in parts may occupy
    #[arg(long, env = "KURA_TMP_DIR_MAX_BYTES", default_value_t = 8_589_934_592)]
    pub tmp_dir_max_bytes: u64,
    /// Bytes the store may occupy [default: half of the filesystem]
    #[arg(long, env = "KURA_CAS_CAPACITY_BYTES")]
    pub cas_capacity_bytes: Option<u64>,
    /// What an acknowledged write survives: "power-loss" (synced by group commit) or "process-crash"
    #[arg(long, env = "KURA_DURABILITY", default_value = "power-loss")]
    pub durability: super::Durability,
}

/// How much is allowed.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Limits")]
pub struct Limits {
    /// Largest key-value document (at most 4 MiB)
    #[arg(long, env = "KURA_MAX_KEYVALUE_BYTES", default_value_t = 1_048_576)]
    pub max_keyvalue_bytes: usize,
    /// Memory to stay below. Bytes in flight get a quarter of it, and above it pressure is critical: large uploads are refused
    /// [default: the budget follows the cgroup's limit, else the machine's memory; pressure is critical at 85 % of that]
    #[arg(long, env = "KURA_MEMORY_HARD_LIMIT_BYTES")]
    pub memory_hard_limit_bytes: Option<u64>,
    /// Above this, work that can wait is paused [default: 60 % of the limit]
    #[arg(long, env = "KURA_MEMORY_SOFT_LIMIT_BYTES")]
    pub memory_soft_limit_bytes: Option<u64>,
    /// Open uploads in parts
    #[arg(long, env = "KURA_MULTIPART_MAX_ACTIVE_UPLOADS", default_value_t = 128)]
    pub multipart_max_active_uploads: usize,
    /// Bytes of open uploads in parts [default: KURA_TMP_DIR_MAX_BYTES]
    #[arg(long, env = "KURA_MULTIPART_MAX_STORED_BYTES")]
    pub multipart_max_stored_bytes: Option<u64>,
    /// For tests: the pressure is always normal, constrained or critical, whatever is measured
    #[arg(long, env = "KURA_TEST_FORCE_MEMORY_PRESSURE")]
    pub test_force_memory_pressure: Option<crate::pressure::State>,
    /// An upload in parts is forgotten after this time
    #[arg(long, env = "KURA_MULTIPART_UPLOAD_TTL_MS", default_value_t = 86_400_000)]
    pub multipart_upload_ttl_ms: u64,
    /// How often forgotten uploads are looked for
    #[arg(long, env = "KURA_MULTIPART_JANITOR_INTERVAL_MS", default_value_t = 600_000)]
    pub multipart_janitor_interval_ms: u64,
}

/// Whom to trust. Secrets come from KURA_AUTH_JWT_SECRET and the files named here.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Authorisation")]
pub struct Auth {
    /// What a caller without credentials may do: none, read or read-write [default: read-write on loopback without
    /// authorisation, read elsewhere without authorisation, none with it]
    #[arg(long, env = "KURA_AUTH_ANONYMOUS")]
    pub auth_anonymous: Option<Anonymous>,
    /// "true" without any way to check a token is refused, and so is "false" beside one
    #[arg(long, env = "KURA_AUTH_ENABLED")]
    pub auth_enabled: Option<bool>,
    /// Server that knows who may do what; switches authorisation on
    #[arg(long, env = "KURA_AUTH_TUIST_URL")]
    pub auth_tuist_url: Option<String>,
    /// Connect timeout to that server
    #[arg(long, env = "KURA_AUTH_TUIST_CONNECT_TIMEOUT_MS", default_value_t = 3000)]
    pub auth_tuist_connect_timeout_ms: u64,
    /// Request timeout to that server
    #[arg(long, env = "KURA_AUTH_TUIST_REQUEST_TIMEOUT_MS", default_value_t = 4000)]
    pub auth_tuist_request_timeout_ms: u64,
    /// File with the HS256/384/512 secret (or KURA_AUTH_JWT_SECRET in the environment)
    #[arg(long, env = "KURA_AUTH_JWT_SECRET_FILE")]
    pub auth_jwt_secret_file: Option<PathBuf>,
    /// ES256 public keys, PEM text
    #[arg(long, env = "KURA_AUTH_JWT_PUBLIC_KEY", hide_env_values = true)]
    pub auth_jwt_public_key: Option<String>,
    /// ES256 public keys, PEM file; read again when it changes
    #[arg(long, env = "KURA_AUTH_JWT_PUBLIC_KEY_FILE")]
    pub auth_jwt_public_key_file: Option<PathBuf>,
    /// Signed tokens must also be active according to the control plane, so that revocation takes effect within 60 s
    #[arg(long, env = "KURA_AUTH_JWT_INTROSPECT")]
    pub auth_jwt_introspect: Option<bool>,
    /// Algorithm of the secret: HS256, HS384 or HS512
    #[arg(long, env = "KURA_AUTH_JWT_ALGORITHM")]
    pub auth_jwt_algorithm: Option<String>,
    /// Required issuer
    #[arg(long, env = "KURA_AUTH_JWT_ISSUER")]
    pub auth_jwt_issuer: Option<String>,
    /// Accepted audiences, separated by commas
    #[arg(long, env = "KURA_AUTH_JWT_AUDIENCES", value_delimiter = ',')]
    pub auth_jwt_audiences: Vec<String>,
    /// Remembered decisions
    #[arg(long, env = "KURA_AUTH_CACHE_MAX_ENTRIES", default_value_t = 100_000)]
    pub auth_cache_max_entries: usize,
    /// TOML file of static tokens; read again when it changes
    #[arg(long, env = "KURA_AUTH_TOKENS_FILE")]
    pub auth_tokens_file: Option<PathBuf>,
}

/// Whom to report to. The secret comes from KURA_CONTROL_PLANE_CLIENT_SECRET.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Control plane")]
pub struct Control {
    /// Control plane [default: KURA_AUTH_TUIST_URL]
    #[arg(long, env = "KURA_CONTROL_PLANE_URL")]
    pub control_plane_url: Option<String>,
    /// Client id at the control plane; its secret is KURA_CONTROL_PLANE_CLIENT_SECRET
    #[arg(long, env = "KURA_CONTROL_PLANE_CLIENT_ID")]
    pub control_plane_client_id: Option<String>,
    /// Seconds of traffic that one usage event covers
    #[arg(long, env = "KURA_USAGE_WINDOW_SECS", default_value_t = 60)]
    pub usage_window_secs: u64,
    /// How often the counts of the open window are written to disk; a killed process loses no more than that
    #[arg(long, env = "KURA_USAGE_FLUSH_INTERVAL_MS", default_value_t = 60_000)]
    pub usage_flush_interval_ms: u64,
    /// How often usage is delivered
    #[arg(long, env = "KURA_USAGE_DELIVERY_INTERVAL_MS", default_value_t = 5000)]
    pub usage_delivery_interval_ms: u64,
    /// Events per delivery
    #[arg(long, env = "KURA_USAGE_BATCH_SIZE", default_value_t = 1000)]
    pub usage_batch_size: usize,
    /// Distinct counters per window
    #[arg(long, env = "KURA_USAGE_MAX_BUCKETS", default_value_t = 10_000)]
    pub usage_max_buckets: usize,
    /// Events kept while the control plane is away
    #[arg(long, env = "KURA_USAGE_OUTBOX_MAX_DEPTH", default_value_t = 100_000)]
    pub usage_outbox_max_depth: usize,
}

/// Who hears of single downloads and uploads. The key comes from KURA_ANALYTICS_SIGNING_KEY.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Analytics webhooks")]
pub struct Analytics {
    /// Server that is told about Xcode and Gradle artifacts of projects; needs KURA_ANALYTICS_SIGNING_KEY
    #[arg(long, env = "KURA_ANALYTICS_SERVER_URL")]
    pub analytics_server_url: Option<String>,
    /// Events per request
    #[arg(long, env = "KURA_ANALYTICS_BATCH_SIZE", default_value_t = 100)]
    pub analytics_batch_size: usize,
    /// How long an event waits for others to travel with
    #[arg(long, env = "KURA_ANALYTICS_BATCH_TIMEOUT_MS", default_value_t = 5000)]
    pub analytics_batch_timeout_ms: u64,
    /// Events that may wait; more are dropped and counted
    #[arg(long, env = "KURA_ANALYTICS_QUEUE_CAPACITY", default_value_t = 1000)]
    pub analytics_queue_capacity: usize,
    /// How long the server may take
    #[arg(long, env = "KURA_ANALYTICS_REQUEST_TIMEOUT_MS", default_value_t = 5000)]
    pub analytics_request_timeout_ms: u64,
    /// Failures in a row after which the server is left alone for a while
    #[arg(long, env = "KURA_ANALYTICS_CIRCUIT_BREAKER_FAILURE_THRESHOLD", default_value_t = 5)]
    pub analytics_circuit_breaker_failure_threshold: u32,
    /// How long it is left alone
    #[arg(long, env = "KURA_ANALYTICS_CIRCUIT_BREAKER_OPEN_MS", default_value_t = 30_000)]
    pub analytics_circuit_breaker_open_ms: u64,
}

/// What the node says about itself.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Telemetry")]
pub struct Telemetry {
    /// Which log events are shown, in tracing filter syntax
    #[arg(long, env = "RUST_LOG", default_value = "")]
    pub log: String,
    /// How log lines look: auto, human or json
    #[arg(long, env = "KURA_LOG_FORMAT", default_value = "auto")]
    pub log_format: String,
    /// Service name in traces
    #[arg(long, env = "KURA_OTEL_SERVICE_NAME", default_value = "kura")]
    pub otel_service_name: String,
    /// Environment name in traces
    #[arg(long, env = "KURA_OTEL_DEPLOYMENT_ENVIRONMENT", default_value = "local")]
    pub otel_deployment_environment: String,
    /// Where traces go, as OTLP over HTTP (protobuf): the full URL, such as http://collector:4318/v1/traces. Nothing is traced
    /// without it. Credentials for the collector come from OTEL_EXPORTER_OTLP_HEADERS
    #[arg(long, env = "KURA_OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")]
    pub otel_exporter_otlp_traces_endpoint: Option<String>,
    /// The collector's base URL, to which /v1/traces is added; used when the setting above is not given
    #[arg(long, env = "OTEL_EXPORTER_OTLP_ENDPOINT")]
    pub otel_exporter_otlp_endpoint: Option<String>,
    /// Share of requests that are traced, from 0 to 1. A caller that sent a decision in `traceparent` is followed
    #[arg(long, env = "KURA_OTEL_TRACES_SAMPLE_RATIO", default_value_t = 1.0)]
    pub otel_traces_sample_ratio: f64,
}

/// The mesh between nodes is not part of this version: everything here is accepted so that a deployment starts, and unused.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Mesh (accepted, no effect in this version)")]
pub struct Mesh {
    /// Port for other nodes. No effect: this version has no mesh
    #[arg(long, env = "KURA_INTERNAL_PORT", default_value_t = 7443)]
    pub internal_port: u16,
    /// Other nodes. No effect: this version has no mesh
    #[arg(long, env = "KURA_PEERS")]
    pub peers: Option<String>,
    /// Gateway to other nodes. No effect: this version has no mesh
    #[arg(long, env = "KURA_PEER_GATEWAY_URL")]
    pub peer_gateway_url: Option<String>,
    /// DNS name of this region's nodes. No effect: this version has no mesh
    #[arg(long, env = "KURA_DISCOVERY_DNS_NAME")]
    pub discovery_dns_name: Option<String>,
    /// DNS name of all regions' nodes. No effect: this version has no mesh
    #[arg(long, env = "KURA_GLOBAL_DISCOVERY_DNS_NAME")]
    pub global_discovery_dns_name: Option<String>,
    /// Ask the control plane for peers. No effect: this version has no mesh
    #[arg(long, env = "KURA_MESH_PEERS_SYNC")]
    pub mesh_peers_sync: Option<String>,
    /// CA of the mesh. No effect: this version has no mesh
    #[arg(long, env = "KURA_INTERNAL_TLS_CA_CERT_PATH")]
    pub internal_tls_ca_cert_path: Option<PathBuf>,
    /// Certificate in the mesh. No effect: this version has no mesh
    #[arg(long, env = "KURA_INTERNAL_TLS_CERT_PATH")]
    pub internal_tls_cert_path: Option<PathBuf>,
    /// Key in the mesh. No effect: this version has no mesh
    #[arg(long, env = "KURA_INTERNAL_TLS_KEY_PATH")]
    pub internal_tls_key_path: Option<PathBuf>,
    /// Enrol at start. No effect: this version has no mesh
    #[arg(long, env = "KURA_ENROLL_ON_BOOT")]
    pub enroll_on_boot: Option<String>,
    /// Where to register. No effect: this version has no mesh
    #[arg(long, env = "KURA_REGISTRATION_URL")]
    pub registration_url: Option<String>,
    /// URL to register. No effect: this version has no mesh
    #[arg(long, env = "KURA_ADVERTISED_HTTP_URL")]
    pub advertised_http_url: Option<String>,
    /// How often to register. No effect: this version has no mesh
    #[arg(long, env = "KURA_REGISTRATION_INTERVAL_MS")]
    pub registration_interval_ms: Option<String>,
    /// Depth of the replication queue. No effect: this version has no mesh
    #[arg(long, env = "KURA_OUTBOX_MAX_DEPTH")]
    pub outbox_max_depth: Option<String>,
    /// Bandwidth of replication. No effect: this version has no mesh
    #[arg(long, env = "KURA_REPLICATION_BANDWIDTH_LIMIT_BYTES_PER_SECOND")]
    pub replication_bandwidth_limit_bytes_per_second: Option<String>,
    /// Latency above which replication slows down. No effect: this version has no mesh
    #[arg(long, env = "KURA_REPLICATION_PUBLIC_LATENCY_TARGET_MS")]
    pub replication_public_latency_target_ms: Option<String>,
    /// Stall after which a replicated upload is given up. No effect: this version has no mesh
    #[arg(long, env = "KURA_REPLICATION_UPLOAD_STALL_MS")]
    pub replication_upload_stall_ms: Option<String>,
    /// Margin of a backfill. No effect: this version has no mesh
    #[arg(long, env = "KURA_BACKFILL_MARGIN_PERCENT")]
    pub backfill_margin_percent: Option<String>,
    /// Fullness that makes a node ready. No effect: this version has no mesh
    #[arg(long, env = "KURA_BACKFILL_READY_RING_PERCENT")]
    pub backfill_ready_ring_percent: Option<String>,
    /// Bytes per backfill batch. No effect: this version has no mesh
    #[arg(long, env = "KURA_BACKFILL_BATCH_BYTES")]
    pub backfill_batch_bytes: Option<String>,
}

/// What the node's design made pointless.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Accepted, no effect")]
pub struct Legacy {
    /// No effect: gRPC shares the port of HTTP
    #[arg(long, env = "KURA_GRPC_PORT")]
    pub grpc_port: Option<String>,
    /// No effect: this version has no mesh
    #[arg(long, env = "KURA_BACKFILL_ENABLED")]
    pub backfill_enabled: Option<String>,
    /// No effect: there is no pool, just one descriptor per segment and connection
    #[arg(long, env = "KURA_FILE_DESCRIPTOR_POOL_SIZE")]
    pub file_descriptor_pool_size: Option<String>,
    /// No effect: there is no pool to wait for
    #[arg(long, env = "KURA_FILE_DESCRIPTOR_ACQUIRE_TIMEOUT_MS")]
    pub file_descriptor_acquire_timeout_ms: Option<String>,
    /// No effect: segments stay open
    #[arg(long, env = "KURA_SEGMENT_HANDLE_CACHE_SIZE")]
    pub segment_handle_cache_size: Option<String>,
    /// No effect: always on
    #[arg(long, env = "KURA_ACCELERATED_FILE_SERVING_ENABLED")]
    pub accelerated_file_serving_enabled: Option<String>,
    /// No effect: always sendfile
    #[arg(long, env = "KURA_ACCELERATED_FILE_SERVING_MODE")]
    pub accelerated_file_serving_mode: Option<String>,
    /// No effect: a transfer holds no thread, so their number is not limited
    #[arg(long, env = "KURA_ACCELERATED_FILE_SERVING_MAX_CONCURRENT")]
    pub accelerated_file_serving_max_concurrent: Option<String>,
    /// No effect: the kernel moves as much as the socket takes
    #[arg(long, env = "KURA_ACCELERATED_FILE_SERVING_CHUNK_BYTES")]
    pub accelerated_file_serving_chunk_bytes: Option<String>,
    /// No effect: always on
    #[arg(long, env = "KURA_ACTION_CACHE_EVICTION_CASCADE_ENABLED")]
    pub action_cache_eviction_cascade_enabled: Option<String>,
    /// No effect: there are no caches to size, and one budget that follows the limit
    #[arg(long, env = "KURA_MEMORY_FLOOR_BYTES")]
    pub memory_floor_bytes: Option<String>,
    /// No effect: no snapshots are kept in memory
    #[arg(long, env = "KURA_SNAPSHOT_CACHE_MAX_BYTES")]
    pub snapshot_cache_max_bytes: Option<String>,
    /// No effect: no snapshots are kept in memory
    #[arg(long, env = "KURA_SNAPSHOT_INDEX_MAX_ENTRIES")]
    pub snapshot_index_max_entries: Option<String>,
    /// No effect: the whole index is in memory
    #[arg(long, env = "KURA_MANIFEST_CACHE_MAX_BYTES")]
    pub manifest_cache_max_bytes: Option<String>,
    /// No effect: there is no metadata database
    #[arg(long, env = "KURA_METADATA_STORE_MAX_OPEN_FILES")]
    pub metadata_store_max_open_files: Option<String>,
    /// No effect: there is no metadata database
    #[arg(long, env = "KURA_METADATA_STORE_MAX_BACKGROUND_JOBS")]
    pub metadata_store_max_background_jobs: Option<String>,
    /// No effect: there is no metadata database
    #[arg(long, env = "KURA_METADATA_STORE_MAX_WRITE_BUFFERS")]
    pub metadata_store_max_write_buffers: Option<String>,
    /// No effect: there is no metadata database
    #[arg(long, env = "KURA_METADATA_STORE_READ_CACHE_BYTES")]
    pub metadata_store_read_cache_bytes: Option<String>,
    /// No effect: there is no metadata database
    #[arg(long, env = "KURA_METADATA_STORE_WRITE_BUFFER_POOL_BYTES")]
    pub metadata_store_write_buffer_pool_bytes: Option<String>,
    /// No effect: there is no metadata database
    #[arg(long, env = "KURA_METADATA_STORE_WRITE_BUFFER_BYTES")]
    pub metadata_store_write_buffer_bytes: Option<String>,
    /// No effect: no error reports are sent anywhere; errors are in the log
    #[arg(long, env = "KURA_SENTRY_DSN", hide_env_values = true)]
    pub sentry_dsn: Option<String>,
}
