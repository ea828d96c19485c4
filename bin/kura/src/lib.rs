//! `kura`: the build cache node.
//!
//! One binary, one node, everything on its own disk. The store is `russet-segstore`, trust is `russet-identity`; this crate is
//! the HTTP surface and the operations around them.
//!
//! - [`config`], [`cli`]: settings; the only place that reads the environment.
//! - [`scope`]: whose data a request is about, parsed once.
//! - [`http`]: what requests mean. [`http1`]: the hand-written engine that serves them fast.
//! - [`reapi`]: the Remote Execution API, over gRPC.
//! - [`blob`]: the store as handlers see it. [`multipart`]: uploads in parts.
//! - [`budget`], [`lifecycle`]: overload and draining. [`metrics`], [`usage`]: what is told to others.
//! - [`serve`], [`tls`]: sockets and threads. [`look`]: `kura inspect` and `kura verify`.

pub mod blob;
pub mod budget;
pub mod cli;
pub mod config;
pub mod http;
pub mod http1;
pub mod lifecycle;
pub mod look;
pub mod metrics;
pub mod multipart;
pub mod reapi;
pub mod scope;
pub mod serve;
pub mod tls;
pub mod usage;
