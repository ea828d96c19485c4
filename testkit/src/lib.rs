//! What tests of programs stand on: clusters of real parts, and a corner of one for each test.
//!
//! ```text
//!   TestCluster ── owns ──▶ Supervisor (etcd, kube-apiserver, …)      one per test binary, started on first use
//!       │ namespace("apply")
//!       ▼
//!   Sandbox ── a namespace, clients, restricted identities, child programs; prints logs when its test panics
//! ```
//!
//! Nothing outlives the test process: the children are bound to it by the kernel (see `russet_cluster::process`), so a panic, Ctrl-C
//! or `kill -9` of a test leaves nothing running. Folders of dead runs are removed by the next one.

pub mod audit;
pub mod chart;
pub mod cluster;
pub mod crds;
pub mod identity;
pub mod object;
pub mod overlay;
pub mod program;
pub mod sandbox;
pub mod wait;

pub use cluster::{Extras, TestCluster};
pub use sandbox::Sandbox;
