//! The configuration: built once from flags and environment, validated into typed values, passed down by value.
//!
//! Nothing is required: `kura serve` on one machine listens on loopback, port 4000, keeps its data in `./kura-data` and lets
//! anyone on the machine read and write. As soon as the node can be reached from elsewhere, writing needs a credential or an
//! explicit `KURA_AUTH_ANONYMOUS=read-write`.

pub mod args;
mod error;
mod reporting;

pub use error::Error;
pub use reporting::{Analytics, Usage};

use args::Args;
use russet_identity::{AccountHandle, Anonymous, Settings};
use russet_telemetry::{Secret, trace};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// What an acknowledged write survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Durability {
    /// The machine losing power: synced before the answer, many writes per sync.
    PowerLoss,
    /// The process dying: handed to the kernel before the answer.
    ProcessCrash,
}

/// The TLS port.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Tls {
    /// Where.
    pub address: SocketAddr,
    /// Certificate chain, PEM.
    pub certificate: PathBuf,
    /// Key, PEM.
    pub key: PathBuf,
}

/// Memory.
#[derive(Debug, Clone, Copy, serde::Serialize)]
pub struct Memory {
    /// To stay below, if said.
    pub hard: Option<u64>,
    /// From which on work that can wait is paused, if said.
    pub soft: Option<u64>,
    /// For tests: the pressure, whatever is measured.
    pub forced: Option<crate::pressure::State>,
}

/// Uploads in parts.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Multipart {
    /// Where parts are kept.
    pub dir: PathBuf,
    /// Open uploads.
    pub max_active: usize,
    /// Bytes of all parts.
    pub max_bytes: u64,
    /// When an upload is forgotten.
    pub ttl: Duration,
    /// How often that is looked at.
    pub janitor: Duration,
}

/// Everything `kura serve` needs.
#[derive(Debug, Clone)]
pub struct Config {
    /// Plain HTTP.
    pub address: SocketAddr,
    /// HTTPS, if certificates are given.
    pub tls: Option<Tls>,
    /// Serving threads; 0 means one per core.
    pub workers: usize,
    /// How long connections are waited for.
    pub patience: crate::http1::wait::Patience,
    /// How long SIGTERM waits.
    pub drain_timeout: Duration,
    /// The account.
    pub tenant: AccountHandle,
    /// The region.
    pub region: String,
    /// The node's URL.
    pub node_url: String,
    /// The node's name: the host of its URL.
    pub node_id: String,
    /// Country and subdivision.
    pub place: (String, String),
    /// The store.
    pub data_dir: PathBuf,
    /// Its size.
    pub capacity: Option<u64>,
    /// What an acknowledgement promises.
    pub durability: Durability,
    /// Largest key-value document.
    pub max_keyvalue: usize,
    /// Memory.
    pub memory: Memory,
    /// Uploads in parts.
    pub multipart: Multipart,
    /// What Turborepo's artifacts must be signed with, if anything.
    pub turborepo_signature: Option<Secret<String>>,
    /// Trust.
    pub trust: russet_identity::Config,
    /// Usage events, if there is someone to tell.
    pub usage: Option<Usage>,
    /// Webhooks, if there is someone to tell.
    pub analytics: Option<Analytics>,
    /// Where traces go, if anywhere.
    pub traces: Option<trace::Options>,
    /// Host and port at which the node is reached.
    pub endpoint: String,
    /// Logging.
    pub log: russet_telemetry::log::Options,
}

/// Secrets, which come from the environment and from files but never from arguments.
#[derive(Debug, Default)]
pub struct Secrets {
    /// `KURA_AUTH_JWT_SECRET`.
    pub jwt: Option<Secret<String>>,
    /// `KURA_CONTROL_PLANE_CLIENT_SECRET`.
    pub client: Option<Secret<String>>,
    /// `KURA_TURBOREPO_SIGNATURE_KEY`.
    pub turborepo: Option<Secret<String>>,
    /// `KURA_ANALYTICS_SIGNING_KEY`.
    pub analytics: Option<Secret<String>>,
}

/// The variables of [`Secrets`].
pub const SECRETS: [&str; 4] = [
    "KURA_AUTH_JWT_SECRET",
    "KURA_TURBOREPO_SIGNATURE_KEY",
    "KURA_CONTROL_PLANE_CLIENT_SECRET",
    "KURA_ANALYTICS_SIGNING_KEY",
];

impl Secrets {
    /// Reads the environment.
    pub fn from_env() -> Self {
        Self {
            jwt: variable("KURA_AUTH_JWT_SECRET"),
            client: variable("KURA_CONTROL_PLANE_CLIENT_SECRET"),
            turborepo: variable("KURA_TURBOREPO_SIGNATURE_KEY"),
            analytics: variable("KURA_ANALYTICS_SIGNING_KEY"),
        }
    }
}

/// Whether a variable is set, but to nothing.
pub(crate) fn is_empty(name: &std::ffi::OsStr) -> bool {
    std::env::var_os(name).is_some_and(|value| value.is_empty())
}

/// What `kura cacheprog` gets from the environment besides its arguments.
pub fn cacheprog_environment() -> crate::cacheprog::Environment {
    let folder = |name: &str| variable(name).map(|value| PathBuf::from(value.expose()));
    crate::cacheprog::Environment {
        token: variable("KURA_CACHEPROG_TOKEN"),
        cache_dir: folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache"))),
    }
}

fn variable(name: &str) -> Option<Secret<String>> {
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the one place that reads the environment"
    )]
    std::env::var(name)
        .ok()
        .filter(|value| !value.is_empty())
        .map(Secret::new)
}

impl Config {
    /// Makes sense of what was given.
    pub fn new(args: Args, secrets: Secrets) -> Result<Self, Error> {
        let tenant_text = args.node.tenant_id;
        let tenant = russet_identity::handle::account_handle(&tenant_text).map_err(|_| Error::Tenant(tenant_text))?;
        bounds(
            "KURA_MAX_KEYVALUE_BYTES",
            args.limits.max_keyvalue_bytes as u64,
            1,
            4 * 1024 * 1024,
        )?;
        bounds(
            "KURA_TOKIO_WORKER_THREADS",
            args.listen.tokio_worker_threads.unwrap_or(0) as u64,
            0,
            256,
        )?;
        let named = given(args.node.node_url);
        let client_id = given(args.control.control_plane_client_id.clone());
        let (asked, fallback_url) = (args.auth.auth_anonymous, given(args.auth.auth_tuist_url.clone()));
        let client = (client_id.clone(), secrets.client.clone());
        let mut trust = trust(args.auth, secrets.jwt, tenant.clone(), client)?;
        let deployed = trust.checks_credentials() || asked.is_some() || named.is_some();
        let host = args.listen.bind_address.unwrap_or(default_bind(deployed));
        if asked.is_none() && !trust.checks_credentials() && host.is_loopback() {
            trust.anonymous = Anonymous::ReadWrite;
        }
        let address = SocketAddr::new(host, args.listen.port);
        let node_url = named.unwrap_or_else(|| format!("http://127.0.0.1:{}", args.listen.port));
        let usage = reporting::usage(&args.control, fallback_url, client_id, secrets.client)?;
        let analytics = reporting::analytics(&args.analytics, secrets.analytics)?;
        let node_id = host_of(&node_url)?;
        let traces = reporting::traces(&args.telemetry, &node_id, &args.node.region)?;
        let endpoint = endpoint_of(&node_url)?;
        let millis = Duration::from_millis;
        Ok(Self {
            address,
            tls: match (
                path(args.listen.public_tls_cert_path),
                path(args.listen.public_tls_key_path),
            ) {
                (Some(certificate), Some(key)) => Some(Tls {
                    address: SocketAddr::new(host, args.listen.https_port),
                    certificate,
                    key,
                }),
                _ => None,
            },
            workers: args.listen.tokio_worker_threads.unwrap_or(0),
            patience: crate::http1::wait::Patience {
                header: millis(args.listen.http_header_timeout_ms),
                stall: millis(args.listen.http_stall_timeout_ms),
                idle: millis(args.listen.http_idle_timeout_ms),
            },
            drain_timeout: millis(args.listen.drain_completion_timeout_ms),
            tenant,
            region: args.node.region,
            node_id,
            node_url,
            place: (
                args.node.node_country.unwrap_or_default(),
                args.node.node_subdivision.unwrap_or_default(),
            ),
            multipart: Multipart {
                dir: path(args.storage.tmp_dir).unwrap_or_else(|| args.storage.data_dir.join("multipart")),
                max_active: args.limits.multipart_max_active_uploads,
                max_bytes: args
                    .limits
                    .multipart_max_stored_bytes
                    .unwrap_or(args.storage.tmp_dir_max_bytes),
                ttl: millis(args.limits.multipart_upload_ttl_ms),
                janitor: millis(args.limits.multipart_janitor_interval_ms.max(10)),
            },
            data_dir: args.storage.data_dir,
            capacity: args.storage.cas_capacity_bytes,
            durability: args.storage.durability,
            max_keyvalue: args.limits.max_keyvalue_bytes,
            turborepo_signature: secrets.turborepo,
            memory: Memory {
                hard: args.limits.memory_hard_limit_bytes,
                soft: args.limits.memory_soft_limit_bytes,
                forced: args.limits.test_force_memory_pressure,
            },
            trust,
            usage,
            analytics,
            traces,
            endpoint,
            log: russet_telemetry::log::Options {
                format: args.telemetry.log_format.parse()?,
                filter: args.telemetry.log,
            },
        })
    }

    /// The configuration as JSON, without its secrets.
    pub fn redacted(&self) -> serde_json::Value {
        serde_json::json!({
            "address": self.address,
            "tls": self.tls,
            "workers": self.workers,
            "header_timeout_ms": millis(self.patience.header),
            "stall_timeout_ms": millis(self.patience.stall),
            "idle_timeout_ms": millis(self.patience.idle),
            "drain_timeout_ms": millis(self.drain_timeout),
            "tenant_id": self.tenant.as_str(),
            "region": self.region,
            "node_url": self.node_url,
            "node_id": self.node_id,
            "data_dir": self.data_dir,
            "capacity_bytes": self.capacity,
            "durability": self.durability,
            "max_keyvalue_bytes": self.max_keyvalue,
            "memory": self.memory,
            "multipart": self.multipart,
            "turborepo_signature": self.turborepo_signature.is_some(),
            "anonymous": self.trust.anonymous.as_str(),
            "static_tokens": self.trust.tokens.is_some(),
            "jwt": self.trust.jwt.is_some(),
            "auth_url": self.trust.control_plane.as_ref().map(|plane| plane.url.as_str()),
            "usage": self.usage.as_ref().map(|usage| serde_json::json!({
                "url": usage.url,
                "client_id": usage.client_id,
                "client_secret": "[redacted]",
                "window_secs": usage.window.as_secs(),
                "flush_ms": millis(usage.flush),
                "delivery_ms": millis(usage.delivery),
            })),
            "analytics": self.analytics.as_ref().map(|analytics| serde_json::json!({
                "url": analytics.url,
                "signing_key": "[redacted]",
                "batch_size": analytics.batch,
                "queue_capacity": analytics.queue,
            })),
            "traces": self.traces.as_ref().map(|traces| serde_json::json!({
                "endpoint": traces.endpoint,
                "service_name": traces.service,
                "deployment_environment": traces.environment,
                "sample_ratio": traces.ratio,
            })),
        })
    }
}

/// Who is trusted, before it is known from where the node can be reached.
fn trust(
    auth: args::Auth,
    jwt_secret: Option<Secret<String>>,
    tenant: AccountHandle,
    (client_id, client_secret): (Option<String>, Option<Secret<String>>),
) -> Result<russet_identity::Config, Error> {
    let jwt_secret = match (jwt_secret, auth.auth_jwt_secret_file) {
        (Some(secret), _) => Some(secret),
        (None, Some(path)) => Some(secret_file(path)?),
        (None, None) => None,
    };
    let settings = Settings {
        tenant: Some(tenant),
        enabled: auth.auth_enabled,
        anonymous: auth.auth_anonymous,
        tokens_file: path(auth.auth_tokens_file),
        jwt_public_key: auth.auth_jwt_public_key,
        jwt_public_key_file: path(auth.auth_jwt_public_key_file),
        jwt_secret,
        jwt_algorithm: auth.auth_jwt_algorithm,
        jwt_issuer: auth.auth_jwt_issuer,
        jwt_audiences: auth.auth_jwt_audiences,
        jwt_introspect: auth.auth_jwt_introspect.unwrap_or(false),
        url: auth.auth_tuist_url,
        connect_timeout: Some(Duration::from_millis(auth.auth_tuist_connect_timeout_ms)),
        request_timeout: Some(Duration::from_millis(auth.auth_tuist_request_timeout_ms)),
        client_id,
        client_secret,
        cache_max_entries: Some(auth.auth_cache_max_entries),
    };
    Ok(settings.into_config()?)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn bounds(name: &'static str, value: u64, least: u64, most: u64) -> Result<(), Error> {
    if (least..=most).contains(&value) {
        Ok(())
    } else {
        Err(Error::Bounds {
            name,
            value,
            least,
            most,
        })
    }
}

/// A deployed node is reached from elsewhere; one that was just started on a laptop is not.
fn default_bind(deployed: bool) -> IpAddr {
    if deployed {
        IpAddr::V6(Ipv6Addr::UNSPECIFIED)
    } else {
        IpAddr::V4(Ipv4Addr::LOCALHOST)
    }
}

/// Deployments set variables to nothing to mean that they are not set.
fn given(text: Option<String>) -> Option<String> {
    text.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
}

fn path(path: Option<PathBuf>) -> Option<PathBuf> {
    path.filter(|path| !path.as_os_str().is_empty())
}

fn secret_file(path: PathBuf) -> Result<Secret<String>, Error> {
    match std::fs::read_to_string(&path) {
        Ok(text) => Ok(Secret::new(text.trim_end_matches(['\r', '\n']).to_owned())),
        Err(source) => Err(Error::Secret { path, source }),
    }
}

/// The host of a URL, which names the node in usage events.
fn host_of(url: &str) -> Result<String, Error> {
    let parsed = reqwest::Url::parse(url).map_err(|_| Error::NodeUrl(url.to_owned()))?;
    parsed
        .host_str()
        .map(str::to_owned)
        .ok_or_else(|| Error::NodeUrl(url.to_owned()))
}

/// Host and port of a URL, as webhooks name the node.
fn endpoint_of(url: &str) -> Result<String, Error> {
    let host = host_of(url)?;
    let parsed = reqwest::Url::parse(url).map_err(|_| Error::NodeUrl(url.to_owned()))?;
    Ok(match parsed.port_or_known_default() {
        Some(port) => format!("{host}:{port}"),
        None => host,
    })
}

#[cfg(test)]
#[path = "config/tests.rs"]
mod tests;
