//! The real binary, in temporary directories, with real parts.
//!
//! `faults` needs no cluster and takes moments. `lifecycle` starts one and walks it through everything that can happen to
//! it; it is one test because each start costs seconds and each step needs the one before.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking, its helpers too"
)]

mod faults;
mod fleet;
mod guests;
mod lifecycle;
mod linux;
mod rootless;
mod sandbox;
