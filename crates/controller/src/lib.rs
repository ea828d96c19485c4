//! The plumbing every Russet controller shares.
//!
//! A controller is a pure `desired()` between reads and writes. What surrounds it is the same everywhere, breaks in the
//! same ways, and therefore lives here once:
//!
//! ```text
//!   watch ─▶ runner ─▶ reconcile (yours) ─▶ apply ─▶ kube-apiserver
//!     ▲        │            │                 │
//!    scope   error        finalizer        leader (no write without the Lease)
//!    crds    backoff      conditions       compare (no write without a difference, no loss unreported)
//! ```
//!
//! - [`manager`] puts a process together: config, client, Lease, controllers, probes, shutdown.
//! - [`runner`] runs one controller: watches, caches, concurrency, retry by error class.
//! - [`apply`] writes: server-side apply with one field manager, pruning, read-back, shared objects, status.
//! - [`leader`] makes sure that at most one process acts.
//! - [`crds`] waits for kinds that are not served yet.
//!
//! Decisions are pure functions ([`leader::decide`], [`compare::differences`], [`backoff::delay`], [`runner::policy`]); the
//! shells around them read clocks and speak to the API server.

pub mod apply;
pub mod backoff;
pub mod compare;
pub mod conditions;
pub mod config;
pub mod crds;
pub mod duration;
pub mod error;
pub mod finalizer;
pub mod health;
pub mod leader;
pub mod manager;
pub mod metrics;
pub mod runner;
pub mod scope;
pub mod status;

pub use apply::{Applied, Applier, Children, Desired, Owner};
pub use config::{CommonArgs, Config};
pub use error::{Class, Classify};
pub use leader::Leadership;
pub use manager::{About, Component, Manager, launch};
pub use runner::{Cache, Outcome, Runner};
pub use scope::Scope;
