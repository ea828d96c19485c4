//! What can be wrong with a configuration, by the names people use.

use std::path::PathBuf;

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
    /// Webhooks that nobody would believe.
    #[error("KURA_ANALYTICS_SERVER_URL needs KURA_ANALYTICS_SIGNING_KEY in the environment: events are signed with it")]
    UnsignedAnalytics,
    /// Not a collector.
    #[error("{0:?} is not a URL that traces can be sent to; write for example http://collector:4318/v1/traces")]
    TracesUrl(String),
    /// Not a share.
    #[error("KURA_OTEL_TRACES_SAMPLE_RATIO is {0}, but must be between 0 and 1")]
    Ratio(f64),
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
