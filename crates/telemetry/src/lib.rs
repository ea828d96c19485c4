//! What a Russet process says about itself: logs, metrics, and the types that keep secrets out of both.
//!
//! The crate never reads the environment. Filters, formats and names are arguments, because only the `config.rs` of a
//! binary knows where they come from.
//!
//! - [`log`]: tracing for people in a terminal, JSON everywhere else.
//! - [`metrics`]: one registry per process, encoded as OpenMetrics text.
//! - [`secret`]: [`Secret`], a value that can be used but not printed.
//! - `trace` (feature `otlp`): spans of requests, sent to a collector that may be slow or gone.
//! - [`scrub`]: [`Scrubber`], for text we did not write ourselves (the output of a child process).

pub mod log;
pub mod metrics;
pub mod scrub;
pub mod secret;
#[cfg(feature = "otlp")]
pub mod trace;

pub use log::{Format, Options, init};
pub use metrics::{BuildInfo, Metrics};
pub use scrub::Scrubber;
pub use secret::Secret;
