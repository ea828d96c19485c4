//! `kura`: the build cache node.
//!
//! One binary, one node, everything on its own disk. The store is `russet-segstore`, trust is `russet-identity`; this crate is
//! the HTTP surface and the operations around them.
//!
//! - [`config`], [`cli`]: settings; the only place that reads the environment.
//! - [`scope`]: whose data a request is about, parsed once.
//! - [`http`]: what requests mean. [`http1`]: the hand-written engine that serves them fast.
//! - [`reapi`]: the Remote Execution API, over gRPC.
//! - [`blob`]: the store as handlers see it. [`multipart`]: uploads in parts. [`action`]: what an action result refers to.
//! - [`budget`], [`pressure`], [`lifecycle`]: overload and draining.
//! - [`metrics`], [`tools`], [`usage`], [`analytics`]: what is told to others.
//! - [`serve`], [`tls`]: sockets and threads. [`look`]: `kura inspect` and `kura verify`.
//! - [`cacheprog`]: the helper through which Go uses a node.

pub mod action;
pub mod analytics;
pub mod blob;
pub mod budget;
pub mod cacheprog;
pub mod cli;
pub mod config;
pub mod http;
pub mod http1;
pub mod lifecycle;
pub mod look;
pub mod metrics;
pub mod multipart;
pub mod pressure;
pub mod reapi;
pub mod scope;
pub mod serve;
pub mod tls;
pub mod tools;
pub mod usage;

/// The version, and the sources that it was built from.
pub const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "+", env!("RUSSET_BUILD_ID"));
