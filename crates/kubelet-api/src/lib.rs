//! The kubelet API: what a kube-apiserver asks of a node on port 10250, as a library.
//!
//! ```text
//! kubectl ──► kube-apiserver ──TLS──► serve ──► request ──► auth (certificate or TokenReview, then SubjectAccessReview)
//!                                       │
//!                                       ├─ logs, pods, stats, metrics, health ───────────────► Backend
//!                                       └─ exec, attach, port-forward ─► session ─► spdy ────► Backend
//!                                                                           └─────► websocket ──┘
//! ```
//!
//! - [`Backend`] is the node behind it: Pods, their logs, processes and ports. It knows nothing of HTTP.
//! - [`request`] reads what is asked for, once.
//! - [`auth`] decides who may ask; anonymous callers may nothing.
//! - [`spdy`] is SPDY/3.1, which a v1.35 apiserver speaks to every kubelet and no crate offers. Written by hand, fuzzed.
//! - [`Server`] joins them. Memory per connection is bounded and every wait has a deadline.

pub mod auth;
mod backend;
mod refusal;
pub mod request;
mod serve;
mod session;
pub mod spdy;
pub mod stats;
mod stream;

pub use self::backend::{
    Backend, Check, ContainerRef, Duplex, Exec, Exit, Io, LogEntry, LogOptions, LogStream, Metrics, Page, PodRef,
    RunningPod,
};
pub use self::refusal::Refusal;
pub use self::serve::{Error, Limits, Options, Server, Serving, TlsError};
pub use self::stream::{Reader, Resizes, Size, Writer};
