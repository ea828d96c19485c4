//! The configuration: built once from flags and environment, validated into typed values, passed down by value.
//!
//! Nothing is required: `kura serve` on one machine listens on loopback, port 4000, keeps its data in `./kura-data` and lets
//! anyone on the machine read and write. As soon as the node can be reached from elsewhere, writing needs a credential or an
//! explicit `KURA_AUTH_ANONYMOUS=read-write`.

pub mod args;

use args::Args;
use russet_identity::{AccountHandle, Anonymous, Settings};
use russet_telemetry::Secret;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// A setting that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not a handle.
    #[error("KURA_TENANT_ID {0:?} is not an account handle (letters, digits and dashes, at most 63)")]
    Tenant(String),
    /// Outside its bounds.
    #[error("{name} is {value}, but must be between {least} and {most}")]
    Bounds {
        /// The variable.
        name: &'static str,
        /// What was given.
        value: u64,
        /// Smallest value.
        least: u64,
        /// Largest value.
        most: u64,
    },
    /// A file with a secret cannot be read.
    #[error("cannot read {}: check that it exists and belongs to this user", path.display())]
    Secret {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Client id, secret and URL go together.
    #[error("KURA_CONTROL_PLANE_CLIENT_ID and KURA_CONTROL_PLANE_CLIENT_SECRET go together; set both or none")]
    HalfClient,
    /// The URL has no host.
    #[error("KURA_NODE_URL {0:?} is not a URL with a host")]
    NodeUrl(String),
    /// Trust cannot be set up.
    #[error(transparent)]
    Trust(#[from] russet_identity::config::Error),
    /// Logging cannot be set up.
    #[error(transparent)]
    Log(#[from] russet_telemetry::log::Error),
}

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

/// Usage reporting.
#[derive(Debug, Clone)]
pub struct Usage {
    /// Base URL of the control plane.
    pub url: String,
    /// Client id.
    pub client_id: String,
    /// Its secret.
    pub client_secret: Secret<String>,
    /// Length of a window.
    pub window: Duration,
    /// How often the outbox is written.
    pub flush: Duration,
    /// How often events are delivered.
    pub delivery: Duration,
    /// Events per delivery.
    pub batch: usize,
    /// Counters per window.
    pub max_buckets: usize,
    /// Events kept.
    pub max_depth: usize,
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
    /// Memory to stay below, if said.
    pub memory_limit: Option<u64>,
    /// Uploads in parts.
    pub multipart: Multipart,
    /// What Turborepo's artifacts must be signed with, if anything.
    pub turborepo_signature: Option<Secret<String>>,
    /// Trust.
    pub trust: russet_identity::Config,
    /// Usage events, if there is someone to tell.
    pub usage: Option<Usage>,
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
}

impl Secrets {
    /// Reads the environment.
    pub fn from_env() -> Self {
        Self {
            jwt: variable("KURA_AUTH_JWT_SECRET"),
            client: variable("KURA_CONTROL_PLANE_CLIENT_SECRET"),
            turborepo: variable("KURA_TURBOREPO_SIGNATURE_KEY"),
        }
    }
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
        let usage = usage(&args.control, fallback_url, client_id, secrets.client)?;
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
            node_id: host_of(&node_url)?,
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
            memory_limit: args.limits.memory_hard_limit_bytes,
            turborepo_signature: secrets.turborepo,
            trust,
            usage,
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
            "memory_limit_bytes": self.memory_limit,
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

fn usage(
    control: &args::Control,
    fallback: Option<String>,
    client_id: Option<String>,
    client_secret: Option<Secret<String>>,
) -> Result<Option<Usage>, Error> {
    let url = given(control.control_plane_url.clone()).or(fallback);
    match (url, client_id, client_secret) {
        (Some(url), Some(client_id), Some(client_secret)) => Ok(Some(Usage {
            url: url.trim_end_matches('/').to_owned(),
            client_id,
            client_secret,
            window: Duration::from_secs(control.usage_window_secs.max(1)),
            flush: Duration::from_millis(control.usage_flush_interval_ms.max(10)),
            delivery: Duration::from_millis(control.usage_delivery_interval_ms.max(10)),
            batch: control.usage_batch_size.clamp(1, 5000),
            max_buckets: control.usage_max_buckets,
            max_depth: control.usage_outbox_max_depth,
        })),
        (_, Some(_), None) | (_, None, Some(_)) => Err(Error::HalfClient),
        _ => Ok(None),
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn config(line: &[&str]) -> Result<Config, Error> {
        let args = Line::parse_from([&["kura"], line].concat()).args;
        Config::new(args, Secrets::default())
    }

    #[test]
    fn nothing_is_required_and_the_default_stays_on_this_machine() {
        let config = config(&[]).unwrap();
        assert_eq!(config.address.to_string(), "127.0.0.1:4000");
        assert_eq!(config.trust.anonymous, Anonymous::ReadWrite);
        assert_eq!(config.tenant.as_str(), "default");
    }

    #[test]
    fn writing_from_elsewhere_must_be_asked_for() {
        let open = config(&["--bind-address", "0.0.0.0"]).unwrap();
        assert_eq!(open.trust.anonymous, Anonymous::Read);
        let asked = config(&["--auth-anonymous", "read-write"]).unwrap();
        assert_eq!(asked.trust.anonymous, Anonymous::ReadWrite);
        assert_eq!(asked.address.to_string(), "[::]:4000");
        let deployed = config(&["--node-url", "https://node-1.example:7443"]).unwrap();
        assert_eq!(
            (deployed.trust.anonymous, deployed.node_id.as_str()),
            (Anonymous::Read, "node-1.example")
        );
    }

    #[test]
    fn mistakes_are_named() {
        assert!(matches!(config(&["--tenant-id", "a b"]), Err(Error::Tenant(_))));
        assert!(matches!(
            config(&["--max-keyvalue-bytes", "4194305"]),
            Err(Error::Bounds { .. })
        ));
        assert!(matches!(config(&["--auth-enabled", "true"]), Err(Error::Trust(_))));
        assert!(matches!(
            config(&["--control-plane-client-id", "x"]),
            Err(Error::Trust(_) | Error::HalfClient)
        ));
        assert!(matches!(config(&["--node-url", "nonsense"]), Err(Error::NodeUrl(_))));
    }

    #[test]
    fn secrets_are_not_printed() {
        let args = Line::parse_from([
            "kura",
            "--auth-tuist-url",
            "https://server.example",
            "--control-plane-client-id",
            "me",
        ])
        .args;
        let secrets = Secrets {
            jwt: Some(Secret::new("jwt-value-1234".to_owned())),
            client: Some(Secret::new("client-value-1234".to_owned())),
            turborepo: Some(Secret::new("turbo-value-1234".to_owned())),
        };
        let config = Config::new(args, secrets).unwrap();
        for text in [config.redacted().to_string(), format!("{config:?}")] {
            assert!(!text.contains("value-1234"), "{text}");
        }
    }
}
