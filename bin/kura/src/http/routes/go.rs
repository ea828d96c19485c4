//! Go's build cache, as `kura cacheprog` speaks it: `/go/{project}/{action id}`.
//!
//! `PUT` carries what the action produced and, in `x-kura-output-id`, the SHA-256 that Go knows it by. The bytes are verified and
//! stored as a content-addressed blob, so that actions with the same output, and other tools with the same blob, share them;
//! the action itself is a small entry that names the blob, and is a miss as soon as that is gone. `GET` answers with the
//! bytes and the same field.

use super::read::read_with;
use super::{ARTIFACT_MISSING, OCTETS, Protocol, Reading};
use crate::blob::{Kind, Target};
use crate::http::body::Body;
use crate::http::check::Check;
use crate::http::head::Head;
use crate::http::receive::{Incoming, Receive, target};
use crate::http::reply::{Error, Reply};
use crate::http::route::Route;
use crate::http::service::{Plan, Service};
use crate::metrics::Outcome;
use crate::multipart::unix_ms;
use crate::tools::Event;
use russet_identity::Scope;
use russet_reapi::Function;
use russet_reapi::digest::{hash_of_hex, key};
use std::fmt::Write as _;

const PROTOCOL: Protocol = Protocol::tool(Route::Go, Kind::Go);
/// The field that carries an output id.
pub const OUTPUT_ID: &str = "x-kura-output-id";
/// The field that says when an action was stored, in Unix milliseconds.
pub const STORED_MS: &str = "x-kura-stored-ms";
/// Format of an entry: this byte, the output id, and the time.
const VERSION: u8 = 1;
const ENTRY: usize = 1 + 32 + 8;

/// What an action produced.
#[derive(Debug)]
pub struct Output {
    entry: Target,
    id: [u8; 32],
    blob: Incoming,
}

pub(in crate::http) fn plan(
    service: &Service,
    head: &Head<'_>,
    segment: &str,
    scope: &Scope<'_>,
) -> Result<Plan, Error> {
    let namespace = scope.namespace();
    let action = hash_of_hex(segment.as_bytes())
        .ok_or(Error::refused(400, "Invalid action id: expected 64 hexadecimal digits"))?;
    if head.method.reads() {
        return read(service, head, namespace, &action);
    }
    let id = head.fields.output_id.and_then(hash_of_hex).ok_or(Error::refused(
        400,
        "x-kura-output-id must hold the SHA-256 of the body",
    ))?;
    Ok(Plan::Receive(Receive::Go(Box::new(Output {
        entry: target(Kind::Go, namespace, &action),
        id,
        blob: Incoming {
            route: Route::Go,
            target: target(Kind::Cas, namespace, &key(Function::Sha256, &id)),
            counted: Kind::Go,
            limit: PROTOCOL.limit,
            created: PROTOCOL.created,
            existing: PROTOCOL.existing,
            oversize: PROTOCOL.oversize,
            check: Check::Sha256(id),
            envelope: Box::default(),
        },
    }))))
}

fn read(service: &Service, head: &Head<'_>, namespace: &str, action: &[u8; 32]) -> Result<Plan, Error> {
    let entry = match service.shared.blobs.find(Kind::Go, namespace, action) {
        Ok(entry) => entry,
        Err(error) => {
            service.shard.read(Kind::Go, Outcome::Error, 0);
            return Err(error.into());
        }
    };
    let mut bytes = [0; ENTRY];
    let parsed = match entry {
        Some(entry) if entry.length() == bytes.len() as u64 => {
            entry.read_at(0, &mut bytes)?;
            parse(&bytes)
        }
        _ => None,
    };
    let Some((id, stored)) = parsed else {
        service.shard.read(Kind::Go, Outcome::Known, 0);
        service.count(Route::Go, namespace, Event::Miss, 0);
        return Ok(Plan::Reply(Reply::missing(ARTIFACT_MISSING)));
    };
    let reading = Reading {
        route: Route::Go,
        kind: Kind::Cas,
        counted: Kind::Go,
        content_type: OCTETS,
        missing: ARTIFACT_MISSING,
        enveloped: false,
    };
    let fields = vec![(OUTPUT_ID, hex(&id)), (STORED_MS, stored.to_string())];
    read_with(service, head, reading, namespace, &key(Function::Sha256, &id), fields)
}

fn parse(bytes: &[u8; ENTRY]) -> Option<([u8; 32], u64)> {
    let (version, rest) = bytes.split_first()?;
    let (id, time) = rest.split_first_chunk::<32>()?;
    let time = u64::from_le_bytes(time.try_into().ok()?);
    (*version == VERSION).then_some((*id, time))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(64), |mut text, byte| {
        // Writing into a `String` cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

pub(in crate::http) async fn store<B: Body>(service: &Service, output: Output, body: &mut B) -> Result<Reply, Error> {
    let Output { entry, id, blob } = output;
    service.take_blob(blob, body).await?;
    let mut bytes = vec![VERSION];
    bytes.extend_from_slice(&id);
    bytes.extend_from_slice(&unix_ms().to_le_bytes());
    let reference = target(Kind::Cas, &entry.namespace, &key(Function::Sha256, &id));
    service.shared.blobs.put_referring(&entry, bytes, &[reference]).await?;
    Ok(Reply::empty(200))
}
