//! The real binary, from outside: sockets in, answers out.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking, its helpers too"
)]

mod blobs;
mod engine;
mod library;
mod lifecycle;
mod modules;
mod node;
mod operations;
mod reapi;
mod smuggling;
mod trust;
mod wire;
