//! The provider against a real apiserver, real Cluster API core and the Scaleway emulator, under the rights of its chart.
//!
//! One cluster serves all tests; each has a namespace and an emulator of its own. Emulated time moves by hand.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::needless_pass_by_value,
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests stand outside of #[test] functions, where these lints take them for production code"
)]

mod dry_run;
mod fleet;
mod harness;
mod joiner;
mod life;
mod linux;
mod macs;
mod process;
mod waiting;
