//! The join program run in a scratch root, and the SSH client against servers that behave badly.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::expect_used,
    reason = "helpers of tests, outside of test functions"
)]

mod join;
mod parts;
mod ssh;
mod ssh_server;
mod sshd;
mod waiting;
