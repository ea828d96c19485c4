//! What can go wrong.

use std::net::SocketAddr;
use std::path::PathBuf;

/// Why there is no fleet.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FleetError {
    /// The port is taken.
    #[error("could not reserve {address}; does another emulated fleet use port {}?", address.port())]
    Port {
        /// Where one fleet per port announces itself.
        address: SocketAddr,
        source: std::io::Error,
    },
    /// The disks of machines cannot be kept.
    #[error("could not make the folder {} for the disks of machines", dir.display())]
    Disks { dir: PathBuf, source: std::io::Error },
    /// There can be no Macs.
    #[error(transparent)]
    Macs(#[from] crate::macos::MacError),
}
