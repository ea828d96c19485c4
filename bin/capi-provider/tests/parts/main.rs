//! Parts of the infrastructure provider, each by itself: on a real apiserver, kube-controller-manager and Cluster API core, and against the emulated
//! Scaleway and GitHub. The chart that core has to accept; under exactly the rights of that chart the fleet key, join
//! credentials, the cluster kind and egress Services; runner tokens.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::needless_pass_by_value,
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests stand outside of #[test] functions, where these lints take them for production code"
)]

mod asking;
mod chart;
mod claims;
mod cluster_kind;
mod egress;
mod fleet;
mod fleet_key;
mod join;
mod runner_token;
mod supplied_kubeconfig;
mod support;
