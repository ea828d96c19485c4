//! Parts of the infrastructure provider on a real apiserver, kube-controller-manager and Cluster API core, and against the emulated Scaleway: the
//! fleet key, join credentials, the cluster kind, egress Services. Each runs under exactly the rights of the provider's chart.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::needless_pass_by_value,
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests stand outside of #[test] functions, where these lints take them for production code"
)]

mod asking;
mod claims;
mod cluster_kind;
mod egress;
mod fleet;
mod fleet_key;
mod join;
mod supplied_kubeconfig;
mod support;
