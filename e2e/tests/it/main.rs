//! What crosses process borders: our types, charts and plumbing against a real apiserver, Cluster API core, Helm and a real node.
//!
//! One cluster serves all tests of this binary (`TestCluster::shared`), each in a namespace of its own; tests that break a cluster start one.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::needless_pass_by_value,
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests stand outside of #[test] functions, where these lints take them for production code"
)]

mod api_examples;
mod api_fixtures;
mod capi_contract;
mod controller_apply;
mod controller_crds;
mod controller_leader;
mod controller_rbac;
mod controller_reconnect;
mod controller_scale;
mod crd_chart;
mod harness;
mod linux_node;
mod sample;
mod scenarios;
