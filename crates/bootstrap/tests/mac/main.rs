//! Setting up Macs: the plan of `russet-bootstrap` on emulated Macs, over a real SSH connection.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::expect_used,
    reason = "helpers of tests, outside of test functions"
)]

mod builder;
mod cuts;
mod drift;
mod harness;
mod launchd;
mod life;
mod trouble;
