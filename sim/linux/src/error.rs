//! What can go wrong, in words that say what to do.

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;

use russet_cluster::node::{self, Range};

/// Why a server cannot be emulated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A real machine needs rights and programs.
    #[error(transparent)]
    Node(#[from] node::Error),
    /// A program is missing.
    #[error(transparent)]
    Parts(#[from] russet_parts::Error),
    /// The network of the machines has other addresses.
    #[error(
        "the server {name} has the public address {address}, which is not in {range}; let the emulated Scaleway give addresses of that range"
    )]
    Address {
        name: String,
        /// What it was given.
        address: IpAddr,
        /// What the network has.
        range: Range,
    },
    /// The seed of the row is none.
    #[error("the host key of the server {name} is not a base64 seed of 32 bytes")]
    HostKey { name: String },
    /// Mount options are separated by such characters.
    #[error("{} cannot hold servers: its path has a comma, a colon or a backslash in it", path.display())]
    Path { path: PathBuf },
    /// There is no such server.
    #[error("there is no server {id}")]
    Unknown {
        /// What was asked for.
        id: String,
    },
    /// Without root there is only a Node.
    #[error("the server {name} is synthetic and has no machine; run as root for one")]
    NoMachine { name: String },
    /// The server is off.
    #[error("the server {name} is off")]
    Off { name: String },
    /// A file could not be made.
    #[error("could not {attempt}: {}", path.display())]
    Io {
        /// What was tried.
        attempt: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
}

impl Error {
    pub(crate) fn io(attempt: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { attempt, path, source }
    }
}
