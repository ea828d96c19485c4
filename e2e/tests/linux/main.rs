//! Linux cache nodes on real parts: ordered by Cluster API, set up by the very program of production, and gone without a trace.

#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests stand outside of #[test] functions, where these lints take them for production code"
)]

mod left;
mod life;
mod roaming;

/// Our programs that were built last; built now if they never were.
fn programs() {
    let missing = [
        (
            russet_testkit::program::provider_program().is_err(),
            "russet-capi-provider",
        ),
        (russet_stages::linux::server_program().is_err(), "russet-sim-linux"),
    ];
    for (_, package) in missing.into_iter().filter(|(is_missing, _)| *is_missing) {
        let built = std::process::Command::new(env!("CARGO"))
            .args(["build", "--package", package])
            .status()
            .unwrap();
        assert!(built.success(), "failed to build {package}");
    }
}
