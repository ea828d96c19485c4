//! Linux machines whose provider dies, or whose calls fail, at any call: nothing is doubled, nothing is leaked.
//!
//! The provider is whole and runs in this process, against a real apiserver and the emulator. Servers join as soon as they are
//! up with a script, or when somebody runs it on them.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests stand outside of #[test] functions, where these lints take them for production code"
)]

#[path = "../crash/life.rs"]
mod life;

mod cases;
mod gate;
mod replica;
mod world;
