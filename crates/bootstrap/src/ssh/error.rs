//! What can go wrong on the way to a host and back.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use super::HostKeyPin;

/// Which part of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum During {
    Dial,
    Authentication,
    Command,
}

impl fmt::Display for During {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Dial => "dialling",
            Self::Authentication => "authentication",
            Self::Command => "a command",
        })
    }
}

/// A connection or a command that failed. Holds no command, no input and no output.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot reach {address}: {source}; check that the host is on and that the network leads to it")]
    Unreachable {
        address: SocketAddr,
        source: std::io::Error,
    },
    #[error("{address} refuses connections; the host is up, but no SSH server listens there yet")]
    Refused { address: SocketAddr },
    #[error("{address} did not finish {during} within {} s; it is down, overloaded or cut off", after.as_secs_f32())]
    Timeout {
        address: SocketAddr,
        during: During,
        after: Duration,
        /// The key the host showed before it fell silent.
        host_key: Option<HostKeyPin>,
    },
    #[error("{address} does not speak SSH as we do: {source}")]
    Handshake {
        address: SocketAddr,
        source: Box<russh::Error>,
    },
    #[error(
        "the host key of {address} is {found}, but {expected} was pinned; the host was reinstalled, or somebody is in between: \
         remove the pin only if you know of a reinstallation"
    )]
    HostKeyChanged {
        address: SocketAddr,
        expected: HostKeyPin,
        found: HostKeyPin,
    },
    #[error("{address} rejects the {method} of {user}; it accepts {}", list(accepts))]
    AuthRejected {
        address: SocketAddr,
        user: String,
        /// `key` or `password`.
        method: &'static str,
        accepts: Vec<String>,
        host_key: HostKeyPin,
    },
    #[error("the private key cannot be used: {problem}; give an unencrypted OpenSSH key (ed25519 or ecdsa)")]
    BadKey { problem: &'static str },
    #[error("the connection to {address} was lost during {during}{}", because(reason.as_ref()))]
    Dropped {
        address: SocketAddr,
        during: During,
        /// What the host said, or what we saw.
        reason: Option<String>,
    },
    #[error("{address} allows no further command on this connection; use fewer at once or connect again")]
    TooManyCommands { address: SocketAddr },
    #[error("{address} refuses to run commands for this user")]
    CommandRefused { address: SocketAddr },
    #[error("a command on {address} did not end within {} s and was stopped", after.as_secs_f32())]
    Deadline { address: SocketAddr, after: Duration },
    #[error("cannot read {}, which should be sent: {source}", path.display())]
    Unreadable {
        path: std::path::PathBuf,
        source: std::io::Error,
    },
    #[error("a command on {address} ended without an exit status; the host may be shutting down")]
    NoStatus { address: SocketAddr },
}

impl Error {
    /// The host key that was seen, even though the connection failed. Worth keeping: it is the first one.
    pub fn host_key(&self) -> Option<&HostKeyPin> {
        match self {
            Self::HostKeyChanged { found, .. } => Some(found),
            Self::AuthRejected { host_key, .. } => Some(host_key),
            Self::Timeout { host_key, .. } => host_key.as_ref(),
            Self::Unreachable { .. }
            | Self::Refused { .. }
            | Self::Handshake { .. }
            | Self::BadKey { .. }
            | Self::Dropped { .. }
            | Self::TooManyCommands { .. }
            | Self::CommandRefused { .. }
            | Self::Deadline { .. }
            | Self::Unreadable { .. }
            | Self::NoStatus { .. } => None,
        }
    }

    /// Whether it may be different in a moment, with nothing changed by anybody.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { .. }
            | Self::Refused { .. }
            | Self::Timeout { .. }
            | Self::Dropped { .. }
            | Self::TooManyCommands { .. }
            | Self::Deadline { .. }
            | Self::NoStatus { .. } => true,
            Self::Handshake { .. }
            | Self::HostKeyChanged { .. }
            | Self::AuthRejected { .. }
            | Self::BadKey { .. }
            | Self::Unreadable { .. }
            | Self::CommandRefused { .. } => false,
        }
    }
}

fn list(accepts: &[String]) -> String {
    if accepts.is_empty() {
        return "nothing else".to_owned();
    }
    accepts.join(", ")
}

fn because(reason: Option<&String>) -> String {
    reason.map(|reason| format!(": {reason}")).unwrap_or_default()
}
