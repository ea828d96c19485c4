//! The real binary, from outside: sockets in, answers out.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking, its helpers too"
)]

mod bazel;
mod blobs;
mod cacheprog;
mod crash;
mod digests;
mod doors;
mod engine;
mod library;
mod lifecycle;
mod modules;
mod node;
mod operations;
mod poisoning;
mod reapi;
mod sink;
mod small_protocols;
mod smuggling;
mod telling;
mod tools;
mod trust;
mod turborepo;
mod wire;
