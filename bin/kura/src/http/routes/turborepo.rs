//! Turborepo: `/v8/artifacts/{hash}`, with the team in the query.
//!
//! Turborepo wants `x-artifact-tag` and `x-artifact-duration` back as it sent them; they are stored in an envelope in front of the
//! artifact. With a signature key the tag of each upload is checked, so that nobody without the key can store an artifact that
//! clients would believe.

use super::{ARTIFACT_MISSING, OCTETS, Protocol, Reading, read};
use crate::blob::{Envelope, Kind};
use crate::http::body::Body;
use crate::http::check::{Check, Signature};
use crate::http::head::Head;
use crate::http::receive::Receive;
use crate::http::reply::{Error, Payload, Reply};
use crate::http::route::Route;
use crate::http::service::{Plan, Service};
use crate::scope::Query;
use aws_lc_rs::hmac;
use bytes::BytesMut;
use russet_identity::Scope;
use russet_telemetry::Secret;

const PROTOCOL: Protocol = Protocol::tool(Route::Turbo, Kind::Turborepo);
/// Numbers of the envelope's fields. They are on disk and never change.
const TAG: u8 = 1;
const DURATION: u8 = 2;
/// Longest tag; Turborepo's have 44 characters.
const MAX_TAG: usize = 512;
/// Longest list of hashes, and most hashes in it.
const MAX_QUERY: usize = 1024 * 1024;
const MAX_HASHES: usize = 4096;

/// The key artifacts are signed with.
pub struct SignatureKey(hmac::Key);

impl SignatureKey {
    /// The key as clients have it in `TURBO_REMOTE_CACHE_SIGNATURE_KEY`.
    pub fn new(secret: &Secret<String>) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, secret.expose().as_bytes()))
    }
}

impl std::fmt::Debug for SignatureKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SignatureKey([redacted])")
    }
}

fn reading() -> Reading {
    Reading {
        route: Route::Turbo,
        kind: Kind::Turborepo,
        counted: Kind::Turborepo,
        content_type: OCTETS,
        missing: ARTIFACT_MISSING,
        enveloped: true,
    }
}

/// Turborepo's hashes are hexadecimal; other clients of its API use other short words.
fn is_hash(text: &str) -> bool {
    (1..=128).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

pub(in crate::http) fn plan(
    service: &Service,
    head: &Head<'_>,
    hash: &str,
    query: &Query<'_>,
    scope: &Scope<'_>,
) -> Result<Plan, Error> {
    if !is_hash(hash) {
        return Err(Error::refused(400, "Invalid artifact hash"));
    }
    if head.method.reads() {
        return read(service, head, reading(), scope.namespace(), hash.as_bytes());
    }
    let mut envelope = Envelope::default();
    if let Some(tag) = head.fields.artifact_tag {
        if tag.len() > MAX_TAG || !tag.iter().all(u8::is_ascii_graphic) {
            return Err(Error::refused(400, "Invalid x-artifact-tag"));
        }
        envelope.add(TAG, tag);
    }
    if let Some(duration) = head.fields.artifact_duration {
        if duration.is_empty() || duration.len() > 20 || !duration.iter().all(u8::is_ascii_digit) {
            return Err(Error::refused(400, "Invalid x-artifact-duration"));
        }
        envelope.add(DURATION, duration);
    }
    let check = match &service.shared.turborepo {
        None => Check::Nothing,
        Some(key) => signature(key, head, query, hash)?,
    };
    let envelope = envelope.encode().into();
    Ok(PROTOCOL.write(service, scope.namespace(), hash.as_bytes(), check, envelope))
}

fn signature(key: &SignatureKey, head: &Head<'_>, query: &Query<'_>, hash: &str) -> Result<Check, Error> {
    let tag = head.fields.artifact_tag.ok_or(Error::refused(
        403,
        "Artifact is not signed: set remoteCache.signature in turbo.json",
    ))?;
    let signature = Signature::new(&key.0, tag, query.team_id(), hash);
    let signature = signature.ok_or(Error::refused(400, "Invalid x-artifact-tag"))?;
    Ok(Check::Signature(Box::new(signature)))
}

/// Adds to an answer what was stored with the artifact.
pub(super) fn describe(reply: &mut Reply, envelope: &Envelope) {
    if !matches!(reply.payload, Payload::Blob(_) | Payload::Tag(_)) {
        return;
    }
    for (number, name) in [(TAG, "x-artifact-tag"), (DURATION, "x-artifact-duration")] {
        if let Some(value) = text(envelope, number) {
            reply.more.push((name, value.into()));
        }
    }
}

fn text(envelope: &Envelope, number: u8) -> Option<String> {
    envelope
        .get(number)
        .and_then(|value| std::str::from_utf8(value).ok())
        .map(ToOwned::to_owned)
}

pub(in crate::http) fn status() -> Plan {
    Plan::Reply(Reply::json(200, r#"{"status":"enabled"}"#))
}

/// What Turborepo says about its own hits is taken and dropped: the node counts for itself.
pub(in crate::http) fn events() -> Plan {
    Plan::Reply(Reply::json(200, "{}"))
}

/// Names in the answer what Turborepo will send, without which it leaves its token out.
pub(super) fn preflight(reply: &mut Reply) {
    reply.more.extend([
        ("access-control-allow-origin", "*".into()),
        ("access-control-allow-methods", "GET, HEAD, POST, PUT, OPTIONS".into()),
        (
            "access-control-allow-headers",
            "Authorization, Content-Type, User-Agent, x-artifact-duration, x-artifact-tag, x-artifact-sha, \
             x-artifact-dirty-hash, x-artifact-client-ci, x-artifact-client-interactive"
                .into(),
        ),
    ]);
}

pub(in crate::http) fn query(scope: &Scope<'_>) -> Plan {
    Plan::Receive(Receive::Query {
        namespace: scope.namespace().into(),
    })
}

#[derive(serde::Deserialize)]
struct Hashes {
    hashes: Vec<String>,
}

/// `POST /v8/artifacts`: what is known about each of some hashes; `null` for a miss.
pub(in crate::http) async fn answer<B: Body>(service: &Service, namespace: &str, body: &mut B) -> Result<Reply, Error> {
    let _held = service.shared.budget.reserve(MAX_QUERY as u64).await?;
    let mut text = BytesMut::new();
    if !body.collect(&mut text, MAX_QUERY).await? {
        return Err(Error::TooLarge("Request body exceeded allowed size"));
    }
    let asked: Hashes = serde_json::from_slice(&text).map_err(|_| Error::refused(400, "Invalid list of hashes"))?;
    if asked.hashes.len() > MAX_HASHES || !asked.hashes.iter().all(|hash| is_hash(hash)) {
        return Err(Error::refused(400, "Invalid list of hashes"));
    }
    let (blobs, namespace) = (service.shared.blobs.clone(), namespace.to_owned());
    // Envelopes are read from disk, some of them verified first.
    let answers = tokio::task::spawn_blocking(move || {
        let describe = |hash: &String| {
            let hit = blobs.find(Kind::Turborepo, &namespace, hash.as_bytes())?;
            let Some(mut hit) = hit.map(crate::blob::Hit::verify).transpose()?.flatten() else {
                return Ok((hash.clone(), serde_json::Value::Null));
            };
            let Some(envelope) = hit.open_envelope()? else {
                return Ok((hash.clone(), serde_json::Value::Null));
            };
            let duration: u64 = self::text(&envelope, DURATION)
                .and_then(|text| text.parse().ok())
                .unwrap_or(0);
            let mut about = serde_json::json!({ "size": hit.length(), "taskDurationMs": duration });
            if let (Some(tag), Some(about)) = (self::text(&envelope, TAG), about.as_object_mut()) {
                about.insert("tag".to_owned(), tag.into());
            }
            Ok((hash.clone(), about))
        };
        asked
            .hashes
            .iter()
            .map(describe)
            .collect::<Result<serde_json::Map<_, _>, crate::blob::Error>>()
    });
    let answers = answers.await.map_err(|_| Error::refused(500, "Storage failed"))??;
    Ok(Reply::json(200, serde_json::Value::Object(answers).to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_short_words() {
        for good in ["0123456789abcdef", "a", "A-b_9"] {
            assert!(is_hash(good), "{good}");
        }
        for bad in ["", "..", "a/b", "a%2e", "a b", &"a".repeat(129)] {
            assert!(!is_hash(bad), "{bad}");
        }
    }

    #[test]
    fn a_key_is_not_printed() {
        let key = SignatureKey::new(&Secret::new("hidden".to_owned()));
        assert_eq!(format!("{key:?}"), "SignatureKey([redacted])");
    }
}
