//! Xcode's key-value store: `PUT /api/cache/keyvalue` and `GET /api/cache/keyvalue/{cas_id}`. The last write wins.
//!
//! A document is stored as the answer it will give, so reading one is a blob hit like any other.

use super::{Reading, read as read_blob};
use crate::blob::Kind;
use crate::http::body::Body;
use crate::http::head::Head;
use crate::http::receive::{Receive, target};
use crate::http::reply::{Error, Reply};
use crate::http::route::{self, MAX_KEY, Route};
use crate::http::service::{Plan, Service};
use crate::tools::Event;
use bytes::BytesMut;
use russet_identity::Scope;

#[derive(serde::Deserialize)]
struct Document {
    cas_id: String,
    entries: Vec<Entry>,
}

#[derive(serde::Deserialize, serde::Serialize)]
struct Entry {
    value: String,
}

#[derive(serde::Serialize)]
struct Answer<'a> {
    entries: &'a [Entry],
}

pub(in crate::http) fn read(
    service: &Service,
    head: &Head<'_>,
    segment: &str,
    scope: &Scope<'_>,
) -> Result<Plan, Error> {
    let key = route::key(segment)?;
    let reading = Reading {
        route: Route::KeyValueGet,
        kind: Kind::KeyValue,
        counted: Kind::KeyValue,
        content_type: "application/json",
        missing: r#"{"message":"Key-value entry not found"}"#,
        enveloped: false,
    };
    read_blob(service, head, reading, scope.namespace(), key.as_bytes())
}

pub(in crate::http) fn write(scope: &Scope<'_>) -> Plan {
    Plan::Receive(Receive::KeyValue {
        namespace: scope.namespace().into(),
    })
}

pub(in crate::http) async fn store<B: Body>(service: &Service, namespace: &str, body: &mut B) -> Result<Reply, Error> {
    let limit = service.shared.max_keyvalue;
    let _held = service
        .shared
        .budget
        .reserve(body.remaining().unwrap_or(limit as u64).min(limit as u64))
        .await?;
    let mut text = BytesMut::new();
    if !body.collect(&mut text, limit).await? {
        return Err(Error::TooLarge("Request body exceeded allowed size"));
    }
    let (key, answer) = translate(&text)?;
    let target = target(Kind::KeyValue, namespace, key.as_bytes());
    let length = answer.len() as u64;
    service.shared.blobs.put(&target, answer).await?;
    service.stored(Kind::KeyValue, &target, length);
    service.count(Route::KeyValuePut, namespace, Event::Stored, length);
    Ok(Reply::empty(204))
}

/// The key of a document and the answer it will give.
fn translate(text: &[u8]) -> Result<(String, Vec<u8>), Error> {
    let invalid = |_| Error::refused(400, "Invalid key-value document");
    let document: Document = serde_json::from_slice(text).map_err(invalid)?;
    if document.cas_id.is_empty() || document.cas_id.len() > MAX_KEY {
        return Err(Error::refused(400, "Invalid cas_id"));
    }
    let answer = Answer {
        entries: &document.entries,
    };
    Ok((document.cas_id, serde_json::to_vec(&answer).map_err(invalid)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_kept_as_its_answer() {
        let (key, answer) =
            translate(br#"{"cas_id":"k","extra":1,"entries":[{"value":"a\n"},{"value":"b","x":2}]}"#).unwrap();
        assert_eq!(key, "k");
        assert_eq!(answer, br#"{"entries":[{"value":"a\n"},{"value":"b"}]}"#);
    }

    #[test]
    fn what_is_no_document_is_refused() {
        for text in [
            &b"{"[..],
            b"[]",
            br#"{"entries":[]}"#,
            br#"{"cas_id":"","entries":[]}"#,
            br#"{"cas_id":1,"entries":[]}"#,
            b"\xff",
        ] {
            assert!(translate(text).is_err(), "{:?}", String::from_utf8_lossy(text));
        }
    }
}
