//! The Remote Execution API: gRPC on the port everything else is on.
//!
//! ```text
//! library.rs ──application/grpc──► respond ──► Method ──► one file per group of calls ──► Body
//!                                                │
//!                              message (framing, limits, budget)   call (scope, grants)   status (codes)
//! ```
//! Calls are dispatched by hand: the messages that matter are read in place and answers are written straight into the frames
//! that leave, which a generated server cannot do. Reflection, which is rare, is a generated server.
//!
//! What holds:
//! 1. Nothing is visible before its digest was verified; a call that fails leaves nothing behind but, for a while, the
//!    bytes of an upload that can be resumed.
//! 2. What `FindMissingBlobs` or an action hit vouches for is there, and stays for [`LEASE`].
//! 3. What a call holds in memory is reserved from the budget, or bounded by a constant.

mod action_cache;
pub mod actions;
mod batch;
mod body;
mod call;
mod called;
mod capabilities;
mod deadline;
mod egress;
mod find;
mod health;
mod message;
mod method;
mod metrics;
mod read;
mod reflection;
mod snapshot;
mod status;
mod sweep;
mod tree;
mod uploads;
mod write;

pub use body::Body;
pub use called::Answer;
pub use method::Method;
pub use sweep::sweep;

use crate::http::service::Service;
use call::Call;
use called::Called;
use deadline::Deadline;
use hyper::body::Incoming;
use metrics::Counters;
use reflection::Reflection;
use snapshot::Snapshots;
use status::Status;
use std::sync::OnceLock;
use std::time::Duration;
use uploads::Uploads;

/// How long what was vouched for is kept from eviction: longer than a build takes from its first question to its last answer.
pub const LEASE: Duration = Duration::from_hours(1);

/// What calls share.
#[derive(Debug, Default)]
pub struct Reapi {
    uploads: Uploads,
    snapshots: Snapshots,
    counters: Counters,
    reflection: Reflection,
}

impl Reapi {
    /// Labels and number of calls, for metrics.
    pub fn calls(&self) -> Vec<(String, u64)> {
        self.counters.lines()
    }
}

/// Answers a call. Errors are answers too.
pub async fn respond(
    parts: http::request::Parts,
    incoming: Incoming,
    service: &Service,
    stall: Duration,
) -> http::Response<Answer> {
    let method = Method::of(parts.uri.path());
    let mut called = Called::new(service, method, &parts);
    if method == Method::Reflection {
        return called.answer(service.shared.reapi.reflection.respond(parts, incoming).await);
    }
    let whose = OnceLock::new();
    let call = Call::new(service, &parts.headers, stall, &whose);
    let answer = match Deadline::of(&parts.headers) {
        Ok(None) => dispatch(method, &call, incoming).await,
        Ok(Some(deadline)) => deadline.keep(dispatch(method, &call, incoming)).await,
        Err(status) => Err(status),
    };
    called.about(whose.into_inner());
    called.answer(match answer {
        Ok(body) => body.into_response(),
        Err(status) => status.into_response(),
    })
}

async fn dispatch(method: Method, call: &Call<'_>, incoming: Incoming) -> Result<Body, Status> {
    if parts_are_compressed(call) {
        return Err(Status::unimplemented("compressed messages are not supported"));
    }
    match method {
        Method::Capabilities => return capabilities::get(call, incoming).await,
        Method::HealthCheck => return health::check(call, incoming).await,
        Method::HealthWatch => return health::watch(call, incoming).await,
        Method::Unknown | Method::Reflection => return Err(Status::unimplemented("unknown service or method")),
        _ => {}
    }
    if call.service.shared.lifecycle.is_draining() {
        return Err(Status::unavailable("server is draining"));
    }
    match method {
        Method::GetActionResult => action_cache::get(call, incoming).await,
        Method::UpdateActionResult => action_cache::update(call, incoming).await,
        Method::FindMissing => find::missing(call, incoming).await,
        Method::BatchRead => batch::read(call, incoming).await,
        Method::BatchUpdate => batch::update(call, incoming).await,
        Method::GetTree => tree::get(call, incoming).await,
        Method::Read => read::read(call, incoming).await,
        Method::Write => write::write(call, incoming).await,
        Method::QueryWriteStatus => write::query(call, incoming).await,
        _ => Err(Status::unimplemented("unknown service or method")),
    }
}

/// gRPC can compress messages; zstd of the protocol itself does it better, so we never agreed to it.
fn parts_are_compressed(call: &Call<'_>) -> bool {
    call.headers
        .get("grpc-encoding")
        .is_some_and(|encoding| encoding != "identity")
}
