//! One file per protocol. Handlers translate: parse, call the store, let [`super::reply`] map what went wrong.

pub mod clean;
pub mod gradle;
pub mod keyvalue;
pub mod metro;
pub mod module;
pub mod nx;
pub mod probes;
pub mod xcode;

use super::digest;
use super::head::{Head, Method};
use super::range::{Range, none_match_names};
use super::receive::{Incoming, Receive, target};
use super::reply::{Error, Payload, Reply, Slice};
use super::service::{Plan, Service};
use crate::blob::{Hit, Kind};
use crate::metrics::Outcome;

/// What a blob protocol is made of, apart from its key.
struct Protocol {
    kind: Kind,
    limit: u64,
    created: u16,
    existing: u16,
}

const ARTIFACT_MISSING: &str = r#"{"message":"Artifact not found"}"#;
const OCTETS: &str = "application/octet-stream";

impl Protocol {
    /// Reads or begins to write the blob of that key.
    fn plan(&self, service: &Service, head: &Head<'_>, namespace: &str, key: &[u8]) -> Result<Plan, Error> {
        if head.method.reads() {
            return read(service, head, self.kind, namespace, key, OCTETS, ARTIFACT_MISSING);
        }
        // First write wins: what is there stays, and its body need not be sent again.
        if service.shared.blobs.contains(self.kind, namespace, key) {
            service.shard.write(self.kind, Outcome::Known, 0);
            return Ok(Plan::Reply(Reply::empty(self.existing)));
        }
        Ok(Plan::Receive(Receive::Blob(Incoming {
            target: target(self.kind, namespace, key),
            limit: self.limit,
            created: self.created,
            existing: self.existing,
        })))
    }
}

/// The answer to a read.
fn read(
    service: &Service,
    head: &Head<'_>,
    kind: Kind,
    namespace: &str,
    key: &[u8],
    content_type: &'static str,
    missing: &'static str,
) -> Result<Plan, Error> {
    let found = match service.shared.blobs.find(kind, namespace, key) {
        Ok(found) => found,
        Err(error) => {
            service.shard.read(kind, Outcome::Error, 0);
            return Err(error.into());
        }
    };
    let Some(hit) = found else {
        service.shard.read(kind, Outcome::Known, 0);
        return Ok(Plan::Reply(Reply::missing(missing)));
    };
    let unverified = hit.is_unverified();
    let mut reply = conditional(head, hit, content_type);
    let sent = match &reply.payload {
        Payload::Blob(slice) if !slice.described_only => slice.length,
        _ => 0,
    };
    service.shard.read(kind, Outcome::Ok, sent);
    if kind == Kind::Cas && reply.status == 200 {
        reply.digest = digest::of_key(key);
    }
    if sent > 0 {
        reply.receipt = Some(service.receipt(kind, namespace));
    }
    if unverified && sent > 0 {
        return Ok(Plan::Verify(Box::new(Unverified { reply, missing })));
    }
    Ok(Plan::Reply(reply))
}

/// An answer whose bytes have not been compared with their checksum since the process started.
#[derive(Debug)]
pub struct Unverified {
    reply: Reply,
    missing: &'static str,
}

impl Unverified {
    /// Compares. Large blobs take a while, so another thread does it; damaged bytes are a miss and never leave the node.
    pub async fn check(self) -> Reply {
        let Self { mut reply, missing } = self;
        let Payload::Blob(slice) = reply.payload else {
            return reply;
        };
        let Slice {
            hit,
            content_type,
            start,
            length,
            described_only,
        } = slice;
        match tokio::task::spawn_blocking(move || hit.verify()).await {
            Ok(Ok(Some(hit))) => {
                reply.payload = Payload::Blob(Slice {
                    hit,
                    content_type,
                    start,
                    length,
                    described_only,
                });
                reply
            }
            Ok(Ok(None)) => Reply::missing(missing),
            Ok(Err(error)) => Error::from(error).into(),
            Err(_) => Reply::message(500, "Storage failed"),
        }
    }
}

/// A hit, seen through the conditions of the request.
fn conditional(head: &Head<'_>, hit: Hit, content_type: &'static str) -> Reply {
    let fields = &head.fields;
    if fields
        .if_none_match
        .is_some_and(|value| none_match_names(value, hit.tag().as_str()))
    {
        return Reply {
            payload: Payload::Tag(hit.tag()),
            ..Reply::empty(304)
        };
    }
    // A range that belongs to another version is no range.
    let same = fields
        .if_range
        .is_none_or(|value| value == hit.tag().as_str().as_bytes());
    let range = if head.method == Method::Get && same {
        Range::of(fields.range, hit.length())
    } else {
        Range::Whole
    };
    let (status, start, length) = match range {
        Range::Whole => (200, 0, hit.length()),
        Range::Part { start, length } => (206, start, length),
        Range::Unsatisfiable => {
            return Reply {
                payload: Payload::Beyond(hit.length()),
                ..Reply::empty(416)
            };
        }
    };
    Reply {
        payload: Payload::Blob(Slice {
            hit,
            content_type,
            start,
            length,
            described_only: head.method == Method::Head,
        }),
        ..Reply::empty(status)
    }
}
