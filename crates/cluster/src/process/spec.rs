//! What to run, and how to tell that it is ready.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::Restart;

/// One child process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    /// Unique within a supervisor; shown to people.
    pub name: String,
    /// Absolute path of the program.
    pub program: PathBuf,
    /// Arguments. Visible to every user of the machine: no secrets here.
    pub args: Vec<String>,
    /// Added to the small inherited environment (see the module documentation).
    pub env: Vec<(String, String)>,
    /// Standard output and standard error are appended here; the previous run's file becomes `<log>.1`.
    pub log: PathBuf,
    /// When it counts as ready.
    pub probe: Probe,
    /// What to do when it exits.
    pub restart: Restart,
    /// How long it may take to become ready.
    pub ready_within: Duration,
    /// How long it may take to end after SIGTERM before it is killed.
    pub stop_grace: Duration,
    /// Addresses it will listen on. They are tried first, so that a taken port is named instead of guessed from a log.
    pub listens: Vec<SocketAddr>,
}

impl Spec {
    /// A program without arguments or probe, not restarted, with a minute to become ready and ten seconds to end.
    pub fn new(name: impl Into<String>, program: impl Into<PathBuf>, log: impl Into<PathBuf>) -> Self {
        Self {
            name: name.into(),
            program: program.into(),
            args: Vec::new(),
            env: Vec::new(),
            log: log.into(),
            probe: Probe::None,
            restart: Restart::Never,
            ready_within: Duration::from_mins(1),
            stop_grace: Duration::from_secs(10),
            listens: Vec::new(),
        }
    }

    /// Appends arguments.
    #[must_use]
    pub fn args<S: Into<String>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Adds an environment variable.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Sets the readiness probe.
    #[must_use]
    pub fn probe(mut self, probe: Probe) -> Self {
        self.probe = probe;
        self
    }

    /// Sets the restart policy.
    #[must_use]
    pub fn restart(mut self, restart: Restart) -> Self {
        self.restart = restart;
        self
    }

    /// Sets how long it may take to become ready.
    #[must_use]
    pub fn ready_within(mut self, limit: Duration) -> Self {
        self.ready_within = limit;
        self
    }

    /// Sets how long it may take to end after SIGTERM.
    #[must_use]
    pub fn stop_grace(mut self, grace: Duration) -> Self {
        self.stop_grace = grace;
        self
    }

    /// Adds an address it will listen on.
    #[must_use]
    pub fn listens(mut self, address: impl Into<SocketAddr>) -> Self {
        self.listens.push(address.into());
        self
    }
}

/// How to tell that a process is ready.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Probe {
    /// Ready as soon as it runs.
    None,
    /// Something accepts connections there.
    Tcp(SocketAddr),
    /// GET answers with a 2xx status.
    Http {
        /// The whole URL.
        url: String,
    },
    /// GET answers with a 2xx status, over TLS with a certificate of the given authority.
    Https {
        /// The whole URL.
        url: String,
        /// PEM file of the authority.
        ca: PathBuf,
        /// A client certificate to present.
        client: Option<ClientIdentity>,
    },
    /// Something answers over TLS with a certificate of the given authority, whatever the status: for servers that have no
    /// page of their own, such as webhooks.
    Tls {
        /// The whole URL.
        url: String,
        /// PEM file of the authority.
        ca: PathBuf,
    },
    /// The file or socket exists.
    File(PathBuf),
    /// All of them.
    All(Vec<Probe>),
}

/// A client certificate and its key, as PEM files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientIdentity {
    /// The certificate.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}
