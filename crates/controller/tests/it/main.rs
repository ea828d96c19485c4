//! A small controller on the shared plumbing, as a process and in the test, against a real apiserver.
//!
//! One cluster serves all tests, each in a namespace of its own; tests that break a cluster start one.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::needless_pass_by_value,
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests stand outside of #[test] functions, where these lints take them for production code"
)]

mod apply;
mod crds;
mod leader;
mod rbac;
mod reconnect;
mod sample;
mod scale;
