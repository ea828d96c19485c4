//! Public behaviour of the cluster library: processes with ordinary programs, the cluster with real parts.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "the exemption of tests does not reach the functions they share"
)]

mod capi;
mod control_plane;
mod supervisor;
mod support;
