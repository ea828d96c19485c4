//! What machines answer, what becomes of them when Scaleway wipes, reboots or removes them, and that they really join a cluster.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking, its helpers too"
)]

mod cluster;
mod follow;
mod harness;
mod power;
#[path = "../shared/mod.rs"]
mod shared;
mod wire;
