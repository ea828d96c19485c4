//! The real binary, from outside: sockets in, answers out.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking, its helpers too"
)]

mod cacheprog;
mod crash;
mod doors;
mod engine;
mod library;
mod lifecycle;
mod modules;
mod node;
mod operations;
mod reapi;
mod sink;
mod telling;
mod tools;
mod trust;
mod turborepo;
