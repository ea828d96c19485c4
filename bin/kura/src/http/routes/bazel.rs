//! Bazel's HTTP cache: `/bazel/{project}/ac/{hash}` and `/bazel/{project}/cas/{hash}`, or `/ac` and `/cas` at the root.
//!
//! The blobs are those of the Remote Execution API: what one protocol stored the other finds. A blob becomes visible only if its
//! bytes hash to its name. An action result must be one ([`crate::action`]), and is a hit only if all it names is there; that is
//! then kept for as long as a build may take ([`actions`]).
//! moon, in its HTTP mode, sends and wants results as JSON; they are kept as they are, under keys of their own.

use super::{ARTIFACT_MISSING, OCTETS, Protocol, Reading, Unverified, read};
use crate::action::{self, Invalid, Outline, SHA256_JSON};
use crate::blob::{self, Blobs, Hit, Kind};
use crate::http::body::Body;
use crate::http::check::Check;
use crate::http::head::{Head, Method};
use crate::http::receive::{Receive, target};
use crate::http::reply::{Error, Payload, Reply};
use crate::http::route::Route;
use crate::http::service::{Plan, Service};
use crate::reapi::actions::{self, Verdict};
use crate::tools::Event;
use bytes::{Bytes, BytesMut};
use russet_identity::Scope;
use russet_reapi::digest::{hash_of_hex, key};
use russet_reapi::{Function, result};
use std::borrow::Cow;

const BLOBS: Protocol = Protocol::tool(Route::BazelBlob, Kind::Cas);
const JSON: &str = "application/json";
/// SHA-256 of nothing. Everyone may assume that the empty blob is there.
const EMPTY: [u8; 32] = [
    0xe3, 0xb0, 0xc4, 0x42, 0x98, 0xfc, 0x1c, 0x14, 0x9a, 0xfb, 0xf4, 0xc8, 0x99, 0x6f, 0xb9, 0x24, 0x27, 0xae, 0x41,
    0xe4, 0x64, 0x9b, 0x93, 0x4c, 0xa4, 0x95, 0x99, 0x1b, 0x78, 0x52, 0xb8, 0x55,
];

/// An action result that is being sent to us.
#[derive(Debug)]
pub struct Result {
    namespace: Box<str>,
    hash: [u8; 32],
    form: Form,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Protobuf,
    Json,
}

impl Form {
    /// The form a field asks for, by what it begins with; lists of types beyond the first are a browser's habit.
    fn of(media: Option<&[u8]>) -> Self {
        let starts = media.and_then(|media| media.get(..JSON.len()));
        if starts.is_some_and(|start| start.eq_ignore_ascii_case(JSON.as_bytes())) {
            Self::Json
        } else {
            Self::Protobuf
        }
    }

    fn outline(self, bytes: &[u8]) -> std::result::Result<Outline, Invalid> {
        match self {
            Self::Protobuf => action::outline(bytes),
            Self::Json => action::outline_json(bytes),
        }
    }

    /// A stored result as one of the Remote Execution API; `None` if it is no result, which must not be taken for a success
    /// without outputs.
    fn result(self, bytes: &[u8]) -> Option<Cow<'_, [u8]>> {
        match self {
            Self::Protobuf => result::says_something(bytes).then_some(Cow::Borrowed(bytes)),
            Self::Json => Some(Cow::Owned(action::outline_json(bytes).ok()?.to_result())),
        }
    }

    fn key(self, hash: &[u8; 32]) -> [u8; 33] {
        let mut key = key(Function::Sha256, hash);
        if let (Self::Json, Some(first)) = (self, key.first_mut()) {
            *first = SHA256_JSON;
        }
        key
    }
}

fn hash(segment: &str) -> std::result::Result<[u8; 32], Error> {
    hash_of_hex(segment.as_bytes()).ok_or(Error::refused(400, "Invalid digest: expected 64 hexadecimal digits"))
}

pub(in crate::http) fn blob(
    service: &Service,
    head: &Head<'_>,
    segment: &str,
    scope: &Scope<'_>,
) -> std::result::Result<Plan, Error> {
    let hash = hash(segment)?;
    let key = key(Function::Sha256, &hash);
    if !head.method.reads() {
        return Ok(BLOBS.write(service, scope.namespace(), &key, Check::Sha256(hash), Box::default()));
    }
    if hash == EMPTY && !service.shared.blobs.contains(Kind::Cas, scope.namespace(), &key) {
        service.count(Route::BazelBlob, scope.namespace(), Event::Hit, 0);
        return Ok(Plan::Reply(Reply {
            payload: Payload::Document {
                content_type: OCTETS,
                body: Bytes::new(),
            },
            ..Reply::empty(200)
        }));
    }
    read(service, head, BLOBS.reading(), scope.namespace(), &key)
}

pub(in crate::http) fn action(
    service: &Service,
    head: &Head<'_>,
    segment: &str,
    scope: &Scope<'_>,
) -> std::result::Result<Plan, Error> {
    let hash = hash(segment)?;
    let namespace = scope.namespace();
    if head.method == Method::Put {
        return Ok(Plan::Receive(Receive::Action(Box::new(Result {
            namespace: namespace.into(),
            hash,
            form: Form::of(head.fields.content_type),
        }))));
    }
    let form = Form::of(head.fields.accept);
    let reading = Reading {
        route: Route::BazelAction,
        kind: Kind::Action,
        counted: Kind::Action,
        content_type: if form == Form::Json { JSON } else { OCTETS },
        missing: ARTIFACT_MISSING,
        enveloped: false,
    };
    let key = form.key(&hash);
    let Some(hit) = service.shared.blobs.find(Kind::Action, namespace, &key)? else {
        return read(service, head, reading, namespace, &key);
    };
    match in_memory(&service.shared.blobs, namespace, &key, &hit, form)? {
        Some(true) => read(service, head, reading, namespace, &key),
        Some(false) => Ok(Plan::Reply(reading.miss(service, namespace))),
        None => Ok(Plan::Receive(Receive::Look(Box::new(Look {
            form,
            key,
            found: Unverified::new(service, hit, reading, (namespace, &key), head),
        })))),
    }
}

/// An action result that was found, and must be looked into with more than memory.
#[derive(Debug)]
pub struct Look {
    form: Form,
    key: [u8; 33],
    found: Unverified,
}

/// Whether everything a result needs is there and kept, if memory alone can tell.
fn in_memory(
    blobs: &Blobs,
    namespace: &str,
    key: &[u8; 33],
    hit: &Hit,
    form: Form,
) -> std::result::Result<Option<bool>, blob::Error> {
    let Some(bytes) = hit.bytes() else { return Ok(None) };
    let Some(result) = form.result(bytes) else {
        return Ok(Some(false));
    };
    let verdict = actions::is_whole_in_memory(blobs, namespace, key, &result)?;
    Ok(verdict.map(|verdict| verdict == Verdict::Whole))
}

/// The same, from disk.
fn on_disk(
    blobs: &Blobs,
    namespace: &str,
    key: &[u8; 33],
    hit: Hit,
    form: Form,
) -> std::result::Result<Option<Hit>, blob::Error> {
    let Some(hit) = hit.verify()? else {
        return Ok(None);
    };
    let stored = hit.to_vec()?;
    let Some(result) = form.result(&stored) else {
        return Ok(None);
    };
    let verdict = actions::is_whole_on_disk(blobs, namespace, key, &result)?;
    Ok((verdict == Verdict::Whole).then_some(hit))
}

pub(in crate::http) async fn look(service: &Service, look: Look) -> Reply {
    let Look { form, key, found } = look;
    let blobs = service.shared.blobs.clone();
    let examine = move |hit, namespace: &str| on_disk(&blobs, namespace, &key, hit, form);
    found.check_with(service, examine).await
}

pub(in crate::http) async fn store<B: Body>(
    service: &Service,
    result: Result,
    body: &mut B,
) -> std::result::Result<Reply, Error> {
    let shared = &service.shared;
    let limit = action::MAX_RESULT;
    let expected = body.remaining().unwrap_or(limit as u64).min(limit as u64);
    let _held = shared.budget.reserve(expected).await?;
    let mut bytes = BytesMut::new();
    if !body.collect(&mut bytes, limit).await? {
        return Err(Error::TooLarge("Request body exceeded allowed size"));
    }
    let outline = result
        .form
        .outline(&bytes)
        .map_err(|_| Error::refused(400, "Body is not an action result"))?;
    let (blobs, namespace) = (shared.blobs.clone(), result.namespace.clone());
    let references = if outline.trees.is_empty() {
        action::references(&blobs, &namespace, &outline)?
    } else {
        // Trees are read from disk.
        tokio::task::spawn_blocking(move || action::references(&blobs, &namespace, &outline))
            .await
            .map_err(|_| Error::refused(500, "Storage failed"))??
    };
    let target = target(Kind::Action, &result.namespace, &result.form.key(&result.hash));
    let length = bytes.len() as u64;
    shared.blobs.put_referring(&target, bytes.into(), &references).await?;
    service.stored(Kind::Action, &target, length);
    service.count(Route::BazelAction, &target.namespace, Event::Stored, length);
    Ok(Reply::empty(200))
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_lc_rs::digest;

    #[test]
    fn the_empty_blob_has_its_name() {
        assert_eq!(digest::digest(&digest::SHA256, b"").as_ref(), EMPTY);
    }

    #[test]
    fn only_json_is_json() {
        for (media, form) in [
            (Some("application/json"), Form::Json),
            (Some("Application/JSON; charset=utf-8"), Form::Json),
            (Some("*/*"), Form::Protobuf),
            (Some("application/octet-stream"), Form::Protobuf),
            (None, Form::Protobuf),
        ] {
            assert_eq!(Form::of(media.map(str::as_bytes)), form, "{media:?}");
        }
    }
}
