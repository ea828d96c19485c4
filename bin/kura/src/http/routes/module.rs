//! Modules, uploaded in parts: `start`, `part`, `complete`; then `HEAD` and `GET /api/cache/module/{id}`.
//!
//! A module is identified by category, hash and name; the id in the path carries nothing.

use super::{ARTIFACT_MISSING, OCTETS, Reading, read as read_blob};
use crate::blob::{Kind, Put};
use crate::http::body::Body;
use crate::http::head::{Head, Method};
use crate::http::receive::{Receive, target};
use crate::http::reply::{Error, Reply};
use crate::http::route::Route;
use crate::http::service::{Plan, Service};
use crate::multipart::{self, Assembly, Upload};
use crate::scope::Query;
use crate::tools::Event;
use bytes::BytesMut;
use russet_identity::Scope;
use std::sync::Arc;

/// Longest list of parts: ten thousand numbers and their commas.
const MAX_LIST: usize = 128 * 1024;

/// Lengths before values, so that no choice of values can spell another module's key.
fn key(query: &Query<'_>) -> Result<String, Error> {
    let (category, hash, name) = (query.category(), query.required("hash")?, query.required("name")?);
    Ok(format!("{}:{category}{}:{hash}{name}", category.len(), hash.len()))
}

pub(in crate::http) fn read(
    service: &Service,
    head: &Head<'_>,
    query: &Query<'_>,
    scope: &Scope<'_>,
) -> Result<Plan, Error> {
    let key = key(query)?;
    if head.method == Method::Head {
        let found = service
            .shared
            .blobs
            .contains(Kind::Module, scope.namespace(), key.as_bytes());
        return Ok(Plan::Reply(Reply::empty(if found { 204 } else { 404 })));
    }
    let reading = Reading {
        route: Route::Module,
        kind: Kind::Module,
        counted: Kind::Module,
        content_type: OCTETS,
        missing: ARTIFACT_MISSING,
        enveloped: false,
    };
    read_blob(service, head, reading, scope.namespace(), key.as_bytes())
}

pub(in crate::http) fn start(service: &Service, query: &Query<'_>, scope: &Scope<'_>) -> Result<Plan, Error> {
    let key = key(query)?;
    if service
        .shared
        .blobs
        .contains(Kind::Module, scope.namespace(), key.as_bytes())
    {
        return Ok(Plan::Reply(Reply::json(200, r#"{"upload_id":null}"#)));
    }
    let id = service.shared.uploads.start(scope.namespace(), &key)?;
    Ok(Plan::Reply(Reply::json(200, format!(r#"{{"upload_id":"{id}"}}"#))))
}

fn upload(service: &Service, query: &Query<'_>, scope: &Scope<'_>) -> Result<Arc<Upload>, Error> {
    let id = query.required("upload_id")?;
    // An upload belongs to the scope that began it; for everyone else it does not exist.
    Ok(service.shared.uploads.find(id, scope.namespace())?)
}

pub(in crate::http) fn part(service: &Service, query: &Query<'_>, scope: &Scope<'_>) -> Result<Plan, Error> {
    let number = query.required("part_number")?;
    let number = number
        .parse()
        .ok()
        .filter(|number| (1..=multipart::MAX_PARTS).contains(number));
    let number = number.ok_or(Error::refused(400, "Invalid part_number"))?;
    let upload = upload(service, query, scope)?;
    Ok(Plan::Receive(Receive::Part { upload, number }))
}

pub(in crate::http) fn complete(service: &Service, query: &Query<'_>, scope: &Scope<'_>) -> Result<Plan, Error> {
    let upload = upload(service, query, scope)?;
    Ok(Plan::Receive(Receive::Complete { upload }))
}

pub(in crate::http) async fn store_part<B: Body>(
    service: &Service,
    upload: &Arc<Upload>,
    number: u16,
    body: &mut B,
) -> Result<Reply, Error> {
    if body.remaining().is_some_and(|length| length > multipart::MAX_PART) {
        return Err(multipart::Error::PartTooLarge.into());
    }
    let _held = service.shared.budget.reserve(512 * 1024).await?;
    let mut part = service.shared.uploads.part(upload, number)?;
    loop {
        let chunk = body.chunk().await?;
        let count = chunk.len();
        if count == 0 {
            break;
        }
        part.write(chunk, service.shared.blobs.pace()).await?;
        body.consume(count);
    }
    part.finish()?;
    Ok(Reply::empty(204))
}

#[derive(serde::Deserialize)]
struct Parts {
    parts: Vec<u16>,
}

pub(in crate::http) async fn finish<B: Body>(
    service: &Service,
    upload: Arc<Upload>,
    body: &mut B,
) -> Result<Reply, Error> {
    let _held = service.shared.budget.reserve(MAX_LIST as u64).await?;
    let mut text = BytesMut::new();
    if !body.collect(&mut text, MAX_LIST).await? {
        return Err(Error::TooLarge("Request body exceeded allowed size"));
    }
    let listed: Parts = serde_json::from_slice(&text).map_err(|_| Error::refused(400, "Invalid list of parts"))?;
    let assembly = service.shared.uploads.assemble(&upload, &listed.parts)?;
    let length = assembly.length();
    match store(service, &upload, assembly).await {
        Ok(put) => {
            service.shared.uploads.freed(length);
            if put == Put::Created {
                let stored = target(Kind::Module, &upload.namespace, upload.key.as_bytes());
                service.stored(Kind::Module, &stored, length);
                service.count(Route::ModuleComplete, &upload.namespace, Event::Stored, length);
            }
            Ok(Reply::empty(204))
        }
        Err(error) => {
            service.shared.uploads.restore(&upload);
            Err(error)
        }
    }
}

/// Makes a blob of all parts. Up to 2 GiB are copied, which is not for a serving thread.
async fn store(service: &Service, upload: &Upload, assembly: Assembly) -> Result<Put, Error> {
    let target = target(Kind::Module, &upload.namespace, upload.key.as_bytes());
    let blobs = service.shared.blobs.clone();
    let task = tokio::task::spawn_blocking(move || {
        let mut writer = blobs.writer(&target, Some(assembly.length()))?;
        assembly.copy_into(&mut writer)?;
        let put = writer.commit()?;
        assembly.remove();
        Ok::<_, multipart::Error>(put)
    });
    Ok(task
        .await
        .map_err(|_| Error::refused(500, "Upload could not be assembled"))??)
}

impl From<multipart::Error> for Error {
    fn from(error: multipart::Error) -> Self {
        match error {
            multipart::Error::Unknown => Self::refused(404, "Upload not found"),
            multipart::Error::TooMany => Self::refused(503, "Too many open uploads"),
            multipart::Error::NoRoom => Self::refused(503, "Temporary storage budget exhausted"),
            multipart::Error::PartTooLarge => Self::TooLarge("Part exceeds 10MB limit"),
            multipart::Error::TotalTooLarge => Self::refused(422, "Upload exceeds the allowed total size"),
            multipart::Error::Mismatch => Self::refused(400, "Parts mismatch or missing parts"),
            multipart::Error::Store(error) => Self::Store(error),
            multipart::Error::Io { action, source } => {
                tracing::error!(error = %source, action, "an upload in parts failed");
                let full = matches!(
                    source.kind(),
                    std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded
                );
                if full {
                    Self::refused(503, "Disk is full")
                } else {
                    Self::refused(500, "Upload could not be stored")
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(query: &str) -> String {
        key(&Query::parse(query).unwrap()).unwrap()
    }

    #[test]
    fn no_two_modules_share_a_key() {
        assert_eq!(of("hash=h&name=n"), of("hash=h&name=n&cache_category=builds"));
        assert_ne!(of("hash=a&name=bc"), of("hash=ab&name=c"));
        let one = of("hash=a&name=b&cache_category=1%3Ax");
        assert_ne!(one, of("hash=x1%3Aa&name=b&cache_category=1%3A"));
        assert!(key(&Query::parse("hash=h").unwrap()).is_err());
    }
}
