//! The public behaviour of the crate: real keys, a real control plane on the loopback interface, a clock that is moved.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "the helpers of a test fail by panicking, like the tests"
)]

mod anonymous;
mod canary;
mod control_plane;
mod files;
mod jwt;
mod mint;
mod server;
mod world;
