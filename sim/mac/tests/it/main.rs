//! What machines answer, and what becomes of them when Scaleway wipes, reboots or removes them. That they really join a
//! cluster is shown in e2e/tests/it/sim_mac.rs.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking, its helpers too"
)]

mod follow;
mod harness;
mod power;
#[path = "../shared/mod.rs"]
mod shared;
mod wire;
