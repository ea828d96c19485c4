//! An SSH client for machines we own: few, known, and sometimes half dead.
//!
//! ```text
//! Target ── connect ──► Session ── run(Exec) ──► Output
//!             │            └── many at once; each has a deadline and bounded output; dropping one stops its command
//!             ├── dial (TCP, versions, key exchange) within Limits::dial
//!             ├── host key: equal to the pin, or HostKeyChanged before anything secret was sent
//!             └── one attempt at authentication within Limits::auth
//! ```
//!
//! What is promised
//! - Nothing waits forever: dialling, authentication and every command have a deadline, and a connection whose other end
//!   stays silent for three keepalives is given up.
//! - Errors are types, and say what to do. None holds a command, its input or its output: callers put secrets there.
//! - A secret reaches a command by its standard input, never by its command line, which other users of the host can read.
//!
//! How many connections there are at once, and when a failed one is tried again, is the caller's business.

mod connect;
mod error;
mod exec;
mod pin;
mod stream;
mod tail;

use std::net::SocketAddr;
use std::time::Duration;

use russet_telemetry::Secret;

pub use self::{
    connect::{Session, connect},
    error::{During, Error},
    exec::{Exec, Exit, Output},
    pin::{BadPin, HostKeyPin},
    stream::Stream,
};

/// Whom to call, as whom.
#[derive(Clone, Debug)]
pub struct Target {
    pub address: SocketAddr,
    pub user: String,
    pub auth: Auth,
    /// The host key that was seen before. None trusts whoever answers; keep what [`Session::host_key`] says.
    pub pin: Option<HostKeyPin>,
}

/// How to show who we are.
#[derive(Clone, Debug)]
pub enum Auth {
    /// A private key as OpenSSH writes it, without a passphrase.
    Key(Secret<String>),
    Password(Secret<String>),
}

/// How long things may take and how much a command may say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// From the first packet to agreed keys.
    pub dial: Duration,
    pub auth: Duration,
    /// How often a silent host is asked whether it still lives; after three unanswered times it does not.
    pub keepalive: Duration,
    /// How many bytes of each output stream of a command are kept, counted from its end.
    pub output: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            dial: Duration::from_secs(15),
            auth: Duration::from_secs(15),
            keepalive: Duration::from_secs(15),
            output: 64 * 1024,
        }
    }
}
