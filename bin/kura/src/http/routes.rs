//! One file per protocol. Handlers translate: parse, call the store, let [`super::reply`] map what went wrong.

pub mod bazel;
pub mod ccache;
pub mod clean;
pub mod generic;
pub mod go;
pub mod gradle;
pub mod keyvalue;
pub mod maven;
pub mod metro;
pub mod module;
pub mod nx;
pub mod probes;
mod read;
pub mod sccache;
pub mod turborepo;
pub mod xcode;

pub use read::Unverified;
use read::{Reading, read};

use super::check::Check;
use super::head::Head;
use super::receive::{Incoming, Oversize, Receive, target};
use super::reply::{Error, Reply};
use super::route::Route;
use super::service::{Plan, Service};
use crate::blob::Kind;
use crate::metrics::Outcome;
use crate::tools::Event;

/// What a blob protocol is made of, apart from its key.
struct Protocol {
    route: Route,
    kind: Kind,
    limit: u64,
    created: u16,
    existing: u16,
    oversize: Oversize,
}

const ARTIFACT_MISSING: &str = r#"{"message":"Artifact not found"}"#;
const OCTETS: &str = "application/octet-stream";
/// Largest body on the tools' routes.
const LARGE: u64 = 2 * 1024 * 1024 * 1024;

impl Protocol {
    /// A build tool's protocol: a stored body is a 200, the one answer to a write that every tool accepts.
    const fn tool(route: Route, kind: Kind) -> Self {
        Self {
            route,
            kind,
            limit: LARGE,
            created: 200,
            existing: 200,
            oversize: Oversize::Refuse,
        }
    }

    fn reading(&self) -> Reading {
        Reading {
            route: self.route,
            kind: self.kind,
            counted: self.kind,
            content_type: OCTETS,
            missing: ARTIFACT_MISSING,
            enveloped: false,
        }
    }

    /// Reads or begins to write the blob of that key.
    fn plan(&self, service: &Service, head: &Head<'_>, namespace: &str, key: &[u8]) -> Result<Plan, Error> {
        if head.method.reads() {
            return read(service, head, self.reading(), namespace, key);
        }
        Ok(self.write(service, namespace, key, Check::Nothing, Box::default()))
    }

    /// Begins to write: the body must pass the check, and an envelope goes in front of it.
    fn write(&self, service: &Service, namespace: &str, key: &[u8], check: Check, envelope: Box<[u8]>) -> Plan {
        // Of an immutable kind the first write wins: what is there stays, and its body need not be sent again.
        if !self.kind.stored().is_mutable() && service.shared.blobs.contains(self.kind, namespace, key) {
            service.shard.write(self.kind, Outcome::Known, 0);
            service.count(self.route, namespace, Event::Known, 0);
            return Plan::Reply(Reply::empty(self.existing));
        }
        Plan::Receive(Receive::Blob(Incoming {
            route: self.route,
            target: target(self.kind, namespace, key),
            counted: self.kind,
            limit: self.limit,
            created: self.created,
            existing: self.existing,
            oversize: self.oversize,
            check,
            envelope,
        }))
    }
}

impl Service {
    /// Counts a request for the tool that uses the route.
    pub(in crate::http) fn count(&self, route: Route, namespace: &str, event: Event, bytes: u64) {
        if let Some(tool) = route.tool() {
            self.shared.tools.record(tool, namespace, event, bytes);
        }
    }
}

/// What a route can do, for who asks before sending credentials.
pub(in crate::http) fn options(route: Route) -> Reply {
    let mut reply = Reply::empty(200);
    reply.extra = Some(("allow", route.allow()));
    match route {
        Route::Sccache => reply.more.push(("dav", "1".into())),
        Route::Turbo | Route::TurboStatus | Route::TurboEvents | Route::TurboQuery => turborepo::preflight(&mut reply),
        _ => {}
    }
    reply
}
