//! Every build tool the cache claims to serve, as it really is: installed from its registry, building a tiny project against the real
//! `kura`, through everything that can go wrong between the two.
//!
//! ```text
//! tool ──► Proxy (answers, garbles, cuts, dies on demand) ──► kura (guarded by tokens, killed, stopped, damaged on disk)
//!   └── what it claims, its exit code, the bytes it made         └── what it counted
//! ```
//!
//! One test per tool walks through all rows of [`rows`], because starting a tool's server or warming its JVM costs more than a build;
//! a row that fails does not keep the others from being tried. What each tool is expected to do is in [`expected`].

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests stand outside of #[test] functions, where these lints take them for production code"
)]

mod command;
mod damage;
mod expected;
mod proxy;
mod rows;
mod stage;

use russet_clients::Tool;

macro_rules! every_row {
    ($($name:ident: $tool:ident,)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            rows::walk(Tool::$tool).await;
        }
    )*};
}

every_row! {
    gradle_is_served_and_never_gets_wrong_bytes: Gradle,
    maven_is_served_and_never_gets_wrong_bytes: Maven,
    ccache_is_served_and_never_gets_wrong_bytes: Ccache,
    sccache_is_served_and_never_gets_wrong_bytes: Sccache,
    bazel_over_http_is_served_and_never_gets_wrong_bytes: Bazel,
    bazel_over_grpc_is_served_and_never_gets_wrong_bytes: BazelGrpc,
    nx_is_served_and_never_gets_wrong_bytes: Nx,
    turborepo_is_served_and_never_gets_wrong_bytes: Turborepo,
    metro_is_served_and_never_gets_wrong_bytes: Metro,
    moon_is_served_and_never_gets_wrong_bytes: Moon,
    go_is_served_and_never_gets_wrong_bytes: Go,
}
