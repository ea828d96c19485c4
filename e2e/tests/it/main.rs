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
mod capi_chart;
mod capi_contract;
mod conformance_document;
mod controller_apply;
mod controller_crds;
mod controller_leader;
mod controller_rbac;
mod controller_reconnect;
mod controller_scale;
mod crd_chart;
mod harness;
mod kura_crash;
mod linux_node;
mod sample;
mod scenarios;
mod sim_mac;

/// The node that was built last; built now if it never was.
fn kura_program() -> russet_e2e::kura::Program {
    russet_e2e::kura::Program::find().unwrap_or_else(|_| {
        let built = std::process::Command::new(env!("CARGO"))
            .args(["build", "--package", "kura"])
            .status()
            .unwrap();
        assert!(built.success(), "failed to build kura");
        russet_e2e::kura::Program::find().unwrap()
    })
}

/// The provider that was built last; built now if it never was.
fn capi_provider_program() {
    if russet_e2e::fleet::provider_program().is_err() {
        let built = std::process::Command::new(env!("CARGO"))
            .args(["build", "--package", "russet-capi-provider"])
            .status()
            .unwrap();
        assert!(built.success(), "failed to build the provider");
    }
}

/// What stories of Macs run, if it was never built.
fn mac_programs() {
    for (program, package) in [
        ("capi-provider", "russet-capi-provider"),
        ("sim-mac", "russet-sim-mac"),
        ("sim-tart", "russet-sim-tart"),
        ("tart-kubelet", "russet-tart-kubelet"),
    ] {
        if russet_e2e::fleet::program(program, package).is_err() {
            let built = std::process::Command::new(env!("CARGO"))
                .args(["build", "--package", package])
                .status()
                .unwrap();
            assert!(built.success(), "failed to build {program}");
        }
    }
}
