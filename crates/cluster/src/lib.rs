//! A cluster of real parts on this machine: the library behind `russet up` and the test harness.
//!
//! Nothing here is emulated. [`process`] keeps child processes alive and makes sure none survives its parent, [`ports`] and
//! [`pki`] give them addresses and identities that stay the same between runs, [`control_plane`] starts etcd,
//! kube-apiserver, kube-controller-manager and kube-scheduler, [`capi`] starts Cluster API core, [`local_path`] its volumes,
//! [`metrics_server`] what answers `kubectl top`, and [`node`] joins a real Linux node when run as root.
//!
//! ```text
//! parts::Tools ──► ControlPlane::start ──► capi::start ──► node::LinuxNode::start
//!                        │                     │                  │
//!                        └────────► process::Supervisor ◄─────────┘
//! ```
//!
//! Everything a run leaves on disk lives under the directory its caller names. A second start on the same directory
//! resumes: same certificates, same ports when they are still free, same etcd data.

pub mod capi;
pub mod control_plane;
pub mod files;
pub mod kubeconfig;
pub mod local_path;
pub mod metrics_server;
pub mod node;
pub mod pki;
pub mod ports;
pub mod process;

pub use control_plane::ControlPlane;
pub use process::Supervisor;
