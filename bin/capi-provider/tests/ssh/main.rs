//! Setting up Macs over SSH: the bootstrapper of the provider on emulated Macs behind an emulated Scaleway.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking, its helpers too"
)]

mod harness;
mod life;
