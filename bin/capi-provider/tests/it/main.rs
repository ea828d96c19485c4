//! The decisions about Macs, driven through a world that crashes, forgets and answers too late.
//!
//! `world` is Scaleway and Kubernetes as plain data, `replica` is a provider that does one read or write at a time, so that
//! any two can be interleaved and any one can die anywhere.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests, outside of test functions"
)]

mod linux;
mod replica;
mod world;

/// Cases that ever failed.
const ALWAYS: &str = include_str!("always.txt");

mod chaos;
mod crash;
mod lifecycle;
mod orphans;
