//! Bazel's HTTP cache: `/bazel/{project}/ac/{hash}` and `/bazel/{project}/cas/{hash}`, or `/ac` and `/cas` at the root.
//!
//! The blobs are those of the Remote Execution API: what one protocol stored the other finds. A blob becomes visible only if its
//! bytes hash to its name. An action result must be one ([`crate::action`]), and is a miss as soon as a blob it names is gone.
//! moon, in its HTTP mode, sends and wants results as JSON; they are kept as they are, under keys of their own.

use super::{ARTIFACT_MISSING, OCTETS, Protocol, Reading, Unverified, read};
use crate::action::{self, Invalid, Outline, SHA256, SHA256_JSON};
use crate::blob::{self, Blobs, Hit, Kind};
use crate::http::body::Body;
use crate::http::check::Check;
use crate::http::head::{Head, Method};
use crate::http::receive::{Receive, target};
use crate::http::reply::{Error, Payload, Reply};
use crate::http::route::Route;
use crate::http::service::{Plan, Service};
use crate::tools::Event;
use bytes::{Bytes, BytesMut};
use russet_identity::Scope;

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

    fn key(self, hash: &[u8; 32]) -> [u8; 33] {
        action::key(if self == Self::Json { SHA256_JSON } else { SHA256 }, hash)
    }
}

fn hash(segment: &str) -> std::result::Result<[u8; 32], Error> {
    action::sha256(segment.as_bytes()).ok_or(Error::refused(400, "Invalid digest: expected 64 hexadecimal digits"))
}

pub(in crate::http) fn blob(
    service: &Service,
    head: &Head<'_>,
    segment: &str,
    scope: &Scope<'_>,
) -> std::result::Result<Plan, Error> {
    let hash = hash(segment)?;
    let key = action::key(SHA256, &hash);
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
        content_type: if form == Form::Json { JSON } else { OCTETS },
        missing: ARTIFACT_MISSING,
        enveloped: false,
    };
    let key = form.key(&hash);
    let Some(hit) = service.shared.blobs.find(Kind::Action, namespace, &key)? else {
        return read(service, head, reading, namespace, &key);
    };
    match in_memory(&service.shared.blobs, namespace, &hit, form) {
        Some(true) => read(service, head, reading, namespace, &key),
        Some(false) => Ok(Plan::Reply(reading.miss(service, namespace))),
        None => Ok(Plan::Receive(Receive::Look(Box::new(Look {
            form,
            found: Unverified::new(service, hit, reading, (namespace, &key), head),
        })))),
    }
}

/// An action result that was found, and must be looked into with more than memory.
#[derive(Debug)]
pub struct Look {
    form: Form,
    found: Unverified,
}

/// Whether everything a result needs is there, if memory alone can tell. Results are stored with references to all they need,
/// but another protocol may have stored this one without.
fn in_memory(blobs: &Blobs, namespace: &str, hit: &Hit, form: Form) -> Option<bool> {
    if hit.is_unverified() || hit.file().is_some() {
        return None;
    }
    let outline = form.outline(&hit.to_vec().ok()?);
    match outline {
        Ok(outline) if outline.trees.is_empty() => Some(action::is_whole(blobs, namespace, &outline.blobs)),
        Ok(_) => None,
        // What is no result must not be taken for a success without outputs.
        Err(_) => Some(false),
    }
}

/// The same, from disk.
fn on_disk(blobs: &Blobs, namespace: &str, hit: Hit, form: Form) -> std::result::Result<Option<Hit>, blob::Error> {
    let Some(hit) = hit.verify()? else {
        return Ok(None);
    };
    let Ok(outline) = form.outline(&hit.to_vec()?) else {
        return Ok(None);
    };
    let needed = action::needed(blobs, namespace, &outline)?;
    Ok(action::is_whole(blobs, namespace, &needed).then_some(hit))
}

pub(in crate::http) async fn look(service: &Service, look: Look) -> Reply {
    let Look { form, found } = look;
    let blobs = service.shared.blobs.clone();
    let examine = move |hit, namespace: &str| on_disk(&blobs, namespace, hit, form);
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
    service.stored(&target, length);
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

    /// Another protocol stores results without references; what they need is looked for when they are read.
    #[test]
    fn a_result_stored_without_references_is_looked_into() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path()).unwrap();
        let blobs = Blobs::open(dir.path(), Some(64 << 20), crate::config::Durability::ProcessCrash).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let message = |number: u8, body: &[u8]| [&[number << 3 | 2, u8::try_from(body.len()).unwrap()], body].concat();
        let put = |target: &crate::blob::Target, body: &[u8]| {
            runtime.block_on(blobs.put(target, body.to_vec())).unwrap();
        };
        let blob = |body: &[u8]| {
            let mut hash = [0; 32];
            hash.copy_from_slice(digest::digest(&digest::SHA256, body).as_ref());
            let name = hash
                .iter()
                .fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
            let encoded = [
                message(1, name.as_bytes()),
                vec![2 << 3, u8::try_from(body.len()).unwrap()],
            ]
            .concat();
            (action::key(SHA256, &hash), encoded)
        };
        let find = |key: &[u8]| blobs.find(Kind::Action, "p", key).unwrap().unwrap();
        let (file, file_digest) = blob(b"file");
        put(
            &target(Kind::Action, "p", b"flat"),
            &message(2, &message(2, &file_digest)),
        );
        let tree = message(1, &message(1, &message(2, &file_digest)));
        let (tree_key, tree_digest) = blob(&tree);
        put(
            &target(Kind::Action, "p", b"deep"),
            &message(3, &message(3, &tree_digest)),
        );
        put(&target(Kind::Cas, "p", &tree_key), &tree);
        let flat = || in_memory(&blobs, "p", &find(b"flat"), Form::Protobuf);
        let deep = || on_disk(&blobs, "p", find(b"deep"), Form::Protobuf).unwrap().is_some();
        assert_eq!((flat(), deep()), (Some(false), false));
        assert_eq!(
            in_memory(&blobs, "p", &find(b"deep"), Form::Protobuf),
            None,
            "trees are on disk"
        );
        put(&target(Kind::Cas, "p", &file), b"file");
        assert_eq!((flat(), deep()), (Some(true), true));
        put(&target(Kind::Action, "p", b"none"), b"no result");
        assert_eq!(in_memory(&blobs, "p", &find(b"none"), Form::Protobuf), Some(false));
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
